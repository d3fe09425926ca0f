// delta: a test of what a heuristic promises, for a test program beside a heuristic of one's own.
// No other header includes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/detail/victims/scores.hpp"
#include "delta/testing/random_table.hpp"
#include "delta/units.hpp"

namespace delta {

/// What verify_heuristic found, and where: the same seed finds it again.
struct heuristic_report {
  /// What a heuristic may do against its promises (concepts.hpp).
  enum class kind : std::uint8_t {
    none,                 ///< nothing was found
    not_a_number,         ///< an answer is NaN
    negative_weight,      ///< a weight is below 0
    answers_differ,       ///< asked twice, with nothing changed
    reads_the_time,       ///< a weight did, or a score that does not declare the staleness
    undeclared_quantity,  ///< the answer changed, and nothing that it `depends_on`
    index_differs         ///< asking again only where `depends_on` changed finds another victim
  };

  kind fault = kind::none;
  tensor_id tensor = tensor_id::none;  ///< the one that gave it away
  std::uint32_t round = 0;             ///< the table
  std::uint32_t step = 0;              ///< changes to it
  std::uint64_t seed = 0;              ///< as given to verify_heuristic

  /// Nothing was found.
  constexpr explicit operator bool() const noexcept { return fault == kind::none; }
  /// The fault as a phrase.
  [[nodiscard]] constexpr std::string_view what() const noexcept {
    constexpr std::array<std::string_view, 7> names{
        "nothing found",
        "the answer is not a number",
        "a weight is negative",
        "asked twice it answers differently",
        "the answer depends on the time, which depends_on does not declare",
        "the answer depends on a quantity that depends_on does not declare",
        "asking again only where a declared quantity changed finds another victim"};
    return names[static_cast<std::size_t>(fault)];
  }
};

namespace detail {

// What may change an answer, by its declaration: the values of all that `depends_on` vouches for,
// in a fixed order. Equal facts must give equal answers.
template <Heuristic H>
class declared_facts {
 public:
  declared_facts() = default;
  declared_facts(const context& c, tensor_id t) noexcept {
    constexpr quantity q = detail::value_of_depends_on<H>();
    if constexpr (detail::has_score<H> && covers(q, quantity::staleness)) note(c.staleness(t));
    if constexpr (covers(q, quantity::bytes)) note(c.bytes(t));
    if constexpr (covers(q, quantity::recompute_cost))
      note(c.recompute_cost(t)), note(c.can_recompute(t));
    if constexpr (covers(q, quantity::neighbourhood_cost)) note(c.neighbourhood_cost(t));
    if constexpr (covers(q, quantity::later_recompute_cost))
      note(c.recompute_cost_by(t, c.next_use(t))), note(c.can_recompute(t));
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

/// Tries to catch a heuristic that breaks its promises, on random tables: see
/// heuristic_report::kind. For a test beside a heuristic of one's own. Nothing found is no proof.
/// Takes milliseconds; throws nothing but std::bad_alloc. The same seed gives the same tables
/// everywhere.
///
///   const auto found = delta::verify_heuristic(my_heuristic{});
///   CHECK_MESSAGE(found, found.what());
template <Heuristic H>
[[nodiscard]] heuristic_report verify_heuristic(const H& h, std::uint64_t seed = 1) {
  constexpr bool reads_anything = detail::value_of_depends_on<H>() == quantity::everything;
  const auto ask = [&h](const context& c, tensor_id t) {
    if constexpr (detail::has_weight<H>)
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
      const auto found = [&](heuristic_report::kind f, tensor_id t) {
        return heuristic_report{f, t, round, step, seed};
      };
      const auto candidates = table.candidates();
      for (const tensor_id t : candidates) {
        const double answer = ask(c, t);
        if (answer != answer) return found(heuristic_report::kind::not_a_number, t);
        if (detail::has_weight<H> && answer < 0)
          return found(heuristic_report::kind::negative_weight, t);
        if (ask(c, t) != answer) return found(heuristic_report::kind::answers_differ, t);
        const row& r = index_rows[index(t)];
        // "Everything" can't be caught: whatever changed may have been read.
        if (!reads_anything && r.known && r.facts == detail::declared_facts<H>(c, t) &&
            r.answer != answer)
          return found(heuristic_report::kind::undeclared_quantity, t);
      }
      detail::lowest_score by_index, by_scan;
      for (const tensor_id t : candidates) {
        row& r = index_rows[index(t)];
        const detail::declared_facts<H> facts(c, t);
        if (reads_anything || !r.known || r.facts != facts) r = {facts, ask(c, t), true};
        by_index.offer(t, detail::has_weight<H>
                              ? 1.0 / (detail::valid_weight(r.answer) * c.staleness(t))
                              : r.answer);
      }
      for (const tensor_id t : candidates) by_scan.offer(t, detail::score_of(h, c, t));
      if (by_index.tensor() != by_scan.tensor())
        return found(heuristic_report::kind::index_differs, by_scan.tensor());
      if constexpr (detail::has_weight<H> ||
                    !covers(detail::value_of_depends_on<H>(), quantity::staleness))
        for (const tensor_id t : candidates) {
          const double before = ask(c, t);
          // Only the time goes on, which such an answer must not see.
          table.pass(1 + step);
          if (ask(c, t) != before) return found(heuristic_report::kind::reads_the_time, t);
        }
    }
  }
  return {heuristic_report::kind::none, tensor_id::none, 0, 0, seed};
}

}  // namespace delta
