// Checkpoint files: what is written is read, a file that differs by any bit or byte is refused in a
// line, and a file that can't be written leaves the old one.
#include "train/checkpoint.hpp"

#include <doctest/doctest.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "cli/command_line.hpp"
#include "cli/durable_file.hpp"
#include "temporary_folder.hpp"
#include "tool.hpp"

using namespace delta::executor;
using namespace delta::test;

namespace {

const checkpoint_head head{.step = 2,
                           .operators = 468,
                           .memory = 1 << 20,
                           .flags = {{"--model", "resnet20"}, {"--lr", "0.1"}},
                           .losses = {2.5f, std::numeric_limits<float>::quiet_NaN()},
                           .accuracies = {0.25}};
const std::vector<saved_tensor> tensors{{.name = "conv1.weight", .size = 24},
                                        {.name = "empty", .size = 0},
                                        {.name = "fc.bias", .size = 8}};

void write(const std::filesystem::path& file) {
  write_checkpoint(file, head, tensors, [](std::size_t i, std::span<std::byte> to) {
    std::ranges::fill(to, std::byte(i + 1));
  });
}

std::string refusal(const std::string& content) {
  try {
    (void)parse_checkpoint(content, "file");
  } catch (const usage_error& error) {
    const std::string line = error.what();
    CHECK_MESSAGE(line.starts_with("--resume: 'file' "), line);
    CHECK_MESSAGE(line.find("; allowed: ") != std::string::npos, line);
    CHECK_MESSAGE(line.find('\n') == std::string::npos, line);
    return line;
  }
  return "";
}

/// As whoever wrote such a file on purpose.
std::string sealed(std::string content) {
  const std::size_t end = content.size() - 4;
  const auto sum =
      std::uint32_t(crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), uInt(end)));
  for (std::size_t i = 0; i < 4; ++i) content[end + i] = char(sum >> (8 * i) & 0xff);
  return content;
}

std::string error_of(auto&& f) {
  try {
    f();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("what is written is read, and nothing else is left") {
  const temporary_folder folder;
  const auto file = folder / "state";
  write_file(folder / "state.tmp", std::vector<std::uint8_t>(9999, 7));  // of a killed process
  write(file);
  const checkpoint read = read_checkpoint(file);
  CHECK(read.head.step == head.step);
  CHECK(read.head.operators == head.operators);
  CHECK(read.head.memory == head.memory);
  CHECK(read.head.flags == head.flags);
  CHECK(std::memcmp(read.head.losses.data(), head.losses.data(), 8) == 0);
  CHECK(read.head.accuracies == head.accuracies);
  REQUIRE(read.tensors.size() == tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    CHECK(read.tensors[i].name == tensors[i].name);
    std::vector<std::byte> bytes(tensors[i].size);
    read.copy(read.tensors[i], bytes);
    CHECK(std::ranges::all_of(bytes, [&](std::byte b) { return b == std::byte(i + 1); }));
  }
  CHECK_FALSE(std::filesystem::exists(folder / "state.tmp"));
}

TEST_CASE("any bit that differs, any end that is missing, any byte more: refused in a line") {
  const temporary_folder folder;
  write(folder / "state");
  const std::string whole = read_text(folder / "state");
  REQUIRE(refusal(whole).empty());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    CHECK_MESSAGE(!refusal(whole.substr(0, i)).empty(), i);
    for (int bit = 0; bit < 8; ++bit) {
      std::string other = whole;
      other[i] = char(other[i] ^ (1 << bit));
      CHECK_MESSAGE(!refusal(other).empty(), i);
    }
  }
  CHECK(refusal(whole + '\0').find("goes on behind its end") != std::string::npos);
  std::string later = whole;
  later[8] = 2;
  CHECK(refusal(later) ==
        "--resume: 'file' is of format 2; allowed: format 1, as this delta-train writes it");
  CHECK(refusal("another file").find("is no checkpoint") != std::string::npos);
}

TEST_CASE("a right checksum over wrong counts and sizes: read or refused, no memory taken") {
  const temporary_folder folder;
  write(folder / "state");
  const std::string whole = read_text(folder / "state");
  for (std::size_t i = 8; i + 4 < whole.size(); ++i)
    for (const std::size_t n : {1u, 2u, 4u, 8u})
      for (const char value : {'\0', '\1', '\x7f', '\xff'}) {
        std::string other = whole;
        for (std::size_t k = i; k < std::min(i + n, other.size() - 4); ++k) other[k] = value;
        (void)refusal(sealed(other));
      }
}

TEST_CASE("what is no file that can be read: refused in a line") {
  const temporary_folder folder;
  const auto line = [&](const std::filesystem::path& file) {
    return error_of([&] { (void)read_checkpoint(file); });
  };
  CHECK(line(folder.path()).ends_with("' is no regular file; allowed: a file that --save wrote"));
  CHECK(line(folder / "none").find("can't be read: there is no such file") != std::string::npos);
  CHECK(line("/dev/zero").find("is no regular file") != std::string::npos);
  write_file(folder / "empty", {});
  CHECK(line(folder / "empty").find("is cut off") != std::string::npos);
  // Larger than any memory, and nearly all of it holes.
  write(folder / "sparse");
  std::filesystem::resize_file(folder / "sparse", std::uintmax_t{1} << 42);
  CHECK(line(folder / "sparse").find("goes on behind its end") != std::string::npos);
  write(folder / "secret");
  std::filesystem::permissions(folder / "secret", std::filesystem::perms::none);
  if (geteuid() != 0) CHECK(line(folder / "secret").find("can't be read: ") != std::string::npos);
}

TEST_CASE("a write that fails on the way: the old file stays, and nothing else") {
  const temporary_folder folder;
  const auto file = folder / "state";
  write(file);
  const std::string before = read_text(file);
  const std::string line = error_of([&] {
    write_checkpoint(file, head, tensors, [](std::size_t i, std::span<std::byte>) {
      if (i == 1) throw std::runtime_error("a tensor that can't be read");
    });
  });
  CHECK(line == "a tensor that can't be read");
  CHECK(read_text(file) == before);
  CHECK_FALSE(std::filesystem::exists(folder / "state.tmp"));
}

TEST_CASE("a file that is written again keeps its permissions") {
  const temporary_folder folder;
  using std::filesystem::perms;
  write(folder / "state");
  std::filesystem::permissions(folder / "state", perms::owner_read | perms::owner_write);
  write(folder / "state");
  CHECK(std::filesystem::status(folder / "state").permissions() ==
        (perms::owner_read | perms::owner_write));
}

TEST_CASE("one process writes a file at a time; a link's own file is replaced; folders are not") {
  const temporary_folder folder;
  const auto file = folder / "state";
  {
    const durable_file first("--save", file);
    CHECK(error_of([&] { const durable_file second("--save", file); }) ==
          "--save: '" + file.string() + "' can't be written: another process is writing it");
  }
  write(file);
  std::filesystem::create_symlink(file, folder / "link");
  std::filesystem::remove(folder / "link.tmp");
  write(folder / "link");
  CHECK(std::filesystem::is_symlink(folder / "link"));
  std::filesystem::create_symlink("later", folder / "to nothing");
  write(folder / "to nothing");
  CHECK(std::filesystem::is_symlink(folder / "to nothing"));
  CHECK(read_checkpoint(folder / "later").head.step == head.step);
  std::filesystem::create_symlink("circle", folder / "circle");
  CHECK(!error_of([&] { write(folder / "circle"); }).empty());
  CHECK(error_of([&] {
          const durable_file other("--save", folder.path());
        }).ends_with("can't be written: it is no regular file"));
  std::filesystem::create_directory(folder / "state.tmp");
  CHECK(error_of([&] { write(file); }).find("can't be written: ") != std::string::npos);
  CHECK(read_checkpoint(file).head.step == head.step);
}
