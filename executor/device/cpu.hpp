// delta executor: the CPU as a device. The calling thread computes. Copies between two parts of the
// same memory are made by one thread per direction, as fast as it goes or as slowly as asked; or,
// where kernels run on all cores, by the calling thread and its idle ones in between kernels.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "delta/storage/arena.hpp"
#include "delta/units.hpp"

namespace delta::executor {

class thread_pool;

/// What this machine's processor is called; "CPU" where the system does not say.
[[nodiscard]] std::string cpu_name();

/// How copies behave.
struct cpu_options {
  /// Bytes per second, each way. A copy ends no earlier than latency + bytes / rate after it
  /// started. 0: as fast as memory is; the rate is then measured, at the start and on the way.
  double copy_rate = 0;
  nanoseconds latency{};  ///< of every copy, when copy_rate is given
  /// Who copies. 2: a thread per direction. 0: the calling thread, with those that it was lent,
  /// when the copy is queued, which counts as a wait: where all cores compute, a thread of its own
  /// would only hold a kernel up in which the others then wait. Not with copy_rate.
  int copy_threads = 2;
  /// What was measured of that way (interference.hpp): bytes per second, 0: not measured; and ns
  /// that kernels lose by one of copying beside them.
  double expected_rate = 0;
  double burden = 0;
};

/// A delta::Device. Compute is whatever the caller does between begin() and end(): begin() blocks
/// until the copies that it waits for are done, and end()'s stamp is reached when it returns. All
/// functions are for one thread. Copies use no heap once the longest queue has been seen.
class cpu_device {
 public:
  explicit cpu_device(const cpu_options& = {});
  /// Ends the copy threads. Copies that have not ended are given up.
  ~cpu_device();
  cpu_device(const cpu_device&) = delete;
  cpu_device& operator=(const cpu_device&) = delete;

  /// Throw std::bad_alloc. The pages are the system's to give, when they are first touched.
  std::byte* device_memory(bytes n) { return allocate(device_, n); }
  std::byte* host_memory(bytes n) { return allocate(host_, n); }

  /// Threads that stand idle whenever a function of the device runs, the calling one included;
  /// null: none. Without copy threads of its own the device copies with them, and it moves with
  /// them.
  void lend(thread_pool* idle) noexcept { idle_ = idle; }

  stamp copy(direction d, std::byte* to, const std::byte* from, bytes n, const fence& after);
  void begin(const fence& after);
  stamp end();
  void move(std::byte* to, const std::byte* from, bytes n);

  [[nodiscard]] bool reached(stamp s) const noexcept;
  void wait(stamp s);
  /// What the operator would have taken without copies beside it, by the burden of these; known
  /// when `elapsed` is.
  [[nodiscard]] std::optional<nanoseconds> alone(stamp s) const;
  /// Known for the last 64 operators, and the last 64 copies of each direction, once they are done.
  [[nodiscard]] std::optional<nanoseconds> elapsed(stamp s) const;
  /// When it began, by now()'s clock; known for as long.
  [[nodiscard]] std::optional<nanoseconds> began(stamp s) const;

  /// Waits for all copies and calls `f`, during which the clock stands still: what the host does
  /// then is no time of the program's. How long it waited for them.
  nanoseconds stand_still(const std::function<void()>& f);

  /// Since the device was made, but for the time in which it stood still.
  [[nodiscard]] nanoseconds now() const noexcept { return clock::now() - start_; }
  [[nodiscard]] nanoseconds waited() const noexcept { return waited_; }
  [[nodiscard]] double rate(direction d) const;
  [[nodiscard]] nanoseconds latency(direction d) const;
  /// ns that kernels lose by one of copying: 1 without threads that copy.
  [[nodiscard]] double burden(direction d) const noexcept;
  [[nodiscard]] int copy_threads() const noexcept { return options_.copy_threads; }
  /// Estimated: what is queued, at the current rate.
  [[nodiscard]] nanoseconds backlog(direction d) const;

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::size_t remembered = 64;
  struct span {
    nanoseconds began, took, alone;
  };
  struct job {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t size = 0;
    std::uint64_t after = 0;  ///< a point of the other direction; compute is always done
  };
  /// One direction: a ring of jobs (job number p waits in slot p modulo its size) and their thread.
  struct work_queue {
    std::vector<job> ring = std::vector<job>(64);
    std::uint64_t queued = 0;            ///< the last point given
    std::atomic<std::uint64_t> done{0};  ///< written under the mutex, asked without
    std::uint64_t pending_bytes = 0;     ///< of jobs that have not ended
    clock::time_point started{};         ///< of the running job
    bool running = false;
    nanoseconds copied{};  ///< that jobs took which have ended
    double rate = 0;
    nanoseconds latency{};
    std::array<span, remembered> spans{};
    std::condition_variable work;
    std::thread thread;
  };
  struct unmap {
    void operator()(std::byte* p) const noexcept { ::operator delete(p, std::align_val_t{64}); }
  };
  using memory = std::unique_ptr<std::byte, unmap>;

  static std::byte* allocate(memory& m, bytes n);
  [[nodiscard]] std::array<nanoseconds, 2> copied() const;
  static constexpr direction other(direction d) noexcept {
    return d == direction::out ? direction::in : direction::out;
  }
  [[nodiscard]] work_queue& queue_of(direction d) noexcept {
    return queues_[static_cast<std::size_t>(d)];
  }
  [[nodiscard]] const work_queue& queue_of(direction d) const noexcept {
    return queues_[static_cast<std::size_t>(d)];
  }
  [[nodiscard]] std::optional<span> span_of(stamp s) const;
  stamp copy_now(direction d, std::byte* to, const std::byte* from, std::size_t n);
  void spread(std::byte* to, const std::byte* from, std::size_t n);
  void note_rate(work_queue& l, std::size_t size, nanoseconds took);
  void serve(direction d);
  void perform(const work_queue& l, const job& j) const;
  bool block_until(stamp s);
  void calibrate();

  cpu_options options_;
  clock::time_point start_ = clock::now();
  memory device_, host_;
  std::array<work_queue, 2> queues_;
  mutable std::mutex mutex_;
  std::condition_variable progress_;
  std::atomic<bool> stopping_{false};
  thread_pool* idle_ = nullptr;

  std::uint64_t computed_ = 0;  // compute's last point
  clock::time_point began_{};
  std::array<span, remembered> computing_{};
  std::array<nanoseconds, 2> beside_{};  // that copies had taken when the operator began
  nanoseconds waited_{};
};

static_assert(Device<cpu_device> && Storage<arena<cpu_device>>);

}  // namespace delta::executor
