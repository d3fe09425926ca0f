// delta: the Filter, Algorithm 2: which tensor leaves. Exact: the lowest score, ties to the lower
// id. And a test of what a heuristic promises.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/detail/random_table.hpp"

namespace delta {

/// Score of a tensor under either form of heuristic; lower leaves first. A weight w stands for 1 /
/// (w s), equation (1) with any weight; weight 0 gives infinity, which leaves last. What the
/// program has dropped scores minus infinity. As dear as the heuristic's answer.
template <Heuristic H>
double score_of(const H& heuristic, const context& c, tensor_id t) {
  if (c.is_released(t)) return -never;  // nobody wants it back: before all others
  if constexpr (weighs_tensor<H>)
    return 1.0 / (static_cast<double>(heuristic.weight(c, t)) * c.staleness(t));
  else
    return static_cast<double>(heuristic.score(c, t));
}

/// The lowest score offered so far, of equal ones that with the lower id. A score that is not a
/// number counts as infinite. In whatever order tensors are offered, the same one wins: the order
/// of the candidates changes with every lock, and decisions must not depend on it.
class lowest_score {
 public:
  /// Takes `t` into account. O(1).
  void offer(tensor_id t, double score) noexcept {
    if (!(score <= never)) score = never;
    if (tensor_ == tensor_id::none || score < score_ || (score == score_ && t < tensor_))
      tensor_ = t, score_ = score;
  }
  /// None if nothing was offered.
  [[nodiscard]] tensor_id tensor() const noexcept { return tensor_; }

 private:
  tensor_id tensor_ = tensor_id::none;
  double score_ = never;
};

/// Finds the victim among candidates by scoring each (Algorithm 2, lines 2 to 6). A plain scan: a
/// rank kept in an index would have to be mended for all tensors whose costs an eviction changes.
template <Heuristic H>
class filter {
 public:
  /// Keeps the heuristic; `heuristic()` gives access.
  explicit filter(H heuristic) : heuristic_(std::move(heuristic)) {}

  /// The candidate with the lowest score of those that `may_leave`; none if there is none.
  /// `may_leave(t)` is asked first, so that nothing is scored in vain. Throws nothing but what
  /// `may_leave` throws. O(candidates) evaluations.
  template <class MayLeave>
  tensor_id select(const context& c, std::span<const tensor_id> candidates,
                   const MayLeave& may_leave) {
    lowest_score lowest;
    for (const tensor_id t : candidates) {
      if (!may_leave(t)) continue;
      ++evaluations_;
      lowest.offer(t, score_of(heuristic_, c, t));
    }
    return lowest.tensor();
  }

  /// Scores computed since the beginning: what decisions cost, as a count that repeats exactly.
  [[nodiscard]] std::uint64_t evaluations() const noexcept { return evaluations_; }
  [[nodiscard]] H& heuristic() noexcept { return heuristic_; }

 private:
  H heuristic_;
  std::uint64_t evaluations_ = 0;
};

/// What a heuristic may do against its promises (concepts.hpp).
enum class heuristic_fault : std::uint8_t {
  none,                 ///< nothing was found
  not_a_number,         ///< an answer is NaN
  negative_weight,      ///< a weight is below 0
  answers_differ,       ///< asked twice, with nothing changed
  reads_the_time,       ///< a weight did
  undeclared_quantity,  ///< the answer changed, and nothing that it `depends_on`
  index_differs         ///< asking again only where `depends_on` changed finds another victim
};
/// The fault as a phrase, for a test's message.
constexpr std::string_view name(heuristic_fault f) noexcept {
  constexpr std::array<std::string_view, 7> names{
      "nothing found",
      "the answer is not a number",
      "a weight is negative",
      "asked twice it answers differently",
      "a weight depends on the time",
      "the answer depends on a quantity that depends_on does not declare",
      "asking again only where a declared quantity changed finds another victim"};
  return names[static_cast<std::size_t>(f)];
}

/// What verify_heuristic found, and where: the same seed finds it again.
struct heuristic_report {
  heuristic_fault fault = heuristic_fault::none;
  tensor_id tensor = tensor_id::none;  ///< the one that gave it away
  std::uint32_t round = 0;             ///< the table
  std::uint32_t step = 0;              ///< changes to it
  std::uint64_t seed = 0;              ///< as given to verify_heuristic

  /// Nothing was found.
  constexpr explicit operator bool() const noexcept { return fault == heuristic_fault::none; }
  /// The fault as a phrase.
  [[nodiscard]] constexpr std::string_view what() const noexcept { return name(fault); }
};

namespace detail {

// What may change an answer, by its declaration: the values of all that `depends_on` vouches for,
// in a fixed order. Equal facts must give equal answers. A score may read the staleness as well, a
// weight may not.
template <Heuristic H>
class declared_facts {
 public:
  declared_facts() = default;
  declared_facts(const context& c, tensor_id t) noexcept {
    constexpr quantity q = depends_on<H>();
    if constexpr (scores_tensor<H>) note(c.staleness(t));
    if constexpr (covers(q, quantity::bytes)) note(c.bytes(t));
    if constexpr (covers(q, quantity::recompute_cost))
      note(c.recompute_cost(t)), note(c.can_recompute(t));
    if constexpr (covers(q, quantity::neighbourhood_cost)) note(c.neighbourhood_cost(t));
    for (const direction d : {direction::out, direction::in}) {
      if constexpr (covers(q, quantity::copy_cost)) note(c.copy_cost(t, d)), note(c.rate(d));
      if constexpr (covers(q, quantity::exposed_swap_cost)) note(c.backlog(d));
    }
    if constexpr (covers(q, quantity::swap_cost))
      note(c.swap_cost(t)), note(c.is_clean(t)), note(c.can_offload(t));
    if constexpr (covers(q, quantity::exposed_swap_cost))
      note(c.exposed_swap_cost(t)), note(c.reload_cost(t));
  }
  bool operator==(const declared_facts&) const = default;

 private:
  void note(double value) noexcept { values_[count_++] = value; }
  std::array<double, 20> values_{};
  std::size_t count_ = 0;
};

}  // namespace detail

/// Tries to catch a heuristic that breaks its promises, on random tables: see heuristic_fault. For
/// a test beside a heuristic of one's own. Nothing found is no proof. Takes milliseconds; throws
/// nothing but std::bad_alloc. The same seed gives the same tables everywhere.
///
///   const auto found = delta::verify_heuristic(my_heuristic{});
///   CHECK_MESSAGE(found, found.what());
template <Heuristic H>
[[nodiscard]] heuristic_report verify_heuristic(const H& h, std::uint64_t seed = 1) {
  constexpr bool reads_anything = depends_on<H>() == quantity::everything;
  const auto ask = [&h](const context& c, tensor_id t) {
    if constexpr (weighs_tensor<H>)
      return static_cast<double>(h.weight(c, t));
    else
      return static_cast<double>(h.score(c, t));
  };
  struct row {
    detail::declared_facts<H> facts;
    double answer = 0;
    bool known = false;
  };
  // Each round compares with an index that asks again only where a declared fact has changed: the
  // use that the promise is made for.
  for (std::uint32_t round = 0; round < 32; ++round) {
    detail::random_table table(seed + 0x10001u * round);
    const context& c = table.view();
    std::vector<row> index_rows(table.size());
    for (std::uint32_t step = 0; step < 64; table.change(), ++step) {
      const auto found = [&](heuristic_fault f, tensor_id t) {
        return heuristic_report{f, t, round, step, seed};
      };
      const auto candidates = table.candidates();
      for (const tensor_id t : candidates) {
        const double answer = ask(c, t);
        if (answer != answer) return found(heuristic_fault::not_a_number, t);
        if (weighs_tensor<H> && answer < 0) return found(heuristic_fault::negative_weight, t);
        if (ask(c, t) != answer) return found(heuristic_fault::answers_differ, t);
        const row& r = index_rows[index(t)];
        // "Everything" can't be caught: whatever changed may have been read.
        if (!reads_anything && r.known && r.facts == detail::declared_facts<H>(c, t) &&
            r.answer != answer)
          return found(heuristic_fault::undeclared_quantity, t);
      }
      lowest_score by_index, by_scan;
      for (const tensor_id t : candidates) {
        row& r = index_rows[index(t)];
        const detail::declared_facts<H> facts(c, t);
        if (reads_anything || !r.known || r.facts != facts) r = {facts, ask(c, t), true};
        by_index.offer(t, weighs_tensor<H> ? 1.0 / (r.answer * c.staleness(t)) : r.answer);
      }
      for (const tensor_id t : candidates) by_scan.offer(t, score_of(h, c, t));
      if (by_index.tensor() != by_scan.tensor())
        return found(heuristic_fault::index_differs, by_scan.tensor());
      if constexpr (weighs_tensor<H>)
        for (const tensor_id t : candidates) {
          const double before = ask(c, t);
          // Only the time goes on, which a weight must not see.
          table.pass(1 + step);
          if (ask(c, t) != before) return found(heuristic_fault::reads_the_time, t);
        }
    }
  }
  return {heuristic_fault::none, tensor_id::none, 0, 0, seed};
}

}  // namespace delta
