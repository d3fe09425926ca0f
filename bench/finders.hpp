// Two ways to find a victim, behind one face, so that a program can drive any of them: what a
// manager tells whoever looks for victims, and no manager.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/detail/tensors/candidates.hpp"
#include "delta/detail/tensors/graph.hpp"
#include "delta/detail/victims/victim_search.hpp"
#include "delta/units.hpp"

namespace delta::bench {

/// Tensors, the time, and what a heuristic sees of both.
struct tensor_table {
  detail::graph tensors;
  detail::machine_state now;
  context view{tensors, now};

  tensor_table() = default;
  /// The context points into it.
  tensor_table(const tensor_table&) = delete;
  tensor_table& operator=(const tensor_table&) = delete;

  /// A tensor of the program whose bytes are here.
  tensor_id add(bytes size) {
    const tensor_id t = tensors.add_tensor(size, size);
    tensors[t].where = residency::resident;
    tensors.set_last_use(t, now.clock);
    return t;
  }
  /// One that nobody lists any more.
  void remove(tensor_id t) {
    tensors[t].references = 0;
    tensors.recycle(t);
  }
};

// Every finder has:
//   cover(rows)            ids below these may be listed from now on
//   enlist(t), delist(t)   it is a candidate; it is none
//   reweigh(t)             its weight may be another
//   select()               the victim, none without candidates
//   evaluations()          answers asked for

/// The same answers, and no word about what they depend on.
template <Heuristic H>
struct as_written {
  H heuristic;
  [[nodiscard]] double score(const context& c, tensor_id t) const noexcept {
    return detail::score_of(heuristic, c, t);
  }
};

/// A manager's filter, asked about a manager's candidates.
template <Heuristic H>
class filter_search {
 public:
  filter_search(tensor_table& t, H h) : table_(&t), heuristic_(std::move(h)) {}

  void cover(std::size_t rows) { list_.cover(rows); }
  void enlist(tensor_id t) { list_.enlist(table_->tensors, t); }
  void delist(tensor_id t) { list_.delist(table_->tensors, t); }
  void reweigh(tensor_id t) {
    if constexpr (detail::filter<H>::keeps_answers) table_->tensors.reweigh(t);
  }
  tensor_id select() {
    return filter_.select(heuristic_, table_->view, table_->tensors, table_->now, list_,
                          [](tensor_id) { return detail::permission::yes; });
  }
  [[nodiscard]] std::uint64_t evaluations() const { return filter_.evaluations(); }

 private:
  tensor_table* table_;
  H heuristic_;
  detail::filter<H> filter_;
  detail::candidate_list list_;
};

/// Algorithm 2 as written: every candidate's record is read and its heuristic asked, in the order
/// of the records, which is the kindest to a cache. The product's own plain scan.
template <Heuristic H>
struct record_scan : filter_search<as_written<H>> {
  static constexpr std::string_view name = "record_scan";
  record_scan(tensor_table& t, H h)
      : filter_search<as_written<H>>(t, as_written<H>{std::move(h)}) {}
};

/// What a manager uses: the filter, which keeps answers by row and compares them by vector
/// instructions.
template <Heuristic H>
struct row_search : filter_search<H> {
  static constexpr std::string_view name = "rows";
  using filter_search<H>::filter_search;
};

}  // namespace delta::bench
