// delta executor: DTR's own simulator, to the nanosecond, to compare with it and to be checked
// against its results.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "delta/units.hpp"
#include "traces/trace.hpp"

namespace delta::executor {

/// Who leaves first in DTR's simulator: the lowest score. m: bytes, s: time since the last use.
enum class simrd_policy : std::uint8_t {
  dtr,        ///< DTR: (its cost and its evicted neighbourhood's) / (m s)
  dtr_eq,     ///< DTREqClass: the same, with the neighbourhood's cost from union-find classes
  dtr_local,  ///< DTRLocal: its cost / (m s)
  msps,       ///< MSPS: (its cost and its evicted ancestors') / m
  lru,        ///< LRU: the time of the last use
  size        ///< LargestStorage: 1 / m
};

/// `simrd:dtr`, `simrd:dtr-eq`, `simrd:dtr-local`, `simrd:msps`, `simrd:lru` or `simrd:size`.
[[nodiscard]] std::optional<simrd_policy> simrd_policy_named(std::string_view) noexcept;

/// What came of one run.
struct simrd_result {
  enum class verdict : std::uint8_t {
    pass,
    oom,    ///< nothing was left to evict
    thrash  ///< recomputing took longer than the limit
  };
  verdict result = verdict::pass;
  nanoseconds clock{1};           ///< where that simulator begins; what runs adds to it
  nanoseconds recompute{};        ///< of the clock: what ran again
  bytes peak{};                   ///< with the duplicates that a replay makes for a moment
  std::uint64_t evictions = 0;    ///< to make room; what nobody refers to leaves uncounted
  std::uint64_t recomputes = 0;   ///< operators that ran again, those that make views included
  std::uint64_t evaluations = 0;  ///< of the score
};

/// Replays `t`, which keeps the rules of `check`, as simrd's RuntimeV2EagerOptimized does (the
/// simulator that Kirisame et al. published with "Dynamic Tensor Rematerialization"): recomputation
/// only; constants and results stay. It ends where recomputing has taken more than
/// (thrash_limit - 1) x the operators' time.
/// What that simulator does not know: workspace counts while its operator runs; variables stay like
/// constants, and so does from then on what an operator has updated in place.
/// An eviction costs O(evictable storages), for dtr, dtr_eq and msps `neighbours`' part besides.
[[nodiscard]] simrd_result run_simrd(const trace& t, simrd_policy, bytes budget,
                                     double thrash_limit = 2.0);

}  // namespace delta::executor
