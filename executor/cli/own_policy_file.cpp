#include "cli/own_policy_file.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "cli/command_line.hpp"
#include "cli/option_values.hpp"
#include "own/own_policies.hpp"
#include "peers/peer_names.hpp"

extern char** environ;

namespace delta::executor {
namespace {

namespace fs = std::filesystem;

const fs::path delta_headers = DELTA_INCLUDE_DIR;
const fs::path testing_headers = DELTA_TESTING_DIR;
const fs::path engine = DELTA_ENGINE_DIR;
const fs::path engine_headers = engine / "include", own_headers = engine / "own";
constexpr std::size_t most_errors = 5;  // of the compiler's own that are shown

/// A folder that goes with all that is in it.
class temporary_folder {
 public:
  temporary_folder() {
    std::string name = fs::temp_directory_path() / "delta-policy-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr)
      throw std::runtime_error("no temporary folder " + name + ": " +
                               std::generic_category().message(errno));
    path_ = name;
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  [[nodiscard]] const fs::path& path() const noexcept { return path_; }

 private:
  fs::path path_;
};

bool is_identifier(std::string_view name) {
  const auto fits = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
         std::ranges::all_of(name, fits);
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Runs a program, with what it prints in a file. True: it has ended well.
bool run(const std::vector<std::string>& command, const fs::path& printed) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  // posix_spawn does not write to them.
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, STDERR_FILENO, printed.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  const int failed =
      ::posix_spawnp(&child, arguments.front(), &files, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  if (failed != 0)
    throw std::runtime_error("--policy-file: there is no C++ compiler " +
                             in_quotes(command.front()) +
                             ": install g++ 12 or newer, or name one in CXX");
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "waitpid");
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void add(std::vector<std::string>& lines, const std::string& line) {
  if (std::ranges::find(lines, line) == lines.end()) lines.push_back(line);
}

/// What the compiler has printed, in sentences: delta's own, of the static assertions, and errors
/// in the user's files. What follows from them in delta's headers is left out.
std::vector<std::string> what_is_wrong(const std::string& output, const own_policy_file& policy,
                                       const fs::path& source) {
  static const std::regex error(R"(^([^\n:]+):(\d+):(?:\d+:)? (?:fatal )?error: (.*)$)");
  static const std::regex assertion("static assertion failed(?: due to requirement '.*?')?: (.*)$");
  std::vector<std::string> sentences, within, others;
  bool unnamed = false, uncalled = false;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::smatch found, said;
    if (!std::regex_match(line, found, error)) continue;
    const std::string text = found[3];
    const fs::path file = found[1].str();
    const bool ours = file.native().starts_with(delta_headers.native()) ||
                      file.native().starts_with(engine.native());
    if (file == source)
      (found[2] == "1" ? unnamed : uncalled) = true;
    else if (std::regex_search(text, said, assertion))
      add(sentences, said[1]);
    else
      add(ours ? others : within, line);
  }
  // A header with an error in it may lack the name because of that.
  if (within.size() > most_errors) within.resize(most_errors);
  sentences.insert(sentences.end(), within.begin(), within.end());
  const std::string quoted = in_quotes(policy.name);
  if (within.empty() && unnamed)
    return {"it has neither a struct nor a function " + quoted + " in the global namespace"};
  if (within.empty() && uncalled)
    return {policy.name +
            "() does not compile: it is a struct that is made without arguments, or "
            "a function that is called without arguments"};
  if (!sentences.empty()) return sentences;
  if (others.size() > most_errors) others.resize(most_errors);
  if (others.empty()) others.push_back("the compiler has failed: " + output.substr(0, 500));
  return others;
}

}  // namespace

own_policy_file own_policy_file_of(std::string_view flag, std::string_view text) {
  const std::string form =
      "FILE:NAME, a C++ header and the struct or function in it that is the policy, such as "
      "mine.hpp:mine";
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos || !is_identifier(text.substr(colon + 1)))
    reject(flag, in_quotes(text) + " is not FILE:NAME", form);
  own_policy_file policy{text.substr(0, colon), std::string(text.substr(colon + 1))};
  std::error_code none_such;
  if (!fs::is_regular_file(policy.header, none_such))
    reject(flag, "there is no file " + in_quotes(policy.header.string()), form);
  if (std::ranges::find(all_policies, std::string_view(policy.name), &preset::name) !=
      all_policies.end())
    reject(flag, in_quotes(policy.name) + " is a policy of delta's", "another name");
  return policy;
}

void load(const own_policy_file& policy) {
  if (!fs::exists(own_headers / "own_policy.hpp") || !fs::exists(delta_headers / "delta"))
    throw std::runtime_error("--policy-file: delta's headers are not in " + delta_headers.string() +
                             " any more: build this program in the clone that has them");
  const temporary_folder folder;
  const fs::path source = folder.path() / "policy.cpp", library = folder.path() / "policy.so",
                 printed = folder.path() / "printed";
  // `using` finds what the header has of that name, be it a struct or a function.
  std::ofstream(source) << "namespace { using ::" << policy.name << "; }\nDELTA_OWN_POLICY("
                        << policy.name << ")\n";
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment
  const char* const named = std::getenv("CXX");
  std::vector<std::string> command = words_of(named != nullptr && *named != '\0' ? named : "c++");
  if (command.empty()) command = {"c++"};
  // Headers as the system's: no warnings in them.
  command.insert(command.end(),
                 {"-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-shared", "-fvisibility=hidden",
                  "-fvisibility-inlines-hidden", "-fdiagnostics-color=never"});
  for (const fs::path& headers : {delta_headers, testing_headers, engine_headers, own_headers})
    command.insert(command.end(), {"-isystem", headers.string()});
  command.insert(command.end(),
                 {"-include", "own_policy.hpp", "-include", fs::absolute(policy.header).string(),
                  "-o", library.string(), source.string()});
  if (!run(command, printed)) {
    const auto wrong = what_is_wrong(text_of(printed), policy, source);
    std::string text = "--policy-file: " + policy.header.string() + " has no policy " +
                       in_quotes(policy.name) + " that compiles:";
    for (const std::string& sentence : wrong) text += (wrong.size() > 1 ? "\n  " : " ") + sentence;
    throw usage_error(text);
  }
  own::load_policy(policy.name, library.string());
}

}  // namespace delta::executor
