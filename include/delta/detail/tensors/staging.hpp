// delta: a snapshot of where the tensors of one manager are between two steps, and the function
// that loads it into another manager, so that a step can be rehearsed from there.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "delta/detail/tensors/residency_table.hpp"
#include "delta/error.hpp"
#include "delta/machine_state.hpp"
#include "delta/tensor.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// A tensor as it is between two steps.
struct tensor_snapshot {
  tensor_id tensor = tensor_id::none;
  bytes size{};  ///< rounded
  pin pinned = pin::none;
  residency where = residency::resident;  ///< evicted ones are staged on the host
  bool clean = false;                     ///< resident, and its host copy is valid
  bool prefetched_unused = false;         ///< it came back early, and was not used yet
  double used = 0;                        ///< ns from its last use to now
};

/// Where everything is between two steps.
struct residency_snapshot {
  std::vector<tensor_snapshot> tensors;  ///< those on the host in the order in which they left
  std::vector<queued_copy> copies;       ///< under way, of each direction in their order
  std::array<nanoseconds, 2> over{};     ///< by direction: elapsed part of the oldest copy
  nanoseconds ahead{};                   ///< ns that the manager's clock is ahead of the storage's
  bytes unmanaged_peak{};                ///< the most that the program has had at once so far
  std::vector<layout_extent> layout;     ///< of the device's memory; empty: it has no places
};

/// Loads a snapshot into an empty residency table over a simulated storage, whose clock advances.
/// Throws budget_exceeded where it does not fit, std::bad_alloc. O(tensors + stretches).
template <class Table>
class stage {
 public:
  explicit stage(Table& table) : table_(&table), storage_(&table.storage()) {}
  stage(const stage&) = delete;
  stage& operator=(const stage&) = delete;
  ~stage() {
    for (reserved& r : reserved_)
      if (r.place) storage_->free(std::move(r.place));
    free_holes();
  }

  void set(const residency_snapshot& s) {
    std::vector<tensor_id> ids;
    ids.reserve(s.tensors.size());
    // In the order in which they are admitted.
    const auto in_order = [&](const auto& visit) {
      for (const int turn : {0, 1, 2, 3})
        for (const tensor_snapshot& x : s.tensors)
          if (turn_of(x, s) == turn) visit(x, turn);
    };
    in_order([&](const tensor_snapshot& x, int) { ids.push_back(x.tensor); });
    table_->tensors.give_out(ids);
    for (const queued_copy& c : s.copies)
      if (c.way == direction::in && !standing_at(s, c)) bring_out(c);
    bool copied = false, placed = false;
    in_order([&](const tensor_snapshot& x, int turn) {
      if (turn > 0 && !std::exchange(placed, true)) reserve(s);
      if (turn == 3 && !std::exchange(copied, true)) queue(s);
      admit(x);
      if (turn == 0) table_->offload(x.tensor), let_land();
      if (turn == 1) table_->copy_ahead(x.tensor), let_land();
    });
    if (!placed) reserve(s);
    if (!copied) queue(s);
    table_->now.unmanaged_peak = s.unmanaged_peak;
    table_->now.step_over = true;
    const nanoseconds now = storage_->now() + s.ahead;
    table_->now.clock = now;
    for (const tensor_snapshot& x : s.tensors) {
      table_->tensors.set_last_use(x.tensor, now - nanoseconds{static_cast<std::int64_t>(x.used)});
      table_->tensors[x.tensor].prefetched_unused = x.prefetched_unused;
    }
  }

 private:
  // What is on the host comes first, while the device is empty; then clean tensors; then those that
  // are being copied out; the others last, as the copies under way take no time of theirs.
  static int turn_of(const tensor_snapshot& x, const residency_snapshot& s) {
    if (x.where == residency::host || x.where == residency::reloading ||
        x.where == residency::evicted)
      return 0;
    if (x.clean) return 1;
    const bool leaving = std::ranges::any_of(s.copies, [&](const queued_copy& c) {
      return c.tensor == x.tensor && c.way == direction::out;
    });
    return leaving ? 2 : 3;
  }
  block room_for(bytes n) {
    auto b = storage_->allocate(n, lifetime::persistent);
    if (!b)
      throw budget_exceeded({.requested = n,
                             .capacity = storage_->capacity(),
                             .used = storage_->used(),
                             .operation = "stage"});
    return std::move(*b);
  }
  // Its own place, where it has one.
  block room_for(tensor_id t, bytes n) {
    const auto at = std::ranges::lower_bound(reserved_, t, {}, &reserved::tensor);
    if (at == reserved_.end() || at->tensor != t || !at->place) return room_for(n);
    return std::move(at->place);
  }
  // Of the empty device everybody's place: what stays is placed from the low end on, so one
  // stretch after another comes to lie where it did. What is nobody's is free again then. Where
  // something is left on the device that should be on the host, the rest comes to lie anywhere.
  void reserve(const residency_snapshot& s) {
    std::vector<std::pair<tensor_id, bytes>> here;
    here.reserve(s.tensors.size());
    for (const tensor_snapshot& x : s.tensors) here.emplace_back(x.tensor, x.size);
    std::ranges::sort(here);
    reserved_.reserve(s.layout.size()), holes_.reserve(s.layout.size());
    for (const layout_extent& m : s.layout) {
      auto b = storage_->allocate(m.size, lifetime::persistent);
      if (!b) break;
      // A copy out may still be under way of a tensor that is gone, whose id another one has.
      if (std::ranges::binary_search(here, std::pair(m.tensor, m.size)))
        reserved_.push_back({m.tensor, std::move(*b)});
      else
        holes_.push_back(std::move(*b));
    }
    free_holes();
    std::ranges::sort(reserved_, {}, &reserved::tensor);
  }
  void free_holes() noexcept {
    for (block& b : holes_) storage_->free(std::move(b));
    holes_.clear();
  }
  void admit(const tensor_snapshot& x) {
    // What is on the host passes through the device before anybody has a place there.
    (void)table_->admit(x.size, room_for(x.tensor, x.size), true, x.pinned, "rehearsed");
  }
  // The clock goes on until all copies are over.
  void let_land() {
    while (table_->wait_for_copy()) {
    }
    pass(std::max(storage_->backlog(direction::out), storage_->backlog(direction::in)));
    table_->harvest();
  }
  void pass(nanoseconds t) {
    storage_->begin_operator({}, {});
    storage_->end_operator(t);
  }
  // The copies under way, ending when they should: of each direction's first a part is over.
  void queue(const residency_snapshot& s) {
    const auto over = [&](direction d) { return s.over[static_cast<std::size_t>(d)]; };
    direction first = direction::out, second = direction::in;
    if (over(first) < over(second)) std::swap(first, second);
    queue(s, first);
    pass(over(first) - over(second));
    queue(s, second);
    pass(over(second));
  }
  // Whose copy it is; null where nobody uses it.
  static const tensor_snapshot* standing_at(const residency_snapshot& s, const queued_copy& c) {
    const auto at = std::ranges::find(s.tensors, c.tensor, &tensor_snapshot::tensor);
    if (at == s.tensors.end()) return nullptr;
    return c.way == direction::out || at->where == residency::reloading ? &*at : nullptr;
  }
  void queue(const residency_snapshot& s, direction d) {
    for (const queued_copy& c : s.copies) {
      if (c.way != d) continue;
      const tensor_snapshot* x = standing_at(s, c);
      if (x == nullptr)
        d == direction::out ? waste_out(c) : waste_in(c);
      else if (d == direction::in)
        (void)table_->reload(c.tensor, room_for(x->tensor, x->size), true);
      else if (x->where == residency::offloading)
        (void)table_->offload(c.tensor);
      else
        (void)table_->copy_ahead(c.tensor);
    }
  }
  // Copies that nobody uses: they keep the lane busy. Where there is no room they are left out.
  void waste_out(const queued_copy& c) {
    if (auto to = copied_out(c.size)) storage_->free(std::move(*to));
  }
  void waste_in(const queued_copy& c) {
    if (outside_.empty()) return;
    slab h = std::move(outside_.front());
    outside_.erase(outside_.begin());
    if (auto b = storage_->allocate(c.size, lifetime::persistent)) {
      auto [to, from] = storage_->land(storage_->copy_in(std::move(h), std::move(*b)));
      storage_->free(std::move(to)), storage_->free(std::move(from));
    } else {
      storage_->free(std::move(h));
    }
  }
  // What such a copy in will bring.
  void bring_out(const queued_copy& c) {
    auto to = copied_out(c.size);
    if (!to) return;
    outside_.push_back(std::move(*to));
    let_land();
  }
  // So many bytes on the host, behind a copy out of nobody's; nullopt: there is no room.
  std::optional<slab> copied_out(bytes n) {
    auto b = storage_->allocate(n, lifetime::persistent);
    if (!b) return std::nullopt;
    auto moving = storage_->copy_out(*b);
    if (!moving) return storage_->free(std::move(*b)), std::nullopt;
    auto [from, to] = storage_->land(std::move(*moving));
    storage_->free(std::move(from));
    return std::move(to);
  }

  struct reserved {
    tensor_id tensor;
    block place;
  };
  Table* table_;
  typename Table::storage_type* storage_;
  std::vector<reserved> reserved_;  // by tensor
  std::vector<block> holes_;
  std::vector<slab> outside_;
};

}  // namespace delta::detail
