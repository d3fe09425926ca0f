// delta: the Filter, Algorithm 2: which tensor leaves. The lowest score, ties to the lower id.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/detail/tensors/candidates.hpp"
#include "delta/detail/tensors/graph.hpp"
#include "delta/detail/victims/scores.hpp"

namespace delta::detail {

/// Whether a tensor may leave, as things are.
enum class permission : std::uint8_t {
  yes,
  not_now,   ///< asked again at the next search
  not_as_is  ///< not before something happens to it (it is locked, pinned or dropped)
};

/// Finds the victim, by one of two searches which both find the same one (docs/results/decisions.md
/// has the figures):
///   scan    each candidate is asked (Algorithm 2, lines 2 to 6): where answers can't be kept, as
///           the heuristic does not say what it depends on, or its score reads the staleness
///   rows    answers are kept by row, asked again when what they depend on changes, and compared,
///           64 rows at a time
template <Heuristic H>
class filter {
  static constexpr quantity reads = value_of_depends_on<H>();

 public:
  /// True if answers are kept, so that the fast searches can be used.
  static constexpr bool keeps_answers =
      reads != quantity::everything && (has_weight<H> || !covers(reads, quantity::staleness));
  /// Which closure costs the graph should keep for this heuristic (`graph::cached_closure`).
  static constexpr closure keeps_costs =
      reads == quantity::everything                 ? closure::none
      : covers(reads, quantity::neighbourhood_cost) ? closure::neighbourhood
      : covers(reads, quantity::recompute_cost)     ? closure::ancestors
                                                    : closure::none;
  /// True if lower bounds of costs do for all but the victim.
  static constexpr bool asks_for_bounds =
      keeps_answers && value_of_later_if_dearer<H>() && keeps_costs != closure::none;

  /// The candidate that `h`, the same in every call, names as the victim, else the one with the
  /// lowest score, of those that `may_leave`; none if there is none. `may_leave(t)` is a
  /// `permission`, asked before scoring; what may not leave as it is is parked. Throws
  /// std::bad_alloc, and what `may_leave` throws. O(candidates) at worst.
  template <class MayLeave>
  tensor_id select(const H& h, const context& c, graph& g, const machine_state& now,
                   candidate_list& list, const MayLeave& may_leave) {
    const auto leaves = [&](tensor_id t) { return may_leave(t) == permission::yes; };
    if (const tensor_id t = known(h, c, leaves); t != tensor_id::none) return t;
    if constexpr (!keeps_answers) {
      return scan(h, c, list.all(), leaves);
    } else {
      const context asking = asks_for_bounds ? context(c, question_) : c;
      question_ = {};
      scanned_ = false;
      renew(h, asking, g, now, list);
      tensor_id t = tensor_id::none;
      // As a rule few tries are in vain. Where many are, asking each if it may leave is cheaper.
      const std::size_t patience = 2 + list.all().size() / 128;
      for (std::size_t vain = 0;;) {
        const bool ask_each = vain >= patience;
        t = ask_each ? search_allowed(g, now, list, may_leave) : search(g, now, list);
        if (t == tensor_id::none) break;
        const permission may = ask_each ? permission::yes : may_leave(t);
        if (may == permission::yes) {
          if (settled(h, asking, g, now, list, t)) break;
          continue;
        }
        ++vain;
        if (may == permission::not_as_is) {
          list.park(t);
        } else {
          hidden_.push_back(t);  // first, as it may throw
          list.hide(t);
        }
        look_again(g, now, list, t);
      }
      for (const tensor_id one : hidden_) list.show(one);
      hidden_.clear();
      return t;
    }
  }

  /// Answers asked for since the beginning: what decisions cost, as a count that repeats exactly.
  [[nodiscard]] std::uint64_t evaluations() const noexcept { return evaluations_; }

 private:
  static constexpr row_form form = has_weight<H> ? row_form::weights : row_form::scores;

  // Whom the heuristic names without a search; none: nobody who may leave.
  template <class MayLeave>
  static tensor_id known(const H& h, const context& c, const MayLeave& may_leave) {
    if constexpr (has_victim<H>)
      if (const tensor_id t = h.victim(c, may_leave); t != tensor_id::none && may_leave(t))
        return t;
    return tensor_id::none;
  }
  template <class MayLeave>
  tensor_id scan(const H& h, const context& c, const id_set& candidates,
                 const MayLeave& may_leave) {
    lowest_score lowest;
    for (const tensor_id t : candidates) {
      if (!may_leave(t)) continue;
      ++evaluations_;
      lowest.offer(t, score_of(h, c, t));
    }
    return lowest.tensor();
  }

  // --- answers that are kept --------------------------------------------------------------------

  // What answers may depend on that is no single tensor's.
  struct prices {
    std::array<double, 2> rate{}, latency{}, backlog{};
    std::uint64_t host_free = 0;
    bool operator==(const prices&) const = default;
  };
  // Of all that the heuristic may have read. What is on the host has a price in closures.
  static prices prices_of(const machine_state& now, bool host) noexcept {
    constexpr bool exposed = covers(reads, quantity::exposed_swap_cost);
    constexpr bool swap = exposed || covers(reads, quantity::swap_cost);
    prices p;
    if (swap || covers(reads, quantity::copy_cost)) p.rate = now.rate, p.latency = now.latency;
    if (swap) p.host_free = now.host_free.count;
    if (exposed) p.backlog = now.backlog;
    if (host && touches(reads, quantity::recompute_cost | quantity::neighbourhood_cost)) {
      constexpr auto in = static_cast<std::size_t>(direction::in);
      p.rate[in] = now.rate[in], p.latency[in] = now.latency[in], p.backlog[in] = now.backlog[in];
    }
    return p;
  }

  victim_rows rows(const graph& g, const machine_state& now,
                   const candidate_list& list) const noexcept {
    return {values_.data(), g.last_uses(), &list.all(), static_cast<double>(now.clock.count())};
  }
  // A row's value; of what the program has dropped, and of no number, as `score_of` has it.
  double ask(const H& h, const context& c, tensor_id t) {
    ++evaluations_;
    if (c.is_released(t)) return never;
    if constexpr (has_weight<H>)
      return valid_weight(h.weight(c, t));
    else
      return -valid_score(h.score(c, t));
  }

  // Every candidate's value as it is now.
  void renew(const H& h, const context& c, graph& g, const machine_state& now,
             candidate_list& list) {
    values_.resize(list.all().words() * id_set::word_bits);
    const bool host = !c.offloaded().empty();
    const prices p = prices_of(now, host);
    const bool all = p != asked_under_;
    asked_under_ = p;
    id_set& changed = g.changed();
    const auto ask_again = [&](tensor_id t) {
      values_[index(t)] = ask(h, c, t);
      g[t].has_score = true;
    };
    if (all) {
      for (const tensor_id t : list.all()) ask_again(t);
    } else {
      for (const tensor_id t : changed)
        if (list.all().contains(t)) ask_again(t);
    }
    changed.clear();
    // A way out that depends on its own past (a clean copy, a pin) may be another when it is back.
    constexpr bool sees_ways_out =
        touches(reads, quantity::copy_cost | quantity::swap_cost | quantity::exposed_swap_cost);
    list.ask_again_of_returned(sees_ways_out || host);
  }
  // Is the value of the row that comes first exact now? Else it changes, and so may the order.
  bool settled(const H& h, const context& c, const graph& g, const machine_state& now,
               candidate_list& list, tensor_id t) {
    if constexpr (!asks_for_bounds) return true;
    double& value = values_[index(t)];
    if (value == never) return true;  // nobody wants it back
    const double before = value;
    do {
      question_ = {.refine = t};
      value = ask(h, c, t);
    } while (question_.bounded && value == before);
    // More urgent than when it was asked, it still comes first.
    if (!question_.bounded && value >= before) return true;
    look_again(g, now, list, t);
    return false;
  }
  // What was found of the row's word is not true any more.
  void look_again(const graph& g, const machine_state& now, const candidate_list& list,
                  tensor_id t) noexcept {
    if (!scanned_) return;
    const std::size_t w = index(t) / id_set::word_bits;
    per_word_[w] = highest_urgency<form>(rows(g, now, list), w, list.all().word(w));
  }

  // --- the search -------------------------------------------------------------------------------

  tensor_id search(const graph& g, const machine_state& now, const candidate_list& list) {
    const victim_rows r = rows(g, now, list);
    if (!std::exchange(scanned_, true)) {
      per_word_.resize(list.all().words());
      scan_words<form>(r, per_word_);
    }
    return first_row<form>(r, per_word_);
  }
  // Row by row, of those that may leave.
  template <class MayLeave>
  tensor_id search_allowed(const graph& g, const machine_state& now, candidate_list& list,
                           const MayLeave& may_leave) {
    const victim_rows r = rows(g, now, list);
    lowest_score lowest;
    for (const tensor_id t : list.all()) {
      const permission may = may_leave(t);
      if (may == permission::not_as_is) list.park(t);
      if (may == permission::yes) lowest.offer(t, score_at<form>(urgency<form>(r, index(t))));
    }
    return lowest.tensor();
  }

  std::uint64_t evaluations_ = 0;
  std::vector<double> values_;    // by row, whole words
  std::vector<double> per_word_;  // scratch of a scan
  std::vector<tensor_id> hidden_;
  prices asked_under_;
  cost_query question_;
  bool scanned_ = false;  // per_word_ holds, in this search
};

}  // namespace delta::detail
