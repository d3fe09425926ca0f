// delta: hands events to the observer. With no_observer every function here is empty, and nothing
// is computed for an event. A decision (`leaving` or `returning`, then `tell`) is told at once,
// when it was carried out; queued work (`copy`, `work`) when its times are known (`flush`), so
// after decisions that were made while it ran.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "delta/context.hpp"
#include "delta/detail/tensors/residency_table.hpp"
#include "delta/detail/victims/scores.hpp"
#include "delta/observer.hpp"

namespace delta::detail {

/// Makes events and hands them to the observer. The callers' statements are plain calls, without an
/// `if constexpr` each: test/observer_cost holds that to the byte.
template <class Table, Observer O>
class event_sink {
  static constexpr bool listens = !std::is_same_v<O, no_observer>;
  // A draft when nobody listens: empty, so that nothing of it is left in the code.
  struct nothing {};
  // May be nobody, as is known at run time only.
  [[nodiscard]] bool listening() const { return answer_or<listens_row>(true, observer_); }

 public:
  /// What is known of a decision before it is carried out.
  using draft = std::conditional_t<listens, event, nothing>;

  event_sink(Table& table, O o) : table_(&table), observer_(std::move(o)) {}
  /// The observer, for manager::observer.
  [[nodiscard]] O& observer() noexcept { return observer_; }

  // Inlined before the compiler weighs their callers: without an observer nothing of them is left.

  /// A tensor that may leave, its score, and what recomputing or swapping it back would cost.
  template <Heuristic H>
  [[nodiscard, gnu::always_inline]] draft leaving(const context& c, tensor_id t,
                                                  const H& heuristic) const {
    if constexpr (listens) {
      if (!listening()) return {};
      return {.tensor = t,
              .label = table_->tensors[t].label,
              .size = table_->tensors[t].size,
              .score = score_of(heuristic, c, t),
              .cost = c.recompute_cost(t),
              .alternative = c.exposed_swap_cost(t)};
    } else {
      return {};
    }
  }
  /// A tensor on the host that comes back.
  [[nodiscard, gnu::always_inline]] draft returning(const context& c, tensor_id t) const {
    if constexpr (listens) {
      if (!listening()) return {};
      return {.tensor = t,
              .label = table_->tensors[t].label,
              .size = table_->tensors[t].size,
              .cost = c.reload_cost(t),
              .alternative = c.recompute_cost(t)};
    } else {
      return {};
    }
  }
  /// A decision that was carried out. Of a tensor that left, `cost` is what the way chosen costs.
  [[gnu::always_inline]] void tell(event_kind what, const char* operation, const draft& s = {}) {
    if constexpr (listens)
      if (listening()) tell_now(what, operation, s);
  }
  /// A copy that was queued; told once its times are known. Not `fresh`: it was told of before.
  [[gnu::always_inline]] void copy(event_kind what, const char* operation, tensor_id t, stamp done,
                                   bool fresh = true) {
    if constexpr (listens) {
      if (!listening()) return;
      if (fresh) remember(what, operation, t, done);
      tell_what_is_known();
    }
  }
  /// The same of an operator, which made these.
  [[gnu::always_inline]] void work(event_kind what, const char* operation,
                                   std::span<const tensor_id> made, stamp done) {
    copy(what, operation, made.empty() ? tensor_id::none : made.front(), done);
  }
  /// Tells of work whose times are known by now, in the order in which it was queued per lane.
  [[gnu::always_inline]] void flush() {
    if constexpr (listens)
      if (listening()) tell_what_is_known();
  }

 private:
  // Queued work, and the event that will tell of it. As many as the lanes are behind.
  struct untold {
    event said;
    stamp done;
  };
  // A draft is begun before the way is chosen, with "recompute" as the cost and "swap" as the
  // alternative; of what went to the host the two change places.
  void tell_now(event_kind what, const char* operation, event s) {
    if (what == event_kind::offload || what == event_kind::clean_drop)
      std::swap(s.cost, s.alternative);
    s.what = what;
    s.operation = operation;
    s.began = table_->storage().now();
    s.use = use();
    observer_.on(s);
  }
  // The label is taken now: the tensor may be gone when the times are known.
  void remember(event_kind what, const char* operation, tensor_id t, stamp done) {
    const bool known = t != tensor_id::none;
    untold_.push_back({{.what = what,
                        .tensor = t,
                        .label = known ? table_->tensors[t].label : "",
                        .operation = operation,
                        .size = known ? table_->tensors[t].size : bytes{},
                        .began = table_->storage().now()},
                       done});
  }
  // Where the times will never be known (reached, but no elapsed) it is told with the time at which
  // it was queued and no length. Kept in order, so each lane's events come in theirs. O(untold).
  void tell_what_is_known() {
    auto& storage = table_->storage();
    std::erase_if(untold_, [&](const untold& u) {
      const auto took = storage.elapsed(u.done);
      if (!took && !storage.reached(u.done)) return false;
      event said = u.said;
      // A storage that knows when work began says so; others' work begins where it was queued.
      if (took) said.took = *took;
      if constexpr (has_began<typename Table::storage_type>)
        if (const auto began = storage.began(u.done)) said.began = *began;
      said.use = use();
      observer_.on(said);
      return true;
    });
  }
  // When told, not when it happened: the counters of a timeline are as of the event's telling.
  [[nodiscard]] memory_use use() const {
    return {table_->storage().used(), table_->in_flight(), table_->storage().host_used()};
  }

  Table* table_;
  [[no_unique_address]] O observer_;
  [[no_unique_address]] std::conditional_t<listens, std::vector<untold>, nothing> untold_;
};

}  // namespace delta::detail
