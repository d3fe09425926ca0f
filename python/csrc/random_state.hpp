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

/// The CPU's generator (a Mersenne twister) makes its numbers in blocks of 624, of 2,496 bytes,
/// each from the one before. Operators of one step that draw soon after one another share the first
/// one's block: it is a tensor of the run's, which counts in the budget, may leave, and is one more
/// input of each of them. Beside it an operator remembers how many blocks later it began, and where
/// in that one. Of any other generator it keeps a clone, which is a seed and an offset.
class random_state {
 public:
  static constexpr std::size_t block_words = 624, block_bytes = block_words * 4;
  using words = std::array<std::uint32_t, block_words>;

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
  at::Generator clone_;      // of one that has no blocks
  std::uint32_t later_ = 0;  // blocks
  std::uint64_t seed_ = 0;
  int left_ = 0;
  bool seeded_ = false;
  std::uint32_t next_ = 0;
  std::optional<float> normal_;  // the second one of a pair
  std::optional<double> double_normal_;
};

/// The block that operators share, and the one that was drawn from last. Who shares it depends on
/// how many numbers were drawn in the step, never on where blocks of the generator happen to end:
/// with other inputs a step would be of another kind. Under the session's locks.
class random_block {
 public:
  /// How many blocks after the shared one the generator is, at the number `next` of the block
  /// `now`; nothing where it has drawn more than `most_drawn` since. A few us at most.
  [[nodiscard]] std::optional<std::uint32_t> later(const random_state::words& now,
                                                   std::uint32_t next);
  /// `now` is shared from here on: `next` numbers of it were drawn before.
  void begin(tensor_reference&&, const random_state::words& now, std::uint32_t next);
  /// A step has ended, or the run: the next operator begins a block.
  void end() { tensor_ = {}; }
  [[nodiscard]] delta::tensor_id tensor() const noexcept { return tensor_.tensor(); }

 private:
  static constexpr std::uint32_t most_later = 4;  // each takes about 1 us
  // So many are always found `most_later` blocks on, wherever the first was drawn in its own.
  static constexpr std::int64_t most_drawn = (most_later - 1) * random_state::block_words;

  tensor_reference tensor_;
  std::uint32_t began_ = 0;  // in `first_`
  std::uint32_t later_ = 0;  // from `first_` to `last_`
  random_state::words first_{}, last_{};
};

}  // namespace delta_torch
