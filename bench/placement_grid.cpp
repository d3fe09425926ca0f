// delta benchmark: where blocks lie. Recorded steps under budgets in virtual time, in memory with
// places and in memory of pages: how many bytes are moved together in each step, and what the step
// takes. A JSON row per replay.
//
//   placement_grid [--rate BYTES] [--policy NAME,...] [--budget PART,...] TRACE...

#include <cstdint>
#include <exception>
#include <functional>
#include <iostream>
#include <mutex>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "placed_steps.hpp"
#include "replay/on_all_cores.hpp"
#include "trace/file.hpp"
#include "trace/repeat.hpp"
#include "trace_name.hpp"

namespace {

using namespace delta;
using namespace delta::executor;

struct subject {
  std::string name;
  trace program;
  bytes peak{};
};
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string one; std::getline(in, one, ',');) parts.push_back(one);
  return parts;
}

int run(std::span<char*> words) {
  double rate = 12e9;
  std::vector<std::string> policies{"online", "adaptive"};
  std::vector<std::string> budgets{"0.6", "0.4", "0.3"};
  std::vector<subject> all;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i];
    const auto value = [&] { return i + 1 < words.size() ? std::string(words[++i]) : ""; };
    if (word == "--rate") {
      rate = std::stod(value());
    } else if (word == "--policy") {
      policies = split(value());
    } else if (word == "--budget") {
      budgets = split(value());
    } else {
      const trace t = read_trace(word);
      all.push_back(
          {bench::trace_name(word), repeat_trace(t, bench::placed_steps), unmanaged_peak(t)});
    }
  }
  std::vector<std::function<void()>> jobs;
  std::mutex lock;
  for (const subject& s : all)
    for (const std::string& budget : budgets)
      for (const std::string& name : policies)
        for (const bool places : {true, false})
          jobs.emplace_back([&, places] {
            const std::vector<bench::placed_step> rows =
                bench::replay_placed(s.program, {s.peak, rate, std::stod(budget), places}, name);
            std::ostringstream out;
            out << R"({"trace":")" << s.name << R"(","policy":")" << name << R"(","part":)"
                << budget << R"(,"rate":)" << rate << R"(,"memory":")"
                << (places ? "places" : "pages") << R"(","passed":)"
                << (rows.size() == step_costs(s.program).size() ? "true" : "false");
            const auto list = [&](const char* key, auto value) {
              out << ",\"" << key << "\":[";
              for (std::size_t k = 0; k < rows.size(); ++k) out << (k ? "," : "") << value(rows[k]);
              out << ']';
            };
            using bench::placed_step;
            list("overheads", [](const placed_step& step) { return step.overhead(); });
            list("moves", [](const placed_step& step) { return step.moves; });
            list("moved_mb", [](const placed_step& step) { return step.moved_mb(); });
            const std::scoped_lock one(lock);
            std::cout << out.str() << "}\n";
          });
  on_all_cores(jobs.size(), [&](std::size_t i) { jobs[i](); });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "placement_grid: no trace; expected: placement_grid [--rate BYTES] "
                 "[--policy NAME,...] [--budget PART,...] TRACE...\n";
    return 2;
  }
  try {
    return run(std::span(argv + 1, static_cast<std::size_t>(argc - 1)));
  } catch (const std::exception& e) {
    std::cerr << "placement_grid: " << e.what() << '\n';
    return 2;
  }
}
