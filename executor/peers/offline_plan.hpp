// delta executor: a plan of a step that was made elsewhere, by a solver for instance, as a policy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "delta/context.hpp"
#include "delta/decider.hpp"
#include "delta/heuristic.hpp"
#include "delta/manager.hpp"
#include "delta/step.hpp"
#include "peers/parts.hpp"

namespace delta::executor {

/// Which tensors of a step are away, when, and which way. Positions are the step's operators,
/// counted from 0; what is computed again does not count.
struct offline_plan {
  /// One tensor, once: its bytes may go when the operator `from` has ended, and are wanted back
  /// when `to` begins. One that begins when it has been used last before `to`, or where a plan
  /// keeps it again after it was computed anew for another, is as good.
  struct absence {
    std::uint32_t made_by = 0;  ///< the operator that makes it
    std::uint32_t output = 0;   ///< which of its outputs, counted from 0
    std::uint32_t from = 0;     ///< from `made_by` on
    std::uint32_t to = 0;       ///< after `from`
    bool offloaded = false;     ///< else it is evicted, and computed again
  };
  std::uint32_t operators = 0;  ///< of the step that it is for
  std::vector<absence> absences{};
};

/// Carries an offline plan out in every step of as many operators; in others nothing is planned.
class given_plan {
 public:
  explicit given_plan(std::shared_ptr<const offline_plan> plan) noexcept
      : plan_(std::move(plan)),
        copies_(std::ranges::any_of(plan_->absences, &offline_plan::absence::offloaded)) {}

  /// Finds the plan's tensors in the last step, unless it is like the one before. An absence of
  /// what the step does not make is passed over. O(step + absences log absences).
  bool make(const context& c) {
    const history& past = c.past();
    if (past.steps() == 0 || past.last().operations.empty()) return false;
    const step_record& step = past.last();
    if (step.length() != plan_->operators || step.structure() == structure_) return false;
    structure_ = step.structure();
    trips_.clear();
    for (const offline_plan::absence& a : plan_->absences) {
      if (a.made_by >= step.length()) continue;
      const auto made = step.outputs(step.operations[a.made_by]);
      if (a.output < made.size()) trips_.push_back({made[a.output], {a.from, a.to, a.offloaded}});
    }
    time_copies(c, step);
    std::ranges::sort(trips_, {}, place_of);
    return true;
  }
  /// Is anything offloaded?
  [[nodiscard]] bool copies() const noexcept { return copies_; }
  /// The trip for which it is to be away now; null: none. O(log trips).
  [[nodiscard]] const trip* due(const context& c, tensor_id t) const noexcept {
    const planned* const p = at(c, t);
    return p == nullptr || p->back <= c.past().position() ? nullptr : &p->when;
  }
  /// The operator for which it is wanted back, where its copy in is to begin by now; else none.
  /// O(log trips).
  [[nodiscard]] std::uint32_t comes_back_for(const context& c, tensor_id t) const noexcept {
    const planned* const p = at(c, t);
    const bool now = p != nullptr && p->when.swaps && p->back <= c.past().position();
    return now ? p->when.to : step_record::none;
  }

 private:
  struct planned {
    std::uint32_t storage;  // of the record
    trip when;
    std::uint32_t back = 0;  // wanted from that operator on: its copy in begins beside it
  };
  static std::pair<std::uint32_t, std::uint32_t> place_of(const planned& p) noexcept {
    return {p.storage, p.when.from};
  }

  // Copies in begin so late that, one behind the other, all of them are in time.
  void time_copies(const context& c, const step_record& step) {
    std::ranges::sort(trips_, [](const planned& a, const planned& b) {
      return a.when.to != b.when.to ? a.when.to > b.when.to : a.storage > b.storage;
    });
    double limit = step.time;
    for (planned& p : trips_) {
      p.back = p.when.to;
      if (!p.when.swaps || p.when.to >= step.length()) continue;
      const double bytes = static_cast<double>(step.storages[p.storage].size.count);
      limit = std::min(limit, step.operations[p.when.to].start) - c.latency(direction::in) -
              1e9 * bytes / c.rate(direction::in);
      const auto behind =
          std::ranges::upper_bound(step.operations, limit, {}, &step_record::operation::start);
      const auto begun = static_cast<std::uint32_t>(behind - step.operations.begin());
      p.back = std::max(begun == 0 ? 0 : begun - 1, p.when.from + 1);
    }
  }
  [[nodiscard]] const planned* at(const context& c, tensor_id t) const noexcept {
    const history& past = c.past();
    if (trips_.empty() || !past.follows() || past.followed().structure() != structure_)
      return nullptr;
    // Of a storage's trips, the last that has begun.
    const std::pair begun(past.storage_of(t), past.position());
    const auto behind = std::ranges::lower_bound(trips_, begun, {}, place_of);
    if (behind == trips_.begin()) return nullptr;
    const planned& last = *std::prev(behind);
    return last.storage == begun.first && begun.second < last.when.to ? &last : nullptr;
  }

  std::shared_ptr<const offline_plan> plan_;
  bool copies_ = true;
  std::uint64_t structure_ = 0;  // of the steps that `trips_` are for
  std::vector<planned> trips_;   // by storage, then by time
};

/// Carries a plan out: what is planned to be away leaves when the operator that used it last has
/// ended, or as soon as memory is short; copies back begin so early that they are there in time.
/// What the plan does not cover leaves when memory is short all the same, and everything in the
/// first step: as under `online`, or under `dtr` where the plan offloads nothing. A plan for a step
/// of another number of operators is not followed.
class followed_plan {
 public:
  static constexpr bool learns = true;
  explicit followed_plan(offline_plan plan)
      : plan_(std::make_shared<const offline_plan>(std::move(plan))) {}

  /// First what the plan wants away by now; then as `cheapest_way_root` has it, of a plan without
  /// copies as `dtr`. O(log trips), or of the latter O(closure).
  double score(const context& c, tensor_id t) const {
    if (plan_.due(c, t) != nullptr) return -1;
    const double weight = plan_.copies() ? cheapest_way_root{}.weight(c, t) : dtr{}.weight(c, t);
    return 1.0 / (weight * c.staleness(t));
  }
  /// The way that is planned. What the plan does not cover leaves the cheaper way, of a plan
  /// without copies by eviction. O(log trips), or of the latter O(closure).
  action decide(const context& c, tensor_id t) const {
    if (const trip* const planned = plan_.due(c, t))
      return planned->swaps ? action::offload : action::evict;
    return plan_.copies() ? cheaper{}.decide(c, t) : action::evict;
  }
  static constexpr bool may_keep() noexcept { return false; }
  /// Out when the operator that used it last has ended. O(touched x log trips).
  double early_release_bytes(const context& c) const {
    double sum = 0;
    for_each_of_ended(c, [&](tensor_id t) {
      if (plan_.due(c, t) != nullptr && (c.can_offload(t) || c.can_evict(t))) sum += c.bytes(t);
    });
    return sum;
  }
  /// Back so early that all planned copies, one behind the other, are there in time, if there is
  /// room. O(offloaded x log trips).
  tensor_id next(const context& c) const noexcept {
    tensor_id first = tensor_id::none;
    std::uint32_t at = step_record::none;
    for (const tensor_id t : c.offloaded())
      if (const std::uint32_t wanted = plan_.comes_back_for(c, t); wanted < at)
        first = t, at = wanted;
    return first != tensor_id::none && fits_early(c, first) ? first : tensor_id::none;
  }
  void end_of_step(const context& c) { plan_.make(c); }

 private:
  given_plan plan_;
};
/// The policy that carries `plan` out.
inline followed_plan follow(offline_plan plan) {
  return followed_plan(std::move(plan));
}

}  // namespace delta::executor
