// delta: a recorded step as a planner of residency sees it: positions, and storages that must be on
// the device at some of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "delta/kernel.hpp"
#include "delta/step.hpp"

namespace delta::detail {

/// What a plan is made for.
struct planning_machine {
  double budget = 0;                     ///< bytes
  double host = 0;                       ///< bytes
  std::array<double, 2> rate{1e9, 1e9};  ///< bytes per second, by direction
  std::array<double, 2> latency{};       ///< ns, of a copy
  std::array<double, 2> burden{};        ///< of kernels, ns per ns of copying
  double copy_price = 0.02;              ///< what a copy costs besides, as part of its time
};

/// A step in steady state, which repeats for ever. A position is an operator of the record; one
/// that is not below `length` is the next step's. Storages are numbered as in the record. About as
/// large as the record.
class step_model {
 public:
  using position = std::int32_t;
  static constexpr std::uint32_t none = step_record::none;
  static constexpr position latest = std::numeric_limits<position>::max();

  struct storage {
    double size = 0;                ///< bytes
    std::uint32_t producer = none;  ///< the operator that makes it; none: it has another origin
    bool movable = false;           ///< it has uses, and may leave between them
    bool cyclic = false;            ///< it outlives every step: its last use is before its first
    bool ends_held = false;  ///< its last use is the program's drop: until then its bytes must be
                             ///< somewhere, though nobody reads them again
    position dropped = latest;  ///< the last operator before the program drops it
    position taken = latest;    ///< an output of that operator takes its block over
    std::uint32_t first_use = 0, uses = 0, first_write = 0, writes = 0;  // slices
  };

  /// O(record log record).
  explicit step_model(const step_record& r) : record_(&r), storages_(r.storages.size()) {
    base_.assign(r.length() + std::size_t{1}, 0.0);
    collect();
    for (std::uint32_t s = 0; s < storages_.size(); ++s) describe(s);
    double held = 0;
    for (double& b : base_) b = held += b;
  }

  [[nodiscard]] position length() const noexcept {
    return static_cast<position>(record_->operations.size());
  }
  [[nodiscard]] const step_record& record() const noexcept { return *record_; }
  [[nodiscard]] std::span<const storage> storages() const noexcept { return storages_; }
  [[nodiscard]] const storage& operator[](std::uint32_t s) const noexcept { return storages_[s]; }
  [[nodiscard]] const step_record::operation& operation(position p) const noexcept {
    return record_->operations[static_cast<std::size_t>(p)];
  }
  /// Where it must be on the device, ascending; of what the step makes, its birth first.
  [[nodiscard]] std::span<const position> uses(std::uint32_t s) const noexcept {
    return std::span(uses_).subspan(storages_[s].first_use, storages_[s].uses);
  }
  /// Bytes that are there whatever is planned, without workspace: constants, and what nobody moves.
  [[nodiscard]] double base(position p) const noexcept {
    return base_[static_cast<std::size_t>(p)];
  }

  /// Bytes of a position's outputs that lie in the blocks of its inputs. O(outputs).
  [[nodiscard]] double in_place(position p) const noexcept {
    double all = 0;
    for (const std::uint32_t s : record_->outputs(operation(p)))
      if (record_->storages[s].replaces != none) all += storages_[s].size;
    return all;
  }

  /// What a storage that was left by the step before is part of: the one that leaves it. Its uses
  /// are the owner's, `length` behind. Else itself.
  [[nodiscard]] std::uint32_t owner(std::uint32_t s) const noexcept {
    const std::uint32_t was = is_left(s) ? record_->storages[s].was : none;
    return was < successor_.size() && successor_[was] == s ? was : s;
  }
  /// True if that position writes it.
  [[nodiscard]] bool written_at(std::uint32_t s, position p) const noexcept {
    return std::ranges::binary_search(writes(s), p);
  }
  [[nodiscard]] bool written(std::uint32_t s) const noexcept { return storages_[s].writes > 0; }
  /// True if its operator may run again at that position, to the same bytes: neither it nor an
  /// input was written since it ran. O(inputs log writes).
  [[nodiscard]] bool recomputable(std::uint32_t s, position p) const noexcept {
    const storage& x = storages_[s];
    if (x.producer == none || p >= length()) return false;
    const position behind = static_cast<position>(x.producer) + 1;
    if (p < behind || !replayable(x.producer) || written_between(s, behind, p)) return false;
    return std::ranges::none_of(inputs(x.producer),
                                [&](std::uint32_t in) { return written_between(in, behind, p); });
  }

 private:
  enum class role : std::uint8_t { use, write };
  struct entry {
    std::uint32_t storage;
    position at;
    role what;
  };

  [[nodiscard]] bool replayable(std::uint32_t o) const noexcept {
    const step_record::operation& op = record_->operations[o];
    return may_be_replayed(inputs(o), record_->touched(op).subspan(op.inputs), op.traits);
  }
  [[nodiscard]] std::span<const std::uint32_t> inputs(std::uint32_t o) const noexcept {
    const step_record::operation& op = record_->operations[o];
    return record_->touched(op).first(op.inputs);
  }
  [[nodiscard]] std::span<const position> writes(std::uint32_t s) const noexcept {
    return std::span(writes_).subspan(storages_[s].first_write, storages_[s].writes);
  }
  // The first position from there on that writes it; `latest`: none does.
  [[nodiscard]] position written_from(std::uint32_t s, position from) const noexcept {
    if (const std::uint32_t o = owner(s); o != s) {
      const position p = written_from(o, from + length());
      return p == latest ? p : p - length();
    }
    const auto all = writes(s);
    const auto first = std::ranges::lower_bound(all, from);
    return first != all.end() ? *first : latest;
  }
  [[nodiscard]] bool written_between(std::uint32_t s, position from, position to) const noexcept {
    return written_from(s, from) < to;
  }

  // Uses and writes of all storages, but for what follows from how they end.
  void collect() {
    const step_record& r = *record_;
    std::vector<entry> all;
    const auto n = static_cast<position>(r.length());
    for (position p = 0; p < n; ++p) {
      const step_record::operation& o = operation(p);
      const auto touched = r.touched(o);
      for (std::size_t k = 0; k < touched.size(); ++k) {
        all.push_back({touched[k], p, role::use});
        if (k >= o.inputs) all.push_back({touched[k], p, role::write});
      }
      for (const std::uint32_t s : r.outputs(o)) all.push_back({s, p, role::use});
    }
    successor_.assign(storages_.size(), none);
    for (std::uint32_t s = 0; s < storages_.size(); ++s)
      if (const std::uint32_t w = r.storages[s].was; is_left(s) && w < storages_.size())
        if (outlives(w)) successor_[w] = s;
    using kind = step_record::change::kind;
    std::vector<std::uint32_t> made(storages_.size(), none);  // when, of what is_cyclic
    for (const step_record::change& c : r.changes) {
      if (c.what == kind::dropped) continue;
      if (c.what == kind::created && is_cyclic(c.storage)) made[c.storage] = c.at;
      if (made[c.storage] == c.at) continue;
      const position p = std::min(static_cast<position>(c.at), n - 1);
      all.push_back({c.storage, p, role::use});
      if (c.what == kind::written) all.push_back({c.storage, p, role::write});
    }
    std::ranges::sort(all, {}, [](const entry& e) { return std::pair(e.storage, e.at); });
    const std::vector<position> wanted = last_wanted();
    std::size_t k = 0;
    std::vector<std::size_t> first(storages_.size() + 1, 0);
    for (std::uint32_t s = 0; s < storages_.size(); ++s) {
      first[s] = k;
      while (k < all.size() && all[k].storage == s) ++k;
    }
    first[storages_.size()] = k;
    // Of what another one stands for from the end of the step before, all is part of that.
    const auto add = [&](role what, std::uint32_t s, std::vector<position>& list,
                         std::uint32_t& count) {
      const auto add_of = [&](std::uint32_t from, position shift) {
        for (std::size_t i = first[from]; i < first[from + 1]; ++i) {
          const position p = all[i].at + shift;
          if (all[i].what != what || (count > 0 && list.back() == p)) continue;
          list.push_back(p), ++count;
        }
      };
      if (owner(s) != s) return;
      add_of(s, 0);
      if (successor_[s] != none) add_of(successor_[s], n);
    };
    for (std::uint32_t s = 0; s < storages_.size(); ++s) {
      storage& x = storages_[s];
      x.first_write = static_cast<std::uint32_t>(writes_.size());
      const step_record::storage& y = r.storages[s];
      x.size = static_cast<double>(y.size.count);
      if (y.born != none) x.producer = y.born;
      if (y.replaces != none) storages_[y.replaces].taken = static_cast<position>(y.born);
      if (y.dropped && owner(s) == s) x.dropped = ends_at(s);
      add(role::write, s, writes_, x.writes);
    }
    const std::vector<position> spoilt = first_spoilt();
    for (std::uint32_t s = 0; s < storages_.size(); ++s) {
      storage& x = storages_[s];
      x.first_use = static_cast<std::uint32_t>(uses_.size());
      add(role::use, s, uses_, x.uses);
      if (x.uses > 0) end_of(s, successor_[s], wanted[s], spoilt[s], x);
    }
  }
  // By storage: the first position behind its birth that writes what it is made from, through any
  // number of operators. Whoever holds it then has its bytes somewhere: the manager brings them
  // back before. What could not be made again by its birth does not count: it was there.
  [[nodiscard]] std::vector<position> first_spoilt() const {
    const step_record& r = *record_;
    std::vector<position> spoilt(storages_.size(), latest);
    for (std::uint32_t o = 0; o < r.length(); ++o) {
      if (!replayable(o)) continue;
      const position behind = static_cast<position>(o) + 1;
      position at = latest;
      for (const std::uint32_t s : inputs(o)) {
        at = std::min(at, written_from(s, behind));
        if (spoilt[s] >= behind) at = std::min(at, spoilt[s]);
      }
      for (const std::uint32_t s : r.outputs(r.operations[o])) spoilt[s] = at;
    }
    return spoilt;
  }
  // By storage: the last position at which it, or anything made from it, is held. What can't be
  // made again stays until then, though the program drops it: replays of the others read it.
  [[nodiscard]] std::vector<position> last_wanted() const {
    const step_record& r = *record_;
    std::vector<position> wanted;
    for (std::uint32_t s = 0; s < storages_.size(); ++s)
      wanted.push_back(r.storages[s].dropped ? ends_at(s) : 0);
    for (std::uint32_t o = r.length(); o-- > 0;) {
      if (!replayable(o)) continue;
      position until = 0;
      for (const std::uint32_t s : r.outputs(r.operations[o])) until = std::max(until, wanted[s]);
      for (const std::uint32_t s : r.touched(r.operations[o]))
        wanted[s] = std::max(wanted[s], until);
    }
    return wanted;
  }
  // What is held beyond its last use, and can't be made again then, has to be somewhere.
  void end_of(std::uint32_t s, std::uint32_t next, position wanted, position spoilt, storage& x) {
    const step_record::storage& y = record_->storages[s];
    if (y.pinned || x.size == 0) return;
    const position last = uses_.back();
    position until = -1;
    if (next != none)
      until = length() + ends_at(next);
    else if (outlives(s) && !is_cyclic(s))
      until = length() - 1;
    else if (y.dropped && !recomputable(s, ends_at(s)))
      until = wanted;
    else if (y.dropped && spoilt <= ends_at(s))
      until = ends_at(s);
    if (next != none) x.dropped = until;
    if (until > last) uses_.push_back(until), ++x.uses, x.ends_held = true;
  }
  [[nodiscard]] position ends_at(std::uint32_t s) const noexcept {
    const std::uint32_t died = record_->storages[s].died;
    return died == none ? 0 : std::min(static_cast<position>(died), length() - 1);
  }
  // It was there before the step, and the step drops it.
  [[nodiscard]] bool is_left(std::uint32_t s) const noexcept {
    return record_->was_there(s) && record_->storages[s].dropped;
  }
  // The step makes it, and leaves it behind.
  [[nodiscard]] bool outlives(std::uint32_t s) const noexcept {
    return !record_->was_there(s) && !record_->storages[s].dropped;
  }
  // It is there in every step: it was there before, or the program has made it and keeps it, as a
  // first step's parameters; but for what takes another one's place, as a batch the last one's.
  [[nodiscard]] bool is_cyclic(std::uint32_t s) const noexcept {
    const step_record::storage& x = record_->storages[s];
    return !x.dropped && (record_->was_there(s) || (x.created && successor_[s] == none));
  }
  void describe(std::uint32_t s) {
    storage& x = storages_[s];
    const step_record::storage& y = record_->storages[s];
    if (x.size == 0) return;
    x.cyclic = is_cyclic(s);
    x.movable = !y.pinned && x.uses > 0;
    const bool part_of_another = owner(s) != s;
    // What the program holds and never uses leaves for good where it can.
    if (x.movable || part_of_another || (x.uses == 0 && x.cyclic && !y.pinned)) return;
    const std::size_t from = y.born == none ? 0 : y.born;
    const std::size_t to = y.dropped ? static_cast<std::size_t>(ends_at(s)) + 1 : base_.size() - 1;
    base_[from] += x.size;
    base_[std::max(to, from + 1)] -= x.size;
  }

  const step_record* record_;
  std::vector<storage> storages_;
  std::vector<position> uses_, writes_;
  std::vector<double> base_;
  std::vector<std::uint32_t> successor_;  // by storage: what it is to the next step, which drops it
};

}  // namespace delta::detail
