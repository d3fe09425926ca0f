// delta executor: a small pool of std::threads for the kernels. One job at a time, started and
// awaited by one caller, without heap allocation.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace delta::executor {

/// A fixed number of threads that share the tasks of one loop; the calling thread is one of them.
/// Tasks are handed out in ascending order, each to whoever is free, so a kernel's result may not
/// depend on which worker ran a task: only scratch memory goes by worker.
///
/// Idle threads look for work for a tenth of a millisecond, yielding, and then sleep, so that a
/// pool is harmless on a busy machine and quick between the small operators of a step; a loop never
/// waits for a thread that has not taken a task yet. Every thread of the pool, the caller included,
/// has its OpenMP thread count set to one, because oneDNN's sgemm would otherwise start a team of
/// its own inside each task.
class thread_pool {
 public:
  /// Starts `threads - 1` threads. Throws std::invalid_argument if `threads` < 1.
  explicit thread_pool(int threads);
  ~thread_pool();
  thread_pool(const thread_pool&) = delete;
  thread_pool& operator=(const thread_pool&) = delete;

  /// Threads that run tasks, the caller included.
  [[nodiscard]] int threads() const noexcept { return int(workers_.size()) + 1; }

  /// Runs `body(task)`, or `body(task, worker)` where it takes two arguments, for every task in
  /// [0, tasks), and returns when all have ended. `worker` is in [0, threads()); no two tasks that
  /// overlap in time have the same one. The first exception is rethrown once the started tasks have
  /// ended; tasks not begun by then are dropped. One caller at a time, and not from inside a body
  /// (throws std::logic_error).
  template <class F>
  void parallel_for(std::size_t tasks, F&& body) {
    using function = std::remove_reference_t<F>;
    run(
        tasks,
        [](void* context, std::size_t task, int worker) {
          auto& f = *static_cast<function*>(context);
          if constexpr (std::is_invocable_v<function&, std::size_t, int>) {
            f(task, worker);
          } else {
            f(task);
          }
        },
        const_cast<void*>(static_cast<const void*>(std::addressof(body))));
  }

 private:
  using task_function = void (*)(void* context, std::size_t task, int worker);

  void run(std::size_t tasks, task_function function, void* context);
  void work(int worker);
  bool run_one(int worker);

  // The job. Written by the caller while no task is claimable, read by a thread only between its
  // claim of a task and its report, so plain members are enough.
  task_function function_ = nullptr;
  void* context_ = nullptr;
  std::uint32_t tasks_ = 0;
  std::exception_ptr error_;

  // On lines of their own: everybody writes them.
  alignas(64) std::atomic<std::uint32_t> unclaimed_{0};   ///< tasks not yet taken
  alignas(64) std::atomic<std::uint32_t> unfinished_{0};  ///< tasks not yet ended
  alignas(64) std::atomic<bool> failed_{false};
  std::atomic<bool> busy_{false};
  std::vector<std::thread> workers_;
};

}  // namespace delta::executor
