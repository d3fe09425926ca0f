// MNIST's files: the real ones where DELTA_DATA names them, and every way in which one can be
// broken.
#include "data/idx.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "data_files.hpp"
#include "process.hpp"
#include "skip.hpp"
#include "temporary_folder.hpp"
#include "train/digest.hpp"

using namespace delta::executor;
using namespace delta::test;

namespace {

void append(raw& to, std::uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) to.push_back(std::uint8_t(number >> shift & 0xff));
}

raw image_file(std::uint32_t count, std::uint32_t rows, std::uint32_t columns, std::size_t pixels) {
  raw file;
  for (const std::uint32_t number : {0x803u, count, rows, columns}) append(file, number);
  for (std::size_t i = 0; i < pixels; ++i) file.push_back(std::uint8_t(i * 37 % 256));
  return file;
}
raw image_file(std::uint32_t count) {
  return image_file(count, 4, 4, std::size_t{count} * 16);
}

raw label_file(std::uint32_t count) {
  raw file;
  append(file, 0x801);
  append(file, count);
  for (std::uint32_t i = 0; i < count; ++i) file.push_back(std::uint8_t(i % 10));
  return file;
}

std::string why_no_images(const raw& content) {
  const temporary_folder folder;
  write_file(folder / "f", content);
  return why_not([&] { (void)read_idx_images(folder / "f"); }, folder);
}
std::string why_no_labels(const raw& content) {
  const temporary_folder folder;
  write_file(folder / "f", content);
  return why_not([&] { (void)read_idx_labels(folder / "f"); }, folder);
}

/// The folder that DELTA_DATA names, or nothing and a loud line.
std::filesystem::path real_mnist() {
  const char* data = delta::test::environment("DELTA_DATA");
  if (data == nullptr || *data == '\0') {
    delta::test::skip("the tests on real MNIST images", "DELTA_DATA is not set");
    return {};
  }
  return std::filesystem::path(data) / "data" / "mnist";
}

const std::string whole = "; allowed: a whole IDX file, gzip or plain";

}  // namespace

TEST_CASE("the real images: all there, labels right, scaled and normalised") {
  const auto directory = real_mnist();
  if (directory.empty()) return;
  const mnist data(directory);
  CHECK(data.size() == 10'000);
  CHECK(data.training().count == 9'000);
  CHECK(data.evaluation().first == 9'000);
  CHECK(data.channels() == 1);

  std::vector<std::uint32_t> indices(data.size());
  for (std::uint32_t i = 0; i < indices.size(); ++i) indices[i] = i;
  std::vector<float> images(data.size() * 28 * 28);
  std::vector<std::int32_t> labels(data.size());
  data.fill(indices, 28, images.data(), labels.data());
  CHECK(std::vector<std::int32_t>(labels.begin(), labels.begin() + 10) ==
        std::vector<std::int32_t>{7, 2, 1, 0, 4, 1, 4, 9, 5, 9});
  std::array<int, 10> count{};
  for (const auto label : labels) ++count.at(std::size_t(label));
  CHECK(count == std::array<int, 10>{980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009});

  double sum = 0;
  double squares = 0;
  for (const float v : images) {
    sum += v;
    squares += double(v) * v;
  }
  const auto n = double(images.size());
  CHECK(std::abs(sum / n) < 0.02);  // the mean is of the training images
  CHECK(std::sqrt(squares / n) == doctest::Approx(1.0).epsilon(0.02));

  std::vector<float> larger(32 * 32);
  data.fill({{0}}, 32, larger.data(), labels.data());
  double scaled = 0;
  for (const float v : larger) scaled += v;
  double original = 0;
  for (std::size_t i = 0; i < 28 * 28; ++i) original += images[i];
  CHECK(scaled / (32 * 32) == doctest::Approx(original / (28 * 28)).epsilon(0.02));
}

TEST_CASE("plain and gzip files give the same, under every accepted name") {
  for (const std::string part : {"t10k", "train"}) {
    for (const std::string form : {"-idx", ".idx"}) {
      for (const bool gzip : {false, true}) {
        const temporary_folder folder;
        const auto put = [&](const std::string& name, const raw& content) {
          write_file(folder / (name + (gzip ? ".gz" : "")), gzip ? zipped(content) : content);
        };
        put(part + "-images" + form + "3-ubyte", image_file(30));
        put(part + "-labels" + form + "1-ubyte", label_file(30));
        const mnist data(folder.path());
        CHECK(data.size() == 30);
        CHECK(data.evaluation().count == 3);
        std::array<float, 16> image{};
        std::int32_t label = 0;
        data.fill({{13}}, 4, image.data(), &label);
        CHECK(label == 3);
      }
    }
  }
}

TEST_CASE("train and t10k together: train first") {
  const temporary_folder folder;
  write_file(folder / "t10k-images-idx3-ubyte", image_file(2));
  write_file(folder / "t10k-labels-idx1-ubyte", with(label_file(2), 8, 9));
  write_file(folder / "train-images-idx3-ubyte.gz", zipped(image_file(3)));
  write_file(folder / "train-labels-idx1-ubyte", with(label_file(3), 8, 4));
  const mnist data(folder.path());
  CHECK(data.size() == 5);
  std::vector<float> images(5 * 16);
  std::vector<std::int32_t> labels(5);
  data.fill({{0, 1, 2, 3, 4}}, 4, images.data(), labels.data());
  CHECK(labels == std::vector<std::int32_t>{4, 1, 2, 9, 1});
}

TEST_CASE("scaling is bilinear with centres aligned") {
  const temporary_folder folder;
  raw images = image_file(1, 2, 2, 4);
  images[16] = 0, images[17] = 255, images[18] = 255, images[19] = 0;
  write_file(folder / "t10k-images-idx3-ubyte", images);
  write_file(folder / "t10k-labels-idx1-ubyte", label_file(1));
  const mnist data(folder.path());
  const auto shade = [&](float normalised) { return normalised * 0.3081f + 0.1307f; };
  std::array<float, 16> out{};
  std::int32_t label = 0;
  data.fill({{0}}, 2, out.data(), &label);
  for (const auto& [at, wanted] : {std::pair{0u, 0.0f}, {1u, 1.0f}, {2u, 1.0f}, {3u, 0.0f}}) {
    CHECK(shade(out[at]) == doctest::Approx(wanted));
  }
  data.fill({{0}}, 4, out.data(), &label);
  // Along the first row: at the border, a quarter in, three quarters in, at the border.
  CHECK(shade(out[0]) == doctest::Approx(0.0f));
  CHECK(shade(out[1]) == doctest::Approx(0.25f));
  CHECK(shade(out[2]) == doctest::Approx(0.75f));
  CHECK(shade(out[3]) == doctest::Approx(1.0f));
  // One step in from the corner both ways: 2 * 1/4 * 3/4.
  CHECK(shade(out[5]) == doctest::Approx(0.375f));
}

TEST_CASE("broken image files are told apart") {
  const raw good = image_file(3);
  CHECK(why_no_images(good) == "no error");
  CHECK(why_no_images(zipped(good)) == "no error");
  CHECK(why_no_images({}) == "f: truncated in its header" + whole);
  CHECK(why_no_images(first(good, 9)) == "f: truncated in its header" + whole);
  const std::string short_by_one =
      "f: truncated: it has 47 of the 48 bytes that its header announces (3 images of 4 x 4)" +
      whole;
  CHECK(why_no_images(first(good, 63)) == short_by_one);
  CHECK(why_no_images(zipped(first(good, 63))) == short_by_one);
  CHECK(why_no_images(plus(good, 0)) == "f: has bytes after its last item" + whole);
  CHECK(why_no_images(zipped(plus(good, 0))) == "f: has bytes after its last item" + whole);
  CHECK(why_no_images(plus(zipped(good), 0)) == "f: has bytes after its gzip stream" + whole);
  const std::string images = "; allowed: an IDX file of images (magic number 0x803)";
  CHECK(why_no_images(label_file(60)) ==
        "f: mislabelled: holds labels (magic number 0x801)" + images);
  CHECK(why_no_images(with(good, 3, 7)) == "f: magic number 0x807" + images);
  const std::string sane = "; allowed: 1 image or more, sides from 1 to 4096 pixels, 4 GiB in all";
  CHECK(why_no_images(image_file(0)) == "f: its header says 0 images of 4 x 4" + sane);
  CHECK(why_no_images(image_file(1, 0, 4, 0)) == "f: its header says 1 images of 0 x 4" + sane);
  CHECK(why_no_images(image_file(1, 4, 5000, 0)) ==
        "f: its header says 1 images of 4 x 5000" + sane);
  CHECK(why_no_images(image_file(0xffffffffu, 4096, 4096, 0)) ==
        "f: its header says 4294967295 images of 4096 x 4096" + sane);
  CHECK(why_no_images(image_file(200'000'000, 4, 4, 16)) ==  // 3 GB announced: no such allocation
        "f: truncated: it has 16 of the 3200000000 bytes that its header announces (200000000 "
        "images of 4 x 4)" +
            whole);
}

TEST_CASE("broken label files are told apart") {
  CHECK(why_no_labels(label_file(5)) == "no error");
  CHECK(why_no_labels(image_file(3)) ==
        "f: mislabelled: holds images (magic number 0x803); allowed: an IDX file of labels (magic "
        "number 0x801)");
  CHECK(why_no_labels(label_file(0)) == "f: its header says 0 labels; allowed: 1 label or more");
  CHECK(why_no_labels(with(label_file(5), 10, 10)) ==
        "f: label 2 is 10; allowed: labels from 0 to 9");
  CHECK(why_no_labels(zipped(with(label_file(5), 8, 255))) ==
        "f: label 0 is 255; allowed: labels from 0 to 9");
  CHECK(why_no_labels(plus(label_file(5), 1)) == "f: has bytes after its last item" + whole);
}

TEST_CASE("folders that hold no data set are told apart") {
  const temporary_folder folder;
  const auto why = [&] { return why_not([&] { (void)mnist(folder.path()); }, folder); };
  const std::string path = folder.path().string();
  CHECK(why_not([&] { (void)mnist(folder / "missing"); }, folder) ==
        "missing: there is no such folder; allowed: a folder with MNIST's IDX files");
  CHECK(why_not([&] { (void)read_idx_images(folder / "missing"); }, folder) ==
        "missing: there is no such file" + whole);
  CHECK(why_not([&] { (void)read_idx_images(folder.path()); }, folder) ==
        path + ": there is no such file" + whole);
  CHECK(why() == path +
                     ": holds no MNIST files; allowed: t10k-images-idx3-ubyte with "
                     "t10k-labels-idx1-ubyte, or train-*, plain or .gz");
  write_file(folder / "t10k-images-idx3-ubyte", image_file(3));
  CHECK(why() ==
        "t10k-images-idx3-ubyte: its labels are missing; allowed: t10k-images-idx3-ubyte and "
        "t10k-labels-idx1-ubyte together");
  write_file(folder / "t10k-labels-idx1-ubyte", label_file(4));
  CHECK(why() == "t10k-labels-idx1-ubyte: 4 labels for 3 images; allowed: one label per image");
  write_file(folder / "t10k-labels-idx1-ubyte", image_file(3));
  CHECK(why() ==
        "t10k-labels-idx1-ubyte: mislabelled: holds images (magic number 0x803); allowed: an IDX "
        "file of labels (magic number 0x801)");
  write_file(folder / "t10k-labels-idx1-ubyte", label_file(3));
  CHECK(why() == "no error");
  write_file(folder / "train-images-idx3-ubyte", image_file(2, 5, 5, 50));
  write_file(folder / "train-labels-idx1-ubyte", label_file(2));
  CHECK(why() ==
        "t10k-images-idx3-ubyte: its images differ in size from the train-* files'; allowed: one "
        "size for all");
}

TEST_CASE("property: a file cut anywhere is refused, never read as less") {
  const temporary_folder folder;
  for (const bool gzip : {false, true}) {
    for (const raw& good : {image_file(5), label_file(40)}) {
      const raw file = gzip ? zipped(good) : good;
      for (std::size_t size = 0; size < file.size(); ++size) {
        write_file(folder / "f", first(file, size));
        INFO("gzip " << gzip << ", cut to " << size << " of " << file.size());
        if (good[3] == 3) {
          CHECK_THROWS_AS((void)read_idx_images(folder / "f"), data_error);
        } else {
          CHECK_THROWS_AS((void)read_idx_labels(folder / "f"), data_error);
        }
      }
    }
  }
}

TEST_CASE("property: a damaged byte gives the data, or an error; gzip never gives other data") {
  const std::uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::printf("idx_test: damaged bytes from seed %u\n", seed);
  std::mt19937 random(seed);
  const temporary_folder folder;
  const raw good = image_file(20);
  const raw packed = zipped(good);
  const raw pixels(good.begin() + 16, good.end());
  for (int round = 0; round < 500; ++round) {
    const bool gzip = round % 2 == 0;
    const raw& file = gzip ? packed : good;
    const std::size_t at = random() % (gzip ? file.size() : 16);
    const raw damaged = with(file, at, std::uint8_t(file[at] ^ (1u << random() % 8)));
    write_file(folder / "f", damaged);
    INFO("gzip " << gzip << ", byte " << at << ", round " << round);
    try {
      const idx_images images = read_idx_images(folder / "f");
      // Some bytes of gzip's header mean nothing to the data; all of IDX's do.
      CHECK(gzip);
      CHECK(images.pixels == pixels);
    } catch (const data_error&) {
    }
  }
}
