// delta executor: labelled images made from a seed, for runs without files.
#pragma once

#include "data/dataset.hpp"

namespace delta::executor {

/// Ten classes of oriented gratings in colour, with a random phase, contrast, tint and noise each.
/// An image depends on (seed, index, side) alone: it is computed in integers from a counter, so it
/// is the same on every machine, in every order of asking.
class synthetic final : public dataset {
 public:
  explicit synthetic(std::uint64_t seed, std::size_t size = 10'000) : seed_(seed), size_(size) {}

  [[nodiscard]] std::size_t size() const noexcept override { return size_; }
  [[nodiscard]] int channels() const noexcept override { return 3; }
  [[nodiscard]] int classes() const noexcept override { return 10; }
  void fill(std::span<const std::uint32_t> indices, int image, float* images,
            std::int32_t* labels) const override;

 private:
  std::uint64_t seed_;
  std::size_t size_;
};

}  // namespace delta::executor
