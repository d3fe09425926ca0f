#include "data/idx.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "data/bilinear.hpp"
#include "data/data_file.hpp"

namespace delta::executor {
namespace {

constexpr std::uint32_t image_magic = 0x803;
constexpr std::uint32_t label_magic = 0x801;
constexpr std::uint64_t largest_side = 4096;
constexpr std::uint64_t largest_payload = std::uint64_t{1} << 32;

std::string hexadecimal(std::uint32_t value) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "0x%x", static_cast<unsigned>(value));
  return text.data();
}

/// An IDX file being read.
class idx_file : public data_file {
 public:
  explicit idx_file(const std::filesystem::path& path)
      : data_file(path, "a whole IDX file, gzip or plain") {}

  std::uint32_t read_number() {
    std::array<std::uint8_t, 4> raw{};
    if (read(raw.data(), raw.size()) < raw.size()) fail("truncated in its header");
    return std::uint32_t{raw[0]} << 24 | std::uint32_t{raw[1]} << 16 | std::uint32_t{raw[2]} << 8 |
           std::uint32_t{raw[3]};
  }

  void expect_magic(std::uint32_t wanted, const std::string& what) {
    const std::uint32_t magic = read_number();
    if (magic == wanted) return;
    std::string wrong = "magic number " + hexadecimal(magic);
    if (magic == label_magic) wrong = "mislabelled: holds labels (magic number 0x801)";
    if (magic == image_magic) wrong = "mislabelled: holds images (magic number 0x803)";
    fail(wrong, what + " (magic number " + hexadecimal(wanted) + ")");
  }

  /// The rest of the file, which must be `size` bytes. Grows piece by piece, so that a header that
  /// lies costs no memory.
  std::vector<std::uint8_t> read_rest(std::size_t size, const std::string& what) {
    constexpr std::size_t piece = std::size_t{1} << 24;
    std::vector<std::uint8_t> data;
    while (data.size() < size) {
      const std::size_t old = data.size();
      const std::size_t want = std::min(piece, size - old);
      data.resize(old + want);
      const std::size_t got = read(data.data() + old, want);
      if (got < want) {
        fail("truncated: it has " + std::to_string(old + got) + " of the " + std::to_string(size) +
             " bytes that its header announces (" + what + ")");
      }
    }
    std::uint8_t more = 0;
    if (read(&more, 1) > 0) fail("has bytes after its last item");
    return data;
  }
};

/// The file named `stem`-`type` or `stem`.`type`, plain or with .gz: the first that exists, or
/// none.
std::filesystem::path find(const std::filesystem::path& directory, const std::string& stem,
                           const std::string& type) {
  for (const char* separator : {"-", "."}) {
    auto path = find_plain_or_gzip(directory / (stem + separator + type));
    if (!path.empty()) return path;
  }
  return {};
}

}  // namespace

idx_images read_idx_images(const std::filesystem::path& path) {
  idx_file file(path);
  file.expect_magic(image_magic, "an IDX file of images");
  idx_images result;
  result.count = file.read_number();
  result.rows = file.read_number();
  result.columns = file.read_number();
  const std::string shape = std::to_string(result.count) + " images of " +
                            std::to_string(result.rows) + " x " + std::to_string(result.columns);
  const auto bad_side = [](std::size_t side) { return side == 0 || side > largest_side; };
  if (result.count == 0 || bad_side(result.rows) || bad_side(result.columns) ||
      result.count > largest_payload / (result.rows * result.columns)) {
    file.fail("its header says " + shape,
              "1 image or more, sides from 1 to 4096 pixels, 4 GiB in all");
  }
  result.pixels = file.read_rest(result.count * result.rows * result.columns, shape);
  return result;
}

std::vector<std::uint8_t> read_idx_labels(const std::filesystem::path& path) {
  idx_file file(path);
  file.expect_magic(label_magic, "an IDX file of labels");
  const std::uint32_t count = file.read_number();
  if (count == 0) file.fail("its header says 0 labels", "1 label or more");
  auto labels = file.read_rest(count, std::to_string(count) + " labels");
  const auto wrong = std::ranges::find_if(labels, [](std::uint8_t label) { return label > 9; });
  if (wrong != labels.end()) {
    file.fail("label " + std::to_string(wrong - labels.begin()) + " is " + std::to_string(*wrong),
              "labels from 0 to 9");
  }
  return labels;
}

mnist::mnist(const std::filesystem::path& directory) {
  expect_folder(directory, "a folder with MNIST's IDX files");
  for (const std::string part : {"train", "t10k"}) {
    const auto images_path = find(directory, part + "-images", "idx3-ubyte");
    const auto labels_path = find(directory, part + "-labels", "idx1-ubyte");
    if (images_path.empty() && labels_path.empty()) continue;
    if (images_path.empty() || labels_path.empty()) {
      const auto& present = images_path.empty() ? labels_path : images_path;
      throw data_error(present,
                       images_path.empty() ? "its images are missing" : "its labels are missing",
                       part + "-images-idx3-ubyte and " + part + "-labels-idx1-ubyte together");
    }
    const idx_images images = read_idx_images(images_path);
    const auto labels = read_idx_labels(labels_path);
    if (images.count != labels.size()) {
      throw data_error(
          labels_path,
          std::to_string(labels.size()) + " labels for " + std::to_string(images.count) + " images",
          "one label per image");
    }
    if (!labels_.empty() && (images.rows != rows_ || images.columns != columns_)) {
      throw data_error(images_path, "its images differ in size from the train-* files'",
                       "one size for all");
    }
    rows_ = images.rows;
    columns_ = images.columns;
    pixels_.insert(pixels_.end(), images.pixels.begin(), images.pixels.end());
    labels_.insert(labels_.end(), labels.begin(), labels.end());
  }
  if (labels_.empty()) {
    throw data_error(
        directory, "holds no MNIST files",
        "t10k-images-idx3-ubyte with t10k-labels-idx1-ubyte, or train-*, plain or .gz");
  }
}

void mnist::fill(std::span<const std::uint32_t> indices, int image, float* images,
                 std::int32_t* labels) const {
  constexpr float mean = 0.1307f * 255, deviation = 0.3081f * 255;
  for (const std::uint32_t index : indices) {
    *labels++ = labels_[index];
    const std::uint8_t* pixels = pixels_.data() + std::size_t{index} * rows_ * columns_;
    scale_channel(pixels, rows_, columns_, image,
                  [&](float value) { *images++ = (value - mean) / deviation; });
  }
}

}  // namespace delta::executor
