// delta_torch: the three engines of an accelerator, over PyTorch's streams and events: operators on
// the stream that the program computes on, copies on one of their own for each direction.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "delta/units.hpp"
#include "device_part.hpp"
#include "target.hpp"

namespace delta_torch {

/// Makes a stream, and its device, this thread's current ones.
class on_stream {
 public:
  on_stream(const c10::impl::VirtualGuardImpl& guard, c10::Stream s)
      : guard_(&guard),
        device_(guard.exchangeDevice(s.device())),
        before_(guard.exchangeStream(s)) {}
  ~on_stream() {
    guard_->exchangeStream(before_);
    guard_->uncheckedSetDevice(device_);
  }
  on_stream(const on_stream&) = delete;
  on_stream& operator=(const on_stream&) = delete;

 private:
  const c10::impl::VirtualGuardImpl* guard_;
  c10::Device device_;
  c10::Stream before_;
};

/// The engines of a delta::device_heap. Nothing waits for the device unless it says so.
///
/// A copy has two events, which give its time. An operator has none: its stamp is a number, and
/// stands for the first event recorded behind it, one for every eight operators or, where somebody
/// has to wait, a new one. What operators take is sampled: by their signature, the first three
/// times and then every 64th; in between it is what the fastest of them took.
///
/// All calls come under the session's lock `state`.
class device_streams {
 public:
  /// What copies were measured to take: bytes per second, and ns for however few; 0: not measured.
  struct copy_times {
    double rate = 0;
    delta::nanoseconds latency{};
  };

  /// On the current stream of the device, copies on `sides`. Waits until all of that is idle: what
  /// is adopted may be in use on any stream, and is freed by whom the program does not know. Throws
  /// c10::Error where the device has no streams or events.
  device_streams(c10::Device, device_part&, const std::array<c10::Stream, 2>& sides);
  /// Measures copies both ways, by buffers of so many bytes, 8 MiB at most, which are given back:
  /// before anything is copied. Where there is no memory for them nothing is measured.
  void calibrate(std::size_t most);
  /// By direction; as measured last, and to begin with what was measured before.
  [[nodiscard]] std::array<copy_times, 2> copies() const noexcept {
    return {queue_of(delta::direction::out).copies, queue_of(delta::direction::in).copies};
  }
  void begin_with(const std::array<copy_times, 2>&) noexcept;

  delta::stamp copy(delta::direction, std::byte* to, const std::byte* from, delta::bytes,
                    const delta::fence& after);
  void begin(const delta::fence& after);
  delta::stamp end();
  bool reached(delta::stamp);
  void wait(delta::stamp);
  /// Of a copy: known for the last 1,024 of each direction. Of an operator: see above; of what was
  /// not expected: nothing at all.
  std::optional<delta::nanoseconds> elapsed(delta::stamp);
  [[nodiscard]] delta::nanoseconds now() const { return clock::now() - made_; }
  /// The host's waits for copies.
  [[nodiscard]] delta::nanoseconds waited() const noexcept { return waited_; }
  [[nodiscard]] double rate(delta::direction d) const { return queue_of(d).copies.rate; }
  [[nodiscard]] delta::nanoseconds latency(delta::direction d) const {
    return queue_of(d).copies.latency;
  }
  [[nodiscard]] delta::nanoseconds backlog(delta::direction) const;

  /// The operator that is queued next.
  void expect(signature);
  [[nodiscard]] std::uint64_t taken_by(signature) const noexcept;
  void took(signature, std::uint64_t bytes);

  [[nodiscard]] c10::Stream compute() const noexcept { return queues_[0].stream; }
  [[nodiscard]] const c10::impl::VirtualGuardImpl& guard() const noexcept { return guard_; }

  /// Who waits for whom: the engines by their numbers, and behind them the program's own streams.
  static constexpr std::size_t program = delta::lane_count, parties = program + 1;
  /// For tests: one kind of wait is not made, of `waiter` for `awaited`. Kept between runs.
  static void leave_out(std::size_t waiter, std::size_t awaited, bool on) noexcept;
  [[nodiscard]] static bool left_out(std::size_t waiter, std::size_t awaited) noexcept;

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::uint64_t stride = 8;
  static constexpr std::size_t kept = 1024;

  /// An event on a lane, behind all work up to `point`.
  struct mark {
    std::uint64_t point = 0;
    std::optional<c10::Event> began, ended;
    std::uint64_t size = 0;  ///< of a copy, in bytes
  };
  struct queue {
    explicit queue(c10::Stream s) : stream(s) {}
    c10::Stream stream;
    std::uint64_t queued = 0, reached = 0;
    delta::fence ordered;  ///< what its next work comes after anyway
    std::deque<mark> marks;
    std::vector<delta::nanoseconds> took = std::vector<delta::nanoseconds>(kept);
    std::uint64_t pending = 0;  ///< bytes queued to be copied
    copy_times copies;
  };
  /// What is known of operators of one signature.
  struct work {
    delta::nanoseconds took{-1};
    std::uint32_t samples = 0, skip = 0;
    std::uint64_t most = 0;  ///< bytes
  };
  struct sample {
    work* of = nullptr;
    std::optional<c10::Event> began, ended;
  };

  [[nodiscard]] queue& queue_of(delta::lane e) noexcept {
    return queues_[static_cast<std::size_t>(e)];
  }
  [[nodiscard]] const queue& queue_of(delta::direction d) const noexcept {
    return queues_[static_cast<std::size_t>(delta::lane_of(d))];
  }
  c10::Event take_event(c10::EventFlag = c10::EventFlag::BACKEND_DEFAULT);
  void give_back(std::optional<c10::Event>&);
  mark& mark_at(queue&, std::uint64_t point);
  void settle(queue&, std::uint64_t point);
  void order(delta::lane, const delta::fence& after);
  void read_samples();
  void learn(queue&, const mark&);
  double copy_time(delta::direction, std::byte* to, const std::byte* from, std::size_t size);

  c10::impl::VirtualGuardImpl guard_;
  device_part& part_;
  clock::time_point made_ = clock::now();
  std::array<queue, delta::lane_count> queues_;
  std::vector<c10::Event> idle_, idle_untimed_;
  std::unordered_map<std::uint64_t, work> works_;  // addresses hold
  const work unlisted_;  // of operators beyond the most that are remembered: never measured
  std::vector<const work*> recent_ = std::vector<const work*>(kept);  // by point of compute
  std::deque<sample> samples_;
  const work* expected_ = nullptr;
  sample open_;
  delta::nanoseconds waited_{};
};

}  // namespace delta_torch
