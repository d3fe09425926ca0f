// delta: collectives in virtual time: a serial lane for the network beside compute and copies, what
// an operation has to wait for there, and the time of a step in which nothing leaves.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <utility>
#include <vector>

#include "delta/detail/storage/storage_rules.hpp"
#include "delta/storage/simulated.hpp"
#include "delta/units.hpp"
#include "traces/trace_data.hpp"

namespace delta {

namespace detail {

/// True if the operation is a collective: its cost is time of the network, not of the device.
[[nodiscard]] constexpr bool is_collective(const trace::operation& o) noexcept {
  return has(o.traits, trait::asynchronous);
}
/// What it takes of the device's own time.
[[nodiscard]] constexpr nanoseconds compute_cost(const trace::operation& o) noexcept {
  return is_collective(o) ? nanoseconds{} : o.cost;
}

/// When the collectives end that use a tensor's bytes, by tensor: a view's are its owner's.
class collective_ends {
 public:
  explicit collective_ends(const trace& t) : trace_(&t) {}
  /// The latest of what the operation touches; 0: nothing there is in use. O(its lists).
  [[nodiscard]] nanoseconds of(const trace::operation& o) const noexcept {
    nanoseconds latest{};
    if (ends_.empty()) return latest;
    for (const auto& list : {trace_->inputs(o), trace_->updates(o)})
      for (const std::uint32_t t : list) latest = std::max(latest, ends_[owner(t)]);
    return latest;
  }
  /// That collective has begun. O(its lists), the first time O(tensors). Throws std::bad_alloc.
  void begin(const trace::operation& o, nanoseconds end) {
    ends_.resize(trace_->tensors.size());
    for (const auto& list : {trace_->inputs(o), trace_->outputs(o), trace_->updates(o)})
      for (const std::uint32_t t : list) ends_[owner(t)] = end;
  }

  /// Whose bytes it has.
  [[nodiscard]] std::uint32_t owner(std::uint32_t t) const noexcept {
    while (trace_->tensors[t].view_of != trace::none) t = trace_->tensors[t].view_of;
    return t;
  }

 private:
  const trace* trace_;
  std::vector<nanoseconds> ends_;  // empty: there was no collective yet
};

/// The three lanes of virtual memory, and a fourth for collectives. All of them begin in the order
/// in which they are queued. On one link, as where network card and device share a PCIe switch's
/// uplink, a collective and the copies of both directions take turns: whoever is queued first.
class network_lanes : public virtual_lanes {
 public:
  network_lanes(const copy_rates& told, const copy_rates& real, bool one_link) noexcept
      : virtual_lanes(told, real), one_link_(one_link) {}

  stamp copy(direction d, std::uint64_t x, std::uint64_t y, bytes n, fence after) noexcept {
    if (one_link_) after.join(stamp{lane::compute, static_cast<std::uint64_t>(end_.count())});
    return virtual_lanes::copy(d, x, y, n, after);
  }
  [[nodiscard]] nanoseconds backlog(direction d) const noexcept {
    const nanoseconds copies = virtual_lanes::backlog(d);
    return one_link_ ? std::max(copies, end_ - now()) : copies;
  }
  /// Queues a collective that takes so long; gives its end.
  nanoseconds collect(nanoseconds cost) noexcept {
    end_ = std::max(end_, now());
    if (one_link_)
      for (const direction d : {direction::out, direction::in})
        end_ = std::max(end_, now() + virtual_lanes::backlog(d));
    return end_ += cost;
  }
  /// The clock goes on to the end of a collective; what that takes counts as waiting for it, too.
  void wait_for_collective(nanoseconds end) noexcept {
    waited_for_collectives_ += std::max(nanoseconds{}, end - now());
    wait({lane::compute, static_cast<std::uint64_t>(end.count())});
  }
  [[nodiscard]] nanoseconds waited_for_collectives() const noexcept {
    return waited_for_collectives_;
  }

 private:
  bool one_link_;
  nanoseconds end_{}, waited_for_collectives_{};
};

}  // namespace detail

/// The memory of one rank of several in virtual time: `simulated`, with a network. `waited` is for
/// copies and collectives together. Without collectives it does what `simulated` does.
class simulated_rank : public detail::storage_rules<detail::network_lanes> {
 public:
  /// `one_link`: collectives and copies share the link to the host.
  explicit simulated_rank(const simulated_options& o, bool one_link = false)
      : storage_rules(o.capacity, o.host_capacity, o.granularity, o.moving,
                      {{o.rate_out, o.rate_in, o.rate_move, o.latency, o.burden_out, o.burden_in},
                       {o.rate_out * o.real_rate, o.rate_in * o.real_rate, o.rate_move, o.latency,
                        o.burden_out, o.burden_in},
                       one_link},
                      o.places) {}
  /// A collective of that time begins when the ones before it are over; gives its end.
  nanoseconds collect(nanoseconds cost) noexcept { return lanes().collect(cost); }
  /// Waits for it.
  void wait_for_collective(nanoseconds end) noexcept { lanes().wait_for_collective(end); }
  /// Of `waited`, for collectives.
  [[nodiscard]] nanoseconds waited_for_collectives() const noexcept {
    return lanes().waited_for_collectives();
  }
};

static_assert(Storage<simulated_rank>);

/// What the operations of a trace take where nothing leaves: one behind the other on the device,
/// collectives (trait::asynchronous) beside them, and whoever touches what a collective uses waits
/// for its end. Without collectives `now` is the sum of the costs.
class unmanaged_clock {
 public:
  explicit unmanaged_clock(const trace& t) : ends_(t) {}
  /// O(its lists). Throws std::bad_alloc.
  void run(const trace::operation& o) {
    now_ = std::max(now_, ends_.of(o)) + detail::compute_cost(o);
    if (!detail::is_collective(o)) return;
    network_ = std::max(network_, now_) + o.cost;
    ends_.begin(o, network_);
  }
  /// What the device has taken so far, in ns.
  [[nodiscard]] nanoseconds now() const noexcept { return now_; }

 private:
  detail::collective_ends ends_;
  nanoseconds now_{}, network_{};
};

/// The time of the whole trace by `unmanaged_clock`. O(trace). Throws std::bad_alloc.
[[nodiscard]] inline nanoseconds unmanaged_time(const trace& t) {
  unmanaged_clock clock(t);
  for (const trace::event& e : t.events)
    if (e.what == trace::kind::run) clock.run(t.operations[e.index]);
  return clock.now();
}

/// What a trace_replayer asks of a network: here there is none, and every cost is the device's.
struct no_network {
  static constexpr nanoseconds cost(const trace::operation& o) noexcept { return o.cost; }
  void before(const trace::operation&) const noexcept {}
  void within(const trace::operation&) const noexcept {}
  void after(const trace::operation&, std::span<const tensor_id>) const noexcept {}
  bool wait_for_oldest() const noexcept { return false; }
};

/// The collectives of a replay over a simulated_rank. What one uses stays where it is until an
/// operation touches it, which waits for its end, or until memory is short: then the oldest one is
/// waited for, and the operation is tried again. So does a run of delta_torch
/// (docs/distributed.md).
template <class Manager>
class replayed_network {
 public:
  /// All three outlive it.
  replayed_network(Manager& m, simulated_rank& memory, const trace& t)
      : manager_(&m), memory_(&memory), trace_(&t), ends_(t) {}

  static constexpr nanoseconds cost(const trace::operation& o) noexcept {
    return detail::compute_cost(o);
  }
  /// An operation is about to begin: it may have what it touches. O(flights x lists).
  void before(const trace::operation& o) {
    std::erase_if(flights_, [&](const flight& f) { return uses(*f.of, o); });
  }
  /// It begins, or is repeated. O(its lists).
  void within(const trace::operation& o) noexcept { memory_->wait_for_collective(ends_.of(o)); }
  /// It has ended; `ids` are the manager's, by tensor of the trace.
  void after(const trace::operation& o, std::span<const tensor_id> ids) {
    if (!detail::is_collective(o)) return;
    const nanoseconds end = memory_->collect(o.cost);
    ends_.begin(o, end);
    flight& f = flights_.emplace_back(flight{&o, end, {}});
    for (const auto& list : {trace_->inputs(o), trace_->outputs(o), trace_->updates(o)})
      for (const std::uint32_t t : list) f.held.push_back(manager_->acquire(ids[t]));
  }
  /// Waits until the oldest collective is over, and lets its tensors go; false: there is none.
  bool wait_for_oldest() {
    if (flights_.empty()) return false;
    memory_->wait_for_collective(flights_.front().end);
    flights_.pop_front();
    return true;
  }

 private:
  struct flight {
    const trace::operation* of;
    nanoseconds end;
    std::list<typename Manager::view> held;  // a view is not assigned to
  };
  [[nodiscard]] bool uses(const trace::operation& collective, const trace::operation& o) const {
    const auto owner = [this](std::uint32_t t) { return ends_.owner(t); };
    for (const auto& mine :
         {trace_->inputs(collective), trace_->outputs(collective), trace_->updates(collective)})
      for (const auto& its : {trace_->inputs(o), trace_->updates(o)})
        if (std::ranges::find_first_of(mine, its, {}, owner, owner) != mine.end()) return true;
    return false;
  }

  Manager* manager_;
  simulated_rank* memory_;
  const trace* trace_;
  detail::collective_ends ends_;
  std::list<flight> flights_;  // the oldest first
};

}  // namespace delta
