#include "device/interference.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "device/cpu.hpp"
#include "kernels/thread_pool.hpp"
#include "kernels/vectorise.hpp"

namespace delta::executor {
namespace {

using clock = std::chrono::steady_clock;

// Operators are short, and each waits for its slowest thread: so a thread that copies costs more
// than the time that it takes, unless it has a core of its own. Hence tasks that are few and short.
constexpr std::size_t per_thread = 2;  // tasks of a loop
constexpr std::size_t near = 2048;     // floats of a task bound by arithmetic: in the first cache
constexpr std::size_t far = 65'536;    // of one bound by memory
constexpr int loops = 60;              // of each kind
constexpr int repeats = 200;
constexpr std::size_t floats = std::size_t{4} << 20;  // out of the caches of a core

constexpr std::size_t copied = std::size_t{4} << 20;  // at a time
constexpr std::size_t slices = 6;  // in turns: out of all caches, if not too large
constexpr int rounds = 5;

// y += a x, over and over in one core's nearest cache: bound by arithmetic. DELTA_VECTORISE as in
// the kernels.
DELTA_VECTORISE void compute(float* y, const float* x, std::size_t n, int times) {
  for (int t = 0; t < times; ++t)
    for (std::size_t i = 0; i < n; ++i) y[i] = 0.999F * y[i] + x[i];
}
DELTA_VECTORISE void stream(float* y, const float* x, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] = 0.999F * y[i] + x[i];
}

/// Both kinds of kernels in turns, on two arrays.
struct kernels {
  explicit kernels(thread_pool& p) : pool(&p), x(floats, 1.0F), y(floats, 1.0F) {}

  double seconds() {
    const std::size_t tasks = per_thread * std::size_t(pool->threads());
    std::size_t at = 0;
    const auto began = clock::now();
    for (int i = 0; i < loops; ++i) {
      pool->parallel_for(
          tasks, [&](std::size_t t) { compute(&y[t * near], &x[t * near], near, repeats); });
      pool->parallel_for(tasks, [&](std::size_t t) {
        const std::size_t first = (at + t) * far % floats;
        stream(&y[first], &x[first], far);
      });
      at += tasks;
    }
    return std::chrono::duration<double>(clock::now() - began).count();
  }
  thread_pool* pool;
  std::vector<float> x, y;
};

}  // namespace

copy_ways measure_copies(thread_pool& pool) {
  kernels work(pool);
  work.seconds();  // pages, and how fast the processor's clock is by now
  copy_ways found;
  const std::vector<std::byte> from(copied * slices);
  std::vector<std::byte> to(copied * slices);
  const auto copy = [&](cpu_device& device, std::size_t i) {
    const std::size_t at = i % slices * copied;
    return device.copy(direction::out, &to[at], &from[at], bytes{copied}, {});
  };
  // More than are made while the loops run.
  constexpr std::uint64_t most = 1024;
  double alone = 1e9, beside = 1e9;
  for (int round = 0; round < rounds; ++round) {
    alone = std::min(alone, work.seconds());
    cpu_device device({.copy_rate = 0, .latency = {}, .copy_threads = 2, .expected_rate = 1e10});
    for (std::size_t i = 0; i < most; ++i) copy(device, i);
    const nanoseconds began = device.now();
    const double took = work.seconds();
    std::uint64_t done = 0;
    while (done < most && device.reached({lane::copy_out, done + 1})) ++done;
    const double gone = 1e-9 * double((device.now() - began).count());
    if (took < beside && done > 0 && done < most) {
      beside = took;
      found.threads.rate = double(done * copied) / gone;
    }
  }
  if (found.threads.rate > 0) found.threads.burden = std::max(0.0, 1 - alone / beside);

  const auto waited = [&](int threads) {
    cpu_device device(
        {.copy_rate = 0, .latency = {}, .copy_threads = threads, .expected_rate = 1e10});
    device.lend(&pool);
    double best = 1e9;
    for (std::size_t i = 0; i < rounds * slices; ++i) {
      const auto began = clock::now();
      device.wait(copy(device, i));
      best = std::min(best, std::chrono::duration<double>(clock::now() - began).count());
    }
    return double(copied) / best;
  };
  found.threads.waited = waited(2);
  const double rate = waited(0);
  found.caller = {rate, rate, 1.0};
  found.spare_core = std::thread::hardware_concurrency() > unsigned(pool.threads());
  return found;
}

}  // namespace delta::executor
