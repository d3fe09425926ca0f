// delta: the planned policy: a search over the step that was recorded finds who is away when, and
// which way; the steps behind it follow that plan. Where nothing is known, or the step is another
// one, it answers as the preset `online` does.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "delta/context.hpp"
#include "delta/detail/learning/rehearsal.hpp"
#include "delta/detail/planning/plan_search.hpp"
#include "delta/detail/planning/residency_script.hpp"
#include "delta/detail/planning/script_follower.hpp"
#include "delta/step.hpp"

namespace delta {

/// Plans each kind of step from its record, and follows that: O(log absences) for each tensor that
/// an operator touches. A search for a plan takes about `share` of its step's time, and all that
/// are made for a kind about four times that: counted, so that the same program gives the same
/// plans on every machine. Where steps never repeat, one of `steps_per_plan` is planned.
class planned : public detail::script_follower {
 public:
  planned() = default;
  double share = 0.25;  ///< of a step's time, for one search; or, if that is more,
  double least = 6e4;   ///< ns for each of its operators
  double drift = 0.1;   ///< of the operators' time: by so much it may change before it is replanned

  /// A step has ended: plans it, and the one that is expected, if they were not planned before as
  /// they are now. Throws std::bad_alloc.
  void end_of_step(const context& c) {
    const history& past = c.past();
    if (rehearses() || past.steps() == 0) return;
    plans_left_ = std::min(plans_left_ + 1.0 / steps_per_plan, most_plans);
    compare(c);
    if (past.follows()) plan(c, past.followed());
    if (!past.follows() || &past.followed() != &past.last()) plan(c, past.last());
  }
  /// One that follows the same plans in a rehearsal, and makes none.
  [[nodiscard]] planned rehearsed() const { return planned(in_rehearsal()); }

 private:
  explicit planned(script_follower f) : script_follower(std::move(f)) {}

  static constexpr double most_plans = 16;      // before steps have earned more
  static constexpr double steps_per_plan = 16;  // that earn one
  static constexpr double most_effort = 4;      // times that of a search: no other one begins
  static constexpr int most_rounds = 6;         // of planning for the waits that were rehearsed
  static constexpr double unplanned = 0.002;    // of a step's time: not worth another round
  static constexpr double off = 0.02;  // the same: not worth a plan for a part of the budget
  // What a copy costs that is hidden, as part of its time. Few copies leave lanes free, and blocks
  // where they are; but where lanes are idle, copies are cheaper than any recomputation.
  static constexpr double dear_copies = 0.02, cheap_copies = 0.004;
  static constexpr std::array parts{1.0, 0.9, 0.8, 0.7};  // of the budget

  struct made {
    std::uint64_t key = 0;  // of the step's last operator
    std::uint32_t seen = 0;
    double budget = 0, time = 0;
    double promised = 0;     // ns beyond the operators, under the plan; 0: there is none
    bool fresh = false;      // no step has ended under it
    bool kept = false;       // the last step under it took what was promised
    std::uint32_t late = 0;  // steps in a row
  };

  [[nodiscard]] std::vector<made>::iterator plan_of(const step_record& step) {
    return std::ranges::find(plans_, step.operations.back().exact, &made::key);
  }
  // A step under a plan that is late. If it is the first, copies may be slower than the storage
  // says: if slower rates explain it, plans are made for these. If two in a row are, it is planned
  // anew, as where tensors lie in memory by now may suit another plan better.
  void compare(const context& c) {
    const history& past = c.past();
    const step_record& step = past.last();
    if (!takes_part() || step.operations.empty()) return;
    const auto known = plan_of(step);
    if (known == plans_.end() || known->promised == 0) return;
    const double beyond = past.last_took() - step.time;  // the operators
    const bool first_one = std::exchange(known->fresh, false);
    known->kept = beyond < known->promised + late * step.time;
    if (known->kept) return void(known->late = 0);
    if (++known->late == 2) known->seen = 1;
    for (double reached = reached_ - 0.1; first_one && reached > slowest; reached -= 0.1) {
      const auto [first, second] =
          detail::rehearse_both(detail::next_step(c, step, reached), rehearsed(), 0);
      if (first - step.time < beyond - late * step.time) continue;
      reached_ = reached;
      for (made& m : plans_) m.seen = std::min(m.seen, 1u);
      break;
    }
  }
  // Once; and again when the second step of its kind has shown what it leaves to the next, unless
  // that took what was promised; and when its times or the budget have changed.
  bool is_news(const context& c, const step_record& step) {
    if (step.operations.empty() || !(step.time > 0)) return false;
    auto known = plan_of(step);
    if (known == plans_.end()) {
      if (plans_.size() == history::most_records) plans_.erase(plans_.begin());
      known = plans_.insert(plans_.end(), made{.key = step.operations.back().exact});
    }
    const bool same =
        known->budget == c.budget() && std::abs(step.time - known->time) <= drift * known->time;
    if (++known->seen > (known->kept ? 1 : 2) && same) return false;
    known->budget = c.budget(), known->time = step.time;
    return true;
  }
  // Free bytes may be scattered, and the manager may hold what no plan knows of: where a plan can't
  // be carried out as it is, those for parts of the budget are tried, as long as they promise less.
  void plan(const context& c, const step_record& step) {
    if (plans_left_ < 1 || !is_news(c, step)) return;
    plans_left_ -= 1;
    const detail::step_model model(step);
    const detail::next_step coming(c, step, reached_);
    const double effort = std::max(share * step.time, least * step.length());
    double spent = 0;  // of that, by all searches
    double shortest = never, promised = 0, took = 0;
    std::vector<double> longer;
    // True: with that, the step takes less than with all that was rehearsed before.
    const auto is_best = [&](const script_follower& f) {
      const std::array<double, 2> both = detail::rehearse_both(
          coming, planned(f.in_rehearsal()), 0, 2 * shortest, detail::most_rehearsed, &longer);
      took = coming.next() != nullptr ? detail::mean_of_few(both) : both[0];
      if (!(took < shortest)) return false;
      shortest = took, promised = std::max(both[0], took);
      return true;
    };
    if (has_script_for(step)) (void)is_best(*this);
    // Better no plan than one that is behind what is done without.
    if (is_best({})) forget(step);
    // True: a plan for a smaller part of the budget may do better.
    const auto search_for = [&](double part, double copy_price) {
      detail::plan_search search(model, machine(c, part, copy_price));
      search.run(effort);
      double least_time = never, extra = 0;  // ns
      bool worth_more = true;
      for (int round = 0; round < most_rounds && worth_more; ++round) {
        if (round > 0 && spent + search.plan().effort() > most_effort * effort) break;
        if (round > 0) search.run_again(longer, effort / 2);
        const detail::residency_plan& found = search.plan();
        const auto s = std::make_shared<const detail::residency_script>(found);
        script_follower tried;
        tried.give(s);
        if (is_best(tried)) give(s);
        worth_more = longer.size() == step.length() &&
                     took > step.time * (1 + unplanned) + found.recomputing();
        if (took < least_time) least_time = took, extra = found.recomputing() + found.copying();
      }
      spent += search.plan().effort();
      const bool as_planned = least_time <= (1 + off) * step.time + extra;
      return !as_planned && search.plan().fits() && step.time + extra <= shortest &&
             spent < most_effort * effort;
    };
    for (const double part : parts)
      if (!search_for(part, dear_copies)) break;
    if (shortest > (1 + unplanned) * step.time && spent < most_effort * effort)
      (void)search_for(1, cheap_copies);
    const auto known = plan_of(step);
    known->promised = has_script_for(step) ? promised - step.time : 0;
    known->late = 0, known->fresh = true, known->kept = false;
  }
  [[nodiscard]] detail::planning_machine machine(const context& c, double part,
                                                 double copy_price) const {
    using enum direction;
    double on_host = 0;
    for (const tensor_id t : c.offloaded()) on_host += c.bytes(t);
    return {.budget = part * c.budget(),
            .host = c.host_free() + on_host,
            .rate = {reached_ * c.rate(out), reached_ * c.rate(in)},
            .latency = {c.latency(out), c.latency(in)},
            .burden = {c.burden(out), c.burden(in)},
            .copy_price = copy_price};
  }

  static constexpr double late = 0.02;    // of a step's time: noticed
  static constexpr double slowest = 0.4;  // of the rates that the storage says

  std::vector<made> plans_;
  double reached_ = 1;  // of these rates, by the copies of steps under plans
  double plans_left_ = most_plans;
};

static_assert(Policy<planned>);

}  // namespace delta
