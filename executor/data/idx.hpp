// delta executor: MNIST as IDX files, gzip or plain.
#pragma once

#include <filesystem>
#include <vector>

#include "data/dataset.hpp"

namespace delta::executor {

/// The images of one IDX file (magic 0x803): count x rows x columns bytes.
struct idx_images {
  std::size_t count = 0;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<std::uint8_t> pixels;
};

/// Reads an image file, whole. Throws data_error when it is missing, truncated, has bytes left
/// over, is no image file or has absurd dimensions (a side over 4096 pixels, no image, over 4 GiB).
idx_images read_idx_images(const std::filesystem::path&);
/// Reads a label file (magic 0x801), whole. Throws data_error likewise, and for a label over 9.
std::vector<std::uint8_t> read_idx_labels(const std::filesystem::path&);

/// MNIST: one channel, ten classes, scaled bilinearly to the side asked for and normalised by
/// MNIST's mean and deviation.
class mnist final : public dataset {
 public:
  /// Reads what lies in `directory`: train-* and t10k-*, in this order, of those that are there;
  /// names as train-images-idx3-ubyte or train-images.idx3-ubyte, with or without .gz. Throws
  /// data_error.
  explicit mnist(const std::filesystem::path& directory);

  [[nodiscard]] std::size_t size() const noexcept override { return labels_.size(); }
  [[nodiscard]] int channels() const noexcept override { return 1; }
  [[nodiscard]] int classes() const noexcept override { return 10; }
  void fill(std::span<const std::uint32_t> indices, int image, float* images,
            std::int32_t* labels) const override;

 private:
  std::size_t rows_ = 0;
  std::size_t columns_ = 0;
  std::vector<std::uint8_t> pixels_;
  std::vector<std::uint8_t> labels_;
};

}  // namespace delta::executor
