// delta: an arena whose time is modelled while its data really moves, so that decisions repeat
// exactly: for tests of what a policy decides on a machine.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "delta/storage/arena.hpp"
#include "delta/storage/simulated.hpp"
#include "delta/storage/storage.hpp"
#include "delta/units.hpp"

namespace delta {

namespace detail {

// An arena's lanes with the model's stamps instead of the device's, where there is a model. Work is
// queued on the device first: if that throws, the model has not gone on.
template <Device D>
class timed_lanes : public arena_lanes<D> {
  using base = arena_lanes<D>;

 public:
  timed_lanes(D& device, const arena_options& o, const std::optional<copy_rates>& clock)
      : base(device, o) {
    if (clock) model_.emplace(*clock);
  }

  stamp copy(direction d, std::uint64_t device, std::uint64_t host, bytes n, const fence& after) {
    const stamp done = base::copy(d, device, host, n, real_of(after));
    return model_ ? note(model_->copy(d, device, host, n, after), done) : done;
  }
  void begin(const fence& after) {
    // A kernel must not start early on the device either: the model only says what time it is.
    base::begin(real_of(after));
    if (model_) model_->begin(after);
  }
  stamp end_moves(bytes n) {
    const stamp done = base::end_moves(n);
    return model_ ? note(model_->end_moves(n), done) : done;
  }
  stamp end(nanoseconds cost) {
    const stamp done = base::end(cost);
    return model_ ? note(model_->end(cost), done) : done;
  }
  // By the model where there is one: its yes makes the device's true, so the answer is the same on
  // every run, however fast the device is.
  bool reached(stamp s) {
    if (!model_) return base::reached(s);
    if (!model_->reached(s)) return false;
    base::wait(real_of(s));
    return true;
  }
  void wait(stamp s) {
    if (model_) model_->wait(s);
    base::wait(model_ ? real_of(s) : s);
  }
  std::optional<nanoseconds> elapsed(stamp s) {
    return model_ ? model_->elapsed(s) : base::elapsed(s);
  }
  std::optional<nanoseconds> began(stamp s) { return model_ ? model_->began(s) : base::began(s); }
  std::optional<nanoseconds> alone(stamp s) { return model_ ? model_->alone(s) : base::alone(s); }
  [[nodiscard]] double burden(direction d) const {
    return model_ ? model_->burden(d) : base::burden(d);
  }
  [[nodiscard]] nanoseconds now() const { return model_ ? model_->now() : base::now(); }
  [[nodiscard]] nanoseconds waited() const { return model_ ? model_->waited() : base::waited(); }
  [[nodiscard]] double rate(direction d) const { return model_ ? model_->rate(d) : base::rate(d); }
  [[nodiscard]] double move_rate() const {
    return model_ ? model_->move_rate() : base::move_rate();
  }
  [[nodiscard]] nanoseconds latency(direction d) const {
    return model_ ? model_->latency(d) : base::latency(d);
  }
  [[nodiscard]] nanoseconds backlog(direction d) const {
    return model_ ? model_->backlog(d) : base::backlog(d);
  }

 private:
  // Which work of the device a point of the model stands for.
  struct pair_of_points {
    std::uint64_t model, real;
  };
  // The pairs of one lane in order, from `first` on; the rest were reached and are cut off now
  // and then, so no heap is used in the long run. (A deque gives its blocks back and asks again.)
  struct track {
    std::vector<pair_of_points> pairs;
    std::size_t first = 0;
  };

  // Keeps the pair, and forgets those that the device has reached: waiting for them is no wait.
  // Amortised O(1).
  stamp note(stamp model, stamp real) {
    track& t = tracks_[static_cast<std::size_t>(model.where)];
    while (t.first < t.pairs.size() && base::reached({model.where, t.pairs[t.first].real}))
      ++t.first;
    if (t.first > t.pairs.size() / 2) {
      t.pairs.erase(t.pairs.begin(), t.pairs.begin() + static_cast<std::ptrdiff_t>(t.first));
      t.first = 0;
    }
    t.pairs.push_back({model.point, real.point});
    return model;
  }
  // The last work that ends, by the model, no later than `s`. Work of no length shares its point
  // with the work before it; the later one is taken, which is safe. O(log work under way).
  [[nodiscard]] stamp real_of(stamp s) const {
    const track& t = tracks_[static_cast<std::size_t>(s.where)];
    const auto from = t.pairs.begin() + static_cast<std::ptrdiff_t>(t.first);
    const auto it = std::upper_bound(
        from, t.pairs.end(), s.point,
        [](std::uint64_t point, const pair_of_points& p) { return point < p.model; });
    return {s.where, it == from ? 0 : std::prev(it)->real};
  }
  [[nodiscard]] fence real_of(const fence& f) const {
    if (!model_) return f;
    fence real;
    for (std::size_t e = 0; e < lane_count; ++e)
      real.join(real_of(stamp{static_cast<lane>(e), f.point[e]}));
    return real;
  }

  std::optional<virtual_lanes> model_;
  std::array<track, lane_count> tracks_;
};

}  // namespace detail

/// An arena that may have a virtual clock: with one, stamps, clock, rates and waits are the
/// model's, so that decisions repeat exactly. The data still moves through the device; where it is
/// late, the host waits. Without one it is an arena.
///
///   my_device machine;
///   delta::timed_arena storage{machine, {.capacity = 512_MiB}, delta::copy_rates{.out = 1e9}};
template <class D>
class timed_arena : public arena<D, detail::timed_lanes<detail::checked_device<D>>> {
  using lanes_type = detail::timed_lanes<detail::checked_device<D>>;

 public:
  /// Asks the device for both memories, once. Throws what they throw.
  timed_arena(D& device, const arena_options& o, const std::optional<copy_rates>& clock = {})
      : arena<D, lanes_type>(o, lanes_type(device, o, clock)) {}
};

static_assert(Storage<timed_arena<detail::device_archetype>>);

}  // namespace delta
