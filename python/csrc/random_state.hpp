// delta_torch: where a generator of random numbers stood before an operator drew from it, so that a
// replay draws the same.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "delta/units.hpp"

namespace delta_torch {

class session;

/// One reference of the program's to a tensor; dropped with it. Under the session's lock `state`.
class tensor_reference {
 public:
  tensor_reference() = default;
  explicit tensor_reference(delta::tensor_id t) noexcept : tensor_(t) {}
  tensor_reference(tensor_reference&& o) noexcept
      : tensor_(std::exchange(o.tensor_, delta::tensor_id::none)) {}
  tensor_reference& operator=(tensor_reference&& o) noexcept {
    std::swap(tensor_, o.tensor_);
    return *this;
  }
  ~tensor_reference();
  [[nodiscard]] delta::tensor_id tensor() const noexcept { return tensor_; }
  explicit operator bool() const noexcept { return tensor_ != delta::tensor_id::none; }

 private:
  delta::tensor_id tensor_ = delta::tensor_id::none;
};

/// The CPU's generator (a Mersenne twister) makes its numbers in blocks of 624, of 2,496 bytes.
/// Operators that draw from one block share it: it is a tensor of the run's, which counts in the
/// budget, may leave, and is one more input of each of them. Beside it an operator remembers only
/// its place in the block. Of any other generator it keeps a clone, which is a seed and an offset.
class random_state {
 public:
  static constexpr std::size_t block_words = 624, block_bytes = block_words * 4;

  /// As `g` is now. Gives the tensor of its block; `none` where it has none. Under the session's
  /// locks, while no operator is open; makes room as any tensor does.
  [[nodiscard]] delta::tensor_id take(at::Generator g, session&);
  /// While it lives `g` is where it was then, and afterwards where it is now; under its lock both
  /// times. `block`: the address of the tensor's bytes; null where there is none. CUDA's generator
  /// notes each new seed, state or offset: the next recurrent network would draw a seed from it and
  /// begin its dropout anew. So the generator takes another state for its own meanwhile, where it
  /// can do so.
  class restored {
   public:
    restored(at::Generator g, const random_state& then, const std::byte* block);
    ~restored();
    restored(const restored&) = delete;
    restored& operator=(const restored&) = delete;

   private:
    at::Generator generator_;
    at::Generator shared_;  // of now
    at::Tensor now_;        // the same, of a generator that knows only copies
  };
  /// Was one taken?
  [[nodiscard]] bool is_taken() const noexcept { return taken_; }

 private:
  void put(const at::Generator& g, const std::byte* block) const;

  bool taken_ = false;
  tensor_reference block_;
  at::Generator clone_;  // of one that has no blocks
  std::uint64_t seed_ = 0;
  int left_ = 0;
  bool seeded_ = false;
  std::uint32_t next_ = 0;
  std::optional<float> normal_;  // the second one of a pair
  std::optional<double> double_normal_;
};

/// The block that was drawn from last, and its tensor. Under the session's locks.
struct random_block {
  tensor_reference tensor;
  std::array<std::uint32_t, random_state::block_words> words{};
};

}  // namespace delta_torch
