// delta: memory in virtual time: bytes are counted, nothing is stored, three serial lanes run
// side by side on an exact clock. What a policy would do on a machine can be asked without one.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "delta/detail/storage/storage_rules.hpp"
#include "delta/storage/storage.hpp"
#include "delta/units.hpp"

namespace delta {

/// How fast copies are, for timed_arena (testing/timed_arena.hpp); as in simulated_options.
struct copy_rates {
  double out = 12e9;      ///< bytes per second, device to host
  double in = 12e9;       ///< bytes per second, host to device
  double move = 0;        ///< bytes per second within the device; 0: moving blocks takes no time
  nanoseconds latency{};  ///< of every copy, before its first byte
  double burden_out = 0;  ///< ns that compute loses by one of copying out beside it
  double burden_in = 0;   ///< likewise, in

  /// Bytes per second that way.
  [[nodiscard]] constexpr double of(direction d) const noexcept {
    return d == direction::out ? out : in;
  }
  /// What a copy of `n` bytes takes, rounded up to whole nanoseconds: latency + n / rate (repairs
  /// P-14). A rate that is not positive stands for a copy that takes its latency only.
  [[nodiscard]] nanoseconds cost(direction d, bytes n) const noexcept {
    return latency + duration(n, of(d));
  }
  /// What moving `n` bytes within the device takes; it has no latency.
  [[nodiscard]] nanoseconds move_cost(bytes n) const noexcept { return duration(n, move); }

 private:
  static nanoseconds duration(bytes n, double rate) noexcept {
    if (rate <= 0) return {};
    const double ns = static_cast<double>(n.count) * 1e9 / rate;
    const auto whole = static_cast<std::int64_t>(ns);
    return nanoseconds{whole + (static_cast<double>(whole) < ns ? 1 : 0)};
  }
};

namespace detail {

/// Three serial lanes in exact virtual time, without memory: what storage_rules wants of a machine.
/// A stamp's point is the virtual time, in ns, at which its work ends; zero-length work may share a
/// point. So points of all lanes are comparable, and a fence is reached at the latest of its three.
/// The host's one clock, `now`, goes on only when it is told to, in lock-step with the compute
/// lane: every run repeats exactly (repairs P-17). O(1) each, no heap; none throws.
class virtual_lanes {
 public:
  /// Copies take what `real` says; who asks for rates is told `told`.
  virtual_lanes(const copy_rates& told, const copy_rates& real) noexcept
      : told_(told), real_(real) {}
  explicit virtual_lanes(const copy_rates& rates) noexcept : virtual_lanes(rates, rates) {}

  /// Queued behind `after` on the lane of its direction. Addresses are taken and not looked at.
  stamp copy(direction d, std::uint64_t, std::uint64_t, bytes n, const fence& after) noexcept {
    const nanoseconds cost = real_.cost(d, n);
    return queue(lane_of(d), cost, cost, after);
  }
  // Free by itself: end_moves is told how many bytes there were.
  void move(std::uint64_t, std::uint64_t, std::uint64_t) noexcept {}
  stamp end_moves(bytes n) noexcept { return end(real_.move_cost(n)); }
  /// The compute lane can't start before `after`: the clock goes on to where it can.
  void begin(const fence& after) noexcept { wait_until(latest(after)); }
  stamp end(nanoseconds cost) noexcept {
    const stamp done = queue(lane::compute, slowed(cost), cost, {});
    now_ = done.point;
    return done;
  }
  /// True if it is over by now. Never waits.
  [[nodiscard]] bool reached(stamp s) const noexcept { return s.point <= now_; }
  /// The clock goes on to `s`; what that takes counts as waiting.
  void wait(stamp s) noexcept { wait_until(s.point); }

  /// Virtual time since the beginning.
  [[nodiscard]] nanoseconds now() const noexcept { return to_time(now_); }
  /// How long the host and the compute lane waited for copies in all.
  [[nodiscard]] nanoseconds waited() const noexcept { return waited_; }
  /// The cost of one of the last 64 pieces of work, else nullopt; its beginning; its cost alone.
  [[nodiscard]] std::optional<nanoseconds> elapsed(stamp s) const noexcept {
    const piece* const p = find(s);
    return p ? std::optional(p->cost) : std::nullopt;
  }
  [[nodiscard]] std::optional<nanoseconds> began(stamp s) const noexcept {
    const piece* const p = find(s);
    return p ? std::optional(to_time(s.point) - p->cost) : std::nullopt;
  }
  [[nodiscard]] std::optional<nanoseconds> alone(stamp s) const noexcept {
    const piece* const p = find(s);
    return p ? std::optional(p->alone) : std::nullopt;
  }
  [[nodiscard]] double rate(direction d) const noexcept { return told_.of(d); }
  [[nodiscard]] double move_rate() const noexcept { return told_.move; }
  [[nodiscard]] nanoseconds latency(direction) const noexcept { return told_.latency; }
  /// How long a copy queued now would wait before it starts.
  [[nodiscard]] nanoseconds backlog(direction d) const noexcept {
    return to_time(start_of(lane_of(d)) - now_);
  }
  [[nodiscard]] double burden(direction d) const noexcept {
    return d == direction::out ? told_.burden_out : told_.burden_in;
  }

 private:
  struct piece {
    stamp at;
    nanoseconds cost, alone;
  };
  // Queues `cost` of work on `e`, to start once the lane is free and `after` is reached, but not
  // before now. Gives the end of it. Time does not go on. `alone`: what it would take by itself.
  stamp queue(lane e, nanoseconds cost, nanoseconds alone, const fence& after) noexcept {
    auto& end = end_[static_cast<std::size_t>(e)];
    end = std::max(start_of(e), latest(after)) + static_cast<std::uint64_t>(cost.count());
    recent_[next_++ % recent_.size()] = {stamp{e, end}, cost, alone};
    return {e, end};
  }
  // The last are looked at first: who asks, asks about what it has just queued.
  [[nodiscard]] const piece* find(stamp s) const noexcept {
    for (std::size_t back = 1; back <= std::min(next_, recent_.size()); ++back) {
      const piece& p = recent_[(next_ - back) % recent_.size()];
      if (p.at == s) return &p;
    }
    return nullptr;
  }
  static constexpr nanoseconds to_time(std::uint64_t t) noexcept {
    return nanoseconds{static_cast<std::int64_t>(t)};
  }
  static std::uint64_t latest(const fence& f) noexcept { return std::ranges::max(f.point); }
  [[nodiscard]] std::uint64_t start_of(lane e) const noexcept {
    return std::max(now_, end_[static_cast<std::size_t>(e)]);
  }
  void wait_until(std::uint64_t t) noexcept {
    if (t <= now_) return;
    waited_ += to_time(t - now_);
    now_ = t;
  }
  // What an operator takes that begins now, beside the copies that are queued: while these go on it
  // advances more slowly, or where copies take all that there is, not at all. Copies that wait for
  // each other count as if they went on.
  [[nodiscard]] nanoseconds slowed(nanoseconds cost) const noexcept {
    if (cost.count() <= 0 || (real_.burden_out <= 0 && real_.burden_in <= 0)) return cost;
    struct copies {
      double left, burden;
    };
    const auto of = [&](direction d, double b) {
      return copies{static_cast<double>(backlog(d).count()), std::max(b, 0.0)};
    };
    copies first = of(direction::out, real_.burden_out);
    copies last = of(direction::in, real_.burden_in);
    if (last.left < first.left) std::swap(first, last);
    double left = static_cast<double>(cost.count()), took = 0;
    const auto pass = [&](double span, double burden) {
      // Of two copies that together take more than there is, one runs after the other.
      if (burden >= 1) return void(took += span * burden);
      const double part = std::min(span, left / (1 - burden));
      left = std::max(0.0, left - (1 - burden) * part), took += part;
    };
    pass(first.left, first.burden + last.burden);
    if (left > 0) pass(last.left - first.left, last.burden);
    return nanoseconds{std::llround(took + left)};
  }

  copy_rates told_, real_;
  std::uint64_t now_ = 0;
  std::array<std::uint64_t, lane_count> end_{};
  nanoseconds waited_{};
  std::array<piece, 64> recent_{};
  std::size_t next_ = 0;
};

}  // namespace detail

/// A simulated machine. The rates are about those of PCIe 3 x16 with pinned memory; name your own.
struct simulated_options {
  bytes capacity{};               ///< the budget
  bytes host_capacity{};          ///< the host budget; 0: nothing can be offloaded
  double rate_out = 12e9;         ///< bytes per second, device to host
  double rate_in = 12e9;          ///< bytes per second, host to device
  nanoseconds latency{};          ///< of every copy
  std::uint64_t granularity = 1;  ///< sizes are rounded up to it; a power of two
  double rate_move = 0;           ///< bytes per second within the device; 0: moves take no time
  bool moving = true;             ///< blocks may be moved together to make room
  /// What the lanes reach of these rates, positive: `rate` gives what was promised, `backlog` and
  /// every stamp the time that copies really take. Latency and moves are as promised.
  double real_rate = 1.0;
  /// Blocks have places. Without, free bytes are in one piece, and nobody waits for past users.
  bool places = true;
  /// ns that compute loses per ns of copying beside it: 0 (nothing) to 1 (all of its time).
  double burden_out = 0;
  double burden_in = 0;
};

/// A Storage of bytes alone, in virtual time: what a policy would do on a machine, asked without
/// one. Kernels get null addresses. An operator takes the `cost` that it states, and now() is its
/// completion when end_operator returns; waited() counts what operators waited for copies. Blocks
/// have places as in an arena (unless told not to): both say yes and no to the same requests.
///
///   delta::simulated storage{{.capacity = 100_B, .host_capacity = 400_B, .rate_out = 1e9}};
///   delta::manager manager{delta::paper(), storage};
///   manager.run({.inputs = {x}, .outputs = {40_B}, .cost = 7us}, [](delta::call&) {});
///   std::cout << storage.now().count() << " ns, " << storage.waited().count() << " ns of waiting";
class simulated : public detail::storage_rules<detail::virtual_lanes> {
 public:
  /// Nothing is taken from the machine but the table of blocks.
  explicit simulated(const simulated_options& o)
      : storage_rules(o.capacity, o.host_capacity, o.granularity, o.moving,
                      detail::virtual_lanes{{o.rate_out, o.rate_in, o.rate_move, o.latency,
                                             o.burden_out, o.burden_in},
                                            {o.rate_out * o.real_rate, o.rate_in * o.real_rate,
                                             o.rate_move, o.latency, o.burden_out, o.burden_in}},
                      o.places) {}
};

static_assert(Storage<simulated>);

}  // namespace delta
