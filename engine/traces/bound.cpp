#include "traces/bound.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "traces/network.hpp"

namespace delta {
namespace {

using ids = std::vector<std::uint32_t>;
constexpr std::uint32_t none = trace::none;
constexpr std::size_t most_instants = 64;
constexpr std::size_t most_cuts = 64;  // between which windows lie

/// A storage by its tensor's number; times are numbers of operators that ran before.
struct span_of_life {
  std::uint32_t producer = none;
  std::uint32_t born = 0;
  std::uint32_t died = none;       // none: a result
  std::uint32_t last_read = none;  // the operator; none: never
};

/// A first run of an operator.
struct instant {
  std::uint32_t operation;
  double missing;  // bytes that cannot be there
};

/// Nanoseconds of the device: a collective's are the network's.
double cost_of(const trace::operation& o) noexcept {
  return static_cast<double>(detail::compute_cost(o).count());
}

/// Bytes that one operator computes again, and how long that takes.
struct offer {
  double size, cost;
};

class estimate {
 public:
  estimate(const trace& t, const bound_machine& m, dead_storage dead)
      : trace_(t), machine_(m), dead_(dead), owner_(t.tensors.size()), life_(t.tensors.size()) {
    read_lives();
    read_instants();
  }

  double bound() {
    double most = overhead_of_windows();
    for (const instant& i : instants_) most = std::max(most, overhead_at(i));
    const double busy = 1 + most / std::max(total(), 1.0);
    // Beside collectives the device is idle at times, and what is added may hide there.
    const auto unmanaged = static_cast<double>(unmanaged_time(trace_).count());
    return unmanaged > total() ? std::max(1.0, busy * total() / unmanaged) : busy;
  }

 private:
  void read_lives() {
    std::vector<std::uint64_t> references(trace_.tensors.size(), 0);
    ids shares(trace_.tensors.size(), none);  // whose bytes it has: a view, or a new version
    for (std::uint32_t t = 0; t < shares.size(); ++t) shares[t] = trace_.tensors[t].view_of;
    for (const trace::operation& o : trace_.operations)
      for (std::uint32_t i = 0; i < o.replaced; ++i)
        shares[trace_.outputs(o)[i]] = trace_.inputs(o)[i];
    for (std::uint32_t t = 0; t < owner_.size(); ++t) {
      const auto& made = trace_.tensors[t];
      owner_[t] = shares[t] == none ? t : owner_[shares[t]];
      life_[t].producer = made.producer;
    }
    std::uint32_t now = 0;
    const auto enter = [&](std::uint32_t t) {
      if (owner_[t] == t) life_[t].born = now;
      ++references[owner_[t]];
    };
    for (const trace::event& e : trace_.events) {
      switch (e.what) {
        case trace::kind::constant:
        case trace::kind::variable:
          enter(e.index);
          break;
        case trace::kind::run: {
          const auto& o = trace_.operations[e.index];
          for_each_input(o, [&](std::uint32_t s) { life_[s].last_read = now; });
          for (const std::uint32_t t : trace_.outputs(o)) enter(t);
          before_.push_back(before_.back() + cost_of(o));
          ++now;
          break;
        }
        case trace::kind::share:
          ++references[owner_[e.index]];
          break;
        case trace::kind::drop:
          if (--references[owner_[e.index]] == 0) life_[owner_[e.index]].died = now;
          break;
        case trace::kind::read:
        case trace::kind::write:
        case trace::kind::backward:
        case trace::kind::end_of_step:
          break;
      }
    }
  }

  /// Those at which most cannot be there, copied as it may be.
  void read_instants() {
    const std::size_t count = trace_.operations.size();
    std::vector<double> change(count + 1, 0);
    for (std::uint32_t s = 0; s < life_.size(); ++s) {
      const span_of_life& l = life_[s];
      if (owner_[s] != s || l.producer == none) continue;
      // Its own operator holds it, and the last reader; after that it is missed only as a result.
      const std::size_t end =
          l.died == none ? count : std::max(l.last_read == none ? l.born : l.last_read, l.born) + 1;
      change[l.born] += size(s);
      change[end] -= size(s);
    }
    double needed = 0;
    for (std::uint32_t o = 0; o < count; ++o) {
      needed += change[o];
      const double missing = needed - static_cast<double>(machine_.budget.count);
      if (missing > copied(before_[o])) instants_.push_back({o, missing});
    }
    const auto kept = std::min(instants_.size(), most_instants);
    const auto first = instants_.begin(), middle = first + static_cast<std::ptrdiff_t>(kept);
    std::partial_sort(first, middle, instants_.end(), [&](const instant& a, const instant& b) {
      return a.missing - copied(before_[a.operation]) > b.missing - copied(before_[b.operation]);
    });
    instants_.resize(kept);
  }

  double overhead_at(const instant& at) {
    const std::vector<offer> offers = cheapest_first(offers_at(at.operation));
    double all = 0;
    for (const offer& o : offers) all += o.size;
    if (at.missing > all) return std::numeric_limits<double>::infinity();
    const double before = before_[at.operation];
    return std::max(overhead_beyond(offers, at.missing, rate_out(), before),
                    overhead_beyond(offers, at.missing, rate_in(), total() - before));
  }

  /// The most that windows cost which do not overlap, each from one of the cuts to another.
  double overhead_of_windows() {
    const std::size_t count = trace_.operations.size(), cuts = std::min(count, most_cuts);
    const auto cut = [&](std::size_t i) { return i * count / cuts; };
    std::vector<double> most(cuts + 1, 0);  // by cut: of windows behind it
    for (std::size_t first = cuts; first-- > 0;) {
      most[first] = most[first + 1];
      reads seen(life_.size());
      for (std::size_t last = first + 1; last <= cuts; ++last) {
        for (std::size_t o = cut(last - 1); o < cut(last); ++o) see(o, cut(first), seen);
        const double missing = seen.size - static_cast<double>(machine_.budget.count);
        const double window = before_[cut(last)] - before_[cut(first)];
        if (missing <= rate_in() * window) continue;
        const double overhead =
            overhead_beyond(cheapest_first(offers_of(seen)), missing, rate_in(), window);
        most[first] = std::max(most[first], overhead + most[last]);
      }
    }
    return most[0];
  }
  /// What a window reads of all that was there before it.
  struct reads {
    explicit reads(std::size_t storages) : met(storages, false) {}
    ids all;
    std::vector<bool> met;  // by storage
    double size = 0;        // bytes
  };
  void see(std::size_t operation, std::size_t window, reads& seen) const {
    for_each_input(trace_.operations[operation], [&](std::uint32_t s) {
      const bool made_within =
          life_[s].producer != none ? life_[s].born >= window : life_[s].born > window;
      if (made_within || seen.met[s]) return;
      seen.met[s] = true, seen.size += size(s), seen.all.push_back(s);
    });
  }
  /// By operator, what it can compute again.
  [[nodiscard]] std::vector<offer> offers_of(const reads& seen) const {
    std::vector<double> sizes(trace_.operations.size(), 0.0);
    for (const std::uint32_t s : seen.all)
      if (life_[s].producer != none) sizes[life_[s].producer] += size(s);
    std::vector<offer> offers;
    for (std::size_t o = 0; o < sizes.size(); ++o)
      if (sizes[o] > 0) offers.push_back({sizes[o], cost_of(trace_.operations[o])});
    return offers;
  }

  static std::vector<offer> cheapest_first(std::vector<offer> offers) {
    std::sort(offers.begin(), offers.end(),
              [](const offer& a, const offer& b) { return a.cost * b.size < b.cost * a.size; });
    return offers;
  }
  /// Every segment of R gives one; what is beyond all offers can only be copied.
  static double overhead_beyond(const std::vector<offer>& offers, double missing, double rate,
                                double window) {
    double most = 0, size = 0, cost = 0;
    for (const offer& o : offers) {
      const double slope = o.cost / o.size;
      most = std::max(most, (cost + slope * (missing - rate * window - size)) / (1 + slope * rate));
      size += o.size;
      cost += o.cost;
    }
    return missing > size ? std::max(most, (missing - size) / rate - window) : most;
  }

  /// What may be absent while `now` runs: by operator, what of its outputs is read later.
  std::vector<offer> offers_at(std::uint32_t now) {
    std::vector<bool> held(life_.size(), false);
    for_each_input(trace_.operations[now], [&](std::uint32_t s) { held[s] = true; });
    for (const std::uint32_t t : trace_.outputs(trace_.operations[now])) held[owner_[t]] = true;

    std::vector<offer> offers;
    ids makers;
    for (std::uint32_t o = 0; o <= now; ++o) {
      offer all{0, cost_of(trace_.operations[o])};
      for (const std::uint32_t t : trace_.outputs(trace_.operations[o])) {
        const span_of_life& l = life_[t];
        const bool read = l.last_read != none && l.last_read > now;
        if (owner_[t] == t && !held[t] && (read || l.died == none)) all.size += size(t);
      }
      if (all.size == 0) continue;
      offers.push_back(all);
      makers.push_back(o);
    }
    if (dead_ == dead_storage::is_gone) add_dead_ancestors(now, makers, offers);
    return offers;
  }

  void add_dead_ancestors(std::uint32_t now, const ids& makers, std::vector<offer>& offers) {
    const std::size_t count = trace_.operations.size();
    std::vector<std::uint32_t> marks(count, none), needed_by(count, 0);
    ids walk;
    const auto for_each_dead = [&](std::uint32_t maker, std::uint32_t mark, const auto& visit) {
      walk.assign(1, maker);
      while (!walk.empty()) {
        const auto& o = trace_.operations[walk.back()];
        walk.pop_back();
        for_each_input(o, [&](std::uint32_t s) {
          const span_of_life& l = life_[s];
          if (l.producer == none || l.died == none || l.died > now) return;
          if (std::exchange(marks[l.producer], mark) == mark) return;
          visit(l.producer);
          walk.push_back(l.producer);
        });
      }
    };
    for (std::uint32_t k = 0; k < makers.size(); ++k)
      for_each_dead(makers[k], k, [&](std::uint32_t o) { ++needed_by[o]; });
    std::fill(marks.begin(), marks.end(), none);
    for (std::uint32_t k = 0; k < makers.size(); ++k)
      for_each_dead(makers[k], k, [&](std::uint32_t o) {
        offers[k].cost += cost_of(trace_.operations[o]) / needed_by[o];
      });
  }

  template <class Visit>
  void for_each_input(const trace::operation& o, const Visit& visit) const {
    for (const std::uint32_t t : trace_.inputs(o)) visit(owner_[t]);
    for (const std::uint32_t t : trace_.updates(o)) visit(owner_[t]);
  }
  [[nodiscard]] double size(std::uint32_t s) const noexcept {
    return static_cast<double>(trace_.rounded(trace_.tensors[s].size).count);
  }
  [[nodiscard]] double total() const noexcept { return before_.back(); }
  // Bytes per nanosecond.
  [[nodiscard]] double rate_out() const noexcept { return machine_.rate_out * 1e-9; }
  [[nodiscard]] double rate_in() const noexcept { return machine_.rate_in * 1e-9; }
  /// What can be out at an instant, without any overhead.
  [[nodiscard]] double copied(double before) const noexcept {
    return std::min(rate_out() * before, rate_in() * (total() - before));
  }

  const trace& trace_;
  bound_machine machine_;
  dead_storage dead_;
  ids owner_;  // of each tensor's bytes
  std::vector<span_of_life> life_;
  std::vector<instant> instants_;
  std::vector<double> before_{0};  // nanoseconds of all operators before each, and of all
};

}  // namespace

double lower_bound(const trace& t, const bound_machine& m, dead_storage dead) {
  return estimate(t, m, dead).bound();
}

}  // namespace delta
