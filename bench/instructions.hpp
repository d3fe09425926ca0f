// Instructions that this thread retires, where the kernel and the machine can say. They repeat
// where nanoseconds do not: a shared machine changes how long an instruction takes, not how many
// there are.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>

#if defined(__linux__)
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace delta::bench {

/// Counts user instructions of the calling thread between `start` and `stop`, which may be called
/// any number of times. Where there is no counter (not Linux, a virtual machine without one, a
/// kernel that refuses) it counts nothing and says so. Each call is a system call, about a
/// microsecond.
class instruction_counter {
 public:
  instruction_counter() noexcept {
#if defined(__linux__)
    perf_event_attr wanted;
    std::memset(&wanted, 0, sizeof wanted);
    wanted.size = sizeof wanted;
    wanted.type = PERF_TYPE_HARDWARE;
    wanted.config = PERF_COUNT_HW_INSTRUCTIONS;
    wanted.disabled = 1;
    wanted.exclude_kernel = 1;  // what any user may count
    wanted.exclude_hv = 1;
    file_ = static_cast<int>(syscall(SYS_perf_event_open, &wanted, 0, -1, -1, 0UL));
#endif
  }
  instruction_counter(const instruction_counter&) = delete;
  instruction_counter& operator=(const instruction_counter&) = delete;
  ~instruction_counter() {
#if defined(__linux__)
    if (file_ >= 0) close(file_);
#endif
  }

  void start() noexcept { tell(true); }
  void stop() noexcept { tell(false); }
  /// Counted so far; nullopt where there is no counter, or where it never ran.
  [[nodiscard]] std::optional<std::uint64_t> count() const noexcept {
#if defined(__linux__)
    std::uint64_t n = 0;
    if (file_ >= 0 && read(file_, &n, sizeof n) == ssize_t{sizeof n} && n > 0) return n;
#endif
    return std::nullopt;
  }

 private:
  void tell([[maybe_unused]] bool on) const noexcept {
#if defined(__linux__)
    if (file_ >= 0) ioctl(file_, on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0);
#endif
  }
  int file_ = -1;  // no counter
};

}  // namespace delta::bench
