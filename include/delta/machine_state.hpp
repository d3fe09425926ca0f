// delta: what a policy sees beside the tensors: the state of the machine, copies under way, where
// bytes lie, the operator that has just ended.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "delta/tensor.hpp"
#include "delta/units.hpp"

namespace delta {

/// A copy under way; `tensor` is none where nobody will use what it copies.
struct queued_copy {
  tensor_id tensor = tensor_id::none;
  bytes size{};
  direction way = direction::out;
};

/// A stretch of the device's memory: a tensor's, or with tensor_id::none free or of no tensor.
struct layout_extent {
  tensor_id tensor = tensor_id::none;
  bytes size{};
};

/// An operator of the program that has just ended. Of its tensors those may have gone that the
/// program has dropped meanwhile: what is a candidate may be asked about.
struct ended_operator {
  std::string_view name;
  std::span<const tensor_id> inputs, updates, outputs;
};

namespace detail {

/// The state of the machine, as of the last `residency_table::refresh_machine_state`.
struct machine_state {
  tick now = 0;             ///< the operator at hand, or the last one
  nanoseconds clock{};      ///< the storage's, but at least 1 ns passes with every operator
  bool backward = false;    ///< between manager::backward() and end_of_step()
  bool may_evict = true;    ///< the decider's traits
  bool may_offload = true;  ///< likewise
  bytes budget{}, used{};   ///< used: both ends of copies in flight, but not what is cached
  bytes leaving{};          ///< of used: blocks that are free when their copy out is done
  bytes host_free{};        ///< of the host budget, in however many pieces
  nanoseconds ahead{};      ///< by which `clock` is ahead of the storage's
  bytes unmanaged_peak{};   ///< the most that the program has referenced and asked for at once
  bool step_over = false;   ///< a whole step has ended
  bytes coming_need{};      ///< what the last operator had to allocate: a guess at the next one's
  std::array<double, 2> rate{1, 1};  ///< bytes per second, by direction
  std::array<double, 2> latency{};   ///< ns per copy
  std::array<double, 2> backlog{};   ///< ns until a copy queued now would start
  std::array<double, 2> burden{};    ///< ns that compute loses by one of copying beside it
  std::uint32_t recompute_cap = 0;   ///< replays of one operator per step (repairs P-26)
};

/// How closely costs of closures are told: a lower bound parts most tensors from the best.
struct cost_query {
  tensor_id refine = tensor_id::none;  ///< of this one four times as many records as before
  bool bounded = false;                ///< told: some answer since was a lower bound
};

}  // namespace detail

}  // namespace delta
