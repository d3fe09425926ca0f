// delta: the adaptive policy, the default. A search over the recorded step finds which tensor is
// away when, and which way; later steps follow that plan while it keeps its promise. Where nothing
// is known, or the step differs, the policy answers as the preset `online` does.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "delta/context.hpp"
#include "delta/detail/planning/plan_search.hpp"
#include "delta/detail/planning/rehearsal.hpp"
#include "delta/detail/planning/residency_script.hpp"
#include "delta/detail/planning/script_follower.hpp"
#include "delta/learning_report.hpp"
#include "delta/step.hpp"

namespace delta {

/// Plans each kind of step from its record and follows the plan: O(log absences) for each tensor
/// that an operator touches. The first plan of a kind may cost what `worth` such steps lose without
/// one, by a rehearsal; that of an n-th kind 1/n of that. Its search takes at most `share` of the
/// step's time, and an eighth of what the plan may cost where nothing fits yet. Where even the
/// shortest search costs far more, and for further plans, `invested` of all that steps took beyond
/// their operators has to cover the cost; each search is twice as long as the one before. Costs are
/// counted, not measured: the same program gives the same plans on every machine. Where steps never
/// repeat, one of `steps_per_plan` is planned.
///
/// A plan is used where a rehearsal says that it saves `least_gain` of what the step takes beyond
/// its operators. It is left within a step that has taken `regress` times what it should by then
/// (or what a step without a plan would, if that is more) or whose recomputation thrashes; behind a
/// step that is the second in a row to take longer than the last one without a plan; and where
/// steps of other kinds, which begin alike, have lost more by it than it has saved. A plan that was
/// left comes back, `most_left` times at most, when a step without it takes longer, or the
/// operators' times change.
class adaptive : public detail::script_follower {
 public:
  adaptive() = default;
  double share = 0.15;      ///< of a step's time, for a search; or, if that is more,
  double least = 3.6e4;     ///< ns for each of its operators, at first an eighth of that
  double worth = 9.6;       ///< steps: a first plan may cost what these lose without one
  double invested = 0.06;   ///< of what steps take beyond their operators, in more planning
  double least_gain = 0.1;  ///< of what a step takes beyond its operators, that a plan has to save
  double drift = 0.1;       ///< of the operators' time: by so much it may change under a plan
  double regress = 1.5;     ///< times what a step under a plan should have taken

  /// The plan is left where the step is late, or recomputation thrashes. O(1).
  void end_of_operator(const context& c) {
    if (!rehearses() && !left() && is_late(c)) leave_plan(c);
  }
  /// False where no plan is followed: there is none to leave. O(record + kinds).
  bool on_thrash(const context& c) {
    if (rehearses() || followed(c) == nullptr) return false;
    leave_plan(c);
    return true;
  }
  /// A step has ended: plans it, and the one that is expected, where due. Throws std::bad_alloc.
  void end_of_step(const context& c) {
    const history& past = c.past();
    const bool was_left = take_scripts_up();
    if (rehearses() || past.steps() == 0) return;
    plans_left_ = std::min(plans_left_ + 1.0 / steps_per_plan, most_plans);
    compare(c, was_left);
    if (past.follows()) plan(c, past.followed());
    if (!past.follows() || &past.followed() != &past.last()) plan(c, past.last());
  }
  /// Of a step like that, in ns: what it takes under its plan, by a rehearsal; 0: it has none.
  [[nodiscard]] double expected(const step_record& step) const noexcept {
    const kind* const k = known(step);
    return k == nullptr || !k->follows() ? 0 : step.time + k->promised;
  }
  /// ns that searches for plans and their rehearsals have cost so far: counted, not measured.
  [[nodiscard]] double planning() const noexcept { return planning_; }
  /// How the last steps came out, in order.
  [[nodiscard]] const std::vector<learning_report::outcome>& outcomes() const noexcept {
    return outcomes_;
  }
  /// One that follows the same plans in a rehearsal, and makes none.
  [[nodiscard]] adaptive rehearsed() const { return adaptive(in_rehearsal()); }

 private:
  explicit adaptive(script_follower f) : script_follower(std::move(f)) {}

  static constexpr double most_plans = 16;      // before steps have earned more
  static constexpr double steps_per_plan = 16;  // that earn one
  static constexpr double first_part = 0.125;   // of `least`, for the first search
  static constexpr double most_effort = 4;      // times that of a search: no other one begins
  static constexpr double dearest = 8;        // times what a first plan may cost: not made at once
  static constexpr double searched = 0.125;   // of what a first plan may cost
  static constexpr double trial = 2.4e3;      // ns an operator, for each plan that is tried
  static constexpr double most_trials = 4;    // beside that effort
  static constexpr int most_rounds = 6;       // of planning for the waits that were rehearsed
  static constexpr double unplanned = 0.002;  // of a step's time: not worth another round
  static constexpr double off = 0.02;         // the same: not worth a plan for a part of the budget
  // A hidden copy's price, as part of its time: high keeps lanes free, low suits idle lanes.
  static constexpr double dear_copies = 0.02, cheap_copies = 0.004;
  static constexpr std::array parts{1.0, 0.9, 0.8, 0.7};  // of the budget

  static constexpr std::uint32_t most_left = 3;  // times

  void leave_plan(const context& c) {
    left_ = c.past().follows() ? detail::residency_script::shape_of(c.past().followed()) : 0;
    leave_script();
  }
  // True if the step has taken far more than it should by now.
  [[nodiscard]] bool is_late(const context& c) {
    const history& past = c.past();
    const kind* const under = kind_under_way(past);
    if (under == nullptr || under->ended_at.empty()) return false;
    // Of another size than the step that is followed it is not known what it should take.
    if (std::abs(past.size_scale() - 1) > drift) return false;
    const std::vector<double>& ended_at = under->ended_at;
    const double all = ended_at.back();
    const double should = ended_at[std::min<std::size_t>(past.position(), ended_at.size() - 1)];
    // A plan that does not keep its promise is left where a step without one takes less.
    const double without = under->without < never ? under->without : 0;
    const double slower = (past.followed().time + std::max(under->promised, without)) / all;
    return c.clock() - past.began() > slower * (regress * should + slack * all);
  }
  // Compares the step that has ended with its plan. Where slower copies explain a first late step,
  // plans are made for such rates; after a second in a row, the step is planned anew.
  void compare(const context& c, bool was_left) {
    const history& past = c.past();
    const step_record& step = past.last();
    const bool follows = takes_part() && !was_left;
    if (step.operations.empty() || !(step.time > 0)) return;
    kind& m = met(step);
    kind* const leader = led_by();
    const bool under_plan = follows && m.follows();
    came_out({under_plan ? 1 + m.promised / step.time : 0.0, past.last_took() / step.time});
    const double beyond = past.last_took() - step.time;  // the operators
    const double margin = late * step.time;
    saved_up_ += invested * std::max(0.0, beyond);
    // A plan that was left in a step of another kind than was thought has done nothing wrong.
    if (m.follows() && was_left && left_ == m.shape) return leave(m, m.promised);
    // But it pays for what that step has lost by it.
    const double usual = m.follows() ? std::min(m.promised, m.without) : m.without;
    if (leader != nullptr && leader != &m && beyond > usual + margin) {
      leader->balance -= beyond - usual;
      if (leader->follows() && leader->balance < 0)
        leave(*leader, std::min(leader->under, leader->promised));
    }
    if (!follows && !was_left) {
      m.without = beyond;
      if (m.left) m.balance += std::max(0.0, beyond - m.under);
      if (m.left && beyond > m.under + margin && m.times_left < most_left && m.balance >= 0)
        set_left(m, false), m.stale = true;
    }
    if (!under_plan) return;
    m.under = beyond;
    if (m.without < never) m.balance += std::max(0.0, m.without - beyond);
    const bool first_one = std::exchange(m.fresh, false);
    m.behind = beyond > m.without + margin ? m.behind + 1 : 0;
    if (m.behind == 2) return leave(m, beyond);
    if (beyond < m.promised + margin) return void(m.late = 0);
    if (++m.late == 2) m.stale = true;
    for (double reached = reached_ - 0.1; first_one && reached > slowest; reached -= 0.1) {
      const detail::next_step coming(c, step, reached);
      if (detail::rehearse(coming, rehearsed()) - step.time < beyond - margin) continue;
      reached_ = reached;
      for (kind& other : kinds()) other.budget = 0;  // made for other prices
      break;
    }
  }
  void leave(kind& m, double under) {
    set_left(m, true);
    m.under = under, m.behind = 0;
    ++m.times_left;
  }
  void came_out(const learning_report::outcome& o) {
    if (outcomes_.size() == most_outcomes) outcomes_.erase(outcomes_.begin());
    outcomes_.push_back(o);
  }
  // What a search for a plan of such steps may take now, in ns; 0: none is made.
  double effort_for(const context& c, const step_record& step) {
    if (step.operations.empty() || !(step.time > 0)) return 0;
    kind& m = met(step);
    const double by_time = share * step.time, by_length = least * step.length();
    if (m.budget != c.budget()) {
      if (plans_left_ < 1) return 0;
      plans_left_ -= 1;
      set_left(m, false), m.times_left = 0, m.balance = 0;
      if (m.budget > 0) m.without = never;
      return std::max(by_time, first_part * by_length);
    }
    if (std::abs(step.time - m.time) > drift * m.time)
      set_left(m, false), m.stale = true, m.times_left = 0, m.balance = 0, m.without = never;
    if (m.left) return 0;
    const double next = m.stale ? m.effort : std::min(2 * m.effort, std::max(by_time, by_length));
    // Little longer is not worth another one.
    const bool is_due = m.stale || next > 1.5 * m.effort;
    return is_due && saved_up_ >= m.cost * (next / m.effort) ? next : 0;
  }
  // Free bytes may be scattered, and the manager may hold what no plan knows of: where a plan can't
  // be carried out as it is, those for parts of the budget are tried, as long as they promise less.
  void plan(const context& c, const step_record& step) {
    double effort = effort_for(c, step);
    if (!(effort > 0)) return;
    const detail::step_model model(step);
    const detail::next_step coming(c, step, reached_);
    const double rehearsal = trial * step.length();
    double spent = 0;  // by all searches and rehearsals
    double shortest = never, promised = 0, took = 0;
    std::vector<double> ended_at;
    detail::step_course course;
    // True: with that, the step takes less than with all that was rehearsed before.
    const auto is_best = [&](const script_follower& f) {
      spent += rehearsal, course = {};
      const std::array<double, 2> both = detail::rehearse_both(
          coming, adaptive(f.in_rehearsal()), 2 * shortest, detail::most_rehearsed, &course);
      took = coming.next() != nullptr ? detail::mean_of_few(both) : both[0];
      if (!(took < shortest)) return false;
      shortest = took, promised = std::max(both[0], took), ended_at = course.ended_at;
      return true;
    };
    kind& m = met(step);
    if (m.follows()) (void)is_best(*this);
    // Better no plan than one that is behind what is done without.
    if (is_best({})) give(m, nullptr), shortest -= least_gain * (shortest - step.time);
    const bool none_fails = !(took < never);
    if (!(m.effort > 0) && !none_fails) m.without = took - step.time;  // its first was cold
    const bool is_free = m.budget != c.budget(), is_first = !(m.effort > 0);
    bool is_due = true;
    double most = never, to_fit = 0;  // that all of it may cost, and one that fits
    if (is_free && !none_fails) {
      const auto planned =
          std::ranges::count_if(kinds(), [&](const kind& k) { return k.effort > 0 || &k == &m; });
      const double lost = std::max(0.0, took - step.time);
      most = worth * lost / static_cast<double>(planned);
      effort =
          std::clamp(searched * most, std::min(effort, first_part * least * step.length()), effort);
      to_fit = is_first ? searched * most : 0;
      const double once = spent + effort + 2 * rehearsal;
      is_due = once <= dearest * most;
      if (!is_due) m.cost = once / 2, m.effort = effort / 2;  // when that is saved up, twice
      most = std::max(most, once);
    }
    const double enough = std::min(most, most_effort * effort + most_trials * rehearsal);
    // True: a plan for a smaller part of the budget may do better.
    const auto search_for = [&](double part, double copy_price) {
      detail::plan_search search(model, machine(c, part, copy_price));
      search.run(effort, std::max(0.0, to_fit - spent));
      double least_time = never, extra = 0;  // ns
      bool worth_more = true;
      for (int round = 0; round < most_rounds && worth_more; ++round) {
        if (round > 0 && spent + search.plan().effort() > enough) break;
        if (round > 0) search.run_again(course.longer, effort / 2);
        const detail::residency_plan& found = search.plan();
        const auto s = std::make_shared<const detail::residency_script>(found);
        script_follower tried;
        tried.give(tried.met(step), s);
        if (is_best(tried)) give(m, s);
        worth_more = course.longer.size() == step.length() &&
                     took > step.time * (1 + unplanned) + found.recomputing();
        if (took < least_time)
          least_time = took, extra = found.recomputing() + found.copying() + found.waiting();
      }
      spent += search.plan().effort();
      const bool as_planned = least_time <= (1 + off) * step.time + extra;
      return !as_planned && search.plan().fits() && step.time + extra <= shortest && spent < enough;
    };
    if (is_due) {
      for (const double part : parts)
        if (!search_for(part, dear_copies)) break;
      if (shortest > (1 + unplanned) * step.time && spent < enough)
        (void)search_for(1, cheap_copies);
      m.effort = effort, m.cost = spent;
    }
    // A rehearsal may fail where the steps do not.
    if (none_fails && promised - step.time > m.without + late * step.time) give(m, nullptr);
    m.promised = m.follows() ? promised - step.time : never;
    m.ended_at = std::move(ended_at);
    m.late = 0, m.fresh = true, m.stale = false;
    if (!is_first) saved_up_ -= spent;  // of another budget or rates: may become a debt
    m.budget = c.budget(), m.time = step.time;
    planning_ += spent;
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

  static constexpr std::size_t most_outcomes = 256;  // steps that are kept for reports
  static constexpr double late = 0.02;               // of a step's time: noticed
  static constexpr double slack = 0.1;               // of it, before it may be found too slow
  static constexpr double slowest = 0.4;             // of the rates that the storage says

  double reached_ = 1;  // of these rates, by the copies of steps under plans
  double plans_left_ = most_plans;
  double saved_up_ = 0;  // ns, for more planning
  double planning_ = 0;  // ns, of all plans
  std::vector<learning_report::outcome> outcomes_;
  // Of the step under way.
  std::uint64_t left_ = 0;  // the kind whose plan was left in it
};

static_assert(Policy<adaptive>);

}  // namespace delta
