// delta: the parts of a plan of residency, and changes of them as transactions: made, their cost
// read off, and undone where they are not worth it.
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
#include "delta/detail/planning/step_model.hpp"

namespace delta::detail {

/// Which storages are needed where, how each gets there, and who holds how many bytes. A *need* is
/// a position at which a storage must be there, for the program or for a recomputation.
class plan_parts {
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
    std::uint32_t asked = 0;    ///< when its ways were compared last
    std::uint32_t copy = 0;     ///< if copied: its copies' number
    way how = way::open;
    bool own = false;  ///< the program's use
    /// If copied, by direction: the copy is waited for, as there is no room beside an operator.
    std::array<bool, 2> exposed{};
  };
  /// The copies of a storage that is away before a need. They begin behind `out_from`, the bytes
  /// are free behind `out_until`, and taken again from `in_from` on.
  struct copy {
    position out_from = 0, out_until = 0, in_from = 0;
    bool out = false;                                      ///< false: the host has one already
    std::array<std::uint32_t, 2> pieces{}, first_piece{};  // of each lane
    double cost = 0;                                       ///< ns that nothing hides
    std::array<double, 2> waits{};  ///< ns, by direction, for what finds no time on its lane
  };
  /// An operator that runs again at a position, for so many needs.
  struct replay {
    std::uint32_t operation, wanted;
  };

  [[nodiscard]] const step_model& model() const noexcept { return *model_; }
  [[nodiscard]] memory_profile& memory() noexcept { return memory_; }
  [[nodiscard]] const memory_profile& memory() const noexcept { return memory_; }
  [[nodiscard]] std::span<const need> needs(std::uint32_t s) const noexcept { return needs_[s]; }
  /// The copies of a need that is copied.
  [[nodiscard]] const copy& copy_of(const need& n) const noexcept { return copies_[n.copy]; }
  [[nodiscard]] std::span<const replay> replays(position p) const noexcept {
    return replays_[index(p)];
  }
  /// ns of all recomputations; of copies that found no time.
  [[nodiscard]] double recomputing() const noexcept { return recomputing_; }
  [[nodiscard]] double copying() const noexcept { return copying_; }
  /// What all changes have taken so far, in ns on some machine: counted, not measured.
  [[nodiscard]] double effort() const noexcept { return effort_; }
  /// True if the memory's profile fits.
  [[nodiscard]] bool fits() const noexcept { return memory_.most() <= memory_.budget(); }

 protected:
  /// Everything is kept. O(record).
  plan_parts(const step_model& m, const planning_machine& on)
      : model_(&m), machine_(on), memory_(m.length(), on.budget) {
    const auto n = static_cast<std::size_t>(m.length()), storages = m.storages().size();
    needs_.resize(storages), replays_.resize(n), peak_.assign(n, 0.0), dirty_.assign(n, 0);
    copied_.assign(storages, 0), replay_saved_.assign(n, 0), item_of_.assign(storages, unseen);
    for (std::uint32_t s = 0; s < storages; ++s) {
      const step_model::storage& x = m[s];
      if (!x.movable) continue;
      for (const position p : m.uses(s))
        needs_[s].push_back(
            {.at = p, .how = needs_[s].empty() && !x.cyclic ? way::born : way::kept, .own = true});
      for (std::size_t k = 0; k < needs_[s].size(); ++k)
        if (needs_[s][k].how == way::kept) {
          const auto [a, b] = between(s, k);
          memory_.add(a, b, x.size);
        }
    }
    for (position p = 0; p < m.length(); ++p) {
      peak_[index(p)] = peak_of(p);
      memory_.add(p, p + 1, m.base(p) + peak_[index(p)]);
    }
  }

  static std::size_t index(position p) noexcept { return static_cast<std::size_t>(p); }
  [[nodiscard]] position length() const noexcept { return model_->length(); }
  [[nodiscard]] position in_step(position p) const noexcept {
    const position n = length();
    return p >= n ? p - n : p < 0 ? p + n : p;
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
    if (h == way::recomputed) return model_->recomputable(s, needs_[s][k].at);
    if (across_taking(s, k)) return false;
    if (h == way::copied)
      return machine_.host > 0 && (k > 0 || (*model_)[s].cyclic) && !across_drop(s, k) &&
             (copied_[s] > 0 || on_host_ + (*model_)[s].size <= machine_.host);
    return true;
  }
  // What the program drops keeps no copy on the host, if it can be made again.
  [[nodiscard]] bool across_drop(std::uint32_t s, std::size_t k) const noexcept {
    const step_model::storage& x = (*model_)[s];
    const position at = needs_[s][k].at;
    return x.producer != step_model::none && at > x.dropped && k > 0 &&
           needs_[s][k - 1].at <= x.dropped;
  }
  // Its block has become another one's since the need before.
  [[nodiscard]] bool across_taking(std::uint32_t s, std::size_t k) const noexcept {
    const position taken = (*model_)[s].taken;
    return needs_[s][k].at > taken && k > 0 && needs_[s][k - 1].at <= taken;
  }
  [[nodiscard]] double cost_of(std::uint32_t operation) const noexcept {
    return model_->operation(static_cast<position>(operation)).cost;
  }

  // --- transactions -----------------------------------------------------------------------------

  // A piece that a lane has given away, or got back.
  struct lane_event {
    bool taken;
    std::size_t lane;
    copy_lane::piece piece;
  };
  // A need as it was before a change did that.
  struct need_event {
    enum class kind : std::uint8_t { changed, added, removed } what;
    std::uint32_t storage;
    std::size_t which;
    need was;
  };

  void begin() {
    memory_.begin();
    lane_events_.clear(), old_peaks_.clear(), need_events_.clear(), old_replays_.clear();
    was_recomputing_ = recomputing_, was_copying_ = copying_, was_on_host_ = on_host_;
    copies_before_ = copies_.size(), pieces_before_ = pieces_.size();
    work_ = 0, given_up_ = false;
    ++transaction_;
  }
  // All changes of needs are made by these three, or hold whatever becomes of the change.
  need& change(std::uint32_t s, std::size_t k) {
    need_events_.push_back({need_event::kind::changed, s, k, needs_[s][k]});
    return needs_[s][k];
  }
  void add(std::uint32_t s, std::size_t k, const need& n) {
    need_events_.push_back({need_event::kind::added, s, k, {}});
    needs_[s].insert(needs_[s].begin() + std::ptrdiff_t(k), n);
  }
  void remove(std::uint32_t s, std::size_t k) {
    need_events_.push_back({need_event::kind::removed, s, k, needs_[s][k]});
    needs_[s].erase(needs_[s].begin() + std::ptrdiff_t(k));
  }
  // Notes that a need is copied from now on, or no more.
  void count_copied(std::uint32_t s, way before, way now) noexcept {
    copied_[s] += (now == way::copied ? 1u : 0u) - (before == way::copied ? 1u : 0u);
  }
  void save_replays(position p) {
    if (std::exchange(replay_saved_[index(p)], transaction_) != transaction_)
      old_replays_.emplace_back(p, replays_[index(p)]);
  }
  void roll_back() {
    memory_.roll_back();
    for (; !lane_events_.empty(); lane_events_.pop_back()) {
      const lane_event& x = lane_events_.back();
      x.taken ? lanes_[x.lane].give(x.piece) : lanes_[x.lane].take(x.piece);
    }
    for (const auto& [p, peak] : old_peaks_) peak_[index(p)] = peak;
    for (; !need_events_.empty(); need_events_.pop_back()) {
      const need_event& x = need_events_.back();
      auto& v = needs_[x.storage];
      const auto at = v.begin() + std::ptrdiff_t(x.which);
      switch (x.what) {
        case need_event::kind::changed:
          count_copied(x.storage, at->how, x.was.how);
          *at = x.was;
          break;
        case need_event::kind::added:
          v.erase(at);
          break;
        case need_event::kind::removed:
          v.insert(at, x.was);
          break;
      }
    }
    for (auto& [p, list] : old_replays_) replays_[index(p)] = std::move(list);
    recomputing_ = was_recomputing_, copying_ = was_copying_, on_host_ = was_on_host_;
    copies_.resize(copies_before_), pieces_.resize(pieces_before_);
  }
  void hold(position from, position to, double bytes) {
    if (from >= to || bytes == 0) return;
    memory_.add(from, to, bytes);
    count_range(from, to);
  }
  void count_range(position from, position to) noexcept {
    if (from < to) effort_ += 54.0 + 0.6 * (to - from) * memory_.blocks() / length();
  }
  void mark(position p) {
    p = in_step(p);
    if (std::exchange(dirty_[index(p)], transaction_) != transaction_) dirty_list_.push_back(p);
  }
  // The peaks of the positions that a change has touched. Gives what it costs, in ns.
  double settle() {
    for (const position p : dirty_list_) {
      const double now = peak_of(p), more = now - peak_[index(p)];
      if (more == 0) continue;
      old_peaks_.emplace_back(p, std::exchange(peak_[index(p)], now));
      hold(p, p + 1, more);
    }
    dirty_list_.clear();
    return memory_.paid_more() + (recomputing_ - was_recomputing_) + (copying_ - was_copying_);
  }

  const step_model* model_;
  planning_machine machine_;
  memory_profile memory_;
  // Out, and in: there time counts backwards, as a copy in runs as late as it can.
  std::array<copy_lane, 2> lanes_{copy_lane(1), copy_lane(1)};
  std::vector<std::vector<need>> needs_;
  std::vector<std::vector<replay>> replays_;
  std::vector<std::uint32_t> copied_;  // by storage: how many of its needs are
  std::vector<copy> copies_;           // of needs, now or since all were placed
  std::vector<copy_lane::piece> pieces_;
  double recomputing_ = 0, copying_ = 0, on_host_ = 0, effort_ = 0;
  std::vector<lane_event> lane_events_;  // of the change under way
  std::uint32_t work_ = 0;
  bool given_up_ = false;

 private:
  // The most bytes of what a position needs while its recomputations, then its operator run.
  double peak_of(position p) {
    const auto& again = replays_[index(p)];
    const std::size_t steps = again.size();
    items_.clear();
    const step_record& r = model_->record();
    const auto see = [&](std::uint32_t part, std::size_t step, bool made) {
      const std::uint32_t s = model_->owner(part);
      if (!(*model_)[s].movable) return;
      std::size_t& which = item_of_[part];
      if (which == unseen) {
        which = items_.size();
        const position at = part == s ? p : p + length();
        const std::size_t k = find(s, at);
        const bool here = needed_at(s, k, at);
        const bool from_start =
            !made && here && needs_[s][k].how != way::recomputed && needs_[s][k].how != way::born;
        items_.push_back({part, s, k, here, from_start ? 0 : step, step});
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
    effort_ += 36.0 * static_cast<double>(items_.size());
    more_.assign(steps + 2, 0.0);
    for (const item& x : items_) {
      item_of_[x.part] = unseen;
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
      if (i == steps) held -= model_->in_place(p);
      most = std::max(most, held + static_cast<double>(r.operations[o].workspace.count));
    }
    return most;
  }

  std::vector<double> peak_;  // by position: what peak_of gave
  // Of the change under way.
  std::vector<need_event> need_events_;
  std::vector<std::pair<position, double>> old_peaks_;
  std::vector<std::pair<position, std::vector<replay>>> old_replays_;
  std::vector<std::uint32_t> replay_saved_, dirty_;  // by position: the last change
  std::uint32_t transaction_ = 0;
  double was_recomputing_ = 0, was_copying_ = 0, was_on_host_ = 0;
  std::size_t copies_before_ = 0, pieces_before_ = 0;
  std::vector<position> dirty_list_;
  // Of peak_of.
  struct item {
    std::uint32_t part, storage;
    std::size_t which;
    bool here;
    std::size_t from, to;
  };
  static constexpr std::size_t unseen = ~std::size_t{0};
  std::vector<std::size_t> item_of_;
  std::vector<item> items_;
  std::vector<double> more_;
};

}  // namespace delta::detail
