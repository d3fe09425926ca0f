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

#include "delta/engine/engine.hpp"
#include "replay/on_all_cores.hpp"
#include "replay/replay.hpp"
#include "trace/file.hpp"
#include "trace/repeat.hpp"
#include "trace_name.hpp"

namespace {

using namespace delta;
using namespace delta::executor;

constexpr std::size_t steps = 6;

struct subject {
  std::string name;
  trace program;
  bytes peak{};
};
struct machine {
  double rate = 12e9;
  double move_rate = 8e9;
};

struct step_row {
  double overhead = 0;
  std::uint64_t moves = 0;
  double moved_mb = 0;
};

/// What each step took and moved; shorter than `steps` where the replay ended early.
std::vector<step_row> replay_steps(const subject& s, const machine& on, double part, bool places,
                                   std::string_view policy) {
  const auto budget = static_cast<std::uint64_t>(part * static_cast<double>(s.peak.count));
  simulated storage({.capacity = bytes{budget},
                     .host_capacity = s.peak * 4,
                     .rate_out = on.rate,
                     .rate_in = on.rate,
                     .latency = nanoseconds{10'000},
                     .granularity = places ? 512u : 1u,
                     .rate_move = on.move_rate,
                     .places = places});
  const auto m = make_manager(policy, over(storage));
  const std::vector<nanoseconds> costs = step_costs(s.program);
  std::vector<step_row> rows;
  nanoseconds time{};
  std::uint64_t moves = 0;
  bytes moved{};
  struct too_late {};
  const auto end = [&] {
    const double took = static_cast<double>((storage.now() - time).count());
    rows.push_back({took / static_cast<double>(costs[rows.size()].count()), storage.moves() - moves,
                    static_cast<double>((storage.moved_bytes() - moved).count) / 1e6});
    time = storage.now(), moves = storage.moves(), moved = storage.moved_bytes();
  };
  const auto in_time = [&] {
    const double took = static_cast<double>((storage.now() - time).count());
    if (rows.size() < costs.size() && took > 2.5 * static_cast<double>(costs[rows.size()].count()))
      throw too_late{};
  };
  replayer play(*m, s.program, in_time, end);
  try {
    play.run();
    play.gather_results();
    if (s.program.has_results()) end();
  } catch (const error&) {
  } catch (too_late) {
  }
  return rows;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string one; std::getline(in, one, ',');) parts.push_back(one);
  return parts;
}

int run(std::span<char*> words) {
  machine on;
  std::vector<std::string> policies{"online", "learned", "adaptive", "auto"};
  std::vector<std::string> budgets{"0.6", "0.4", "0.3"};
  std::vector<subject> all;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i];
    const auto value = [&] { return i + 1 < words.size() ? std::string(words[++i]) : ""; };
    if (word == "--rate") {
      on.rate = std::stod(value());
    } else if (word == "--policy") {
      policies = split(value());
    } else if (word == "--budget") {
      budgets = split(value());
    } else {
      const trace t = read_trace(word);
      all.push_back({bench::trace_name(word), repeat_trace(t, steps), unmanaged_peak(t)});
    }
  }
  std::vector<std::function<void()>> jobs;
  std::mutex lock;
  for (const subject& s : all)
    for (const std::string& budget : budgets)
      for (const std::string& name : policies)
        for (const bool places : {true, false})
          jobs.emplace_back([&, places] {
            const std::vector<step_row> rows = replay_steps(s, on, std::stod(budget), places, name);
            std::ostringstream out;
            out << R"({"trace":")" << s.name << R"(","policy":")" << name << R"(","part":)"
                << budget << R"(,"rate":)" << on.rate << R"(,"memory":")"
                << (places ? "places" : "pages") << R"(","passed":)"
                << (rows.size() == step_costs(s.program).size() ? "true" : "false");
            const auto list = [&](const char* key, auto member) {
              out << ",\"" << key << "\":[";
              for (std::size_t k = 0; k < rows.size(); ++k)
                out << (k ? "," : "") << rows[k].*member;
              out << ']';
            };
            list("overheads", &step_row::overhead);
            list("moves", &step_row::moves);
            list("moved_mb", &step_row::moved_mb);
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
