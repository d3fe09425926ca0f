// delta: what the manager does, counted always and told to an observer chosen at compile time.
#pragma once

#include <concepts>
#include <cstdint>

#include "delta/units.hpp"

namespace delta {

/// Counts since the manager was made (bytes where it says so).
struct counters {
  std::uint64_t operators = 0;          ///< run by the program, replays not counted
  std::uint64_t evictions = 0;          ///< bytes dropped, to be recomputed
  std::uint64_t offloads = 0;           ///< copies out that freed, or will free, device bytes
  std::uint64_t clean_drops = 0;        ///< bytes dropped because a host copy existed
  std::uint64_t reloads = 0;            ///< copies in, on demand or early
  std::uint64_t prefetches = 0;         ///< of the reloads, those done early
  std::uint64_t recomputes = 0;         ///< replays of operators
  std::uint64_t revivals = 0;           ///< tensors used while their copy out was under way
  std::uint64_t backward_releases = 0;  ///< releases in the backward pass (repairs P-7)
  std::uint64_t waits = 0;              ///< times the host waited for a copy to free bytes
  std::uint64_t decisions = 0;          ///< tensors judged
  std::uint64_t bytes_out = 0, bytes_in = 0;
  nanoseconds recompute_time{};  ///< as measured, where known
};

enum class happening : std::uint8_t {
  run,        ///< an operator of the program
  recompute,  ///< a replay
  evict,
  offload,
  clean_drop,
  reload,
  prefetch,
  wait
};

/// One event. `tensor` or `op` as the happening has it; `size` in bytes.
struct event {
  happening what;
  tensor_id tensor = tensor_id::none;
  const char* operation = "";
  bytes size{};
  stamp at{};
};

/// The null model: compiles to nothing.
struct no_observer {
  void on(const event&) const noexcept {}
};

/// `on(event)`: called at every happening; must not call the manager.
template <class O>
concept Observer = requires(O& o, const event& e) { o.on(e); };

static_assert(Observer<no_observer>);

}  // namespace delta
