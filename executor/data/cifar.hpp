// delta executor: CIFAR-10 in its binary version, gzip or plain.
#pragma once

#include <filesystem>
#include <vector>

#include "data/dataset.hpp"

namespace delta::executor {

/// CIFAR-10 (Krizhevsky 2009): 32x32 pixels, three channels, ten classes. A file is a sequence of
/// records: one byte of label, then the planes red, green and blue of 1,024 bytes each. Scaled
/// bilinearly to the side asked for, and normalised per channel by the training images' mean and
/// deviation.
class cifar10 final : public dataset {
 public:
  /// Reads data_batch_1.bin to data_batch_5.bin and test_batch.bin, each with or without .gz, in
  /// this order; any number of records but none. Throws data_error: a file that is missing, is
  /// damaged or ends within a record, or a label over 9.
  explicit cifar10(const std::filesystem::path& directory);

  [[nodiscard]] std::size_t size() const noexcept override { return labels_.size(); }
  [[nodiscard]] int channels() const noexcept override { return 3; }
  [[nodiscard]] int classes() const noexcept override { return 10; }
  /// The images of test_batch.bin.
  [[nodiscard]] image_range evaluation() const noexcept override {
    return {training_, size() - training_};
  }
  void fill(std::span<const std::uint32_t> indices, int image, float* images,
            std::int32_t* labels) const override;

 private:
  void read(const std::filesystem::path&);

  std::size_t training_ = 0;  ///< images of data_batch_*.bin
  std::vector<std::uint8_t> pixels_;
  std::vector<std::uint8_t> labels_;
};

}  // namespace delta::executor
