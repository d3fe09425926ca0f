#include "kernels/thread_pool.hpp"

#include <chrono>
#include <limits>
#include <stdexcept>
#include <utility>

#include "kernels/gemm.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace delta::executor {
namespace {

/// `unclaimed_` holds this when the pool ends. No job has that many tasks.
constexpr std::uint32_t stop = std::numeric_limits<std::uint32_t>::max();

/// Looks before the first yield: some microseconds, the gap between two operators of a step.
constexpr int spins = 200;

/// How long a waiting thread keeps looking, offering its processor to others each time, before it
/// sleeps. A sleeper on an idle virtual processor costs its waker some 20 microseconds, and workers
/// often wait for a last task about as long; on a busy machine the offer is taken.
constexpr auto patience = std::chrono::microseconds(100);

void relax() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

/// Waits until `value` is no longer `old`: a bounded spin, then yields, then a sleep.
std::uint32_t await_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int i = 0; i < spins; ++i) {
    if (const auto now = value.load(std::memory_order_acquire); now != old) return now;
    relax();
  }
  const auto end = std::chrono::steady_clock::now() + patience;
  while (std::chrono::steady_clock::now() < end) {
    if (const auto now = value.load(std::memory_order_acquire); now != old) return now;
    std::this_thread::yield();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

void keep_product_single() {
  thread_local const bool done = (keep_gemm_single(), true);
  (void)done;
}

}  // namespace

thread_pool::thread_pool(int threads) {
  if (threads < 1) throw std::invalid_argument("thread_pool: needs at least one thread");
  workers_.reserve(std::size_t(threads) - 1);
  try {
    for (int w = 1; w < threads; ++w) workers_.emplace_back([this, w] { work(w); });
  } catch (...) {
    unclaimed_.store(stop, std::memory_order_release);
    unclaimed_.notify_all();
    for (auto& worker : workers_) worker.join();
    throw;
  }
}

thread_pool::~thread_pool() {
  unclaimed_.store(stop, std::memory_order_release);
  unclaimed_.notify_all();
  for (auto& worker : workers_) worker.join();
}

/// Takes one task and runs it; false if none was left. A count read in one job may be exchanged in
/// the next: harmless, for the job is looked at only after the claim.
bool thread_pool::run_one(int worker) {
  auto left = unclaimed_.load(std::memory_order_relaxed);
  do {
    if (left == 0 || left == stop) return false;
  } while (!unclaimed_.compare_exchange_weak(left, left - 1, std::memory_order_acquire,
                                             std::memory_order_relaxed));
  if (!failed_.load(std::memory_order_relaxed)) {
    try {
      function_(context_, tasks_ - left, worker);
    } catch (...) {
      // Written once, by whoever is first; the caller reads it after the last report.
      if (!failed_.exchange(true)) error_ = std::current_exception();
    }
  }
  if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
  return true;
}

void thread_pool::work(int worker) {
  keep_product_single();
  for (;;) {
    while (run_one(worker)) {
    }
    if (await_change(unclaimed_, 0) == stop) return;
  }
}

void thread_pool::run(std::size_t tasks, task_function function, void* context) {
  if (tasks == 0) return;
  if (tasks >= stop) throw std::invalid_argument("thread_pool: too many tasks");
  keep_product_single();
  if (busy_.exchange(true, std::memory_order_acquire)) {
    throw std::logic_error("thread_pool: parallel_for inside parallel_for");
  }
  struct release {
    std::atomic<bool>& busy;
    ~release() { busy.store(false, std::memory_order_release); }
  } const guard{busy_};

  if (tasks == 1 || workers_.empty()) {
    for (std::size_t task = 0; task < tasks; ++task) function(context, task, 0);
    return;
  }
  function_ = function;
  context_ = context;
  tasks_ = std::uint32_t(tasks);
  failed_.store(false, std::memory_order_relaxed);
  unfinished_.store(std::uint32_t(tasks), std::memory_order_relaxed);
  unclaimed_.store(std::uint32_t(tasks), std::memory_order_release);
  if (tasks - 1 >= workers_.size()) {
    unclaimed_.notify_all();
  } else {
    for (std::size_t i = 1; i < tasks; ++i) unclaimed_.notify_one();
  }
  while (run_one(0)) {
  }
  for (auto left = unfinished_.load(std::memory_order_acquire); left != 0;) {
    left = await_change(unfinished_, left);
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace delta::executor
