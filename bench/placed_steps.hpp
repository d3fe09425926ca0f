// delta benchmark: a replay where blocks lie side by side or in pages, and what each of its steps
// took and moved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "delta/engine/engine.hpp"
#include "delta/error.hpp"
#include "delta/storage/simulated.hpp"
#include "delta/units.hpp"
#include "replay/replay.hpp"
#include "replay/replay_figures.hpp"
#include "traces/trace.hpp"

namespace delta::bench {

/// How many steps are replayed, one behind the other.
inline constexpr std::size_t placed_steps = 6;

/// What a program is replayed on.
struct placed_machine {
  bytes peak{};        ///< unmanaged, of one step
  double rate = 12e9;  ///< of copies each way, bytes per second
  double part = 1;     ///< of the peak: the budget
  bool places = true;  ///< else pages
};

/// One step of it.
struct placed_step {
  nanoseconds took{}, unmanaged{};
  std::uint64_t moves = 0;
  bytes moved{};

  [[nodiscard]] double overhead() const {
    return static_cast<double>(took.count()) / static_cast<double>(unmanaged.count());
  }
  [[nodiscard]] double moved_mb() const { return static_cast<double>(moved.count) / 1e6; }
};

/// Replays the program until a step takes more than 2.5 times its unmanaged time, or fails: then
/// there are fewer steps than the program has.
inline std::vector<placed_step> replay_placed(const trace& program, const placed_machine& on,
                                              std::string_view policy) {
  constexpr double move_rate = 8e9, limit = 2.5;
  const auto budget = static_cast<std::uint64_t>(on.part * static_cast<double>(on.peak.count));
  simulated storage({.capacity = bytes{budget},
                     .host_capacity = on.peak * 4,
                     .rate_out = on.rate,
                     .rate_in = on.rate,
                     .latency = nanoseconds{10'000},
                     .granularity = on.places ? 512u : 1u,
                     .rate_move = move_rate,
                     .places = on.places});
  const auto m = make_manager(policy, over(storage));
  const std::vector<nanoseconds> costs = executor::step_costs(program);
  std::vector<placed_step> done;
  nanoseconds began{};
  std::uint64_t moves = 0;
  bytes moved{};
  struct too_late {};
  const auto end = [&] {
    done.push_back({storage.now() - began, costs[done.size()], storage.moves() - moves,
                    storage.moved_bytes() - moved});
    began = storage.now(), moves = storage.moves(), moved = storage.moved_bytes();
  };
  const auto in_time = [&] {
    const double took = static_cast<double>((storage.now() - began).count());
    if (done.size() < costs.size() &&
        took > limit * static_cast<double>(costs[done.size()].count()))
      throw too_late{};
  };
  trace_replayer play(*m, program, in_time, end);
  try {
    play.run();
    play.gather_results();
    if (program.has_results()) end();
  } catch (const error&) {
  } catch (too_late) {
  }
  return done;
}

}  // namespace delta::bench
