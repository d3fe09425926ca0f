// CIFAR-10's files, written here: what their images become, and every way in which one can be
// broken.
#include "data/cifar.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "data_files.hpp"
#include "training.hpp"

using namespace delta::executor;
using namespace delta::test;

namespace {

constexpr std::size_t record = 3073;

/// A byte of an image that differs between images, planes and neighbours.
std::uint8_t shade(std::size_t image, std::size_t byte) {
  return std::uint8_t((image * 41 + byte * 7 + byte / 1024 * 90) % 256);
}

/// Records `first` .. `first + count - 1` of one long sequence with labels 0, 1, ..., 9, 0, ...
raw records(std::size_t first, std::size_t count) {
  raw file;
  for (std::size_t i = first; i < first + count; ++i) {
    file.push_back(std::uint8_t(i % 10));
    for (std::size_t k = 0; k < record - 1; ++k) file.push_back(shade(i, k));
  }
  return file;
}

std::string batch_name(int number) {
  return "data_batch_" + std::to_string(number) + ".bin";
}

/// Two images in each of the five files, three in the last.
void write_all(const temporary_folder& folder, bool gzip = false) {
  const auto put = [&](const std::string& name, const raw& content) {
    write_file(folder / (name + (gzip ? ".gz" : "")), gzip ? zipped(content) : content);
  };
  for (int i = 1; i <= 5; ++i) put(batch_name(i), records(std::size_t(i - 1) * 2, 2));
  put("test_batch.bin", records(10, 3));
}

std::string why_no_cifar(const temporary_folder& folder) {
  return why_not([&] { (void)cifar10(folder.path()); }, folder);
}

const std::string whole_records =
    "; allowed: whole records of 1 label and 3072 pixels, gzip or plain";

}  // namespace

TEST_CASE(
    "images and labels in the order of the files, plain or gzip; the test file is held back") {
  for (const bool gzip : {false, true}) {
    const temporary_folder folder;
    write_all(folder, gzip);
    const cifar10 data(folder.path());
    CHECK(data.size() == 13);
    CHECK(data.channels() == 3);
    CHECK(data.classes() == 10);
    CHECK(data.training().first == 0);
    CHECK(data.training().count == 10);
    CHECK(data.evaluation().first == 10);
    CHECK(data.evaluation().count == 3);

    const std::vector<std::uint32_t> indices{11, 3};
    std::vector<float> images(2 * 32 * 32 * 3);
    std::array<std::int32_t, 2> labels{};
    data.fill(indices, 32, images.data(), labels.data());
    CHECK(labels == std::array<std::int32_t, 2>{1, 3});
    // NHWC from planes, and the usual mean and deviation of each channel.
    const std::array<double, 3> mean{0.4914, 0.4822, 0.4465}, deviation{0.2470, 0.2435, 0.2616};
    double worst = 0;
    for (std::size_t i = 0; i < images.size(); ++i) {
      const std::size_t image = i / (1024 * 3), pixel = i / 3 % 1024, c = i % 3;
      const double value = shade(indices[image], c * 1024 + pixel) / 255.0;
      worst = std::max(worst, std::abs(double(images[i]) - (value - mean[c]) / deviation[c]));
    }
    CHECK(worst < 1e-5);
  }
}

TEST_CASE("every channel is scaled by itself, bilinearly with centres aligned") {
  const temporary_folder folder;
  write_all(folder);
  raw one(record);
  // Red rises from left to right, green from top to bottom, blue is 100 everywhere.
  for (std::size_t y = 0; y < 32; ++y) {
    for (std::size_t x = 0; x < 32; ++x) {
      one[1 + y * 32 + x] = std::uint8_t(8 * x);
      one[1 + 1024 + y * 32 + x] = std::uint8_t(8 * y);
      one[1 + 2048 + y * 32 + x] = 100;
    }
  }
  write_file(folder / "test_batch.bin", one);
  const cifar10 data(folder.path());
  std::array<float, 16 * 16 * 3> out{};
  std::int32_t label = -1;
  data.fill({{10}}, 16, out.data(), &label);
  CHECK(label == 0);
  for (const std::size_t y : {0u, 5u, 15u}) {
    for (const std::size_t x : {0u, 9u, 15u}) {
      const float* pixel = out.data() + (y * 16 + x) * 3;
      const auto bytes = [&](std::size_t c, double mean, double deviation) {
        return (double(pixel[c]) * deviation + mean) * 255;
      };
      CHECK(bytes(0, 0.4914, 0.2470) == doctest::Approx(16 * double(x) + 4));  // between two
      CHECK(bytes(1, 0.4822, 0.2435) == doctest::Approx(16 * double(y) + 4));
      CHECK(bytes(2, 0.4465, 0.2616) == doctest::Approx(100));
    }
  }
}

TEST_CASE("a file that is missing is named, whichever it is") {
  const std::string allowed =
      ": there is no such file; allowed: data_batch_1.bin to data_batch_5.bin and test_batch.bin "
      "together, plain or .gz";
  for (const std::string& name : {batch_name(1), batch_name(5), std::string("test_batch.bin")}) {
    const temporary_folder folder;
    write_all(folder);
    CHECK(why_no_cifar(folder) == "no error");
    std::filesystem::remove(folder / name);
    CHECK(why_no_cifar(folder) == name + allowed);
  }
  const temporary_folder folder;
  CHECK(why_not([&] { (void)cifar10(folder / "missing"); }, folder) ==
        "missing: there is no such folder; allowed: a folder with CIFAR-10's binary files");
}

TEST_CASE("broken files are told apart, by record and byte") {
  const temporary_folder folder;
  const auto why = [&](const raw& content) {
    write_all(folder);
    write_file(folder / batch_name(3), content);
    return why_no_cifar(folder);
  };
  const raw good = records(0, 2);
  CHECK(why(good) == "no error");
  CHECK(why({}) == "data_batch_3.bin: holds no record" + whole_records);
  CHECK(why(zipped({})) == "data_batch_3.bin: holds no record" + whole_records);
  CHECK(why(plus(good, 0)) ==
        "data_batch_3.bin: truncated: record 2 (byte 6146) has 1 of its 3073 bytes" +
            whole_records);
  const std::string second =
      "data_batch_3.bin: truncated: record 1 (byte 3073) has 3072 of its 3073 bytes" +
      whole_records;
  CHECK(why(first(good, 2 * record - 1)) == second);
  CHECK(why(zipped(first(good, 2 * record - 1))) == second);
  CHECK(why(with(good, record, 10)) ==
        "data_batch_3.bin: the label of record 1 (byte 3073) is 10; allowed: labels from 0 to 9");
  CHECK(why(with(good, 0, 255)) ==
        "data_batch_3.bin: the label of record 0 (byte 0) is 255; allowed: labels from 0 to 9");
  CHECK(why(plus(zipped(good), 0)) ==
        "data_batch_3.bin: has bytes after its gzip stream" + whole_records);
  CHECK(why(first(zipped(good), 100)) ==
        "data_batch_3.bin: truncated: the gzip stream does not end" + whole_records);
}

TEST_CASE("property: a file cut within a record is refused, never read as less") {
  const temporary_folder folder;
  write_all(folder);
  const raw good = records(10, 3);
  for (std::size_t size = 0; size < good.size(); size += size % 5 + 1) {
    write_file(folder / "test_batch.bin", first(good, size));
    INFO("cut to " << size);
    if (size > 0 && size % record == 0) continue;
    CHECK_THROWS_AS((void)cifar10(folder.path()), data_error);
  }
}

TEST_CASE("a run trains on them, evaluates on the test file, and reports their name") {
  const temporary_folder folder;
  write_all(folder);
  train_options o = unmanaged({.model = "resnet20", .image = 8, .batch = 5, .steps = 2});
  o.data = {.what = data_choice::kind::cifar10, .directory = folder.path()};
  o.evaluate = true;
  const train_report r = train(o);
  CHECK(r.data == "cifar10");
  CHECK(r.losses.size() == 2);
  CHECK(r.evaluation_accuracy.size() == 1);  // two batches of five are the epoch
  o.batch = 11;
  CHECK_THROWS_WITH_AS((void)train(o),
                       "--batch: 11 images are more than the data has for training; allowed: 1 to "
                       "10",
                       usage_error);
}
