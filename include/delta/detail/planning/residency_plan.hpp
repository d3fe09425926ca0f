// delta: a plan of residency under construction: for every storage the positions at which it must
// be on the device, and for each of them how it gets there. Changes are transactions: made, their
// cost read off, and undone where they are not worth it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "delta/detail/planning/copy_lane.hpp"
#include "delta/detail/planning/memory_profile.hpp"
#include "delta/detail/planning/periods.hpp"
#include "delta/detail/planning/step_model.hpp"

namespace delta::detail {

/// What a plan is made for.
struct planning_machine {
  double budget = 0;                     ///< bytes
  double host = 0;                       ///< bytes
  std::array<double, 2> rate{1e9, 1e9};  ///< bytes per second, by direction
  std::array<double, 2> latency{};       ///< ns, of a copy
  std::array<double, 2> burden{};        ///< of kernels, ns per ns of copying
};

/// The plan. A *need* is a position at which a storage must be there: a use by the program, or a
/// recomputation that reads it. Recomputing adds needs to the inputs of its operator, which get
/// there in turn by the cheapest way: so the closure of a recomputation is priced as it is, and
/// what it makes may stay for the next one.
///
/// Its cost, in ns: recomputations; copies that find no time on their lane, and what they cost
/// kernels; and what the memory's profile charges.
class residency_plan {
 public:
  using position = step_model::position;
  /// How a storage gets to a need.
  enum class way : std::uint8_t {
    kept,        ///< from the need before
    recomputed,  ///< its operator runs again
    copied,      ///< it was copied out since the need before, and comes back
    born,        ///< the program makes it there
    open         ///< not decided, within a change
  };
  struct need {
    position at = 0;
    std::uint32_t readers = 1;  ///< operators of that position that read it
    way how = way::open;
    bool own = false;         ///< the program's use
    bool copies_out = false;  ///< if copied: no copy is on the host from an earlier absence
    // If copied: the copy out begins behind `out_from`, the bytes are free behind `out_until`, and
    // taken again from `in_from` on.
    position out_from = 0, out_until = 0, in_from = 0;
    std::array<std::uint32_t, 2> pieces{}, first_piece{};  // of each lane
    double cost = 0;                                       // ns of a copy that nothing hides
    std::uint32_t asked = 0;                               // when its ways were compared last
  };
  /// An operator that runs again at a position, for so many needs.
  struct replay {
    std::uint32_t operation, wanted;
  };

  /// Everything is kept. O(record).
  residency_plan(const step_model& m, const planning_machine& on)
      : model_(&m), machine_(on), memory_(m.length(), on.budget) {
    const auto n = static_cast<std::size_t>(m.length()), storages = m.storages().size();
    needs_.resize(storages), replays_.resize(n), peak_.assign(n, 0.0);
    stalls_.assign(n, 0.0), dirty_.assign(n, false);
    need_saved_.assign(storages, 0), replay_saved_.assign(n, 0);
    item_of_.assign(storages, {0, 0});
    time_lanes();
    for (std::uint32_t s = 0; s < storages; ++s) {
      const step_model::storage& x = m[s];
      if (!x.movable) continue;
      for (const position p : m.uses(s))
        needs_[s].push_back(
            {.at = p, .how = needs_[s].empty() && !x.cyclic ? way::born : way::kept, .own = true});
      for (std::size_t k = 0; k < needs_[s].size(); ++k)
        if (needs_[s][k].how == way::kept) {
          const auto [a, b] = between(s, k);
          (void)memory_.add(a, b, x.size);
        }
    }
    for (position p = 0; p < m.length(); ++p) {
      peak_[index(p)] = peak_of(p);
      (void)memory_.add(p, p + 1, m.base(p) + peak_[index(p)]);
    }
  }

  [[nodiscard]] const step_model& model() const noexcept { return *model_; }
  [[nodiscard]] memory_profile& memory() noexcept { return memory_; }
  [[nodiscard]] const memory_profile& memory() const noexcept { return memory_; }
  [[nodiscard]] std::span<const need> needs(std::uint32_t s) const noexcept { return needs_[s]; }
  [[nodiscard]] std::span<const replay> replays(position p) const noexcept {
    return replays_[index(p)];
  }
  /// ns of all recomputations; of copies that found no time.
  [[nodiscard]] double recomputing() const noexcept { return recomputing_; }
  [[nodiscard]] double copying() const noexcept { return copying_; }
  /// What all changes have taken so far, in ns on some machine: counted, not measured.
  [[nodiscard]] double effort() const noexcept { return effort_; }
  /// Becomes another plan of the same model; the effort stays.
  void take(const residency_plan& other) {
    const double effort = effort_ + 400.0 * static_cast<double>(needs_.size());
    *this = other;
    effort_ = effort;
  }
  /// True if the memory's profile fits.
  [[nodiscard]] bool fits() const noexcept { return memory_.most() <= memory_.budget(); }

  /// By how much positions take longer than their operators, in ns, when the plan is carried out:
  /// what of that is no recomputation, lanes may use. All copies are placed anew.
  void lengthen(std::span<const double> longer) {
    for (std::size_t p = 0; p < longer.size(); ++p) {
      stalls_[p] = longer[p];
      for (const replay& r : replays_[p]) stalls_[p] -= cost_of(r.operation);
      stalls_[p] = std::max(0.0, stalls_[p]);
    }
    repack(true);
  }

  /// Compares the ways to one need, and takes the cheapest. True: another one than before.
  bool improve(std::uint32_t s, std::size_t k) {
    need& asked = needs_[s][k];
    if (asked.how == way::born) return false;
    const auto [from, to] = around(s, k);
    if (asked.how == way::kept && !memory_.is_paid_for(from, to)) return false;
    if (asked.asked != 0 && !memory_.changed_since(from, to, asked.asked)) return false;
    const way now = asked.how;
    way best = now;
    double least = -least_gain();
    for (const way h : {way::kept, way::recomputed, way::copied}) {
      if (h == now || !possible(s, k, h)) continue;
      begin();
      set(s, k, h);
      const double change = settle();
      if (!given_up_ && change < least) least = change, best = h;
      roll_back();
    }
    if (best == now) {
      needs_[s][k].asked = memory_.now();
      return false;
    }
    memory_.tick();
    begin();
    set(s, k, best);
    (void)settle();
    commit();
    memory_.note_change(from, to);
    return true;
  }
  /// Asks every need of those storages, in that order. How many changed. Other prices than before:
  /// all of them are asked anew.
  std::size_t pass(std::span<const std::uint32_t> order, bool anew) {
    if (anew) {
      memory_.tick();
      memory_.note_change(0, model_->length());
    }
    effort_ += 40.0 * static_cast<double>(order.size());
    std::size_t changed = 0;
    for (const std::uint32_t s : order)
      for (std::size_t k = 0; k < needs_[s].size(); ++k) changed += improve(s, k) ? 1 : 0;
    return changed;
  }
  /// Places all copies anew, as lanes carry them out, which take one behind the other: out in the
  /// order in which they can leave, in in the order in which they are needed. Unless that is
  /// dearer.
  void repack(bool always = false) {
    struct copy {
      std::uint32_t storage;
      std::size_t which;
      position out, in;
    };
    std::vector<copy> all;
    begin();
    for (std::uint32_t s = 0; s < needs_.size(); ++s)
      for (std::size_t k = 0; k < needs_[s].size(); ++k)
        if (needs_[s][k].how == way::copied) {
          save(s);
          take_back(s, k);
          all.push_back({s, k, unchanged_since(s, k), needs_[s][k].at});
        }
    if (always) time_lanes();
    const auto earlier_out = [](const copy& a, const copy& b) {
      return a.out != b.out ? a.out < b.out : a.in != b.in ? a.in < b.in : a.storage < b.storage;
    };
    const auto later_in = [](const copy& a, const copy& b) {
      return a.in != b.in ? a.in > b.in : a.storage < b.storage;
    };
    effort_ += 10.0 * static_cast<double>(needs_.size()) + 1000.0 * static_cast<double>(all.size());
    std::ranges::sort(all, earlier_out);
    for (const copy& x : all) place_out(x.storage, x.which);
    std::ranges::sort(all, later_in);
    for (const copy& x : all) place_in(x.storage, x.which);
    const double change = settle();
    if (!always && change >= 0)
      roll_back();
    else
      commit();
  }

 private:
  static constexpr std::uint32_t most_work = 4000;  // of one change: closures that are too large
  static constexpr double copy_price = 0.02;  // of a copy's time: fewer copies, all else equal

  static std::size_t index(position p) noexcept { return static_cast<std::size_t>(p); }
  [[nodiscard]] position length() const noexcept { return model_->length(); }
  [[nodiscard]] position in_step(position p) const noexcept {
    const position n = length();
    return p >= n ? p - n : p < 0 ? p + n : p;
  }
  [[nodiscard]] double least_gain() const noexcept {
    return 1e-6 * static_cast<double>(period_) / length();
  }
  // The need before it: of a cyclic storage's first, the last one of the step before.
  [[nodiscard]] position before(std::uint32_t s, std::size_t k) const noexcept {
    return k > 0 ? needs_[s][k - 1].at : needs_[s].back().at - length();
  }
  [[nodiscard]] bool is_end(std::uint32_t s, std::size_t k) const noexcept {
    return (*model_)[s].ends_held && k + 1 == needs_[s].size();
  }
  // Where bytes that are kept for it lie, its own position not counted, as that says itself who is
  // there; but for the end of what is held, which no operator touches.
  [[nodiscard]] std::array<position, 2> between(std::uint32_t s, std::size_t k) const noexcept {
    const position at = needs_[s][k].at;
    if (k == 0 && !(*model_)[s].cyclic) return {at, at};
    return {before(s, k) + 1, is_end(s, k) ? at + 1 : at};
  }
  [[nodiscard]] std::array<position, 2> around(std::uint32_t s, std::size_t k) const noexcept {
    const auto [a, b] = between(s, k);
    return {a - 1, std::max(b, needs_[s][k].at + 1)};
  }
  [[nodiscard]] std::size_t find(std::uint32_t s, position p) const noexcept {
    const auto at = std::ranges::lower_bound(needs_[s], p, {}, &need::at);
    return static_cast<std::size_t>(at - needs_[s].begin());
  }
  [[nodiscard]] bool needed_at(std::uint32_t s, std::size_t k, position p) const noexcept {
    return k < needs_[s].size() && needs_[s][k].at == p;
  }
  [[nodiscard]] bool possible(std::uint32_t s, std::size_t k, way h) const noexcept {
    if (h == way::recomputed) return can_recompute(s, needs_[s][k].at);
    if (h == way::copied)
      return machine_.host > 0 && (k > 0 || (*model_)[s].cyclic) && !across_drop(s, k) &&
             (copies_of(s) > 0 || on_host_ + (*model_)[s].size <= machine_.host);
    return true;
  }
  // What the program drops keeps no copy on the host, if it can be made again.
  [[nodiscard]] bool across_drop(std::uint32_t s, std::size_t k) const noexcept {
    const step_model::storage& x = (*model_)[s];
    const position at = needs_[s][k].at;
    return x.producer != step_model::none && at > x.dropped && k > 0 &&
           needs_[s][k - 1].at <= x.dropped;
  }
  [[nodiscard]] bool can_recompute(std::uint32_t s, position p) const noexcept {
    return model_->recomputable(s, p);
  }
  [[nodiscard]] std::size_t copies_of(std::uint32_t s) const noexcept {
    return static_cast<std::size_t>(std::ranges::count(needs_[s], way::copied, &need::how));
  }
  [[nodiscard]] double cost_of(std::uint32_t operation) const noexcept {
    return model_->operation(static_cast<position>(operation)).cost;
  }
  [[nodiscard]] double copy_time(std::uint32_t s, std::size_t d) const noexcept {
    return machine_.latency[d] + 1e9 * (*model_)[s].size / machine_.rate[d];
  }

  // --- transactions
  // ---------------------------------------------------------------------------------

  struct undo {
    enum class kind : std::uint8_t { memory, lane_taken, lane_given, peak } what;
    std::uint8_t lane;
    position from, to;
    double value;
    copy_lane::piece piece;
  };
  struct saved {
    std::uint32_t which;
    std::size_t first, count;
  };

  void begin() {
    undo_.clear(), saved_needs_.clear(), saved_replays_.clear();
    kept_needs_.clear(), kept_replays_.clear();
    change_ = 0, was_recomputing_ = recomputing_, was_copying_ = copying_, was_on_host_ = on_host_;
    pieces_before_ = pieces_.size();
    work_ = 0, given_up_ = false;
    ++transaction_;
  }
  void save(std::uint32_t s) {
    if (std::exchange(need_saved_[s], transaction_) == transaction_) return;
    saved_needs_.push_back({s, kept_needs_.size(), needs_[s].size()});
    kept_needs_.insert(kept_needs_.end(), needs_[s].begin(), needs_[s].end());
  }
  void save_replays(position p) {
    if (std::exchange(replay_saved_[index(p)], transaction_) == transaction_) return;
    const auto& list = replays_[index(p)];
    saved_replays_.push_back({static_cast<std::uint32_t>(p), kept_replays_.size(), list.size()});
    kept_replays_.insert(kept_replays_.end(), list.begin(), list.end());
  }
  void roll_back() {
    for (const position p : dirty_list_) dirty_[index(p)] = false;
    dirty_list_.clear();
    for (std::size_t i = undo_.size(); i-- > 0;) {
      const undo& u = undo_[i];
      switch (u.what) {
        case undo::kind::memory:
          (void)memory_.add(u.from, u.to, -u.value);
          break;
        case undo::kind::lane_taken:
          lanes_[u.lane].give(u.piece);
          break;
        case undo::kind::lane_given:
          lanes_[u.lane].take(u.piece);
          break;
        case undo::kind::peak:
          peak_[index(u.from)] = u.value;
          break;
      }
    }
    for (const saved& x : saved_needs_)
      needs_[x.which].assign(kept_needs_.begin() + std::ptrdiff_t(x.first),
                             kept_needs_.begin() + std::ptrdiff_t(x.first + x.count));
    for (const saved& x : saved_replays_)
      replays_[x.which].assign(kept_replays_.begin() + std::ptrdiff_t(x.first),
                               kept_replays_.begin() + std::ptrdiff_t(x.first + x.count));
    recomputing_ = was_recomputing_, copying_ = was_copying_, on_host_ = was_on_host_;
    pieces_.resize(pieces_before_);
  }
  // Other needs may be at other places now: what was found out about them holds no more.
  void commit() {
    for (const undo& u : undo_)
      if (u.what == undo::kind::memory) memory_.note_change(u.from, u.to);
  }
  void hold(position from, position to, double bytes) {
    if (from >= to || bytes == 0) return;
    change_ += memory_.add(from, to, bytes);
    effort_ += 60.0 + 1.0 * (to - from) * memory_.blocks() / length();
    undo_.push_back({undo::kind::memory, 0, from, to, bytes, {}});
  }
  void mark(position p) {
    p = in_step(p);
    if (dirty_[index(p)]) return;
    dirty_[index(p)] = true;
    dirty_list_.push_back(p);
  }
  // The peaks of the positions that a change has touched. Gives what it costs, in ns.
  double settle() {
    for (const position p : dirty_list_) {
      dirty_[index(p)] = false;
      const double now = peak_of(p), more = now - peak_[index(p)];
      if (more == 0) continue;
      undo_.push_back({undo::kind::peak, 0, p, p, peak_[index(p)], {}});
      peak_[index(p)] = now;
      hold(p, p + 1, more);
    }
    dirty_list_.clear();
    return change_ + (recomputing_ - was_recomputing_) + (copying_ - was_copying_);
  }

  // The most bytes at once while a position's recomputations and then its operator run, of what is
  // needed there.
  double peak_of(position p) {
    const auto& again = replays_[index(p)];
    const std::size_t steps = again.size();
    ++item_round_;
    items_.clear();
    const step_record& r = model_->record();
    const auto see = [&](std::uint32_t part, std::size_t step, bool made) {
      const std::uint32_t s = model_->owner(part);
      if (!(*model_)[s].movable) return;
      auto& [round, which] = item_of_[part];
      if (std::exchange(round, item_round_) != item_round_) {
        which = items_.size();
        const position at = part == s ? p : p + length();
        const std::size_t k = find(s, at);
        const bool here = needed_at(s, k, at);
        const bool from_start =
            !made && here && needs_[s][k].how != way::recomputed && needs_[s][k].how != way::born;
        items_.push_back({s, k, here, from_start ? 0 : step, step});
      }
      items_[which].to = std::max(items_[which].to, step);
    };
    const auto see_all = [&](std::uint32_t o, std::size_t step) {
      const step_record::operation& op = r.operations[o];
      for (const std::uint32_t s : r.outputs(op)) see(s, step, true);
      for (const std::uint32_t s : r.touched(op)) see(s, step, false);
    };
    for (std::size_t i = 0; i < steps; ++i) see_all(again[i].operation, i);
    see_all(static_cast<std::uint32_t>(p), steps);
    effort_ += 40.0 * static_cast<double>(items_.size());
    more_.assign(steps + 2, 0.0);
    for (const item& x : items_) {
      std::size_t to = x.to;
      if (x.here) {
        const auto& v = needs_[x.storage];
        const bool last = x.which + 1 == v.size();
        const bool stays = last ? (*model_)[x.storage].cyclic && v[0].how != way::recomputed
                                : v[x.which + 1].how != way::recomputed;
        if (stays) to = steps;
      }
      more_[x.from] += (*model_)[x.storage].size;
      more_[to + 1] -= (*model_)[x.storage].size;
    }
    double held = 0, most = 0;
    for (std::size_t i = 0; i <= steps; ++i) {
      held += more_[i];
      const auto o = i < steps ? again[i].operation : static_cast<std::uint32_t>(p);
      most = std::max(most, held + static_cast<double>(r.operations[o].workspace.count));
    }
    return most;
  }

  // --- copies
  // ---------------------------------------------------------------------------------------

  void time_lanes() {
    start_.resize(index(length()) + 1);
    copy_lane::time t = 0;
    for (position p = 0; p < length(); ++p) {
      start_[index(p)] = t;
      double cost = model_->operation(p).cost + stalls_[index(p)];
      for (const replay& r : replays_[index(p)]) cost += cost_of(r.operation);
      t += static_cast<copy_lane::time>(cost);
    }
    start_.back() = period_ = std::max<copy_lane::time>(t, 1);
    for (copy_lane& l : lanes_) l.clear(period_);
  }
  [[nodiscard]] copy_lane::time begins(position p) const noexcept {
    const position n = length(), step = period_of(p, n);
    return start_[index(p - step * n)] + step * period_;
  }
  // The position that runs at that time.
  [[nodiscard]] position at(copy_lane::time t) const noexcept {
    const copy_lane::time step = period_of(t, period_);
    const auto behind = std::ranges::upper_bound(start_, t - step * period_);
    const auto p = static_cast<position>(behind - start_.begin()) - 1;
    return std::min(p, length() - 1) + static_cast<position>(step) * length();
  }
  [[nodiscard]] bool needs_copy_out(std::uint32_t s, std::size_t k) const noexcept {
    const auto& v = needs_[s];
    const bool cyclic = (*model_)[s].cyclic;
    for (std::size_t i = 1; i <= v.size(); ++i) {
      if (i > k && !cyclic) return true;
      const std::size_t q = i > k ? k + v.size() - i : k - i;
      if (model_->written_at(s, v[q].at)) return true;
      if (q != k && v[q].how == way::copied) return false;
    }
    return !cyclic || model_->written(s);
  }
  // Behind which need its bytes are as they will be when it leaves for need `k`.
  [[nodiscard]] position unchanged_since(std::uint32_t s, std::size_t k) const noexcept {
    const auto& v = needs_[s];
    position since = before(s, k);
    for (std::size_t i = 1; i <= v.size(); ++i) {
      const bool wraps = i > k;
      if (wraps && !(*model_)[s].cyclic) break;
      const std::size_t q = wraps ? k + v.size() - i : k - i;
      since = v[q].at - (wraps ? length() : 0);
      if (v[q].how == way::recomputed || v[q].how == way::born || model_->written_at(s, v[q].at))
        break;
    }
    return since;
  }
  void place(std::uint32_t s, std::size_t k) { place_out(s, k), place_in(s, k); }
  void place_out(std::uint32_t s, std::size_t k) {
    need& n = needs_[s][k];
    const position from = before(s, k);
    n.copies_out = needs_copy_out(s, k);
    n.out_from = n.out_until = from;
    n.pieces = {}, n.cost = 0;
    if (n.copies_out) {
      n.out_from = unchanged_since(s, k);
      const auto end = place_copy(n, 0, copy_time(s, 0), [&](auto& lane, auto& left) {
        return lane.take_early(begins(n.out_from + 1), begins(n.at), left, taken_);
      });
      n.out_until = end.complete ? std::max(from, at(end.reached - 1)) : n.at - 1;
    }
    hold(from + 1, n.out_until + 1, (*model_)[s].size);
    if (copies_of(s) == 1) on_host_ += (*model_)[s].size;
  }
  void place_in(std::uint32_t s, std::size_t k) {
    need& n = needs_[s][k];
    n.in_from = n.at;
    if (!is_end(s, k)) {
      const auto since = begins(n.out_until + 1);
      const auto begun = place_copy(n, 1, copy_time(s, 1), [&](auto& lane, auto& left) {
        return lane.take_late(since, std::max(since, begins(n.at)), left, taken_);
      });
      n.in_from = std::min(n.at, at(begun.reached));
    }
    hold(n.in_from, n.at, (*model_)[s].size);
  }
  // Takes a lane's time for a copy, and notes what it costs. Until when, or since when; and whether
  // there was enough.
  struct placed {
    copy_lane::time reached;
    bool complete;
  };
  template <class Take>
  placed place_copy(need& n, std::size_t lane, double took, const Take& take) {
    auto left = static_cast<copy_lane::time>(took);
    taken_.clear();
    const copy_lane::time reached = take(lanes_[lane], left);
    const double cost = (copy_price + machine_.burden[lane]) * took + static_cast<double>(left);
    n.cost += cost, copying_ += cost;
    n.first_piece[lane] = static_cast<std::uint32_t>(pieces_.size());
    n.pieces[lane] = static_cast<std::uint32_t>(taken_.size());
    for (const copy_lane::piece& p : taken_) {
      undo_.push_back({undo::kind::lane_taken, static_cast<std::uint8_t>(lane), 0, 0, 0, p});
      pieces_.push_back(p);
    }
    return {reached, left == 0};
  }
  void take_back(std::uint32_t s, std::size_t k) {
    need& n = needs_[s][k];
    copying_ -= n.cost;
    for (std::uint8_t lane = 0; lane < 2; ++lane)
      for (std::uint32_t i = 0; i < n.pieces[lane]; ++i) {
        const copy_lane::piece& p = pieces_[n.first_piece[lane] + i];
        lanes_[lane].give(p);
        undo_.push_back({undo::kind::lane_given, lane, 0, 0, 0, p});
      }
    n.pieces = {};
    hold(before(s, k) + 1, n.out_until + 1, -(*model_)[s].size);
    hold(n.in_from, n.at, -(*model_)[s].size);
    if (copies_of(s) == 1) on_host_ -= (*model_)[s].size;
  }
  // A copy on the host may have gone with an absence: whose copy is it now?
  void pay_anew(std::uint32_t s) {
    for (std::size_t k = 0; k < needs_[s].size(); ++k)
      if (needs_[s][k].how == way::copied && needs_[s][k].copies_out != needs_copy_out(s, k))
        take_back(s, k), place(s, k);
  }

  // --- changes
  // --------------------------------------------------------------------------------------

  void mark_around(std::uint32_t s, std::size_t k) {
    mark(needs_[s][k].at);
    if (k > 0 || (*model_)[s].cyclic) mark(before(s, k));
  }
  void apply(std::uint32_t s, std::size_t k) {
    need& n = needs_[s][k];
    n.asked = 0;
    mark_around(s, k);
    if (n.how == way::kept) {
      const auto [a, b] = between(s, k);
      hold(a, b, (*model_)[s].size);
    } else if (n.how == way::copied) {
      place(s, k);
    } else if (n.how == way::recomputed) {
      add_replay((*model_)[s].producer, n.at);
    }
  }
  void clear(std::uint32_t s, std::size_t k) {
    const need n = needs_[s][k];
    mark_around(s, k);
    if (n.how == way::kept) {
      const auto [a, b] = between(s, k);
      hold(a, b, -(*model_)[s].size);
    } else if (n.how == way::copied) {
      take_back(s, k);
    }
    needs_[s][k].how = way::open;
    if (n.how == way::recomputed) drop_replay((*model_)[s].producer, n.at);
  }
  void set(std::uint32_t s, std::size_t k, way h) {
    save(s);
    const position p = needs_[s][k].at;
    const bool copies = needs_[s][k].how == way::copied || h == way::copied;
    clear(s, k);
    k = find(s, p);
    needs_[s][k].how = h;
    apply(s, k);
    if (copies && !given_up_) pay_anew(s);
  }
  void add_replay(std::uint32_t o, position p) {
    if (++work_ > most_work) given_up_ = true;
    save_replays(p), mark(p);
    auto& list = replays_[index(p)];
    const auto where = std::ranges::lower_bound(list, o, {}, &replay::operation);
    if (where != list.end() && where->operation == o) return void(++where->wanted);
    list.insert(where, {o, 1});
    recomputing_ += cost_of(o);
    for (const std::uint32_t in : inputs(o)) add_need(in, p);
  }
  void drop_replay(std::uint32_t o, position p) {
    if (given_up_) return;
    save_replays(p), mark(p);
    auto& list = replays_[index(p)];
    const auto where = std::ranges::lower_bound(list, o, {}, &replay::operation);
    if (where == list.end() || where->operation != o || --where->wanted > 0) return;
    list.erase(where);
    recomputing_ -= cost_of(o);
    for (const std::uint32_t in : inputs(o)) remove_need(in, p);
  }
  [[nodiscard]] std::span<const std::uint32_t> inputs(std::uint32_t o) const noexcept {
    const step_record& r = model_->record();
    return r.touched(r.operations[o]);
  }
  [[nodiscard]] double price_of_keeping(std::uint32_t s, std::size_t k) const {
    const auto [a, b] = between(s, k);
    return memory_.price(a, b, (*model_)[s].size);
  }
  // A recomputation at `p` reads it: by the cheapest way, and perhaps it stays until it is needed
  // next.
  void add_need(std::uint32_t part, position p) {
    const std::uint32_t s = model_->owner(part);
    const step_model::storage& x = (*model_)[s];
    if (!x.movable || given_up_) return;
    if (part != s) p += length();
    if (++work_ > most_work) given_up_ = true;
    save(s), mark(p);
    auto& v = needs_[s];
    std::size_t k = find(s, p);
    if (needed_at(s, k, p)) return void(++v[k].readers);
    const bool tail = k == v.size() && !x.cyclic;
    const std::size_t next = k == v.size() ? 0 : k;
    const way next_way = tail ? way::open : v[next].how;
    const position next_at = tail ? 0 : v[next].at;
    if (!tail) clear(s, next), k = find(s, p);
    v.insert(v.begin() + std::ptrdiff_t(k), need{.at = p});
    const double copy = copy_time(s, 1);
    way how = way::kept, then = next_way;
    if (next_way != way::kept) {
      const double keep = price_of_keeping(s, k);
      const std::size_t n = tail ? 0 : find(s, next_at);
      const bool again = can_recompute(s, p);
      const double recompute = again ? cost_of(x.producer) : 1e300;
      const double hold_on = tail ? 0 : price_of_keeping(s, n);
      const double later = next_way == way::copied          ? 0.5 * copy
                           : x.producer != step_model::none ? cost_of(x.producer)
                                                            : 1e300;
      const bool may_copy = possible(s, k, way::copied);
      if (!tail && next_way == way::copied && may_copy && hold_on < later)
        how = way::copied;
      else if (keep < recompute && (keep < copy || !may_copy))
        how = way::kept;
      else if (again)
        how = way::recomputed;
      else
        how = keep < copy || !may_copy ? way::kept : way::copied;
      if (!tail && how != way::kept && hold_on < later) then = way::kept;
    }
    k = find(s, p);
    v[k].how = how;
    apply(s, k);
    if (!tail) {
      const std::size_t n = find(s, next_at);
      v[n].how = then;
      apply(s, n);
    }
    if ((next_way == way::copied || how == way::copied) && !given_up_) pay_anew(s);
  }
  void remove_need(std::uint32_t part, position p) {
    const std::uint32_t s = model_->owner(part);
    const step_model::storage& x = (*model_)[s];
    if (!x.movable || given_up_) return;
    if (part != s) p += length();
    save(s), mark(p);
    auto& v = needs_[s];
    std::size_t k = find(s, p);
    if (!needed_at(s, k, p) || --v[k].readers > 0) return;
    if (v[k].own) return;
    const way mine = v[k].how;
    const bool tail = k + 1 == v.size() && !x.cyclic;
    const std::size_t next = k + 1 < v.size() ? k + 1 : 0;
    const position next_at = tail ? 0 : v[next].at;
    const way next_way = tail ? way::open : v[next].how;
    if (!tail) clear(s, next), k = find(s, p);
    clear(s, k);
    k = find(s, p);
    v.erase(v.begin() + std::ptrdiff_t(k));
    if (!tail) {
      const std::size_t n = find(s, next_at);
      way h = next_way != way::kept ? next_way : mine;
      if (h == way::recomputed && !can_recompute(s, next_at)) h = way::kept;
      if (h == way::copied && across_drop(s, n)) h = way::kept;
      v[n].how = h;
      apply(s, n);
    } else if (k > 0) {
      mark(v[k - 1].at);
    }
    if ((mine == way::copied || next_way == way::copied) && !given_up_) pay_anew(s);
  }

  struct item {
    std::uint32_t storage;
    std::size_t which;
    bool here;
    std::size_t from, to;
  };

  const step_model* model_;
  planning_machine machine_;
  memory_profile memory_;
  std::array<copy_lane, 2> lanes_{copy_lane(1), copy_lane(1)};
  std::vector<copy_lane::time> start_;  // by position, and the end
  copy_lane::time period_ = 1;
  std::vector<double> stalls_;  // by position
  std::vector<std::vector<need>> needs_;
  std::vector<std::vector<replay>> replays_;
  std::vector<double> peak_;  // by position: what peak_of gave
  std::vector<copy_lane::piece> pieces_;
  double recomputing_ = 0, copying_ = 0, on_host_ = 0, effort_ = 0;
  // Of the change under way.
  std::vector<undo> undo_;
  std::vector<saved> saved_needs_, saved_replays_;
  std::vector<need> kept_needs_;
  std::vector<replay> kept_replays_;
  std::vector<std::uint32_t> need_saved_, replay_saved_;  // by storage, position: the last change
  std::uint32_t transaction_ = 0, work_ = 0;
  bool given_up_ = false;
  double change_ = 0, was_recomputing_ = 0, was_copying_ = 0, was_on_host_ = 0;
  std::size_t pieces_before_ = 0;
  std::vector<bool> dirty_;
  std::vector<position> dirty_list_;
  std::vector<copy_lane::piece> taken_;
  // Of peak_of.
  struct seen {
    std::uint64_t round;
    std::size_t which;
  };
  std::vector<seen> item_of_;
  std::vector<item> items_;
  std::vector<double> more_;
  std::uint64_t item_round_ = 0;
};

}  // namespace delta::detail
