// The axes of the benchmarks of decisions: how many tensors, which seed, which sizes. In one place,
// so that tables of different benchmarks stand for the same programs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace delta::bench {

/// Draws which tensor is read. Fixed, so that counts repeat exactly from run to run.
inline constexpr std::uint64_t seed = 20220430;
/// Tensors that live at the same time.
inline constexpr std::array<std::int64_t, 4> live_tensors{100, 1'000, 10'000, 100'000};
/// The same for what becomes too slow with the last where every candidate is looked at.
inline constexpr std::array<std::int64_t, 3> live_tensors_scanned{100, 1'000, 10'000};
/// Operators that a restore has to run again, in a chain.
inline constexpr std::array<std::int64_t, 4> chain_lengths{1, 4, 16, 64};
/// Tensors of all chains together.
inline constexpr std::int64_t chained_tensors = 256;

/// Of every tensor, in bytes. Nothing of it is ever allocated.
inline constexpr std::uint64_t tensor_bytes = 1 << 20;
/// Operators from one variable to the next: as many records at most hang on a dropped tensor.
inline constexpr std::size_t segment = 32;
/// What an operator takes, and a copy before its first byte, in virtual nanoseconds.
inline constexpr std::int64_t operator_ns = 50'000, copy_latency_ns = 10'000;

/// Candidates that a victim is looked for among.
inline constexpr std::array<std::int64_t, 4> candidates{1'000, 10'000, 100'000, 1'000'000};
/// Tensors that an operator touches, next to the one that it makes; and costs that change with it
/// where costs change.
inline constexpr std::size_t touches = 3, cost_changes = 2;
/// Sizes and costs are a small number times a unit; a size that has to be another than all others
/// adds less than one unit. Cost in ns.
inline constexpr std::uint64_t size_kinds = 64, size_unit = 1 << 24, cost_kinds = 16;
inline constexpr double cost_unit = 100'000;
/// Real programs, and their budget: percent of the peak that they have without one.
inline constexpr std::array trace_names{"resnet32", "unet", "densenet121", "transformer", "lstm"};
inline constexpr std::uint64_t trace_budget = 40;

/// Budgets, in tensors, for `live` of them. Everything stays, also with a policy that starts to
/// release at three quarters of the budget (`paper`).
constexpr std::uint64_t roomy(std::size_t live) {
  return 2 * std::uint64_t{live};
}
/// Everything stays, but a policy that starts early has something to do.
constexpr std::uint64_t just_enough(std::size_t live) {
  return std::uint64_t{live} + 8;
}
/// One tensor in ten must be elsewhere.
constexpr std::uint64_t nine_tenths(std::size_t live) {
  return std::uint64_t{live} - live / 10;
}

}  // namespace delta::bench
