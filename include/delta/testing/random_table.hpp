// delta: tensors, records and conditions made from a seed, that change at random: what a context
// may show. Small numbers, so that many things are equal: ties and changes that cancel out are
// where a wrong heuristic shows. No manager is involved: states are set directly, legal or not in
// their order, as a heuristic sees only the moment.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "delta/context.hpp"
#include "delta/detail/tensors/graph.hpp"
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
