// A libFuzzer target: whatever plans, IDX and CIFAR files, reports, checkpoints, sizes, rates and
// budgets hold, they are read, or refused by their own error in one line. The first byte says which
// reader; run.sh beside it compiles and runs it.
#include <zlib.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command_line.hpp"
#include "cli/option_values.hpp"
#include "cli/options.hpp"
#include "data/cifar.hpp"
#include "data/data_file.hpp"
#include "data/idx.hpp"
#include "delta/policy_names.hpp"
#include "trace/plan_file.hpp"
#include "traces/trace.hpp"
#include "train/checkpoint.hpp"
#include "train/report.hpp"

namespace {

using namespace delta::executor;

void require(bool holds) {
  if (!holds) std::abort();
}
void require_line(std::string_view line) {
  require(!line.empty());
  // What it quotes may be any UTF-8, or none.
  for (const char c : line) require(static_cast<unsigned char>(c) >= ' ' && c != 0x7f);
}

/// A folder of this process alone, which is gone with it.
const std::filesystem::path& folder() {
  static const struct place {
    place() {
      std::string name = std::filesystem::temp_directory_path() / "delta-fuzz-XXXXXX";
      require(mkdtemp(name.data()) != nullptr);
      path = name;
    }
    ~place() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
    std::filesystem::path path;
  } one;
  return one.path;
}
std::filesystem::path written(const char* name, std::string_view text) {
  const std::filesystem::path file = folder() / name;
  std::ofstream(file, std::ios::binary) << text;
  return file;
}

void try_plan(std::string_view text) {
  try {
    (void)parse_plan(text, "input");
  } catch (const delta::bad_trace& bad) {
    require(bad.file() == "input");
    require_line(bad.what());
  }
}

/// Every image at a side, so that what was accepted is used.
void use(const dataset& data) {
  require(data.size() > 0);
  std::array<float, 3 * 9> image{};
  std::int32_t label = -1;
  for (const std::uint32_t i : {std::uint32_t{0}, std::uint32_t(data.size() - 1)}) {
    data.fill(std::span(&i, 1), 3, image.data(), &label);
    require(label >= 0 && label < data.classes());
  }
}
void try_images(std::string_view text) {
  try {
    const idx_images images = read_idx_images(written("images", text));
    require(images.count * images.rows * images.columns == images.pixels.size());
  } catch (const data_error& bad) {
    require_line(bad.what());
  }
  try {
    for (const std::uint8_t label : read_idx_labels(written("labels", text))) require(label < 10);
  } catch (const data_error& bad) {
    require_line(bad.what());
  }
}
void try_cifar(std::string_view text) {
  // Any two parts of it.
  const std::size_t half = text.size() / 2;
  written("data_batch_1.bin", text.substr(0, half));
  written("test_batch.bin", text.substr(half));
  for (int i = 2; i <= 5; ++i)
    written(("data_batch_" + std::to_string(i) + ".bin").c_str(), text.substr(0, half));
  try {
    use(cifar10(folder()));
  } catch (const data_error& bad) {
    require_line(bad.what());
  }
}

void try_report(std::string_view text) {
  try {
    const train_report read = read_json(written("report.json", text));
    // What was read can be written, and is the same then.
    const auto again = folder() / "again.json";
    write_json(read, again);
    const train_report same = read_json(again);
    require(same.model == read.model && same.steps == read.steps &&
            same.losses.size() == read.losses.size());
  } catch (const std::runtime_error& bad) {
    require_line(bad.what());
  }
}

/// The first byte says which flag's value it is.
void try_flags(std::string_view text) {
  if (text.empty()) return;
  const auto which = static_cast<unsigned char>(text[0]);
  const std::string value(text.substr(1, text.find('\0', 1) - 1));
  constexpr std::array flags{"--budget",  "--steps", "--lr",           "--lr-steps",
                             "--dropout", "--data",  "--update-group", "--max-overhead"};
  try {
    if (which % 2 == 0) {
      require(size_of("--host-budget", value).count < std::uint64_t{1} << 63u);
      require(rate_of("--copy-rate", value) > 0);
    } else {
      const std::array<const char*, 3> words{"delta-train", flags[which / 2 % flags.size()],
                                             value.c_str()};
      const command read = parse_options(int(words.size()), words.data(), delta::named_policies);
      const delta::bytes budget = read.options.budget.resolve(delta::bytes{1000000});
      require(read.options.budget.what != budget_choice::kind::percent || budget.count <= 1000000);
    }
  } catch (const usage_error& bad) {
    require_line(bad.what());
  }
}

/// As it is, and with a size and a checksum that are right.
void try_checkpoint(std::string text) {
  const auto put = [&](std::size_t at, std::uint64_t number, int size) {
    for (int i = 0; i < size; ++i) text[at + std::size_t(i)] = char(number >> (8 * i) & 0xff);
  };
  for (const bool sealed : {false, true}) {
    if (sealed) {
      if (text.size() < 24) return;
      const std::size_t end = text.size() - 4;
      put(12, text.size(), 8);
      put(end, crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), end), 4);
    }
    try {
      const checkpoint read = parse_checkpoint(text, "input");
      require(read.head.losses.size() == read.head.step);
      for (const checkpoint::tensor& t : read.tensors) {
        std::vector<std::byte> bytes(t.size);
        read.copy(t, bytes);
      }
    } catch (const usage_error& bad) {
      require_line(bad.what());
    }
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'p':
      try_plan(text);
      break;
    case 'i':
      try_images(text);
      break;
    case 'c':
      try_cifar(text);
      break;
    case 'r':
      try_report(text);
      break;
    case 'f':
      try_flags(text);
      break;
    case 'k':
      try_checkpoint(std::string(text));
      break;
    default:
      return -1;  // not for the corpus
  }
  return 0;
}
