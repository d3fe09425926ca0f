// delta executor: what copies and kernels do to each other on this CPU, measured at the start: they
// share its memory and, where kernels run on all cores, the cores.
#pragma once

#include "delta/units.hpp"

namespace delta::executor {

class thread_pool;

/// What a way of copying does, as measured beside kernels on the threads of a pool.
struct copy_behaviour {
  double rate = 0;    ///< bytes per second beside kernels
  double waited = 0;  ///< the same while somebody waits for it, and no kernel runs
  /// ns that kernels lose by one of copying beside them: nothing on a machine with cores and
  /// bandwidth to spare, 1 where copying stops them.
  double burden = 0;
  /// What copying a byte costs a step, in ns, where half of the bytes are waited for, which is
  /// about what policies come to, and the others hidden.
  [[nodiscard]] double price() const noexcept {
    return rate > 0 && waited > 0 ? 0.5e9 * (burden / rate + 1 / waited) : 0;
  }
};

/// The ways that a cpu_device has, and which one costs less.
struct copy_ways {
  copy_behaviour threads;  ///< a thread per direction; one of them copying
  copy_behaviour caller;   ///< the caller and its idle threads, in between kernels
  bool spare_core = true;  ///< the machine says that it has more cores than kernels have threads
  /// For cpu_options::copy_threads. In doubt the caller: what it costs is known, what
  /// a thread costs depends on when the system lets it run.
  [[nodiscard]] int better() const noexcept {
    return threads.price() <= (spare_core ? 0.8 : 0.5) * caller.price() ? 2 : 0;
  }
};

/// Runs loops on the pool that are bound by arithmetic, and others by memory, with and without
/// copies beside them: a fifth of a second or less. Each is the best of a few, as others on the
/// machine only ever make times longer. Not to be called within the pool. Throws std::bad_alloc.
[[nodiscard]] copy_ways measure_copies(thread_pool&);

}  // namespace delta::executor
