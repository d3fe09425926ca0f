// delta executor: Capuchin's plan (Peng et al. 2020): which tensors of a step leave between two of
// their uses, and which way, chosen once from the step as it was measured.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "delta/context.hpp"
#include "delta/step.hpp"
#include "peers/parts.hpp"

namespace delta::executor {

/// A plan for steps like the last one. It covers what the step's peak is over the budget: first by
/// swaps that the time between two uses hides, the longest free time first; then by recomputing,
/// the most bytes per second of it first; and what is short still by the other swaps.
class swap_plan {
 public:
  static constexpr std::uint32_t none = step_record::none;

  swap_plan() = default;

  /// Plans for the last step, unless that was planned for already. True: the plan is new.
  /// O(storages x closure).
  bool make(const context& c) {
    const history& past = c.past();
    if (past.steps() == 0 || past.last().operations.empty()) return false;
    step_ = &past.last();
    const bool known = step_->operations.back().exact == key_ && c.budget() == budget_;
    if (known) return false;
    key_ = step_->operations.back().exact;
    budget_ = c.budget();
    trips_.assign(step_->storages.size(), {});
    met_.assign(step_->storages.size(), 0);
    const double over = static_cast<double>(step_->peak) - budget_;
    if (over > 0) choose(c, over);
    return true;
  }
  /// What is planned for a tensor of the step under way; null: nothing. O(1).
  [[nodiscard]] const trip* of(const context& c, tensor_id t) const noexcept {
    const std::uint32_t s = c.past().storage_of(t);
    if (s >= trips_.size() || c.past().followed().operations.back().exact != key_) return nullptr;
    return trips_[s].to == none ? nullptr : &trips_[s];
  }
  /// The same if its time has come: it is to be away now. Amortised O(1).
  [[nodiscard]] const trip* due(const context& c, tensor_id t) const noexcept {
    const trip* const planned = of(c, t);
    if (planned == nullptr || c.past().position() <= planned->from) return nullptr;
    const forecast f = c.next_use(t);
    return f.what == forecast::kind::known && f.position == planned->to ? planned : nullptr;
  }

 protected:
  /// `recomputes`: not by swaps alone.
  explicit swap_plan(bool recomputes) noexcept : recomputes_(recomputes) {}

 private:
  struct candidate {
    std::uint32_t storage;
    double free;  // ns of the interval that the two copies leave
  };

  struct copy_of {
    double at, took;  // ns
  };

  // The uses around the peak: only what leaves between them makes it smaller.
  [[nodiscard]] trip around_peak(std::uint32_t s) const noexcept {
    const step_record::storage& x = step_->storages[s];
    trip found;
    if (x.born <= step_->peak_at) found.from = x.born;  // `none` is above any
    for (const std::uint32_t use : std::span(step_->uses).subspan(x.first_use, x.uses)) {
      if (use <= step_->peak_at) found.from = use;
      if (use > step_->peak_at && found.to == none) found.to = use;
    }
    const bool needed_at_peak = found.from == none || found.from == step_->peak_at;
    return needed_at_peak ? trip{} : found;
  }
  [[nodiscard]] double free_time(const context& c, std::uint32_t s, const trip& t) const noexcept {
    const step_record::operation& before = step_->operations[t.from];
    double time = step_->operations[t.to].start - before.start - before.cost;
    for (const direction d : {direction::out, direction::in}) time -= copy(c, s, d);
    return time;
  }
  [[nodiscard]] double copy(const context& c, std::uint32_t s, direction d) const noexcept {
    return c.latency(d) + 1e9 * size(s) / c.rate(d);
  }
  [[nodiscard]] double size(std::uint32_t s) const noexcept {
    return static_cast<double>(step_->storages[s].size.count);
  }
  [[nodiscard]] bool recomputable(std::uint32_t s) const noexcept {
    const std::uint32_t born = step_->storages[s].born;
    if (born == none) return false;
    const step_record::operation& o = step_->operations[born];
    return !has(o.traits, trait::never_replay) &&
           (o.updates == 0 || has(o.traits, trait::effect_once));
  }

  void choose(const context& c, double over) {
    std::vector<candidate> all;
    for (std::uint32_t s = 0; s < trips_.size(); ++s) {
      const step_record::storage& x = step_->storages[s];
      const trip t = x.pinned || x.size.count == 0 ? trip{} : around_peak(s);
      if (t.to != none) all.push_back({s, free_time(c, s, t)});
    }
    // Ties in the order of the storages, so that every copy of the plan is the same.
    std::ranges::sort(all, [](const candidate& a, const candidate& b) {
      return a.free != b.free ? a.free > b.free : a.storage < b.storage;
    });
    const auto take = [&](std::uint32_t s, bool swaps) {
      trips_[s] = around_peak(s);
      trips_[s].swaps = swaps;
      over -= size(s);
    };
    out_.clear(), in_.clear();
    for (const candidate& x : all)
      if (x.free >= 0 && over > 0 && hidden_with(c, x.storage)) take(x.storage, true);
    // ns per byte and storage, the least first. What is chosen makes others dearer, never cheaper:
    // so one that is still the least when asked again is the least of all.
    using price = std::pair<double, std::uint32_t>;
    std::vector<price> prices;
    const auto ask = [&](std::uint32_t s) { return price{recompute_cost(c, s) / size(s), s}; };
    for (const candidate& x : all)
      if (recomputes_ && trips_[x.storage].to == none && recomputable(x.storage))
        prices.push_back(ask(x.storage));
    std::ranges::make_heap(prices, std::ranges::greater{});
    while (over > 0 && !prices.empty()) {
      std::ranges::pop_heap(prices, std::ranges::greater{});
      const price now = ask(prices.back().second);
      prices.pop_back();
      if (prices.empty() || now <= prices.front()) {
        take(now.second, false);
      } else {
        prices.push_back(now);
        std::ranges::push_heap(prices, std::ranges::greater{});
      }
    }
    for (const candidate& x : all)
      if (over > 0 && trips_[x.storage].to == none) take(x.storage, true);
  }

  // Would all copies be hidden, with this storage's among them? Each way has one lane: copies out
  // follow one another from the operators' ends on, copies in begin as late as their uses and each
  // other allow. In between the peak has to find room. O(chosen), and `out_` and `in_` then have
  // it.
  bool hidden_with(const context& c, std::uint32_t s) {
    const trip t = around_peak(s);
    const auto later = [](const copy_of& a, const copy_of& b) { return a.at < b.at; };
    const step_record::operation& before = step_->operations[t.from];
    const copy_of leaves{before.start + before.cost, copy(c, s, direction::out)};
    const copy_of returns{step_->operations[t.to].start, copy(c, s, direction::in)};
    const auto o = out_.insert(std::ranges::upper_bound(out_, leaves, later), leaves);
    const auto i = in_.insert(std::ranges::upper_bound(in_, returns, later), returns);
    const step_record::operation& peak = step_->operations[step_->peak_at];
    double out = 0, in = step_->time;
    for (const copy_of& x : out_) out = std::max(out, x.at) + x.took;
    for (std::size_t k = in_.size(); k-- > 0;) in = std::min(in, in_[k].at) - in_[k].took;
    if (out <= peak.start && in >= peak.start + peak.cost) return true;
    out_.erase(o), in_.erase(i);
    return false;
  }

  // Its operator and those of its ancestors that will be gone by then; a swapped one is one copy.
  double recompute_cost(const context& c, std::uint32_t s) {
    const std::uint32_t when = around_peak(s).to;
    const std::uint32_t mark = ++mark_;
    double cost = 0;
    walk_.assign(1, s);
    met_[s] = mark;
    while (!walk_.empty()) {
      const step_record::operation& o = step_->operations[step_->storages[walk_.back()].born];
      walk_.pop_back();
      cost += o.cost;
      for (const std::uint32_t in : step_->touched(o)) {
        if (std::exchange(met_[in], mark) == mark) continue;
        const step_record::storage& x = step_->storages[in];
        const trip& t = trips_[in];
        const bool away = t.to != none && t.to >= when;
        if (away && t.swaps)
          cost += copy(c, in, direction::in);
        else if ((away || x.died < when) && x.born != none)
          walk_.push_back(in);
      }
    }
    return cost;
  }

  bool recomputes_ = true;
  std::uint64_t key_ = 0;  // of the step that it was made for
  double budget_ = 0;
  std::vector<trip> trips_;  // by storage of that step
  // While it is made.
  const step_record* step_ = nullptr;
  std::vector<copy_of> out_, in_;  // of the swaps chosen so far, by `at`
  std::vector<std::uint32_t> met_, walk_;
  std::uint32_t mark_ = 0;
};

/// The same by swaps alone, whether or not they are hidden.
struct swaps_only_plan : swap_plan {
  swaps_only_plan() noexcept : swap_plan(false) {}
};

}  // namespace delta::executor
