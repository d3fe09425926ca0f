// delta executor: a plan of a step as it is written down, made by a solver or saved from
// `adaptive`, and the policy that carries it out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/detail/planning/residency_script.hpp"
#include "delta/detail/planning/script_follower.hpp"
#include "delta/heuristic.hpp"
#include "delta/step.hpp"

namespace delta::executor {

/// Which tensors of a step are away, when, and which way. Positions are the step's operators,
/// counted from 0; what is computed again does not count. Those of the step before are below 0,
/// those of the next step not below `operators`.
struct offline_plan {
  using position = std::int32_t;
  enum class way : std::uint8_t {
    evict,    ///< to be computed again
    offload,  ///< to the host
    keep  ///< there, though the program has dropped it: it was computed again, and is read again
  };
  /// A tensor, by an operator that makes or reads it.
  struct name {
    std::uint32_t operation = 0;
    std::uint32_t index = 0;  ///< of its outputs; else of its inputs and then updates; from 0
    bool output = true;
    bool operator==(const name&) const = default;
  };
  /// One tensor, once: its bytes may go when the operator `from` has ended, and are wanted back
  /// when `to` begins. One that begins when it has been used last before `to`, or where a plan
  /// keeps it again after it was computed anew for another, is as good.
  struct absence {
    name tensor{};
    position from = 0, to = 0;
    way how = way::evict;
    /// Of an offload: its copy out begins behind that operator, before `from` (else it begins when
    /// it leaves); its copy in begins with that one (else so late that all copies are in time).
    std::optional<position> out_from{}, in_from{};
    bool operator==(const absence&) const = default;
  };
  std::uint32_t operators = 0;  ///< of the step that it is for
  std::vector<absence> absences{};
  /// Bytes that it holds at most, by position; empty: what the step holds, less what is away.
  std::vector<std::uint64_t> held{};
  bool operator==(const offline_plan&) const = default;
};

/// A script of steps like that record, written down. O(record + absences).
[[nodiscard]] offline_plan plan_of(const detail::residency_script&, const step_record&);

/// The script that it comes to in steps like that record, whose copies in run at `rate` bytes per
/// second and take `latency` ns more each. What the step does not have is passed over. O(record log
/// record + absences log absences).
[[nodiscard]] detail::residency_script script_of(const offline_plan&, const step_record&,
                                                 double rate, double latency);

/// Carries a plan out: what is planned to be away leaves when the operator that used it last has
/// ended, or as soon as memory is short; copies back begin so early that they are there in time.
/// What the plan does not cover leaves when memory is short all the same, and everything in the
/// first step: as under `online`, or under `dtr` where the plan offloads nothing. A plan for a step
/// of another number of operators is not followed.
class followed_plan : public detail::script_follower {
 public:
  explicit followed_plan(offline_plan plan)
      : plan_(std::make_shared<const offline_plan>(std::move(plan))),
        copies_(std::ranges::find(plan_->absences, offline_plan::way::offload,
                                  &offline_plan::absence::how) != plan_->absences.end()) {}

  double weight(const context& c, tensor_id t) const {
    return copies_ ? script_follower::weight(c, t) : dtr{}.weight(c, t);
  }
  action decide(const context& c, tensor_id t) const {
    return copies_ ? script_follower::decide(c, t) : action::evict;
  }
  /// The rest of the step is decided without the plan.
  bool on_thrash(const context&) noexcept {
    leave_script();
    return true;
  }
  /// Finds the plan's tensors in the step, unless that was done for one like it. O(step +
  /// absences log absences).
  void end_of_step(const context& c) {
    (void)take_scripts_up();
    const history& past = c.past();
    if (past.steps() == 0 || past.last().length() != plan_->operators) return;
    const step_record& step = past.last();
    if (step.length() == 0) return;
    kind& k = met(step);
    if (k.plan == nullptr)
      give(k, std::make_shared<const detail::residency_script>(
                  script_of(*plan_, step, c.rate(direction::in), c.latency(direction::in))));
  }

 private:
  std::shared_ptr<const offline_plan> plan_;
  bool copies_;  // it offloads something
};
/// The policy that carries `plan` out.
inline followed_plan follow(offline_plan plan) {
  return followed_plan(std::move(plan));
}

}  // namespace delta::executor
