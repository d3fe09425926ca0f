// Programs that need a victim with every operator: mixes of sizes, costs and time, and one program
// that runs any of them over any finder.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "axes.hpp"
#include "delta/heuristic.hpp"
#include "finders.hpp"

namespace delta::bench {

/// Numbers from a seed (splitmix64): a few instructions each, as what is measured beside them may
/// take no more than some hundred.
class draws {
 public:
  explicit draws(std::uint64_t from) : state_(from) {}
  std::uint64_t next() noexcept {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// Less than `n`, which has 32 bits.
  std::uint64_t below(std::uint64_t n) noexcept { return ((next() >> 32) * n) >> 32; }
  /// In [0, 1).
  double unit() noexcept { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

/// DTR's form with costs that somebody else keeps, by id: what they are made from is left out.
struct by_cost {
  static constexpr quantity depends_on = quantity::bytes | quantity::neighbourhood_cost;
  const std::vector<double>* costs;
  double weight(const context& c, tensor_id t) const noexcept {
    return c.bytes(t) / (*costs)[index(t)];
  }
};

/// A mix: which heuristic, whether all sizes are distinct or of how many, how many costs there are
/// (one: none ever changes), and whether time passes.
struct base_64_sizes {
  static constexpr std::string_view name = "base_64_sizes";
  static constexpr bool distinct = false, time_passes = true;
  static constexpr std::uint64_t sizes = size_kinds, costs = 1;
  static base heuristic(const std::vector<double>&) { return {}; }
};
struct base_distinct : base_64_sizes {
  static constexpr std::string_view name = "base_distinct";
  static constexpr bool distinct = true;
};
struct dtr_cost_changes : base_64_sizes {
  static constexpr std::string_view name = "dtr_cost_changes";
  static constexpr std::uint64_t costs = cost_kinds;
  static by_cost heuristic(const std::vector<double>& of_tensors) { return {&of_tensors}; }
};
/// All weights are equal, and all are touched at the one instant: only ids tell them apart.
struct equal_scores : base_64_sizes {
  static constexpr std::string_view name = "equal_scores";
  static constexpr bool time_passes = false;
  static constexpr std::uint64_t sizes = 1;
  static lru heuristic(const std::vector<double>&) { return {}; }
};
/// Scores that do not read the staleness: the biggest leaves.
struct greedy_distinct : base_64_sizes {
  static constexpr std::string_view name = "greedy_distinct";
  static constexpr bool distinct = true;
  static greedy heuristic(const std::vector<double>&) { return {}; }
};

/// `live` tensors. An operator takes some time, touches three of them anywhere and makes one; then
/// a victim leaves. The same seed gives the same program, as long as the same victims leave.
template <class Mix, class Finder>
class decision_program {
 public:
  explicit decision_program(std::size_t live)
      : finder_(table_, Mix::heuristic(costs_)), random_(seed) {
    populate(live);
  }

  /// One operator.
  void run() {
    begin();
    end(choose());
  }
  /// All that comes before the choice, the choice, and what comes behind it.
  void begin() {
    pass();
    for (std::size_t i = 0; i < touches; ++i) touch_any();
    if constexpr (Mix::costs > 1)
      for (std::size_t i = 0; i < cost_changes; ++i) {
        const tensor_id t = any();
        costs_[index(t)] = any_cost();
        finder_.reweigh(t);
      }
    gap_ = tensor_id::none;
    const tensor_id made = table_.add(any_size());
    // There is one row more than tensors from the first operator on.
    finder_.cover(table_.tensors.tensor_slots());
    costs_.resize(table_.tensors.tensor_slots());
    costs_[index(made)] = any_cost();
    finder_.enlist(made);
  }
  tensor_id choose() { return finder_.select(); }
  void end(tensor_id victim) {
    finder_.delist(victim);
    table_.remove(victim);
    gap_ = victim;
  }
  /// Part of an operator: one tensor is used. (Locked and unlocked it stays where it is listed.)
  void touch_any() {
    const tensor_id t = any();
    table_.tensors.set_last_use(t, table_.now.clock);
  }
  void pass() {
    ++table_.now.now;
    if constexpr (Mix::time_passes)
      table_.now.clock +=
          nanoseconds{1 + static_cast<std::int64_t>(random_.below(2 * operator_ns))};
  }

  [[nodiscard]] const Finder& finder() const { return finder_; }
  [[nodiscard]] const tensor_table& table() const { return table_; }
  [[nodiscard]] auto heuristic() const { return Mix::heuristic(costs_); }
  /// Who lives, in no order: what a list that is left from any place comes to.
  [[nodiscard]] std::vector<tensor_id> everybody() const {
    std::vector<tensor_id> all;
    for (std::uint32_t i = 0; i < table_.tensors.tensor_slots(); ++i)
      if (const auto t = static_cast<tensor_id>(i); table_.tensors[t].in_use) all.push_back(t);
    draws order(seed);
    shuffle(all, order);
    return all;
  }

 private:
  static void shuffle(std::vector<tensor_id>& all, draws& by) {
    for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[by.below(i)]);
  }
  tensor_id any() noexcept {
    for (;;)
      if (const auto t = static_cast<tensor_id>(random_.below(table_.tensors.tensor_slots()));
          t != gap_)
        return t;
  }
  bytes any_size() noexcept { return size_of(1 + random_.below(Mix::sizes)); }
  double any_cost() noexcept {
    return cost_unit * static_cast<double>(1 + random_.below(Mix::costs));
  }
  bytes size_of(std::uint64_t units) noexcept {
    // An odd number, so that all multiples below the unit are there before one comes again.
    const std::uint64_t rest = Mix::distinct ? (made_++ * 10'368'889) % size_unit : 0;
    return bytes{units * size_unit + rest};
  }

  /// As the program leaves it after very many operators, which nobody would wait for. A weight w
  /// leaves at an age of a / w, untouched; it is touched before that with a chance of 1 - exp(-k /
  /// w), where k stands for a by the rate of touches. As many leave as are made, of each weight;
  /// so in the mean of all weights exp(k / w) is 1 + `touches`, which gives k. Of the weight w
  /// there are then as many as exp(k / w) - 1 says, and their ages end at a / w. (Of heuristics
  /// with other weights than these it is as good a beginning as any.)
  void populate(std::size_t live) {
    struct kind {
      std::uint64_t size, cost;
      double weight, until;
    };
    std::vector<kind> kinds;
    for (std::uint64_t size = 1; size <= Mix::sizes; ++size)
      for (std::uint64_t cost = 1; cost <= Mix::costs; ++cost)
        kinds.push_back({size, cost, static_cast<double>(size) / static_cast<double>(cost), 0});
    double low = 0, high = 1e3;
    for (int i = 0; i < 100; ++i) {
      const double k = (low + high) / 2;
      double mean = 0;
      for (const kind& x : kinds)
        mean += std::exp(k / x.weight) / static_cast<double>(kinds.size());
      (mean < 1.0 + static_cast<double>(touches) ? low : high) = k;
    }
    double all = 0, oldest = 0;
    for (kind& x : kinds) {
      x.until = all += std::expm1(low / x.weight);
      oldest = std::max(oldest, low / x.weight);
    }
    const double ns =
        static_cast<double>(operator_ns) * static_cast<double>(live) / static_cast<double>(touches);
    table_.now.clock = nanoseconds{static_cast<std::int64_t>(ns * oldest) + 1};
    finder_.cover(live + 1);
    for (std::size_t i = 0; i < live; ++i) {
      const double at = random_.unit() * all;
      const kind& x = *std::ranges::lower_bound(kinds, at, {}, &kind::until);
      const tensor_id t = table_.add(size_of(x.size));
      costs_.push_back(cost_unit * static_cast<double>(x.cost));
      const double age = -std::log1p(random_.unit() * std::expm1(-low / x.weight)) * ns;
      if (Mix::time_passes)
        table_.tensors.set_last_use(t,
                                    table_.now.clock - nanoseconds{static_cast<std::int64_t>(age)});
    }
    for (const tensor_id t : everybody()) finder_.enlist(t);
  }

  tensor_table table_;
  std::vector<double> costs_;  // by row
  Finder finder_;
  draws random_;
  std::uint64_t made_ = 0;
  tensor_id gap_ = tensor_id::none;  // the row without a tensor
};

}  // namespace delta::bench
