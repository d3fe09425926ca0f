// delta: which record of an earlier step the step under way agrees with, and operator by operator,
// which place in it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "delta/detail/history/kept_steps.hpp"
#include "delta/step.hpp"

namespace delta::detail {

/// Follows a record through the step under way (`now`): what its operators and storages are called
/// there. Where an operator does not agree, another record with the same beginning is taken up.
/// Without one, the step may have up to `most_differing` operators in a row more, or less, than the
/// record; beyond that, no record is followed.
class step_matcher {
 public:
  static constexpr std::uint32_t none = step_record::none;
  static constexpr std::uint32_t most_differing = 8;

  kept_steps kept;  ///< what there is to follow

  // --- what is followed -------------------------------------------------------------------------

  [[nodiscard]] bool follows() const noexcept { return followed_ != none; }
  /// The record's number, itself, and that of the step behind it.
  [[nodiscard]] std::uint32_t number() const noexcept { return followed_; }
  [[nodiscard]] const step_record& followed() const noexcept { return kept[followed_].step; }
  [[nodiscard]] const step_record& behind() const noexcept { return kept[after_].step; }
  /// Operators of the record so far, the one at hand included.
  [[nodiscard]] std::uint32_t done() const noexcept { return done_; }
  /// Which storage of the record a storage of the step is; none.
  [[nodiscard]] std::uint32_t twin(std::uint32_t storage) const noexcept {
    return storage < twins_.size() ? twins_[storage] : none;
  }
  /// The first use of a storage of the record that is still to come; none. Amortised O(1).
  [[nodiscard]] std::uint32_t next_use(std::uint32_t storage) const noexcept {
    const step_record& e = followed();
    const step_record::storage& s = e.storages[storage];
    std::uint32_t& at = cursors_[storage];
    while (at < s.uses && e.uses[s.first_use + at] < done_) ++at;
    return at < s.uses ? e.uses[s.first_use + at] : none;
  }
  /// ns of operators from now to the start of `position`, which may be in the step behind. O(1).
  [[nodiscard]] double time_until(std::uint32_t position) const noexcept {
    const step_record &e = followed(), &next = behind();
    const double at = position < e.length() ? e.operations[position].start
                      : position - e.length() < next.length()
                          ? e.time + next.operations[position - e.length()].start
                          : e.time + next.time;
    return std::max(0.0, (at - elapsed()) * time_scale_);
  }
  /// What an operator of the step took in the record, in ns; `otherwise` where the record lacks it.
  [[nodiscard]] double cost_of(std::uint32_t here, double otherwise) const noexcept {
    const bool has = follows() && matches_[here] != none;
    return has ? followed().operations[matches_[here]].cost : otherwise;
  }
  /// How the step's sizes and times compare with the record's.
  [[nodiscard]] double size_scale() const noexcept { return size_scale_; }
  [[nodiscard]] double time_scale() const noexcept { return time_scale_; }
  /// An operator has begun, and not ended.
  [[nodiscard]] bool running() const noexcept { return running_; }

  /// Another number with every record that is taken, and every step.
  [[nodiscard]] std::uint64_t forecasts() const noexcept { return forecasts_; }
  /// How often a step stopped agreeing, and no other record was taken up.
  [[nodiscard]] std::uint64_t divergences() const noexcept { return divergences_; }
  [[nodiscard]] std::size_t footprint() const noexcept {
    return kept.footprint() +
           sizeof(none) * (cursors_.capacity() + twins_.capacity() + matches_.capacity());
  }

  // --- the step under way -----------------------------------------------------------------------

  /// Follows that record from its operator `done` on; none: no record.
  void follow(std::uint32_t record, std::uint32_t done) {
    followed_ = record;
    ++forecasts_;
    after_ = follows() ? kept.behind(record) : none;
    done_ = done;
    shifted_ = inexact_ = false;
    extra_ = 0;
    time_scale_ = size_scale_ = 1;
    measured_ = recorded_ = 0;
    std::ranges::fill(twins_, none);
    cursors_.assign(follows() ? followed().storages.size() : 0, 0);
  }
  /// The last operator of `now` begins. O(what it touches), where it agrees.
  void begin(const step_record& now, std::uint64_t prefix) {
    before_it_ = {followed_, done_, extra_, shifted_};
    matches_.push_back(none);
    running_ = true;
    match(now, prefix);
  }
  /// It was given up, with the storages from that number on. (A record taken up for it stays.)
  void abort(std::uint32_t storages) {
    running_ = false;
    matches_.pop_back();
    if (twins_.size() > storages) twins_.resize(storages);
    if (!follows() || followed_ != before_it_.followed) return;
    // Uses that were passed are to come again.
    for (std::uint32_t i = before_it_.done; i < done_; ++i)
      for (const std::uint32_t s : followed().touched(followed().operations[i])) cursors_[s] = 0;
    done_ = before_it_.done, extra_ = before_it_.extra, shifted_ = before_it_.shifted;
  }
  /// It ends: from here on it is not under way.
  void end() noexcept { running_ = false; }
  /// It has ended: compares how much it made, and how large, with the record.
  void compare(const step_record& now) {
    const std::uint32_t here = now.length() - 1;
    if (!follows() || matches_[here] == none) return;
    const step_record& e = followed();
    const step_record::operation &mine = now.operations[here],
                                 &theirs = e.operations[matches_[here]];
    if (mine.outputs != theirs.outputs) {
      if (change_record_after(now)) return;
      return diverge();
    }
    const auto a = now.outputs(mine), b = e.outputs(theirs);
    for (std::size_t i = 0; i < a.size(); ++i) expect(a[i], b[i]);
    if (mine.exact == theirs.exact && !shifted_) return;
    // A record with the same sizes up to its end, all outputs included.
    const auto same_sizes = [&](const auto& o) { return o[here].exact == mine.exact; };
    if (!inexact_ && !shifted_ && change_record(now, same_sizes)) {
      matches_[here] = here;
      done_ = here + 1;
      return;
    }
    inexact_ = true;
    if (theirs.live > 0)
      size_scale_ = static_cast<double>(mine.live) / static_cast<double>(theirs.live);
    measured_ += mine.cost, recorded_ += theirs.cost;
    if (recorded_ > 0 && measured_ > 0) time_scale_ = measured_ / recorded_;
  }
  /// The step has ended; `follow` says what the next one is expected to be.
  void end_of_step() noexcept { twins_.clear(), matches_.clear(); }

 private:
  void expect(std::uint32_t storage, std::uint32_t twin) {
    if (storage >= twins_.size()) twins_.resize(storage + std::size_t{1}, none);
    twins_[storage] = twin;
  }
  // ns of the followed record's operators before now; the one at hand is not over.
  [[nodiscard]] double elapsed() const noexcept {
    const step_record& e = followed();
    const bool within = running_ && matches_.back() != none;
    const std::uint32_t at = within ? done_ - 1 : done_;
    return at < e.length() ? e.operations[at].start : e.time;
  }
  // Matches the operator at hand: in the record, in one with the same beginning, or further on.
  void match(const step_record& now, std::uint64_t prefix) {
    const std::uint32_t here = now.length() - 1;
    if (follows() && agrees(now, done_)) return take(now, done_);
    if (!follows() && here > 0) return;
    const auto same_keys = [&](const auto& o) {
      return (here == 0 || o[here - 1].prefix == prefix) && o[here].key == now.operations[here].key;
    };
    if (change_record(now, same_keys)) return take(now, here);
    if (!follows()) return;
    shifted_ = true;
    for (std::uint32_t i = 1; i <= most_differing; ++i)
      if (agrees(now, done_ + i)) return take(now, done_ + i);
    if (++extra_ > most_differing) diverge();
  }
  // May the operator at hand be number `at`? Same kind and storages; unknown ones match any.
  [[nodiscard]] bool agrees(const step_record& now, std::uint32_t at) const noexcept {
    const step_record& e = followed();
    if (at >= e.length()) return false;
    const step_record::operation &mine = now.operations.back(), &theirs = e.operations[at];
    if (!shifted_) return mine.key == theirs.key;
    if (mine.kind != theirs.kind) return false;
    const auto a = now.touched(mine), b = e.touched(theirs);
    for (std::size_t i = 0; i < a.size(); ++i)
      if (twin(a[i]) != none && twin(a[i]) != b[i]) return false;
    return true;
  }
  void take(const step_record& now, std::uint32_t at) {
    const step_record& e = followed();
    const auto a = now.touched(now.operations.back()), b = e.touched(e.operations[at]);
    for (std::size_t i = 0; i < a.size(); ++i)
      if (twin(a[i]) == none) expect(a[i], b[i]);
    matches_.back() = at;
    done_ = at + 1;
    extra_ = 0;
  }
  // Another record that begins as this step does, by `same(operations)`. Of several the one with
  // the same sizes so far, then the one used last.
  template <class Same>
  bool change_record(const step_record& now, const Same& same) {
    const std::uint32_t here = now.length() - 1;
    std::uint32_t best = none;
    const auto rank = [&](std::uint32_t i) {
      const auto& o = kept[i].step.operations;
      return std::pair(here > 0 && o[here - 1].exact == now.operations[here - 1].exact,
                       kept[i].used);
    };
    for (std::uint32_t i = 0; i < kept.size(); ++i) {
      const auto& o = kept[i].step.operations;
      if (i == followed_ || o.size() <= here) continue;
      if (same(o) && (best == none || rank(i) > rank(best))) best = i;
    }
    if (best == none) return false;
    take_up(now, best, here);
    return true;
  }
  // The outputs differ in number: a record that agrees with that, too.
  bool change_record_after(const step_record& now) {
    const std::uint32_t here = now.length() - 1;
    for (std::uint32_t i = 0; i < kept.size(); ++i) {
      const auto& o = kept[i].step.operations;
      if (o.size() <= here || o[here].prefix != now.operations[here].prefix) continue;
      take_up(now, i, here + 1);
      matches_[here] = here;
      return true;
    }
    return false;
  }
  // A record that began as this step did, of which `done` operators are over.
  void take_up(const step_record& now, std::uint32_t record, std::uint32_t done) {
    follow(record, done);
    // Numbered alike so far; what the operator at hand touches first follows with its match.
    const auto known_so_far =
        static_cast<std::uint32_t>(std::min(now.storages.size(), followed().storages.size()));
    for (std::uint32_t l = 0; l < known_so_far; ++l) expect(l, l);
  }
  void diverge() {
    follow(none, 0);
    ++divergences_;
  }

  std::vector<std::uint32_t> twins_;            // by storage of the step: the record's, or none
  std::vector<std::uint32_t> matches_;          // by operator of the step: likewise
  mutable std::vector<std::uint32_t> cursors_;  // by storage of the record: its next use
  std::uint32_t followed_ = none;
  std::uint32_t after_ = none;  // the record of the step that comes after the followed one
  std::uint32_t done_ = 0;
  std::uint32_t extra_ = 0;  // operators in a row that the record does not have
  bool running_ = false;
  bool shifted_ = false;  // the step has more or fewer operators: numbers differ
  bool inexact_ = false;  // sizes differ
  // As it was before the operator at hand began.
  struct {
    std::uint32_t followed = none, done = 0, extra = 0;
    bool shifted = false;
  } before_it_;
  double time_scale_ = 1, size_scale_ = 1, measured_ = 0, recorded_ = 0;
  std::uint64_t forecasts_ = 0, divergences_ = 0;
};

}  // namespace delta::detail
