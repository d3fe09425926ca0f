// How fast traces are read: bytes of uncompressed text per second. The real one is read from its
// gzip file where DELTA_DATA names a folder with traces/.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "data/byte_source.hpp"
#include "trace/delta_format.hpp"
#include "trace/file.hpp"
#include "traces/trace.hpp"

namespace {

using namespace delta;
using namespace delta::executor;

/// A trace of DTR: layers of a convolution, a normalisation with small results and a view, with
/// names that are shared and released as PyTorch does it.
std::string dtr_text(std::size_t layers) {
  std::string text = "{\"ANNOTATION\":\"START\",\"INSTRUCTION\":\"ANNOTATE\"}\n";
  std::uint64_t last = 10'000;
  const auto name = [](std::uint64_t n) { return "\"x" + std::to_string(n) + "\""; };
  const auto memory = [&](std::uint64_t n, std::uint64_t size) {
    text += R"({"INSTRUCTION":"MEMORY","MEMORY":")" + std::to_string(size) + R"(","NAME":)" +
            name(n) + "}\n";
  };
  const auto result = [&](std::uint64_t n, std::uint64_t size, const char* alias) {
    memory(n, size);
    text += std::string(R"({"ALIAS":")") + alias + R"(","INSTRUCTION":"ALIAS","NAME":)" + name(n) +
            "}\n";
  };
  const auto release = [&](std::uint64_t n) {
    text += R"({"INSTRUCTION":"RELEASE","NAME":)" + name(n) + "}\n";
  };
  const auto constant = [&](std::uint64_t size) {
    text += R"({"INSTRUCTION":"CONSTANT","NAME":)" + name(++last) + "}\n";
    memory(last, size);
    return last;
  };
  std::uint64_t x = constant(50'331'648);
  for (std::size_t i = 0; i < layers; ++i) {
    const std::uint64_t weight = constant(147'456);
    const std::uint64_t y = ++last;
    text += R"({"ARGS":[)" + name(x) + "," + name(weight) +
            R"(],"INSTRUCTION":"CALL","NAME":"cudnn_convolution","RESULT":[)" + name(y) +
            R"(],"TIME":"1783593"})" + "\n";
    result(y, 50'331'648, "-1");
    const std::uint64_t copy = ++last;
    text += R"({"DST":)" + name(copy) + R"(,"INSTRUCTION":"COPY","SRC":)" + name(y) + "}\n";
    const std::uint64_t z = ++last;
    const std::uint64_t mean = ++last;
    const std::uint64_t view = ++last;
    text += R"({"ARGS":[)" + name(y) + R"(],"INSTRUCTION":"CALL","NAME":"norm","RESULT":[)" +
            name(z) + "," + name(mean) + "," + name(view) + R"(],"TIME":"829564"})" + "\n";
    result(z, 50'331'648, "-1");
    result(mean, 256, "-1");
    result(view, 50'331'648, "0");
    for (const std::uint64_t dead : {y, mean, copy, view, x}) release(dead);
    x = z;
  }
  return text;
}

constexpr std::size_t layers = 20'000;

void parse(benchmark::State& state, const std::string& text) {
  for (auto _ : state) {
    trace t = parse_trace(text, "bench");
    benchmark::DoNotOptimize(t.events.data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}

void parse_dtr(benchmark::State& state) {
  parse(state, dtr_text(layers));
}
void parse_delta(benchmark::State& state) {
  parse(state, to_text(parse_trace(dtr_text(layers), "bench")));
}
void write_delta(benchmark::State& state) {
  const trace t = parse_trace(dtr_text(layers), "bench");
  std::size_t size = 0;
  for (auto _ : state) size = to_text(t).size();
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(size));
}
void check_trace(benchmark::State& state) {
  const trace t = parse_trace(dtr_text(layers), "bench");
  for (auto _ : state) check(t);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(t.events.size()));
}

std::size_t uncompressed_size(const std::filesystem::path& path) {
  byte_source source(path);
  std::vector<std::uint8_t> piece(1u << 16);
  std::size_t size = 0;
  while (const std::size_t got = source.read(piece.data(), piece.size())) size += got;
  return size;
}

void read_lstm(benchmark::State& state) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here changes the environment
  const char* const data = std::getenv("DELTA_DATA");
  if (data == nullptr || *data == '\0') {
    state.SkipWithError("SKIPPED: DELTA_DATA is not set");
    return;
  }
  const auto path = std::filesystem::path(data) / "traces" / "lstm.log.gz";
  const std::size_t size = uncompressed_size(path);
  for (auto _ : state) {
    trace t = read_trace(path);
    benchmark::DoNotOptimize(t.events.data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(size));
}

}  // namespace

BENCHMARK(parse_dtr)->Unit(benchmark::kMillisecond);
BENCHMARK(parse_delta)->Unit(benchmark::kMillisecond);
BENCHMARK(write_delta)->Unit(benchmark::kMillisecond);
BENCHMARK(check_trace)->Unit(benchmark::kMillisecond);
BENCHMARK(read_lstm)->Unit(benchmark::kMillisecond);

BENCHMARK_MAIN();
