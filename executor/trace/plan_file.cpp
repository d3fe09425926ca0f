#include "trace/plan_file.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "trace/json_line.hpp"
#include "traces/trace.hpp"

namespace delta::executor {
namespace {

constexpr const char* whole_plan = "a whole plan: lines of JSON, the first with the key delta_plan";
constexpr std::int64_t version = 1;

std::uint32_t number(std::int64_t value, std::string_view key) {
  if (value < 0 || value >= std::numeric_limits<std::uint32_t>::max())
    throw trace_fault{std::string(key) + " " + std::to_string(value), "a number of 32 bits"};
  return static_cast<std::uint32_t>(value);
}

/// Reads line by line.
class plan_reader {
 public:
  void line(std::string_view text) {
    in_.start(text);
    in_.enter_object();
    begun_ ? absence() : header();
    in_.finish();
  }
  /// Behind the last line.
  offline_plan finish() {
    if (!begun_) throw trace_fault{"empty", whole_plan};
    if (expected_ && *expected_ != plan_.absences.size())
      throw trace_fault{std::to_string(plan_.absences.size()) + " absences",
                        std::to_string(*expected_) + " by the first line: the file was cut off"};
    return std::move(plan_);
  }

 private:
  void header() {
    bool is_plan = false;
    std::optional<std::uint32_t> operators;
    for (std::string_view key; in_.next_key(key);) {
      if (key == "delta_plan") {
        if (const std::int64_t v = in_.integer(); v != version)
          throw trace_fault{"version " + std::to_string(v), "version 1"};
        is_plan = true;
      } else if (key == "operators") {
        operators = number(in_.integer(), "operators");
      } else if (key == "absences") {
        expected_ = number(in_.integer(), "absences");
      } else {
        in_.skip();
      }
    }
    if (!is_plan) throw trace_fault{"a first line without the key delta_plan", whole_plan};
    if (!operators) throw trace_fault{"no operators", "how many operators the step has"};
    plan_.operators = *operators;
    begun_ = true;
  }
  void absence() {
    constexpr std::array<std::string_view, 4> keys{"made_by", "output", "from", "to"};
    std::array<std::optional<std::uint32_t>, 4> given;
    std::optional<bool> offloaded;
    for (std::string_view key; in_.next_key(key);) {
      const auto at = std::find(keys.begin(), keys.end(), key);
      if (at != keys.end()) {
        given[static_cast<std::size_t>(at - keys.begin())] = number(in_.integer(), key);
      } else if (key == "how") {
        const std::string_view how = in_.string();
        if (how != "offload" && how != "evict")
          throw trace_fault{"unknown way " + quoted(how), "offload or evict"};
        offloaded = how == "offload";
      } else {
        in_.skip();
      }
    }
    for (std::size_t i = 0; i < keys.size(); ++i)
      if (!given[i]) throw trace_fault{"no " + std::string(keys[i]), "a number"};
    if (!offloaded) throw trace_fault{"no how", "offload or evict"};
    const offline_plan::absence a{*given[0], *given[1], *given[2], *given[3], *offloaded};
    if (a.made_by > a.from || a.from >= a.to || a.to >= plan_.operators)
      throw trace_fault{
          "made by " + std::to_string(a.made_by) + ", away from " + std::to_string(a.from) +
              " to " + std::to_string(a.to),
          "operators in that order, the last below " + std::to_string(plan_.operators)};
    plan_.absences.push_back(a);
  }

  json_line in_;
  bool begun_ = false;
  std::optional<std::uint32_t> expected_;
  offline_plan plan_;
};

}  // namespace

offline_plan parse_plan(std::string_view text, std::string_view name) {
  plan_reader reader;
  std::uint64_t line = 0;
  try {
    while (!text.empty()) {
      ++line;
      const auto end = text.find('\n');
      reader.line(text.substr(0, end));
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    return reader.finish();
  } catch (const trace_fault& fault) {
    throw bad_trace(name, line, fault.wrong.c_str(), fault.expected.c_str());
  }
}

offline_plan read_plan(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto fail = [&](const char* what) { throw bad_trace(path.string(), 0, what, whole_plan); };
  if (!exists(path, ignored)) fail("there is no such file");
  if (!is_regular_file(path, ignored)) fail("it is no regular file");
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) fail("it can't be read");
  return parse_plan(text, path.string());
}

}  // namespace delta::executor
