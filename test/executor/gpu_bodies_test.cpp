// The bodies of the GPU's kernels that have shared memory and barriers (kernels/gpu/bodies.hpp),
// run by threads of the host: the bits of the host engine, which has no threads. Under the thread
// sanitizer no race, and each barrier left out in turn is found.
#include <doctest/doctest.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gpu_host_engine.hpp"
#include "kernel_testing.hpp"
#include "kernels/gpu/batch_norm.hpp"
#include "kernels/gpu/bodies.hpp"
#include "kernels/gpu/depthwise.hpp"
#include "kernels/gpu/linear.hpp"
#include "kernels/gpu/loss.hpp"

#if defined(__SANITIZE_THREAD__)
#define DELTA_THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define DELTA_THREAD_SANITIZER
#endif
#endif

#if defined(DELTA_THREAD_SANITIZER)
#include <fcntl.h>
#include <unistd.h>

namespace {
std::atomic<int> races{0};
}  // namespace
/// Called by the sanitizer at each report.
extern "C" void __tsan_on_report(void*) {
  ++races;
}
/// The test fails by its own count: reports are wanted where a barrier is left out.
extern "C" const char* __tsan_default_options() {
  return "exitcode=0";
}
#endif

using namespace delta::executor;
using namespace delta::executor::gpu;
using kernel_testing::floats;

namespace {

constexpr int no_barrier = -1;

/// One block's threads on the host, which run the blocks of a launch one after the other.
struct host_threads {
  struct block {
    explicit block(std::size_t threads) : all(std::ptrdiff_t(threads)) {}
    std::barrier<> all;
  };
  std::size_t x_at, y_at, block_x_at, block_y_at;
  block* shared;
  int left_out;

  [[nodiscard]] std::size_t x() const { return x_at; }
  [[nodiscard]] std::size_t y() const { return y_at; }
  [[nodiscard]] std::size_t block_x() const { return block_x_at; }
  [[nodiscard]] std::size_t block_y() const { return block_y_at; }
  template <gpu::barrier Which>
  void wait() const {
    if (int(Which) != left_out) shared->all.arrive_and_wait();
  }
};

/// The Engine of kernels/gpu/engine.hpp that runs kernel bodies, each thread of a block by one of
/// the host.
class threads_engine {
 public:
  explicit threads_engine(int left_out = no_barrier) : left_out_(left_out) {}

  template <class F>
  void each(std::size_t n, const F& f) const {
    for (std::size_t i = 0; i < n; ++i) f(i);
  }
  template <class R>
  void columns(const column_cut& cut, std::size_t columns, const R& r) const {
    using team = typename R::team;
    launch<column_scratch<R>>(divided_up(columns, team::width), cut.parts, team::width, team::lanes,
                              [&](const host_threads& t, column_scratch<R>& scratch) {
                                column_body(t, scratch, cut, columns, r);
                              });
  }
  template <class F>
  void blocks(std::size_t n, const F& f) const {
    launch<block_scratch>(n, 1, block_lanes, 1, [&](const host_threads& t, block_scratch& scratch) {
      block_body(t, scratch, f);
    });
  }

 private:
  template <class Scratch, class Body>
  void launch(std::size_t blocks_x, std::size_t blocks_y, std::size_t width, std::size_t lanes,
              const Body& body) const {
    host_threads::block shared(width * lanes);
    // Of each block its own, as on a GPU: what one leaves there is no other's.
    std::vector<Scratch> scratch(blocks_x * blocks_y);
    std::vector<std::thread> threads;
    for (std::size_t y = 0; y < lanes; ++y) {
      for (std::size_t x = 0; x < width; ++x) {
        threads.emplace_back([&, x, y] {
          for (std::size_t b = 0; b < scratch.size(); ++b) {
            body(host_threads{x, y, b % blocks_x, b / blocks_x, &shared, left_out_}, scratch[b]);
          }
        });
      }
    }
    for (auto& t : threads) t.join();
  }

  int left_out_;
};

using results = std::vector<floats>;

bool same_bits(const results& a, const results& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size() ||
        std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

/// Every reduction of batch norm, fused and not.
template <class Engine>
results batch_norms(const Engine& e, std::size_t rows, int channels) {
  const bn_shape s{rows, channels};
  const auto c = std::size_t(channels), n = rows * c;
  const floats x = kernel_testing::random_floats(n, 1, 0.5f),
               dy = kernel_testing::random_floats(n, 2);
  const floats gamma = kernel_testing::random_floats(c, 3),
               beta = kernel_testing::random_floats(c, 4);
  const auto some = [](std::size_t count) { return kernel_testing::poisoned(count); };
  floats y = some(n), mean = some(c), invstd = some(c), running_mean(c), running_var(c);
  floats dx = some(n), dgamma = some(c), dbeta = some(c), dresidual = some(n);
  kernel_testing::poisoned_workspace workspace(bn_workspace(s));
  results all;
  bn_forward(e, s, x.data(), gamma.data(), beta.data(), y.data(), mean.data(), invstd.data(),
             running_mean.data(), running_var.data(), workspace.data());
  all.insert(all.end(), {y, mean, invstd, running_mean, running_var});
  bn_backward(e, s, x.data(), dy.data(), gamma.data(), mean.data(), invstd.data(), dx.data(),
              dgamma.data(), dbeta.data(), workspace.data());
  all.insert(all.end(), {dx, dgamma, dbeta});
  bn_relu_backward(e, s, x.data(), dy.data(), gamma.data(), beta.data(), mean.data(), invstd.data(),
                   dx.data(), dgamma.data(), dbeta.data(), workspace.data());
  all.insert(all.end(), {dx, dgamma, dbeta});
  bn_add_relu_backward(e, s, x.data(), dy.data(), y.data(), gamma.data(), mean.data(),
                       invstd.data(), dx.data(), dresidual.data(), dgamma.data(), dbeta.data(),
                       workspace.data());
  all.insert(all.end(), {dx, dresidual, dgamma, dbeta});
  return all;
}

template <class Engine>
results losses(const Engine& e, int n, int classes) {
  const auto rows = std::size_t(n);
  const floats logits = kernel_testing::random_floats(rows * std::size_t(classes), 5);
  std::vector<std::int32_t> labels(rows);
  for (std::size_t i = 0; i < rows; ++i) labels[i] = std::int32_t(i) % classes;
  floats loss(1), probabilities = kernel_testing::poisoned(logits.size());
  kernel_testing::poisoned_workspace workspace(softmax_cross_entropy_workspace(n));
  softmax_cross_entropy_forward(e, n, classes, logits.data(), labels.data(), loss.data(),
                                probabilities.data(), workspace.data());
  return {loss, probabilities};
}

template <class Engine>
results filter_gradient(const Engine& e) {
  const conv_shape s{2, 9, 9, 3, 3, 3, 3, 1, 1, 3};
  const floats x = kernel_testing::random_floats(s.in_size(), 6),
               dy = kernel_testing::random_floats(s.out_size(), 7);
  floats dfilter = kernel_testing::poisoned(s.filter_size());
  kernel_testing::poisoned_workspace workspace(depthwise_filter_workspace(s));
  depthwise_backward_filter(e, s, x.data(), dy.data(), dfilter.data(), workspace.data());
  return {dfilter};
}

template <class Engine>
results bias_gradient(const Engine& e) {
  constexpr std::size_t rows = 40, width = 35;
  const floats dy = kernel_testing::random_floats(rows * width, 8);
  floats dbias = kernel_testing::poisoned(width);
  e.columns(one_part(rows), width, column_sum{dy.data(), width, dbias.data()});
  return {dbias};
}

template <class Work>
void check_same(const Work& work) {
  CHECK(same_bits(work(threads_engine()), work(gpu_host::engine())));
}

}  // namespace

TEST_CASE("kernel bodies by threads have the host engine's bits, and no race") {
  for (const auto& [rows, channels] : std::vector<std::pair<std::size_t, int>>{{1, 1}, {300, 9}}) {
    CAPTURE(rows);
    CAPTURE(channels);
    check_same([rows = rows, channels = channels](const auto& e) {
      return batch_norms(e, rows, channels);
    });
  }
  for (const auto& [n, classes] : std::vector<std::pair<int, int>>{{1, 1}, {3, 129}}) {
    CAPTURE(n);
    CAPTURE(classes);
    check_same([n = n, classes = classes](const auto& e) { return losses(e, n, classes); });
  }
  check_same([](const auto& e) { return filter_gradient(e); });
  check_same([](const auto& e) { return bias_gradient(e); });
#if defined(DELTA_THREAD_SANITIZER)
  CHECK(races == 0);
#endif
}

#if defined(DELTA_THREAD_SANITIZER)
namespace {

/// Standard error to nowhere, for as long as reports are wanted.
class silence {
 public:
  silence() : kept_(dup(2)) {
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, 2);
    close(nowhere);
  }
  ~silence() {
    dup2(kept_, 2);
    close(kept_);
  }
  silence(const silence&) = delete;
  silence& operator=(const silence&) = delete;

 private:
  int kept_;
};

/// Whether the run without that barrier has a race or other bits.
template <class Work>
bool found(gpu::barrier left_out, const Work& work) {
  const results expected = work(gpu_host::engine());
  const int before = races;
  const silence quiet;
  const results got = work(threads_engine(int(left_out)));
  return races > before || !same_bits(got, expected);
}

}  // namespace

TEST_CASE("each barrier of a kernel that is left out is found") {
  const auto columns = [](const auto& e) { return batch_norms(e, 300, 4); };
  const auto blocks = [](const auto& e) { return losses(e, 2, 200); };
  CHECK(found(gpu::barrier::half_written, columns));
  CHECK(found(gpu::barrier::half_read, columns));
  CHECK(found(gpu::barrier::lanes_written, blocks));
  CHECK(found(gpu::barrier::level_joined, blocks));
  CHECK(found(gpu::barrier::root_read, blocks));
}
#endif
