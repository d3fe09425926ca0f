// delta executor: what DTR's simulator keeps about the evicted storages around each other one.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "simrd/simrd.hpp"

namespace delta::executor {

/// A set of small numbers as bits. Sets that meet have the same capacity.
class bit_set {
 public:
  bit_set() = default;
  explicit bit_set(std::size_t capacity) : words_((capacity + 63) / 64) {}
  void insert(std::uint32_t i) noexcept { words_[i / 64] |= bit(i); }
  void erase(std::uint32_t i) noexcept { words_[i / 64] &= ~bit(i); }
  void insert(const bit_set& more) noexcept {
    for (std::size_t w = 0; w < words_.size(); ++w) words_[w] |= more.words_[w];
  }
  [[nodiscard]] bool contains(std::uint32_t i) const noexcept {
    return (words_[i / 64] & bit(i)) != 0;
  }
  /// Calls `visit(i)` for what is here and not in `other`, in order.
  template <class Visit>
  void for_each_without(const bit_set& other, const Visit& visit) const {
    for (std::size_t w = 0; w < words_.size(); ++w) each(words_[w] & ~other.words_[w], w, visit);
  }
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (std::size_t w = 0; w < words_.size(); ++w) each(words_[w], w, visit);
  }

 private:
  static constexpr std::uint64_t bit(std::uint32_t i) noexcept {
    return std::uint64_t{1} << (i % 64);
  }
  template <class Visit>
  static void each(std::uint64_t word, std::size_t w, const Visit& visit) {
    for (; word != 0; word &= word - 1)
      visit(static_cast<std::uint32_t>(w * 64 + static_cast<std::size_t>(std::countr_zero(word))));
  }

  std::vector<std::uint64_t> words_;
};

/// Classes of storages, each with a sum of costs. They merge and never split.
class cost_classes {
 public:
  std::uint32_t add(std::int64_t cost) {
    nodes_.push_back({static_cast<std::uint32_t>(nodes_.size()), cost});
    return nodes_.back().parent;
  }
  std::uint32_t root(std::uint32_t n) noexcept {
    while (nodes_[n].parent != n) n = nodes_[n].parent = nodes_[nodes_[n].parent].parent;
    return n;
  }
  std::int64_t& cost(std::uint32_t n) noexcept { return nodes_[root(n)].cost; }
  void merge(std::uint32_t a, std::uint32_t b) noexcept {
    const std::uint32_t from = root(a), to = root(b);
    if (from == to) return;
    nodes_[from].parent = to;
    nodes_[to].cost += nodes_[from].cost;
  }

 private:
  struct node {
    std::uint32_t parent;
    std::int64_t cost;
  };
  std::vector<node> nodes_;
};

/// Which storages are computed from which, which are resident, and what it would cost to compute
/// one again with the evicted ones around it that its policy counts. Regions or classes of these
/// are kept up at every change, as DTR's simulator does, and not computed when asked for: they
/// remember costs and edges as these were at their last change, and the choice of victims depends
/// on it.
class neighbours {
 public:
  /// At most `capacity` storages.
  neighbours(simrd_policy policy, std::size_t capacity) : policy_(policy), capacity_(capacity) {}

  /// A storage that was not computed yet: it counts as evicted.
  std::uint32_t add() {
    storages_.emplace_back();
    if (has_classes()) storages_.back().in_class = classes_.add(0);
    return static_cast<std::uint32_t>(storages_.size() - 1);
  }
  void link(std::uint32_t input, std::uint32_t output) {
    auto& to = storages_[input].edges[down];
    if (input == output || (!to.empty() && to.back() == output)) return;
    to.push_back(output);
    storages_[output].edges[up].push_back(input);
  }
  /// An operator that computes `id`, or makes a view of it.
  void add_cost(std::uint32_t id, std::int64_t cost) { storages_[id].cost += cost; }

  [[nodiscard]] bool resident(std::uint32_t id) const noexcept { return storages_[id].resident; }
  /// O(1), for dtr_eq O(edges).
  [[nodiscard]] std::int64_t cost(std::uint32_t id) {
    const storage& s = storages_[id];
    switch (policy_) {
      case simrd_policy::dtr:
        return s.cost + s.around[down].cost + s.around[up].cost;
      case simrd_policy::dtr_eq:
        return s.cost + class_cost(id);
      case simrd_policy::msps:
        return s.cost + s.around[up].cost;
      case simrd_policy::dtr_local:
      case simrd_policy::lru:
      case simrd_policy::size:
        break;
    }
    return s.cost;
  }

  /// `fresh` became resident together. Regions: O(their own and their neighbours' regions' edges).
  void computed(std::span<const std::uint32_t> fresh) {
    for (const std::uint32_t id : fresh) storages_[id].resident = true;
    if (has_classes())
      for (const std::uint32_t id : fresh)
        classes_.cost(storages_[id].in_class) -= storages_[id].cost;
    if (has_regions()) rebuild_around(fresh);
  }

  /// Regions: O(the storages at the edge of its own x storages / 64). Classes: O(its edges).
  void evicted(std::uint32_t id) {
    storage& s = storages_[id];
    s.resident = false;
    if (has_classes()) {
      s.in_class = classes_.add(s.cost);
      for_each_evicted(id, [&](const storage& n) { classes_.merge(n.in_class, s.in_class); });
    }
    if (!has_regions()) return;
    for (const way w : {down, up})
      s.around[opposite(w)].frontier.for_each([&](std::uint32_t edge) { absorb(edge, id, w); });
    s.around = {};
  }

 private:
  enum way : std::uint8_t { down, up };  // to what is computed from it; to what it needs

  /// The evicted storages that are reached from one, and the resident ones where that ends.
  struct region {
    bit_set interior, frontier;
    std::int64_t cost = 0;  // of the interior
  };
  struct storage {
    std::int64_t cost = 0;
    std::uint64_t mark = 0;      // the last walk that came by
    std::uint32_t in_class = 0;  // while evicted
    bool resident = false;
    std::array<std::vector<std::uint32_t>, 2> edges;
    std::array<region, 2> around;  // while resident
  };

  [[nodiscard]] bool has_regions() const noexcept {
    return policy_ == simrd_policy::dtr || policy_ == simrd_policy::msps;
  }
  [[nodiscard]] bool has_classes() const noexcept { return policy_ == simrd_policy::dtr_eq; }
  static constexpr way opposite(way w) noexcept { return w == down ? up : down; }

  /// Of the classes next to it, each once. O(edges).
  std::int64_t class_cost(std::uint32_t id) {
    roots_.clear();
    std::int64_t sum = 0;
    for_each_evicted(id, [&](const storage& n) {
      const std::uint32_t root = classes_.root(n.in_class);
      if (std::find(roots_.begin(), roots_.end(), root) != roots_.end()) return;
      roots_.push_back(root);
      sum += classes_.cost(root);
    });
    return sum;
  }

  template <class Visit>
  void for_each_evicted(std::uint32_t id, const Visit& visit) {
    ++mark_;
    for (const way w : {down, up})
      for (const std::uint32_t n : storages_[id].edges[w])
        if (!resident(n) && std::exchange(storages_[n].mark, mark_) != mark_) visit(storages_[n]);
  }

  /// `gone` was on the frontier of `edge`, whose region now goes on behind it. A view of two
  /// storages rebuilds no region, so one of a pair may not know of the other.
  void absorb(std::uint32_t edge, std::uint32_t gone, way w) {
    region& r = storages_[edge].around[w];
    if (!resident(edge) || !r.frontier.contains(gone)) return;
    const region& behind = storages_[gone].around[w];
    behind.interior.for_each_without(r.interior,
                                     [&](std::uint32_t s) { r.cost += storages_[s].cost; });
    r.cost += storages_[gone].cost;
    r.interior.insert(behind.interior);
    r.interior.insert(gone);
    r.frontier.erase(gone);
    r.frontier.insert(behind.frontier);
  }

  void rebuild_around(std::span<const std::uint32_t> fresh) {
    std::array affected{bit_set(capacity_), bit_set(capacity_)};
    for (const std::uint32_t id : fresh)
      for (const way w : {down, up}) {
        rebuild(id, w);
        affected[opposite(w)].insert(storages_[id].around[w].frontier);
      }
    for (const way w : {down, up})
      affected[w].for_each([&](std::uint32_t id) {
        if (resident(id)) rebuild(id, w);
      });
  }

  void rebuild(std::uint32_t id, way w) {
    region r{bit_set(capacity_), bit_set(capacity_)};
    walk_.assign(1, id);
    while (!walk_.empty()) {
      const std::uint32_t at = walk_.back();
      walk_.pop_back();
      for (const std::uint32_t s : storages_[at].edges[w])
        if (resident(s)) {
          if (s != id) r.frontier.insert(s);
        } else if (!r.interior.contains(s)) {
          r.interior.insert(s);
          r.cost += storages_[s].cost;
          walk_.push_back(s);
        }
    }
    storages_[id].around[w] = std::move(r);
  }

  simrd_policy policy_;
  std::size_t capacity_;
  std::vector<storage> storages_;
  cost_classes classes_;
  std::vector<std::uint32_t> walk_, roots_;
  std::uint64_t mark_ = 0;
};

}  // namespace delta::executor
