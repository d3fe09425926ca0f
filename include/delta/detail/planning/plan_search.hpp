// delta: finds a plan of residency for a step: who is away when, and which way, so that the step
// fits a budget and takes the least time that local search finds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "delta/detail/planning/residency_plan.hpp"
#include "delta/detail/planning/step_model.hpp"

namespace delta::detail {

/// Local search from the plan in which everything is kept. A byte over the budget gets ever dearer,
/// so that what costs nothing leaves first. The same step and machine give the same plan.
class plan_search {
 public:
  plan_search(const step_model& m, const planning_machine& on) : plan_(m, on) {
    for (std::uint32_t s = 0; s < m.storages().size(); ++s)
      if (m[s].movable) order_.push_back(s);
    std::ranges::sort(order_, {}, [&](std::uint32_t s) { return std::pair(-m[s].size, s); });
    unit_ = eagerness * std::max(m.record().time, 1.0) /
            std::max(static_cast<double>(m.record().peak), 1.0);
  }

  /// The first plan, and better ones while that takes less than `effort`, in ns on some machine;
  /// so much again, or `to_fit`, if that is more, for one with copies that are waited for, where no
  /// other fits. O(passes x needs x what a change touches).
  void run(double effort, double to_fit = 0) {
    if (plan_.fits()) return;
    plan_.stop_passes_at(first_effort * effort);
    const double blocks = plan_.memory().blocks();
    ramp(unit_ / blocks / 4, unit_ / 10);
    ramp(unit_ / 50, unit_ / 5);
    polish();
    if (!plan_.fits()) {
      plan_.stop_passes_at(std::max(first_effort * effort, plan_.effort() + to_fit));
      plan_.expose_copies();
      polish();
    }
    const double time = plan_.model().record().time;
    residency_plan best = plan_;
    for (int i = 0; i < most_waits && plan_.too_late() > long_waits * time; ++i)
      if (!wait(best, effort)) break;
    const double worth_it = negligible * time;
    while (plan_.effort() < effort && plan_.recomputing() + plan_.copying() > worth_it) vary(best);
  }
  /// Another plan: at these positions lanes have so many ns more. Takes about `effort` ns.
  void run_again(std::span<const double> longer, double effort) {
    plan_.stop_passes_at(plan_.effort() + effort);
    plan_.lengthen(longer);
    ramp(unit_ / 20, unit_);
    polish();
  }
  [[nodiscard]] const residency_plan& plan() const noexcept { return plan_; }

 private:
  // Looks for a better one: operators wait for copies that find no time. True: it was found.
  bool wait(residency_plan& best, double effort) {
    return keep_if_cheaper(best, [&] {
      plan_.stop_passes_at(plan_.effort() + effort);
      plan_.wait_for_copies();
      ramp(unit_ / 20, unit_);
      polish();
    });
  }
  // Looks for a better one: with another budget in a part of the step for a while.
  void vary(residency_plan& best) {
    const position n = plan_.model().length();
    const double width = n * (0.02 + 0.3 * chance() * chance());
    const double middle = n * chance();
    const auto from = static_cast<position>(std::max(0.0, middle - width));
    const auto to = std::min(n, static_cast<position>(middle + width) + 1);
    const double by = chance() < 0.5 ? 1 - 0.3 * chance() : 1 + 0.3 * chance();
    (void)keep_if_cheaper(best, [&] {
      plan_.memory().scale_budget(from, to, by);
      plan_.memory().set_penalty(unit_ * std::exp(-6 * chance()));
      (void)plan_.pass(order_, true);
      plan_.memory().scale_budget(from, to, 1);
      polish();
    });
  }
  // Changes the best plan, and undoes that unless it is cheaper then. True: it is the best one.
  template <class Change>
  bool keep_if_cheaper(residency_plan& best, const Change& change) {
    change();
    const bool is_cheaper = cost(plan_) < cost(best);
    is_cheaper ? void(best = plan_) : plan_.take(best);
    return is_cheaper;
  }

  using position = residency_plan::position;
  static constexpr double eagerness = 4;
  static constexpr double dearest = 1000;      // times `unit_`
  static constexpr int most_passes = 6;        // at one price
  static constexpr double first_effort = 4;    // times that for the rest
  static constexpr double negligible = 0.002;  // of a step's time
  static constexpr int most_waits = 4;         // searches with waits for copies, one upon the other
  static constexpr double long_waits = 0.05;   // of a step's time: worth another one

  void ramp(double from, double to) {
    for (double penalty = from; penalty < to; penalty *= 2) {
      plan_.memory().set_penalty(penalty);
      (void)plan_.pass(order_, true);
      shuffle();
      if (plan_.fits() || plan_.is_over()) break;
    }
  }
  // What a plan costs beyond the operators, in ns; more where it does not fit.
  [[nodiscard]] double cost(const residency_plan& p) const noexcept {
    const double over = std::max(0.0, p.memory().most() - p.memory().budget());
    return p.recomputing() + p.copying() + p.waiting() + 10 * unit_ * over;
  }
  void polish() {
    for (double penalty = unit_; penalty <= dearest * unit_; penalty *= 8) {
      plan_.memory().set_penalty(penalty);
      bool anew = true;
      for (int i = 0; i < most_passes; ++i) {
        const std::size_t changed = plan_.pass(order_, std::exchange(anew, false));
        plan_.repack();
        shuffle();
        if (changed == 0 || plan_.is_over()) break;
      }
      if (plan_.fits() || plan_.is_over()) break;
    }
    // As lanes will carry the copies out: that may take a little more memory.
    for (int i = 0; i < most_passes; ++i) {
      plan_.repack(true);
      if (plan_.fits()) break;
      plan_.memory().set_penalty(dearest * unit_);
      (void)plan_.pass(order_, true);
    }
  }
  void shuffle() noexcept {
    for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[draw() % i]);
  }
  std::uint64_t draw() noexcept {
    seed_ ^= seed_ << 13, seed_ ^= seed_ >> 7, seed_ ^= seed_ << 17;
    return seed_;
  }
  double chance() noexcept { return static_cast<double>(draw() >> 11) * 0x1p-53; }

  residency_plan plan_;
  std::vector<std::uint32_t> order_;
  double unit_ = 0;  // ns per byte
  std::uint64_t seed_ = 0x9e3779b97f4a7c15u;
};

}  // namespace delta::detail
