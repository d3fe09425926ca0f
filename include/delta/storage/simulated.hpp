// delta: memory in virtual time. Bytes are counted, nothing is stored; three serial engines run
// side by side on an exact clock. What a policy would do on a machine can be asked without one.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "delta/concepts.hpp"
#include "delta/units.hpp"

namespace delta {

/// How fast copies are: what a virtual clock needs to know of a machine.
struct copy_rates {
  double out = 12e9;      ///< bytes per second, device to host
  double in = 12e9;       ///< bytes per second, host to device
  double move = 0;        ///< bytes per second within the device; 0: moving blocks takes no time
  nanoseconds latency{};  ///< of every copy, before its first byte

  [[nodiscard]] constexpr double of(direction d) const noexcept {
    return d == direction::out ? out : in;
  }
  /// What a copy of `n` bytes takes, rounded up to whole nanoseconds.
  [[nodiscard]] nanoseconds cost(direction d, bytes n) const noexcept {
    return latency + duration(n, of(d));
  }
  [[nodiscard]] nanoseconds move_cost(bytes n) const noexcept { return duration(n, move); }

 private:
  static nanoseconds duration(bytes n, double rate) noexcept {
    if (rate <= 0) return {};
    const double ns = static_cast<double>(n.count) * 1e9 / rate;
    const auto whole = static_cast<std::int64_t>(ns);
    return nanoseconds{whole + (static_cast<double>(whole) < ns ? 1 : 0)};
  }
};

/// Three serial engines in exact virtual time. A stamp's point is the virtual time, in ns, at which
/// its work ends; zero-length work may share a point. All functions are O(1) and do not allocate.
class timeline {
 public:
  /// Queues `cost` of work on `e`, to start once the engine is free and `after` is reached, but not
  /// before now.
  stamp queue(engine e, nanoseconds cost, const fence& after) noexcept {
    auto& end = end_[static_cast<std::size_t>(e)];
    end = std::max(start_of(e), latest(after)) + static_cast<std::uint64_t>(cost.count());
    recent_[next_++ % recent_.size()] = {stamp{e, end}, cost};
    return {e, end};
  }
  [[nodiscard]] nanoseconds now() const noexcept { return to_time(now_); }
  [[nodiscard]] bool reached(stamp s) const noexcept { return s.point <= now_; }
  /// The clock goes on by `t`, without counting it as waiting: the caller was busy.
  void advance(nanoseconds t) noexcept { now_ += static_cast<std::uint64_t>(t.count()); }
  /// The clock goes on to `s`, where the caller had work of its own to end.
  void advance(stamp s) noexcept { now_ = std::max(now_, s.point); }
  /// The clock goes on to `s`; what that takes counts as waiting.
  void wait(stamp s) noexcept { wait_until(s.point); }
  /// The compute engine can't start before `after`: the clock goes on to where it can. Only what
  /// exceeds the compute engine's own queue counts as waiting (for copies).
  void begin(const fence& after) noexcept {
    now_ = start_of(engine::compute);
    wait_until(latest(after));
  }
  /// How long work queued on `e` now would wait before it starts.
  [[nodiscard]] nanoseconds backlog(engine e) const noexcept { return to_time(start_of(e) - now_); }
  [[nodiscard]] nanoseconds waited() const noexcept { return waited_; }
  /// The cost of one of the last pieces of work (64 are remembered), else nullopt.
  [[nodiscard]] std::optional<nanoseconds> elapsed(stamp s) const noexcept {
    for (std::size_t back = 1; back <= std::min(next_, recent_.size()); ++back) {
      const auto& [at, cost] = recent_[(next_ - back) % recent_.size()];
      if (at == s) return cost;
    }
    return std::nullopt;
  }

 private:
  static constexpr nanoseconds to_time(std::uint64_t t) noexcept {
    return nanoseconds{static_cast<std::int64_t>(t)};
  }
  static std::uint64_t latest(const fence& f) noexcept { return std::ranges::max(f.point); }
  [[nodiscard]] std::uint64_t start_of(engine e) const noexcept {
    return std::max(now_, end_[static_cast<std::size_t>(e)]);
  }
  void wait_until(std::uint64_t t) noexcept {
    if (t <= now_) return;
    waited_ += to_time(t - now_);
    now_ = t;
  }

  std::uint64_t now_ = 0;
  std::array<std::uint64_t, engine_count> end_{};
  nanoseconds waited_{};
  std::array<std::pair<stamp, nanoseconds>, 64> recent_{};
  std::size_t next_ = 0;
};

/// What a simulated machine has.
struct simulated_options {
  bytes capacity{};
  bytes host_capacity{};
  double rate_out = 12e9;         ///< bytes per second, device to host
  double rate_in = 12e9;          ///< bytes per second, host to device
  nanoseconds latency{};          ///< of every copy
  std::uint64_t granularity = 1;  ///< sizes are rounded up to it; a power of two
  double rate_move = 0;           ///< bytes per second within the device; 0: moves take no time
};

/// A Storage of bytes alone, in virtual time. The host runs in lock-step with the compute engine:
/// end_operator(cost) returns when the operator is done, so now() is then its completion.
class simulated {
 public:
  explicit simulated(const simulated_options& o)
      : options_(o), rates_{o.rate_out, o.rate_in, o.rate_move, o.latency} {}

  [[nodiscard]] std::optional<block> allocate(bytes n, lifetime) {
    const bytes size = rounded(n);
    if (size > saturating_sub(options_.capacity, used_)) return std::nullopt;
    used_ += size;
    peak_ = std::max(peak_, used_);
    return block{device_.take(size)};
  }
  void free(block&& b) {
    used_ -= device_[b.index()].size;
    device_.give(std::exchange(b, block{}).index());
  }
  void free(slab&& h) {
    host_used_ -= host_[h.index()].size;
    host_.give(std::exchange(h, slab{}).index());
  }
  [[nodiscard]] std::optional<transfer> copy_out(block& b) {
    auto& from = device_[b.index()];
    if (from.size > saturating_sub(options_.host_capacity, host_used_)) return std::nullopt;
    host_used_ += from.size;
    host_peak_ = std::max(host_peak_, host_used_);
    const stamp done =
        time_.queue(engine::copy_out, rates_.cost(direction::out, from.size), from.written);
    slab to{host_.take(from.size)};
    host_[to.index()].written.join(done);
    from.read.join(done);
    return transfer{std::move(b), std::move(to), done};
  }
  transfer copy_in(slab&& h, block&& b) {
    auto& from = host_[h.index()];
    auto& to = device_[b.index()];
    assert(from.size == to.size);
    const stamp done = time_.queue(engine::copy_in, rates_.cost(direction::in, to.size),
                                   fence{from.written}.join(to.written).join(to.read));
    from.read.join(done);
    to.written = fence{}.join(done);
    to.read = {};
    return {std::move(b), std::move(h), done};
  }
  std::pair<block, slab> land(transfer&& t) noexcept { return std::move(t).take(); }

  void begin_operator(std::span<const block* const> reads, std::span<const block* const> writes) {
    fence after;
    reads_.clear();
    writes_.clear();
    for (const block* b : reads) {
      after.join(device_[b->index()].written);
      reads_.push_back(b->index());
    }
    for (const block* b : writes) {
      after.join(device_[b->index()].written).join(device_[b->index()].read);
      writes_.push_back(b->index());
    }
    time_.begin(after);
  }
  stamp end_operator(nanoseconds cost) {
    const stamp done = time_.queue(engine::compute, cost, {});
    time_.advance(done);
    for (auto b : reads_) device_[b].read.join(done);
    for (auto b : writes_) device_[b].written = fence{}.join(done), device_[b].read = {};
    return done;
  }

  [[nodiscard]] bool reached(stamp s) const noexcept { return time_.reached(s); }
  void wait(stamp s) noexcept { time_.wait(s); }
  [[nodiscard]] std::optional<nanoseconds> elapsed(stamp s) const noexcept {
    return time_.elapsed(s);
  }
  [[nodiscard]] nanoseconds now() const noexcept { return time_.now(); }
  [[nodiscard]] nanoseconds waited() const noexcept { return time_.waited(); }
  [[nodiscard]] double rate(direction d) const noexcept { return rates_.of(d); }
  [[nodiscard]] nanoseconds latency(direction) const noexcept { return rates_.latency; }
  [[nodiscard]] nanoseconds backlog(direction d) const noexcept {
    return time_.backlog(engine_of(d));
  }

  [[nodiscard]] bytes capacity() const noexcept { return options_.capacity; }
  [[nodiscard]] bytes used() const noexcept { return used_; }
  [[nodiscard]] bytes peak() const noexcept { return peak_; }
  [[nodiscard]] bytes host_capacity() const noexcept { return options_.host_capacity; }
  [[nodiscard]] bytes host_used() const noexcept { return host_used_; }
  [[nodiscard]] bytes host_peak() const noexcept { return host_peak_; }
  [[nodiscard]] bytes rounded(bytes n) const noexcept { return round_up(n, options_.granularity); }

 private:
  struct range {
    bytes size{};
    fence written, read;
  };
  struct table {
    range& operator[](std::uint32_t i) { return rows[i]; }
    std::uint32_t take(bytes size) {
      if (spare.empty()) {
        rows.push_back({size, {}, {}});
        return static_cast<std::uint32_t>(rows.size() - 1);
      }
      const std::uint32_t i = spare.back();
      spare.pop_back();
      rows[i] = {size, {}, {}};
      return i;
    }
    void give(std::uint32_t i) { spare.push_back(i); }
    std::vector<range> rows;
    std::vector<std::uint32_t> spare;
  };

  simulated_options options_;
  copy_rates rates_;
  timeline time_;
  table device_, host_;
  std::vector<std::uint32_t> reads_, writes_;
  bytes used_{}, peak_{}, host_used_{}, host_peak_{};
};

static_assert(Storage<simulated>);

}  // namespace delta
