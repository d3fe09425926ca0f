// delta executor: the policy that carries out a plan of a step: which tensors are away between
// which of their uses, and which way. Who makes the plan is a parameter.
#pragma once

#include <concepts>
#include <cstdint>
#include <vector>

#include "delta/context.hpp"
#include "delta/decider.hpp"
#include "peers/parts.hpp"

namespace delta::executor {

/// Who plans: `make`, at the end of a step, says whether the plan is another one than before;
/// `due` is the trip for which a tensor is to be away now, or null.
template <class P>
concept Planner = requires(P& p, const P& made, const context& c, tensor_id t) {
  { p.make(c) } -> std::same_as<bool>;
  { made.due(c, t) } -> std::same_as<const trip*>;
};

/// Out as soon as the plan says so. Back at the last operator's end from which a copy is there in
/// time (Capuchin's in-trigger); where one was not, it starts a twentieth of a copy earlier from
/// then on.
template <Planner P>
struct planned_swaps : always_reload {
  static constexpr bool learns = true;

  /// First what the plan wants away by now; else the least recently used. O(due).
  double score(const context& c, tensor_id t) const noexcept {
    return first_or_stale(c, t, plan_.due(c, t) != nullptr);
  }
  /// The way that is planned; without a plan to the host, and back on demand. O(due).
  action decide(const context& c, tensor_id t) const noexcept {
    const trip* const planned = plan_.due(c, t);
    return planned != nullptr && !planned->swaps ? action::evict : action::offload;
  }
  static constexpr bool may_keep() noexcept { return false; }
  /// What is planned to be away from the end of this operator on. O(touched).
  double early_release_bytes(const context& c) {
    double sum = 0;
    for_each_of_ended(c, [&](tensor_id t) {
      const trip* const planned = plan_.due(c, t);
      if (planned == nullptr || !(c.can_offload(t) || c.can_evict(t))) return;
      sum += c.bytes(t);
      if (planned->swaps) away_.push_back({t, c.past().storage_of(t)});
    });
    return sum;
  }
  /// Of what is due soon enough, the first. O(planned ones on the host).
  tensor_id next(const context& c) const noexcept {
    tensor_id first = tensor_id::none;
    std::uint32_t at = 0;
    for (const traveller& x : away_) {
      const forecast f = c.next_use(x.tensor);
      if (c.where(x.tensor) != residency::host || f.what != forecast::kind::known) continue;
      const double copy = lead_[x.storage] * c.copy_cost(x.tensor, direction::in);
      if (f.in - c.past().coming_cost() >= copy) continue;  // the next operator's end will do
      if (first == tensor_id::none || f.position < at) first = x.tensor, at = f.position;
    }
    const double taken = c.used() + c.coming_need();
    const bool fits = first != tensor_id::none && taken + c.bytes(first) <= c.budget();
    return fits ? first : tensor_id::none;
  }
  /// Is what the coming operator uses not there yet? O(planned ones on the host).
  void end_of_operator(const context& c) {
    std::erase_if(away_, [&](const traveller& x) {
      const residency where = c.where(x.tensor);
      const bool back = where == residency::resident || where == residency::dead;
      if (back || c.past().storage_of(x.tensor) != x.storage) return true;
      const forecast f = c.next_use(x.tensor);
      if (f.what == forecast::kind::known && f.position == c.past().position())
        lead_[x.storage] += earlier;
      return false;
    });
  }
  void end_of_step(const context& c) {
    away_.clear();
    if (plan_.make(c)) lead_.assign(c.past().last().storages.size(), 1.0);
  }

 private:
  static constexpr double earlier = 0.05;  // of a copy's time, as published
  struct traveller {
    tensor_id tensor;
    std::uint32_t storage;  // of the record
  };
  P plan_;
  std::vector<traveller> away_;
  std::vector<double> lead_;  // by storage: copies' times before its use
};

}  // namespace delta::executor
