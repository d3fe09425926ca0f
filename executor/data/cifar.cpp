#include "data/cifar.hpp"

#include <array>
#include <string>

#include "data/bilinear.hpp"
#include "data/data_file.hpp"

namespace delta::executor {
namespace {

constexpr std::size_t image_side = 32;
constexpr std::size_t plane = image_side * image_side;
constexpr std::size_t planes = 3;
constexpr std::size_t record = 1 + planes * plane;

// Of the 50,000 training images, red, green and blue, as bytes.
constexpr std::array<float, planes> channel_means{0.4914f * 255, 0.4822f * 255, 0.4465f * 255};
constexpr std::array<float, planes> channel_deviations{0.2470f * 255, 0.2435f * 255, 0.2616f * 255};

}  // namespace

cifar10::cifar10(const std::filesystem::path& directory) {
  expect_folder(directory, "a folder with CIFAR-10's binary files");
  const auto add = [&](const std::string& name) {
    const auto path = find_plain_or_gzip(directory / name);
    if (path.empty()) {
      throw data_error(directory / name, "there is no such file",
                       "data_batch_1.bin to data_batch_5.bin and test_batch.bin together, plain "
                       "or .gz");
    }
    read(path);
  };
  for (const char number : {'1', '2', '3', '4', '5'}) {
    add(std::string("data_batch_") + number + ".bin");
  }
  training_ = size();
  add("test_batch.bin");
}

void cifar10::read(const std::filesystem::path& path) {
  data_file file(path, "whole records of 1 label and 3072 pixels, gzip or plain");
  std::array<std::uint8_t, record> raw{};
  for (std::size_t number = 0;; ++number) {
    const std::size_t got = file.read(raw.data(), record);
    if (got == 0 && number > 0) return;
    if (got == 0) file.fail("holds no record");
    const std::string where =
        "record " + std::to_string(number) + " (byte " + std::to_string(number * record) + ")";
    if (got < record) {
      file.fail("truncated: " + where + " has " + std::to_string(got) + " of its " +
                std::to_string(record) + " bytes");
    }
    if (raw[0] > 9) {
      file.fail("the label of " + where + " is " + std::to_string(raw[0]), "labels from 0 to 9");
    }
    labels_.push_back(raw[0]);
    pixels_.insert(pixels_.end(), raw.begin() + 1, raw.end());
  }
}

void cifar10::fill(std::span<const std::uint32_t> indices, int image, float* images,
                   std::int32_t* labels) const {
  const std::size_t floats = std::size_t(image) * std::size_t(image) * planes;
  for (const std::uint32_t index : indices) {
    *labels++ = labels_[index];
    for (std::size_t c = 0; c < planes; ++c) {
      const std::uint8_t* channel = pixels_.data() + (std::size_t{index} * planes + c) * plane;
      float* to = images + c;
      scale_channel(channel, image_side, image_side, image, [&](float value) {
        *to = (value - channel_means[c]) / channel_deviations[c];
        to += planes;
      });
    }
    images += floats;
  }
}

}  // namespace delta::executor
