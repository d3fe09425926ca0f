// delta: a test of what a heuristic promises, for a test program beside a heuristic of one's own.
// No other header includes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/detail/tensors/graph.hpp"
#include "delta/detail/victims/scores.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Sources, and operators that read one or two earlier tensors. What has a producer may be gone.
/// The same seed gives the same tables on every machine: no generator or distribution of the
/// standard library, whose distributions are not specified to the bit.
class random_table {
 public:
  /// 4 sources and 12 operators, some with two outputs, and 40 changes to mix them.
  explicit random_table(std::uint64_t seed) : state_(seed), context_(graph_, now_) {
    pass(1);
    now_.budget = bytes{1000};
    now_.recompute_cap = 4;
    for (int i = 0; i < 4; ++i) add();
    for (int i = 0; i < 12; ++i) {
      const std::array inputs{any(), any()};
      const std::array outputs{add(), below(4) == 0 ? add() : tensor_id::none};
      const bool one = outputs[1] == tensor_id::none;
      const operator_id o = graph_.add_record(inputs, std::span(outputs).first(one ? 1 : 2));
      graph_[o].cost = nanoseconds{std::int64_t(below(8))};
    }
    for (int i = 0; i < 40; ++i) change();
  }
  /// The context points into it.
  random_table(const random_table&) = delete;
  random_table& operator=(const random_table&) = delete;

  /// What the heuristic is shown; it changes with the table.
  [[nodiscard]] const context& view() const noexcept { return context_; }
  [[nodiscard]] std::size_t size() const noexcept { return graph_.tensor_slots(); }
  /// What a Filter asks its heuristic about: resident, and the program has not dropped it. Valid
  /// until the next call.
  [[nodiscard]] std::span<const tensor_id> candidates() {
    candidates_.clear();
    for (std::uint32_t i = 0; i < graph_.tensor_slots(); ++i)
      if (const auto t = static_cast<tensor_id>(i);
          graph_[t].where == residency::resident && !context_.is_released(t))
        candidates_.push_back(t);
    return candidates_;
  }
  /// Ticks and nanoseconds go by, and nothing else happens.
  void pass(std::int64_t n) noexcept {
    now_.now += static_cast<tick>(n), now_.clock += nanoseconds{n};
  }
  /// One thing changes: one case for every quantity that `depends_on` can name, and some that it
  /// can't. So an undeclared one can be caught by the case that changes it alone.
  void change() {
    const tensor_id t = any();
    detail::tensor_record& r = graph_[t];
    const bool made = r.producer != operator_id::none;
    switch (below(12)) {
      // bytes
      case 0:
        r.footprint = bytes{1 + below(8)};
        break;
      // costs: of the tensor itself, and of all that are computed through it
      case 1:
        if (made) graph_[r.producer].cost = nanoseconds{std::int64_t(below(8))};
        break;
      // whether it is there, which is in its neighbours' costs
      case 2:
        r.where = made && r.where == residency::resident ? residency::evicted : residency::resident;
        r.host = {};
        break;
      // on the host alone, and back
      case 3:
        r.where = r.where == residency::resident ? residency::host : residency::resident;
        r.host = slab{index(t)};
        break;
      // clean or not
      case 4:
        if (r.where == residency::resident) r.host = r.host ? slab{} : slab{index(t)};
        break;
      // the queues
      case 5:
        now_.backlog[below(2)] = double(below(20));
        break;
      // what copies cost
      case 6:
        now_.rate[below(2)] = 1e9 / double(1 + below(4));
        now_.latency[below(2)] = double(below(4));
        break;
      // ways out that open and close
      case 7:
        now_.host_free = bytes{below(12)};
        now_.may_evict = below(4) != 0, now_.may_offload = below(4) != 0;
        break;
      // what only `everything` covers
      case 8:
        now_.used = bytes{below(1000)}, now_.leaving = bytes{below(100)};
        now_.coming_need = bytes{below(100)}, now_.backward = below(2) != 0;
        break;
      // ways out by pins, and whether the program holds it
      case 9:
        r.pinned = static_cast<pin>(below(4));
        r.references = below(4) != 0 ? 1 : 0;
        break;
      case 10:  // later, and everything as stale as before
        pass(1);
        for (std::uint32_t i = 0; i < graph_.tensor_slots(); ++i) {
          const auto other = static_cast<tensor_id>(i);
          graph_.set_last_use(other, nanoseconds{std::int64_t(graph_.last_use(other)) + 1});
        }
        break;
      // it is used
      default:
        pass(1 + static_cast<std::int64_t>(below(3)));
        graph_.set_last_use(t, now_.clock);
    }
  }

 private:
  // Less than `n`. The bias of % does not matter here.
  [[nodiscard]] std::uint64_t below(std::uint64_t n) noexcept {
    state_ += 0x9e3779b97f4a7c15u;  // splitmix64 (Steele, Lea, Flood 2014)
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % n;
  }
  [[nodiscard]] tensor_id any() noexcept {
    return static_cast<tensor_id>(below(graph_.tensor_slots()));
  }
  tensor_id add() {
    const bytes size{1 + below(8)};
    const tensor_id t = graph_.add_tensor(size, size);
    graph_[t].where = residency::resident;
    return t;
  }

  std::uint64_t state_;
  graph graph_;
  machine_state now_;
  context context_;
  std::vector<tensor_id> candidates_;
};

}  // namespace delta::detail

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
