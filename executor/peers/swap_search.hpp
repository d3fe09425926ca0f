// delta executor: SwapAdvisor's search (Huang et al. 2020): which tensors of a step are swapped
// between which of their uses, found by a genetic algorithm that a small simulator judges.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "delta/context.hpp"
#include "delta/step.hpp"

namespace delta::executor {

/// Searches a plan of swaps for steps like the last one. A plan is a subset of the step's gaps: the
/// times between two uses of a storage with an operator in between, and those from its last use to
/// the first one in the next step.
///
/// Deterministic, with a seed of its own: so each role may have a search, and they agree.
class swap_search {
 public:
  static constexpr std::uint32_t none = step_record::none;

  /// One swap: away after the operator before, back for the operator `to`; its copy in begins
  /// beside the operator `back`. Positions beyond the step's length are the next step's.
  struct trip {
    std::uint32_t storage = none, to = none, back = none;
    tensor_id tensor = tensor_id::none;  ///< of a gap that reaches into the next step: whose
  };

  /// Plans for the last step, unless that was planned for already under that budget. At most 4096
  /// gaps are weighed and 353 plans simulated, each in O(step + gaps x log step).
  void make(const context& c) {
    if (c.past().steps() == 0) return;
    step_ = &c.past().last();
    const std::uint64_t key = step_->operations.back().exact;
    if (key == key_ && c.budget() == budget_) return;
    key_ = key, budget_ = c.budget(), length_ = step_->length();
    trips_.clear(), into_next_.clear(), gaps_.clear();
    expected_ = at_first_ = 0;
    if (static_cast<double>(step_->peak) <= budget_) return;
    for (const direction d : {direction::out, direction::in}) {
      latency_[static_cast<std::size_t>(d)] = c.latency(d);
      per_byte_[static_cast<std::size_t>(d)] = 1e9 / c.rate(d);
    }
    find_gaps();
    if (!gaps_.empty()) keep(search());
  }
  /// The swap that is planned for `t` until its next use, if any. O(log trips).
  [[nodiscard]] const trip* of(const context& c, tensor_id t) const noexcept {
    const history& past = c.past();
    if (trips_.empty() || !past.follows() || past.followed().operations.back().exact != key_)
      return nullptr;
    const forecast f = c.next_use(t);
    if (f.what != forecast::kind::known) return nullptr;
    const std::uint32_t s = past.storage_of(t);
    if (s == none) {  // not touched yet: by the id that it had when the plan was made
      const auto x = std::ranges::lower_bound(into_next_, t, {}, &trip::tensor);
      const bool is = x != into_next_.end() && x->tensor == t && x->to == f.position + length_;
      return is ? &*x : nullptr;
    }
    const auto x = std::ranges::lower_bound(trips_, std::pair(s, f.position), {}, place_of);
    return x != trips_.end() && place_of(*x) == std::pair(s, f.position) ? &*x : nullptr;
  }
  /// Its copy in may begin at this position at the earliest; `none`: `t` is not to be swapped now.
  [[nodiscard]] std::uint32_t back_at(const context& c, tensor_id t) const noexcept {
    const trip* const planned = of(c, t);
    if (planned == nullptr) return none;
    // What is due in this step, though its swap began in the one before.
    const bool began_before = c.past().storage_of(t) == none;
    return planned->back - (began_before ? length_ : 0);
  }
  /// Is it to be away now?
  [[nodiscard]] bool leaves(const context& c, tensor_id t) const noexcept {
    const std::uint32_t back = back_at(c, t);
    return back != none && c.past().position() < back;
  }
  /// What a step is expected to take under the plan, in ns, and under the best of those that the
  /// search began with; 0: everything fits, and nothing was searched.
  [[nodiscard]] double expected() const noexcept { return expected_; }
  [[nodiscard]] double expected_at_first() const noexcept { return at_first_; }

 private:
  static constexpr std::size_t most_gaps = 4096, population = 16, generations = 24, elite = 2;

  struct gap {
    std::uint32_t storage;
    std::uint32_t from;     // the operator behind which it leaves
    std::uint32_t to;       // the operator that needs it; not above `from`: of the next step
    double bytes, out, in;  // the copies in ns
    [[nodiscard]] bool wraps() const noexcept { return to <= from; }
  };
  struct plan {
    std::vector<bool> chosen;  // by gap
    double time = 0;           // of the step, ns
  };

  static std::pair<std::uint32_t, std::uint32_t> place_of(const trip& x) noexcept {
    return {x.storage, x.to};
  }

  // --- what there is to choose from -------------------------------------------------------------

  void find_gaps() {
    const auto add = [&](std::uint32_t s, std::uint32_t from, std::uint32_t to) {
      const auto size = static_cast<double>(step_->storages[s].size.count);
      gaps_.push_back({s, from, to, size, latency_[0] + size * per_byte_[0],
                       latency_[1] + size * per_byte_[1]});
    };
    for (std::uint32_t s = 0; s < step_->storages.size(); ++s) {
      const step_record::storage& x = step_->storages[s];
      if (x.pinned || x.size.count == 0 || x.uses == 0) continue;
      std::uint32_t from = x.born;
      for (std::uint32_t k = 0; k < x.uses; ++k) {
        const std::uint32_t to = step_->uses[x.first_use + k];
        if (from != none && to > from + 1) add(s, from, to);
        from = to;
      }
      const std::uint32_t again = step_->uses[x.first_use];
      const bool stays = x.born == none && x.died == none && !x.dropped;
      if (stays && again + length_ > from + 1) add(s, from, again);
    }
    // The largest, where there are too many; ties in the order of the storages.
    if (gaps_.size() > most_gaps) {
      std::ranges::sort(gaps_, [](const gap& a, const gap& b) {
        if (a.bytes != b.bytes) return a.bytes > b.bytes;
        return a.storage != b.storage ? a.storage < b.storage : a.from < b.from;
      });
      gaps_.resize(most_gaps);
    }
    // In the order in which they begin: neighbours in a plan are neighbours in time.
    std::ranges::sort(gaps_, [](const gap& a, const gap& b) {
      return a.from != b.from ? a.from < b.from : a.storage < b.storage;
    });
    by_return_.resize(gaps_.size());
    for (std::uint32_t g = 0; g < by_return_.size(); ++g) by_return_[g] = g;
    std::ranges::sort(by_return_, {}, [&](std::uint32_t g) { return std::pair(gaps_[g].to, g); });
  }

  // --- the search -------------------------------------------------------------------------------

  plan search() {
    random_ = 0;
    std::vector<plan> all = first_generation(), next;
    const auto better = [](const plan& a, const plan& b) {
      return a.time != b.time ? a.time < b.time : a.chosen < b.chosen;
    };
    std::ranges::sort(all, better);
    at_first_ = all.front().time;
    for (std::size_t g = 0; g < generations && all.front().time > step_->time; ++g) {
      next.assign(all.begin(), all.begin() + elite);
      while (next.size() < population) {
        next.push_back(child_of(winner(all), winner(all)));
        judge(next.back());
      }
      all.swap(next);
      std::ranges::sort(all, better);
    }
    judge(all.front());  // so that the times of its copies are those at hand
    return std::move(all.front());
  }
  // Nothing; at the peak what is used last; all that hides its copies; all around the peak; and
  // between the two last, subsets by chance, of which the larger ones come later.
  std::vector<plan> first_generation() {
    std::vector<plan> all(population, {std::vector<bool>(gaps_.size()), 0});
    std::vector<std::uint32_t> around;
    for (std::uint32_t g = 0; g < gaps_.size(); ++g) {
      const gap& x = gaps_[g];
      const auto& before = step_->operations[x.from];
      const double wraps = x.wraps() ? step_->time : 0.0;
      const double between = wraps + step_->operations[x.to].start - before.start - before.cost;
      const bool hides = between >= x.out + x.in, at_peak = is_around_peak(x);
      if (at_peak) around.push_back(g);
      all[2].chosen[g] = hides;
      all[3].chosen[g] = at_peak;
      for (std::size_t p = 4; p < population; ++p)
        all[p].chosen[g] = (hides || at_peak) && below(population) < p;
    }
    // The latest first; ties by number.
    const auto until = [&](std::uint32_t g) {
      return gaps_[g].to + (gaps_[g].wraps() ? length_ : 0);
    };
    std::ranges::sort(around, [&](std::uint32_t a, std::uint32_t b) {
      return until(a) != until(b) ? until(a) > until(b) : a < b;
    });
    double over = static_cast<double>(step_->peak) - budget_;
    for (std::size_t k = 0; k < around.size() && over > 0; ++k)
      all[1].chosen[around[k]] = true, over -= gaps_[around[k]].bytes;
    for (plan& p : all) judge(p);
    return all;
  }
  [[nodiscard]] bool is_around_peak(const gap& x) const noexcept {
    const std::uint32_t at = step_->peak_at;
    return x.wraps() ? at > x.from || at < x.to : at > x.from && at < x.to;
  }
  // The better of two by chance.
  const plan& winner(const std::vector<plan>& sorted) {
    const std::size_t a = below(population), b = below(population);
    return sorted[std::min(a, b)];
  }
  // Up to some moment as one, from there on as the other; and up to four gaps otherwise.
  plan child_of(const plan& a, const plan& b) {
    plan child = a;
    for (std::size_t g = below(gaps_.size() + 1); g < gaps_.size(); ++g)
      child.chosen[g] = b.chosen[g];
    for (std::size_t k = 1 + below(4); k > 0; --k) child.chosen[below(gaps_.size())].flip();
    return child;
  }
  // SplitMix64 (Steele et al. 2014), below n.
  std::size_t below(std::size_t n) noexcept {
    std::uint64_t z = random_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<std::size_t>((z ^ (z >> 31)) % n);
  }

  // --- the simulator ----------------------------------------------------------------------------

  // Plays the step: compute and one lane of copies each way. Copies out begin when their operator
  // has ended; copies in so late that, one behind the other, all of them would be in time. What is
  // over the budget waits for copies out, and where that does not do, is swapped at once, both ways
  // in nobody's shadow. What is swapped into the next step is away when this one begins.
  void judge(plan& p) {
    const std::size_t many = gaps_.size();
    begins_.assign(many, 0);
    double limit = std::numeric_limits<double>::infinity();
    for (std::size_t k = many; k-- > 0;) {
      const std::uint32_t g = by_return_[k];
      if (!p.chosen[g]) continue;
      limit = std::min(limit, step_->operations[gaps_[g].to].start) - gaps_[g].in;
      begins_[g] = operator_at(limit, gaps_[g]);
    }
    arrival_.assign(many, 0);  // on the host, then on the device
    leaving_.clear();
    double now = 0, out = 0, in = 0, gone = 0, squeezed = 0;
    for (std::size_t g = 0; g < many; ++g)
      if (p.chosen[g] && gaps_[g].wraps()) gone += gaps_[g].bytes;
    std::size_t departing = 0, returning = 0, awaited = 0, left = 0;
    const auto at_return = [&](std::size_t k) -> const gap& { return gaps_[by_return_[k]]; };
    for (std::uint32_t i = 0; i < length_; ++i) {
      for (; returning < many; ++returning) {
        const std::uint32_t g = by_return_[returning];
        if (!p.chosen[g]) continue;
        if (begins_[g] > i) break;
        in = std::max({in, now, arrival_[g]}) + gaps_[g].in;
        arrival_[g] = in, gone -= gaps_[g].bytes;
      }
      for (; awaited < many && at_return(awaited).to == i; ++awaited)
        if (p.chosen[by_return_[awaited]]) now = std::max(now, arrival_[by_return_[awaited]]);
      const double need = static_cast<double>(step_->operations[i].live);
      for (; left < leaving_.size(); ++left) {
        const auto& [done, bytes] = leaving_[left];
        if (done > now && need - gone <= budget_) break;
        now = std::max(now, done), gone += bytes;
      }
      const double over = std::max(0.0, need - gone - budget_);
      now += std::max(0.0, over - squeezed) * (per_byte_[0] + per_byte_[1]);
      squeezed = over;
      now += step_->operations[i].cost;
      for (; departing < many && gaps_[departing].from == i; ++departing) {
        if (!p.chosen[departing]) continue;
        out = std::max(out, now) + gaps_[departing].out;
        arrival_[departing] = out;
        leaving_.emplace_back(out, gaps_[departing].bytes);
      }
    }
    p.time = std::max(now, out);
  }
  // The last operator that has begun by then, of those within the gap.
  [[nodiscard]] std::uint32_t operator_at(double time, const gap& x) const noexcept {
    const auto& all = step_->operations;
    const auto behind = std::ranges::upper_bound(all, time, {}, &step_record::operation::start);
    const auto at = static_cast<std::uint32_t>(behind - all.begin());
    const std::uint32_t first = x.wraps() ? 0 : x.from + 1;
    return std::clamp(at == 0 ? 0 : at - 1, first, std::max(first, x.to == 0 ? 0 : x.to - 1));
  }

  void keep(const plan& best) {
    expected_ = best.time;
    for (std::size_t g = 0; g < gaps_.size(); ++g) {
      if (!best.chosen[g]) continue;
      const gap& x = gaps_[g];
      const std::uint32_t later = x.wraps() ? length_ : 0;
      trips_.push_back({x.storage, x.to + later, begins_[g] + later,
                        x.wraps() ? step_->storages[x.storage].tensor : tensor_id::none});
    }
    std::ranges::sort(trips_, {}, place_of);
    std::ranges::copy_if(trips_, std::back_inserter(into_next_),
                         [](const trip& x) { return x.tensor != tensor_id::none; });
    std::ranges::sort(into_next_, {}, &trip::tensor);
  }

  std::uint64_t key_ = 0;  // of the step that it was made for
  double budget_ = 0, expected_ = 0, at_first_ = 0;
  std::uint32_t length_ = 0;
  std::vector<trip> trips_;      // by storage and position
  std::vector<trip> into_next_;  // those that reach into the next step, by tensor
  // While it is made.
  const step_record* step_ = nullptr;
  std::array<double, 2> latency_{}, per_byte_{};  // ns, by direction
  std::vector<gap> gaps_;
  std::vector<std::uint32_t> by_return_, begins_;
  std::vector<double> arrival_;
  std::vector<std::pair<double, double>> leaving_;  // when, bytes
  std::uint64_t random_ = 0;
};

}  // namespace delta::executor
