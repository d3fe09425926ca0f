// delta: which of several policies (switching.hpp) decides, from step to step and within one, and
// what follows from that: which ways out are open, which closures' costs are kept.
#pragma once

#include <cstdint>
#include <utility>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/detail/runtime/roles.hpp"
#include "delta/detail/tensors/graph.hpp"
#include "delta/detail/tensors/tensor_record.hpp"

namespace delta::detail {

/// A policy's roles, and who of several decides; of a single policy always that.
template <Policy P, class Table>
class policy_seat : public roles<P> {
 public:
  using roles<P>::switch_variants;
  using roles<P>::replace_variants;

  policy_seat(Table& table, P p) : roles<P>(std::move(p)), table_(&table) {
    let_decide(0);
    table.tensors.cached_closure = this->costs_to_keep(0);
  }

  /// The next step begins: each policy may take over in it again.
  void begin_step() noexcept { replaced_ = 0; }
  /// The step has ended: the policies are told, and the selector says who decides in the next.
  void end_of_step(const context& c) {
    roles<P>::end_of_step(c);
    if constexpr (switch_variants) decide_by(this->select(c));
  }
  /// An operator has ended: policies are told, and another one may decide from now on.
  void end_of_operator(const context& c) {
    roles<P>::end_of_operator(c);
    if constexpr (replace_variants) (void)ask_for_another(c, false);
  }
  /// This one decides from now on. O(1), O(tensors) where it keeps the costs of other closures.
  void decide_by(std::uint32_t variant) {
    let_decide(variant);
    if constexpr (switch_variants) {
      graph& g = table_->tensors;
      const closure wanted = this->costs_to_keep(variant);
      if (std::exchange(g.cached_closure, wanted) == wanted) return;
      for (std::uint32_t i = 0; i < g.tensor_slots(); ++i)
        g[static_cast<tensor_id>(i)].cost = tensor_record::unknown;
    }
  }

  /// False: nobody may take over any more in this step.
  [[nodiscard]] bool may_be_replaced() const noexcept {
    return replace_variants && replaced_ < most_replaced;
  }
  /// Recomputation thrashes: true if another policy decides from now on.
  bool replace(const context& c) {
    ++replaced_;
    if (ask_for_another(c, true)) return true;
    replaced_ = most_replaced;  // there is nobody
    return false;
  }
  /// True if a policy has not decided in this step, and is safer than the one that does.
  [[nodiscard]] bool has_another() const noexcept {
    return replace_variants && table_->now.variant != 0 && replaced_ == 0;
  }
  /// True if one was replaced in this step. Then room may be short by what was done before, too.
  [[nodiscard]] bool was_replaced() const noexcept { return replaced_ > 0; }

 private:
  static constexpr std::uint32_t most_replaced = 16;

  void let_decide(std::uint32_t variant) {
    // Who takes over in the midst of a step may do whatever any of them may: what it finds is not
    // of its making.
    using decider = decider_of_type<P>;
    table_->now.variant = variant;
    table_->now.may_evict =
        replaced_ > 0 ? value_of_evicts<decider>() : this->may(action::evict, variant);
    table_->now.may_offload =
        replaced_ > 0 ? value_of_offloads<decider>() : this->may(action::offload, variant);
  }
  // True if another policy decides from now on.
  bool ask_for_another(const context& c, bool thrashes) {
    const std::uint32_t next = this->replacement(c, thrashes);
    if (next == table_->now.variant) return false;
    decide_by(next);
    table_->candidates().unpark(table_->tensors);
    return true;
  }

  Table* table_;
  std::uint32_t replaced_ = 0;  // policies, in this step
};

}  // namespace delta::detail
