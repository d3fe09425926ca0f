// delta executor: labelled images, and the order in which an epoch visits them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace delta::executor {

/// A run of consecutive images of a data set.
struct image_range {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Labelled square images. `fill` is const, allocates nothing and may be called from any thread.
class dataset {
 public:
  virtual ~dataset() = default;

  [[nodiscard]] virtual std::size_t size() const noexcept = 0;  ///< images
  [[nodiscard]] virtual int channels() const noexcept = 0;
  [[nodiscard]] virtual int classes() const noexcept = 0;

  /// Writes the images `indices` (each < size()), `image` pixels per side, normalised, NHWC, to
  /// `images` (indices.size() * image * image * channels() floats) and their labels (0 ..
  /// classes() - 1) to `labels`.
  virtual void fill(std::span<const std::uint32_t> indices, int image, float* images,
                    std::int32_t* labels) const = 0;

  /// Images at the end that are held back from training. Where nothing else says which: the last
  /// tenth, but at most 1,000.
  [[nodiscard]] virtual image_range evaluation() const noexcept {
    const std::size_t count = size() / 10 < 1000 ? size() / 10 : 1000;
    return {size() - count, count};
  }
  /// All before those.
  [[nodiscard]] image_range training() const noexcept { return {0, evaluation().first}; }

 protected:
  dataset() = default;
  dataset(const dataset&) = default;
  dataset& operator=(const dataset&) = default;
};

/// The order of one epoch: a shuffle of a range that depends on (seed, epoch) alone. Allocates
/// once, when made.
class epoch_order {
 public:
  epoch_order(image_range, std::uint64_t seed);

  /// Shuffles anew, from the range's own order, for this epoch.
  void shuffle(std::uint64_t epoch) noexcept;
  /// The images of one batch: [number * size, (number + 1) * size) of the order, cut at its end.
  [[nodiscard]] std::span<const std::uint32_t> batch(std::size_t number,
                                                     std::size_t size) const noexcept;
  /// Batches of `size` images in an epoch; what is left over is not used.
  [[nodiscard]] std::size_t whole_batches(std::size_t size) const noexcept {
    return order_.size() / size;
  }

 private:
  std::uint32_t first_;
  std::uint64_t seed_;
  std::vector<std::uint32_t> order_;
};

}  // namespace delta::executor
