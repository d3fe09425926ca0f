#include "cli/command_line.hpp"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <map>
#include <utility>

namespace delta::executor {

void reject(std::string_view flag, std::string_view wrong, std::string_view allowed) {
  std::string line(flag);
  line.append(": ").append(wrong).append("; allowed: ").append(allowed);
  const auto breaks_the_line = [](char c) {
    return static_cast<unsigned char>(c) < ' ' || c == 0x7f;
  };
  std::ranges::replace_if(line, breaks_the_line, '?');
  throw usage_error(line);
}

struct command_line::parser {
  CLI::App app;
  std::string group;
  std::map<std::string, std::string> values;
  std::map<std::string, bool> switches;
  std::map<std::string, std::vector<std::string>> lists;

  explicit parser(const std::string& program) : app("", program) {
    app.allow_extras();  // reported by split(), in our own form
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.get_formatter()->column_width(34);
    app.get_formatter()->label("OPTIONS", "FLAGS");
    app.get_formatter()->label("Positionals", "Arguments");
    app.set_help_flag();
  }

  /// CLI11's messages begin with the flag, or name it where they end.
  static std::string name_in(const CLI::ParseError& error) {
    const std::string text = error.what();
    const auto begin = text.find("--");
    if (begin == std::string::npos) return "the command line";
    return text.substr(begin, text.find_first_of(": =", begin) - begin);
  }
};

command_line::command_line(const std::string& program)
    : parser_(std::make_unique<parser>(program)) {}

command_line::~command_line() = default;

void command_line::group(std::string heading) {
  parser_->group = std::move(heading);
}

void command_line::value(const std::string& flag, const std::string& type,
                         const std::string& text) {
  parser_->app.add_option(flag, parser_->values[flag], text)
      ->type_name(type)
      ->group(parser_->group);
}

void command_line::flag(const std::string& names, const std::string& text) {
  const auto begin = names.find("--");
  parser_->app.add_flag(names, parser_->switches[names.substr(begin)], text)->group(parser_->group);
}

void command_line::list(const std::string& name, const std::string& type, const std::string& text) {
  parser_->app.add_option(name, parser_->lists[name], text)
      ->type_name(type)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1, -1)
      ->group(parser_->group);
}

void command_line::split(int argc, const char* const* argv) {
  CLI::App& app = parser_->app;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ArgumentMismatch& error) {
    reject(parser::name_in(error), "needs a value", "the flag followed by its value, see --help");
  } catch (const CLI::ParseError& error) {
    reject(parser::name_in(error), "takes no value", "the flag alone");
  }
  const auto unknown = app.remaining();
  if (unknown.empty()) return;
  const std::string& first = unknown.front();
  if (!first.starts_with('-')) {
    reject("'" + first + "'", "no flag that takes it stands before it",
           "flags, each followed by its value where it takes one; see --help");
  }
  std::string all;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty()) continue;  // what is given without a flag
    all.append(all.empty() ? "--" : ", --").append(option->get_lnames().front());
  }
  reject(first.substr(0, first.find('=')), "unknown flag", all);
}

bool command_line::has(const std::string& flag) const {
  const auto found = parser_->switches.find(flag);
  return found == parser_->switches.end() ? parser_->app.count(flag) > 0 : found->second;
}

std::string_view command_line::text(const std::string& flag) const {
  return parser_->values.at(flag);
}

const std::vector<std::string>& command_line::values(const std::string& name) const {
  return parser_->lists.at(name);
}

std::string command_line::flags() const {
  std::string text = parser_->app.help();
  while (text.find("\n\n\n") != std::string::npos) text.erase(text.find("\n\n\n"), 1);
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

}  // namespace delta::executor
