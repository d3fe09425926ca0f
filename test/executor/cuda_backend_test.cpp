// Every operator on a GPU against the CPU's, with cuDNN and with our own kernels; where there is no
// GPU, what is said of it. The way operators are run here is tried out on the CPU's machine.
#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <string_view>

#include "backend/backend.hpp"
#include "cuda/cudnn_operators.hpp"
#include "device/cuda_error.hpp"
#include "operator_cases.hpp"
#include "seeds.hpp"
#include "skip.hpp"

#if defined(DELTA_HAS_CUDNN)
#include "cuda/cudnn_descriptors.hpp"
#endif

using namespace operator_cases;
using delta::bytes;
using delta::fence;

namespace {

/// Sums of up to some thousand products in float, in another order than the CPU's.
constexpr double tolerance = 1e-5;
/// cuDNN may pick Winograd's algorithm, whose transformations cost a digit.
constexpr double cudnn_tolerance = 1e-4;

/// Runs operators in a machine's memory, every operand between two guards.
class bench {
 public:
  explicit bench(backend& b) : backend_(b), machine_(b.open()) {}

  results run(const operator_case& c, bool replay = false) {
    graph g = c.make_graph();
    backend_.bind(g);
    const node& n = g.nodes[0];
    contents image;
    std::vector<std::size_t> at;
    const auto place = [&](const contents& part) {
      at.push_back(image.size() + guard);
      image.resize(at.back(), mark);
      image.insert(image.end(), part.begin(), part.end());
      const auto step = std::size_t(backend_.granularity());
      image.resize((image.size() + guard + step - 1) / step * step, mark);
    };
    std::uint32_t seed = 1;
    for (const auto& o : c.inputs) place(o.draw(seed++));
    for (const auto& o : c.updates) place(o.draw(seed++));
    for (const auto& o : c.outputs) place(contents(o.bytes(), std::byte{0xFF}));
    place(contents(n.workspace, std::byte{0xFF}));
    reserve(image.size());
    std::memcpy(machine_->map(memory_, size_of(image), false), image.data(), image.size());
    machine_->unmap(true);

    std::vector<const std::byte*> in;
    std::vector<std::byte*> out, update;
    std::size_t next = 0;
    while (in.size() < c.inputs.size()) in.push_back(memory_ + at[next++]);
    while (update.size() < c.updates.size()) {
      update.push_back(replay ? nullptr : memory_ + at[next]);
      ++next;
    }
    while (out.size() < c.outputs.size()) out.push_back(memory_ + at[next++]);
    static thread_pool pool(1);
    machine_->begin(fence{});
    n.run({in.data(), out.data(), update.data(), memory_ + at[next], replay, 77, pool});
    machine_->wait(machine_->end());

    contents after(image.size());
    std::memcpy(after.data(), machine_->map(memory_, size_of(after), true), after.size());
    machine_->unmap(false);
    return taken(c, n.workspace, at, image, after);
  }

 private:
  static constexpr std::size_t guard = 512;
  static constexpr std::byte mark{0xA5};

  static bytes size_of(const contents& c) { return bytes{c.size()}; }

  /// A machine's memory is asked for once, so a larger case takes another machine.
  void reserve(std::size_t n) {
    if (n <= capacity_) return;
    if (memory_) machine_ = backend_.open();
    capacity_ = 2 * n;
    memory_ = machine_->device_memory(bytes{capacity_});
  }

  /// The outputs and updates, having checked that nothing else has changed.
  static results taken(const operator_case& c, std::size_t workspace,
                       const std::vector<std::size_t>& at, const contents& before,
                       contents& after) {
    results outputs, updates;
    std::size_t next = c.inputs.size();
    const auto take = [&](std::size_t n, results* to) {
      const auto first = after.begin() + std::ptrdiff_t(at[next]);
      if (to) to->emplace_back(first, first + std::ptrdiff_t(n));
      std::copy_n(before.begin() + std::ptrdiff_t(at[next++]), n, first);
    };
    for (const auto& o : c.updates) take(o.bytes(), &updates);
    for (const auto& o : c.outputs) take(o.bytes(), &outputs);
    take(workspace, nullptr);
    CHECK(after == before);
    outputs.insert(outputs.end(), updates.begin(), updates.end());
    return outputs;
  }

  backend& backend_;
  std::unique_ptr<machine> machine_;
  std::size_t capacity_ = 0;
  std::byte* memory_ = nullptr;
};

bool skipped(const char* what) {
  if (cuda_answers()) return false;
  delta::test::skip(what, cuda_support().empty() ? "this build has no CUDA" : "there is no GPU");
  return true;
}

bool convolves(operator_type t) {
  return t == operator_type::conv_forward || t == operator_type::conv_backward_data ||
         t == operator_type::conv_backward_filter;
}

void check_cases(bench& on, const std::vector<operator_case>& cases, double for_convolutions,
                 double for_others) {
  for (const auto& c : cases) {
    CAPTURE(c.text);
    const auto got = on.run(c);
    CHECK(difference(c, got, run_on_cpu(c)) < (convolves(c.type) ? for_convolutions : for_others));
    CHECK(on.run(c) == got);
  }
}

}  // namespace

TEST_CASE("the bench gives what the CPU gives, on the CPU") {
  const auto cpu = make_cpu_backend({});
  bench on(*cpu);
  for (const auto& c : fixed_cases()) {
    CAPTURE(c.text);
    CHECK(on.run(c) == run_on_cpu(c));
  }
}

TEST_CASE("without a GPU, it says so and what to do") {
  if (cuda_answers()) return;
  try {
    make_cuda_backend({});
    FAIL("there is no GPU");
  } catch (const cuda_error& e) {
    using kind = cuda_failure::kind;
    const std::string_view line = e.what();
    CAPTURE(line);
    CHECK(line.find('\n') == line.npos);
    CHECK(line.find("--device cpu") != line.npos);
    if (cuda_support().empty()) {
      CHECK(e.failure.what == kind::absent);
    } else {
      CHECK((e.failure.what == kind::no_device || e.failure.what == kind::driver_too_old));
    }
  }
}

TEST_CASE(
    "cuDNN's tensor cores round to TF32 where that is asked for, and never to half precision") {
  for (const bool tf32 : {false, true}) {
    CHECK(allowed(convolution_math::plain, tf32));
    CHECK(allowed(convolution_math::tensor, tf32) == tf32);
    CHECK_FALSE(allowed(convolution_math::converts, tf32));
  }
}

#if defined(DELTA_HAS_CUDNN)
TEST_CASE("batch norm's channels are described to cuDNN as it derives them: needs no GPU") {
  const tensor_descriptor x(128, 56, 56, 64);
  const channel_descriptor channels(x, CUDNN_BATCHNORM_SPATIAL_PERSISTENT);
  cudnnDataType_t type{};
  std::array<int, 4> size{}, step{};
  REQUIRE(cudnnGetTensor4dDescriptor(channels, &type, &size[0], &size[1], &size[2], &size[3],
                                     &step[0], &step[1], &step[2],
                                     &step[3]) == CUDNN_STATUS_SUCCESS);
  CHECK(type == CUDNN_DATA_FLOAT);
  CHECK(size == std::array{1, 64, 1, 1});
  CHECK(step == std::array{64, 1, 1, 1});
}
#endif

TEST_CASE("our own kernels on the GPU") {
  if (skipped("our own kernels on the GPU")) return;
  const auto cuda = make_cuda_backend({.cudnn = false});
  MESSAGE(cuda->description());
  bench on(*cuda);
  check_cases(on, fixed_cases(), tolerance, tolerance);
  for (std::uint64_t seed = 1; seed <= delta::test::seeds(50); ++seed) {
    CAPTURE(seed);
    check_cases(on, random_cases(seed), tolerance, tolerance);
  }
}

TEST_CASE("our own kernels with a workspace too small for more than some rows") {
  if (skipped("our own kernels with little workspace")) return;
  const auto cuda = make_cuda_backend({.cudnn = false, .workspace_cap = bytes{64 << 10}});
  bench on(*cuda);
  check_cases(on, fixed_cases(), tolerance, tolerance);
}

TEST_CASE("cuDNN's operators") {
  if (skipped("cuDNN's operators")) return;
  if (cuda_support().find("cuDNN") == std::string_view::npos) {
    delta::test::skip("cuDNN's operators", "this build has no cuDNN");
    return;
  }
  for (const bool legacy : {false, true}) {
    CAPTURE(legacy);
    const auto cuda = make_cuda_backend({.cudnn_norm = true, .legacy = legacy});
    MESSAGE(cuda->description());
    bench on(*cuda);
    check_cases(on, fixed_cases(), cudnn_tolerance, tolerance);
    for (std::uint64_t seed = 1; seed <= delta::test::seeds(50); ++seed) {
      CAPTURE(seed);
      check_cases(on, random_cases(seed), cudnn_tolerance, tolerance);
    }
  }
}

TEST_CASE("TF32 is close, and repeats") {
  if (skipped("TF32")) return;
  const auto cuda = make_cuda_backend({.tf32 = true});
  bench on(*cuda);
  check_cases(on, fixed_cases(), 5e-3, 5e-3);
}

TEST_CASE("a replay of batch norm on the GPU leaves the running statistics alone") {
  if (skipped("a replay of batch norm on the GPU")) return;
  for (const bool cudnn : {false, true}) {
    const auto cuda = make_cuda_backend({.cudnn = cudnn, .cudnn_norm = cudnn});
    bench on(*cuda);
    std::vector<operator_case> cases;
    add_batch_norm(cases, 4, 9, 9, 12);
    const auto first = on.run(cases[0]), again = on.run(cases[0], true);
    for (std::size_t i = 0; i < 3; ++i) CHECK(first[i] == again[i]);
    CHECK(again[3] == cases[0].updates[0].draw(4));
    CHECK(again[4] == cases[0].updates[1].draw(5));
  }
}
