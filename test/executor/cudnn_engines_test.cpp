// cuDNN's engines on GPUs that are only described: what the rule chooses keeps to its promises and
// can be planned, and the page of engines says what this version of cuDNN says.
#include "cuda/cudnn_engines.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "device/cuda_error.hpp"
#include "operator_cases.hpp"
#include "skip.hpp"
#include "train/engine_table.hpp"

#if defined(DELTA_HAS_CUDNN)
#include "cuda/cudnn_descriptors.hpp"
#endif

using namespace delta::executor;
using delta::bytes;
using delta::operator""_GiB;
using delta::operator""_MiB;

namespace {

const std::filesystem::path source = DELTA_SOURCE_DIR;
const std::filesystem::path page = source / "docs/results/gpu_counted.md";
const std::filesystem::path rows = source / "test/reference/gpu_engines.json";

gpu_description described(std::string_view name) {
  return read_gpu(source / "executor/tools/gpus" / (std::string(name) + ".json"));
}

/// Newer versions answer for no GPU where the driver's library is missing.
bool answers() {
  constexpr int library_missing = 1008;  // CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED
  try {
    (void)convolution_engines(*described("h100").gpu, operator_type::conv_forward,
                              {1, 8, 8, 4, 4, 3, 3, 1, 1});
  } catch (const cuda_error& e) {
    if (e.failure.code != library_missing) throw;
    return false;
  }
  return true;
}

bool skipped(const char* what) {
  const bool there = !cudnn_engines_version().empty();
  if (there && answers()) return false;
  delta::test::skip(what, there ? "cuDNN " + cudnn_engines_version() + " lacks a library here"
                                : "this build has no cuDNN 9.8 or newer");
  return true;
}

constexpr operator_type passes[] = {operator_type::conv_forward, operator_type::conv_backward_data,
                                    operator_type::conv_backward_filter};

/// Of the kinds that models have: a stem, 1x1, 3x3, strides, groups, one group a channel, and sizes
/// that nothing divides.
const std::vector<conv_shape> shapes{{32, 224, 224, 3, 64, 7, 7, 2, 3},
                                     {32, 56, 56, 64, 256, 1, 1, 1, 0},
                                     {32, 28, 28, 128, 128, 3, 3, 1, 1},
                                     {32, 56, 56, 256, 512, 1, 1, 2, 0},
                                     {32, 56, 56, 128, 128, 3, 3, 1, 1, 32},
                                     {32, 28, 28, 64, 64, 3, 3, 1, 1, 64},
                                     {3, 9, 7, 5, 6, 3, 3, 2, 1}};

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("what is chosen keeps its promises, can be planned, and is chosen again") {
  if (skipped("cuDNN's engines")) return;
  int chosen = 0;
  for (const char* name : {"h100", "rtx4090"}) {
    const gpu_description gpu = described(name);
    const gpu_description twin = described(name);
    for (const conv_shape& shape : shapes)
      for (const operator_type pass : passes)
        for (const bool tf32 : {false, true})
          for (const bytes room : {bytes{}, 1_GiB}) {
            CAPTURE(name);
            CAPTURE(shape.c);
            CAPTURE(int(pass));
            const engine_rule rule{tf32, room};
            const auto found = convolution_engine(*gpu.gpu, rule, pass, shape);
            if (!found) continue;
            ++chosen;
            CHECK(refusal_of(*found, rule) == engine_refusal::none);
            CHECK(found->workspace <= room);
            CHECK_FALSE(found->notes.nondeterministic);
            if (!tf32) CHECK_FALSE(found->notes.tensor_core);
            const auto again = convolution_engine(*twin.gpu, rule, pass, shape);
            REQUIRE(again);
            CHECK(to_string(*again) == to_string(*found));
            CHECK(again->workspace == found->workspace);
          }
  }
  CHECK(chosen > 100);  // of 168: with no room for a workspace some have none
}

TEST_CASE("there is an engine in float32 and with TF32, and TF32's is on tensor cores") {
  if (skipped("cuDNN's engines on an H100")) return;
  const gpu_description gpu = described("h100");
  for (const conv_shape& shape : shapes)
    for (const operator_type pass : passes) {
      CAPTURE(shape.c);
      CAPTURE(int(pass));
      CHECK(convolution_engine(*gpu.gpu, {false, most_workspace}, pass, shape));
      const auto fast = convolution_engine(*gpu.gpu, {true, most_workspace}, pass, shape);
      REQUIRE(fast);
      // With one channel a group there is nothing for them to multiply.
      if (shape.c % 4 == 0 && shape.groups < shape.c) CHECK(fast->notes.tensor_core);
    }
}

TEST_CASE("cuDNN has an answer for every convolution that the operators are tested with") {
  if (skipped("cuDNN's engines for small convolutions")) return;
  const gpu_description gpu = described("h100");
  auto cases = operator_cases::fixed_cases();
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    for (auto& c : operator_cases::random_cases(seed)) cases.push_back(std::move(c));
  int convolutions = 0;
  for (const auto& c : cases) {
    const graph g = c.make_graph();
    const auto* shape = std::get_if<conv_shape>(&g.nodes[0].shape);
    if (!shape) continue;
    CAPTURE(c.text);
    ++convolutions;
    CHECK(convolution_engine(*gpu.gpu, {false, most_workspace}, g.nodes[0].type, *shape));
  }
  CHECK(convolutions > 50);
}

TEST_CASE("a GPU that cuDNN can't make out is an error of one line") {
  if (skipped("descriptions of GPUs")) return;
  for (const char* json : {"", "{", "{}", "{\"deviceName\": \"none\"}"}) {
    CAPTURE(json);
    try {
      const auto none = described_gpu(json);
      FAIL("there is no such GPU");
    } catch (const cuda_error& e) {
      CHECK(std::string_view(e.what()).find('\n') == std::string_view::npos);
    }
  }
}

TEST_CASE("the page of engines has the rows of its JSON, of the larger batch") {
  const written_rows written = read_rows(rows);
  CHECK(written.rows.size() == 4 * 3 * 2 * 2);
  const std::string text = read(page);
  CHECK(text.find("cuDNN " + written.version) != std::string::npos);
  const auto as_on_h100 = [&](const engine_row& row) {
    return std::ranges::any_of(written.rows, [&](const engine_row& other) {
      return other.gpu.starts_with("NVIDIA H100") && other.model == row.model &&
             other.batch == row.batch && other.tf32 == row.tf32 && other.rooms == row.rooms;
    });
  };
  for (const engine_row& row : written.rows) {
    CAPTURE(line_of(row));
    if (row.gpu == "NVIDIA H200")
      CHECK(as_on_h100(row));
    else if (row.batch == 128)
      CHECK(text.find(line_of(row) + "\n") != std::string::npos);
    // What is worth reading there.
    for (const room_outcome& room : row.rooms) CHECK(room.without == 0);
    if (row.tf32) CHECK(row.rooms[0].tensor_core > row.convolutions / 2);
    if (!row.tf32) CHECK(row.rooms[0].tensor_core == 0);
    CHECK(bytes{row.rooms[0].largest} <= most_workspace);
  }
}

TEST_CASE("the rows of engines are what this cuDNN says") {
  if (skipped("the rows of engines")) return;
  const written_rows written = read_rows(rows);
  if (written.version != cudnn_engines_version()) {
    delta::test::skip("the rows of engines",
                      "it is of cuDNN " + written.version + ", this is " + cudnn_engines_version());
    return;
  }
  for (const char* name : {"a100", "h100", "h200", "rtx4090"}) {
    const gpu_description gpu = described(name);
    for (const char* model : {"resnet50", "resnext50_32x4d"}) {
      const engine_table table(model, 128, gpu);
      for (const bool tf32 : {true, false}) {
        const engine_row row = table.row(tf32);
        CAPTURE(line_of(row));
        CHECK(std::count(written.rows.begin(), written.rows.end(), row) == 1);
      }
    }
  }
}

#if defined(DELTA_HAS_CUDNN)
TEST_CASE("what cuDNN can't do is an answer; what fails otherwise is an error") {
  CHECK(supported(CUDNN_STATUS_SUCCESS, "asking"));
  CHECK_FALSE(supported(CUDNN_STATUS_NOT_SUPPORTED, "asking"));
  CHECK_FALSE(supported(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "asking"));
  // As on a context that is lost; naming_loss says which it was.
  CHECK_THROWS_AS(supported(CUDNN_STATUS_EXECUTION_FAILED, "asking"), cuda_error);
  CHECK_THROWS_AS(supported(CUDNN_STATUS_INTERNAL_ERROR, "asking"), cuda_error);
}
#endif
