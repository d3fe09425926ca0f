// delta executor: runs a recorded program through a given manager in virtual time, and measures it.
// The manager and its policies are those that train; only the bytes are missing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "delta/error.hpp"
#include "delta/storage/simulated.hpp"
#include "replay/replay_figures.hpp"
#include "replay/replay_result.hpp"
#include "traces/network.hpp"
#include "traces/trace.hpp"
#include "traces/trace_replayer.hpp"

namespace delta::executor {

/// The simulated memory for a trace.
[[nodiscard]] inline simulated_options storage_for(const trace& t, const replay_machine& on) {
  const trace::origin known = t.recorded_on.value_or(trace::origin{});
  return {.capacity = on.budget,
          .host_capacity = on.host_budget,
          .rate_out = on.rate_out,
          .rate_in = on.rate_in,
          .latency = on.latency,
          .granularity = std::max<std::uint64_t>(known.granularity, 1),
          .rate_move = static_cast<double>(known.rate_move),
          .real_rate = on.real_rate,
          .places = has_places(t, on),
          .burden_out = on.burden_out,
          .burden_in = on.burden_in};
}

/// Replays a trace by a manager over that storage, both fresh. An infeasible budget is a result,
/// not an error.
template <class Manager>
replay_result replay_by(Manager& m, simulated_rank& storage, const trace& t,
                        const replay_machine& on) {
  replay_result r;
  const double limit = on.thrash_limit * double(unmanaged_time(t).count());
  step_meter meter(m, storage, step_costs(t));
  struct too_late {};
  const auto too_long = [&](nanoseconds time, double most) {
    if (double(time.count()) > most) throw too_late{};
  };
  const auto in_time = [&] {
    too_long(storage.now(), limit);
    if (on.limit_steps) too_long(meter.time(), on.thrash_limit * double(meter.unmanaged().count()));
  };
  const auto end_step = [&] {
    in_time();
    meter.end_step();
  };
  trace_replayer play(m, t, in_time, end_step, replayed_network(m, storage, t));
  try {
    play.run();
    play.gather_results();
    if (t.has_results()) end_step();
  } catch (too_late) {
    r.result = replay_result::verdict::thrash;
  } catch (const thrash& e) {
    r.result = replay_result::verdict::thrash;
    r.error = e.what();
  } catch (const budget_exceeded& e) {
    r.result = replay_result::verdict::oom;
    r.error = e.what();
  }
  r.time = storage.now();
  r.recompute = m.counts().recompute_time;
  r.network_wait = storage.waited_for_collectives();
  r.stall = storage.waited() - r.network_wait;
  r.peak = storage.peak();
  r.host_peak = storage.host_peak();
  r.evaluations = m.evaluations();
  r.walked = m.walked();
  r.counts = m.counts();
  if (r.result != replay_result::verdict::pass) meter.end_step();
  r.steps = meter.take();
  return r;
}

}  // namespace delta::executor
