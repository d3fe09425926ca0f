// delta: a Device in the host's own memory, which measures what operators and copies take: for
// programs that run on the CPU, and to try delta without a GPU.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <optional>

#include "delta/storage/device.hpp"
#include "delta/units.hpp"

namespace delta {

/// Both memories are the host's own: recomputing saves memory, offloading only moves bytes to the
/// second one. A copy is a memcpy, over when the call returns, and so is a kernel. What operators
/// take is measured, and known at once; copy rates are those of the copies so far (`assumed_rate`
/// before the first one of 64 KiB or more), the latency is assumed. One thread at a time calls it;
/// kernels may use as many as they like. For one arena.
///   delta::host_device machine;
///   delta::arena storage{machine, {.capacity = 512_MiB, .host_capacity = 2_GiB}};
///   delta::manager manager{delta::adaptive(), storage};
class host_device {
 public:
  /// Nothing runs on behind a call.
  static constexpr bool synchronous = true;
  /// Bytes per second in each direction, until a copy was measured.
  static constexpr double assumed_rate = 8e9;
  /// Of every copy, a guess: two allocations and the manager's own work. Without it many small
  /// tensors leave in place of a few large ones, which takes longer (docs/results/pytorch.md).
  static constexpr nanoseconds assumed_latency{4000};
  /// Of both memories' addresses, in bytes: an arena's granularity may not be more.
  static constexpr std::uint64_t alignment = 4096;

  host_device() = default;
  /// Its arena has its address.
  host_device(const host_device&) = delete;
  host_device& operator=(const host_device&) = delete;
  ~host_device() = default;

  /// Aligned to 4096; the system takes pages when they are touched. Throws std::bad_alloc.
  std::byte* device_memory(bytes n) { return take(device_, n); }
  std::byte* host_memory(bytes n) { return take(host_, n); }

  stamp copy(direction d, std::byte* to, const std::byte* from, bytes n, const fence&) {
    const auto began = clock::now();
    if (n.count > 0) std::memcpy(to, from, n.count);
    const nanoseconds took = clock::now() - began;
    if (n.count >= measured_from) {
      auto& r = rates_[static_cast<std::size_t>(d)];
      r.sum += n.count;
      r.took += took;
    }
    return finished(lane_of(d), began, took);
  }
  void begin(const fence&) { began_ = clock::now(); }
  void move(std::byte* to, const std::byte* from, bytes n) { std::memmove(to, from, n.count); }
  stamp end() { return finished(lane::compute, began_, clock::now() - began_); }

  bool reached(stamp) const noexcept { return true; }
  void wait(stamp) const noexcept {}
  /// Known for the last 1024 pieces of work.
  std::optional<nanoseconds> elapsed(stamp s) const {
    const work* w = find(s);
    return w != nullptr ? std::optional(w->took) : std::nullopt;
  }
  std::optional<nanoseconds> began(stamp s) const {
    const work* w = find(s);
    return w != nullptr ? std::optional(w->began) : std::nullopt;
  }
  [[nodiscard]] nanoseconds now() const { return clock::now() - made_; }
  [[nodiscard]] nanoseconds waited() const noexcept { return {}; }
  [[nodiscard]] double rate(direction d) const noexcept {
    const auto& r = rates_[static_cast<std::size_t>(d)];
    return r.took.count() > 0
               ? static_cast<double>(r.sum) * 1e9 / static_cast<double>(r.took.count())
               : assumed_rate;
  }
  [[nodiscard]] nanoseconds latency(direction) const noexcept { return assumed_latency; }
  [[nodiscard]] nanoseconds backlog(direction) const noexcept { return {}; }
  /// Copies and kernels never overlap, so that a copy costs its whole time.
  [[nodiscard]] double burden(direction) const noexcept { return 1; }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::uint64_t measured_from = 64 << 10;  // shorter ones measure the clock
  static constexpr std::size_t kept = 1024;
  struct work {
    std::uint64_t point = 0;
    nanoseconds began{}, took{};
  };
  struct measured_rate {
    std::uint64_t sum = 0;  // bytes
    nanoseconds took{};
  };
  struct freed {
    void operator()(std::byte* p) const noexcept { std::free(p); }
  };
  using memory = std::unique_ptr<std::byte, freed>;

  static std::byte* take(memory& m, bytes n) {
    // aligned_alloc wants whole units; a sum that wraps around would be a small one.
    if (n.count > std::numeric_limits<std::uint64_t>::max() - 2 * alignment) throw std::bad_alloc();
    m.reset(static_cast<std::byte*>(
        std::aligned_alloc(alignment, round_up(n + bytes{1}, alignment).count)));
    if (m == nullptr) throw std::bad_alloc();
    return m.get();
  }
  stamp finished(lane e, clock::time_point began, nanoseconds took) {
    const std::uint64_t point = ++points_;
    work_[point % kept] = {point, began - made_, took};
    return {e, point};
  }
  [[nodiscard]] const work* find(stamp s) const noexcept {
    const work& w = work_[s.point % kept];
    return s.point > 0 && w.point == s.point ? &w : nullptr;
  }

  clock::time_point made_ = clock::now(), began_ = made_;
  memory device_, host_;
  std::uint64_t points_ = 0;  // of all lanes: what was queued later ends later
  std::array<work, kept> work_{};
  std::array<measured_rate, 2> rates_{};
};

static_assert(Device<host_device>);

}  // namespace delta
