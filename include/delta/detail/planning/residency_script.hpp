// delta: what a plan of residency comes to, position by position: who leaves, whose copy out
// begins, who comes back, and what is kept though the program has dropped it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "delta/detail/planning/residency_plan.hpp"
#include "delta/step.hpp"

namespace delta::detail {

/// A plan for steps like one record, by its storages' numbers and its positions.
class residency_script {
 public:
  using position = std::int32_t;
  /// A storage is away: from the end of operator `from` to the beginning of `to`. Positions may be
  /// the neighbouring steps': below 0, or not below the record's length.
  struct absence {
    std::uint32_t storage;
    position from, to;
    position out_from, in_from;  ///< if copied: its copies begin behind, and with, these
    bool copied;                 ///< else it is computed again
    bool copies_out;             ///< if copied: the host has none
    bool for_good = false;       ///< the step does not use it again, though it is held
  };
  /// The program has dropped it, and a recomputation has made it: it stays for another one.
  struct stay {
    std::uint32_t storage;
    position from, to;
  };

  /// Of absences and stays whose storages are owners (step_model::owner); `held`: bytes by
  /// position. O(record + absences log absences).
  residency_script(const step_model& m, std::vector<absence> away, std::vector<stay> stays,
                   std::vector<double> held)
      : residency_script(m) {
    away_ = std::move(away), stays_ = std::move(stays), held_ = std::move(held);
    index();
  }
  explicit residency_script(const residency_plan& plan) : residency_script(plan.model()) {
    const step_model& m = plan.model();
    for (std::uint32_t s = 0; s < m.storages().size(); ++s) {
      const auto needs = plan.needs(s);
      using way = residency_plan::way;
      for (std::size_t k = 0; k < needs.size(); ++k) {
        const residency_plan::need& n = needs[k];
        const position before = k > 0 ? needs[k - 1].at : needs.back().at - length_;
        const bool dropped = n.at > m[s].dropped;
        if (n.how == way::copied) {
          const residency_plan::copy& c = plan.copy_of(n);
          away_.push_back({s, before, n.at, c.out_from, c.in_from, true, c.out});
        } else if (n.how == way::recomputed && before < n.at && !dropped)
          away_.push_back({s, before, n.at, before, n.at, false, false});
        else if (n.how == way::kept && dropped)
          stays_.push_back({s, before, n.at});
      }
      // Held and not used again: goes if it can be made again, unless the step leaves it behind.
      const bool goes = m[s].dropped < length_ && !m[s].cyclic && !m[s].ends_held;
      if (needs.empty() || !m[s].movable || !goes) continue;
      if (const position last = needs.back().at; m[s].dropped > last)
        away_.push_back({s, last, m[s].dropped, last, m[s].dropped, false, false, true});
    }
    for (position p = 0; p < length_; ++p) held_.push_back(plan.memory().at(p));
    index();
  }

  [[nodiscard]] position length() const noexcept { return length_; }
  /// The step's own position that a neighbouring step's stands for.
  [[nodiscard]] position in_step(position p) const noexcept {
    return p < 0 ? p + length_ : p >= length_ ? p - length_ : p;
  }
  /// Identifies a record by storages touched and sizes, as rehearsals know no names. O(record).
  [[nodiscard]] static std::uint64_t shape_of(const step_record& r) noexcept {
    std::uint64_t h = r.length();
    const auto mix = [&](std::uint64_t x) { h = (h ^ x) * 0x100000001b3u; };
    for (const std::uint32_t s : r.lists) mix(s), mix(r.storages[s].size.count);
    return h;
  }
  [[nodiscard]] std::uint64_t shape() const noexcept { return shape_; }
  /// True if most of what its operators make is held and not used again, as in an evaluation of a
  /// program that holds what a training step would use on its way back.
  [[nodiscard]] bool keeps_unused() const noexcept { return keeps_unused_; }
  [[nodiscard]] std::span<const absence> absences() const noexcept { return away_; }
  [[nodiscard]] std::span<const stay> stays() const noexcept { return stays_; }

  /// The absence in which a storage is, if any.
  struct state {
    const absence* away = nullptr;  ///< null: it is to be there
    position shift = 0;             ///< what makes the step's positions those of the absence
  };
  /// Of a storage of the record, when the operators before `done` have ended. O(log its absences).
  [[nodiscard]] state at(std::uint32_t s, position done) const noexcept {
    if (s >= owner_.size()) return {};
    const std::uint32_t o = owner_[s];
    const auto all = std::span(away_).subspan(first_[o], first_[o + 1] - first_[o]);
    // Of one that began in the step before; of a cyclic one that ends in the next step.
    for (const position shift : {o != s ? length_ : 0, o != s ? 0 : -length_}) {
      const position p = done + shift;
      const auto behind = std::ranges::upper_bound(all, p - 1, {}, &absence::from);
      if (behind != all.begin() && std::prev(behind)->to >= p) return {&*std::prev(behind), shift};
    }
    return {};
  }
  /// True if a dropped one is to stay then. O(its stays + log stays).
  [[nodiscard]] bool stays(std::uint32_t s, position done) const noexcept {
    return std::ranges::any_of(std::ranges::equal_range(stays_, s, {}, &stay::storage),
                               [&](const stay& x) { return x.from <= done && done <= x.to; });
  }
  /// Which absences begin when that operator ends; whose copies out begin before. O(log absences).
  [[nodiscard]] std::span<const std::uint32_t> leaving(position p) const noexcept {
    return of(leaving_, p, &absence::from);
  }
  [[nodiscard]] std::span<const std::uint32_t> copied_out(position p) const noexcept {
    return of(out_, p, &absence::out_from);
  }
  /// Bytes that the plan holds at that position at most.
  [[nodiscard]] double held(position p) const noexcept {
    return held_[static_cast<std::size_t>(p)];
  }
  /// Which absences are copied in, in the order in which those copies begin.
  [[nodiscard]] std::span<const std::uint32_t> coming() const noexcept { return coming_; }

 private:
  explicit residency_script(const step_model& m)
      : shape_(shape_of(m.record())), keeps_unused_(keeps_unused(m.record())), length_(m.length()) {
    for (std::uint32_t s = 0; s < m.storages().size(); ++s) owner_.push_back(m.owner(s));
  }
  // Of what its operators make, each byte counted as long as it is held: is more than half of that
  // behind the last use? O(record).
  static bool keeps_unused(const step_record& r) noexcept {
    double held = 0, unused = 0;
    for (const step_record::storage& s : r.storages) {
      if (s.born == step_record::none) continue;
      const auto size = static_cast<double>(s.size.count);
      const std::uint32_t gone = s.died == step_record::none ? r.length() : s.died;
      const std::uint32_t last = s.uses > 0 ? r.uses[s.first_use + s.uses - 1] : s.born;
      held += size * (gone - s.born), unused += size * (gone > last ? gone - last : 0);
    }
    return unused > held / 2;
  }
  [[nodiscard]] std::span<const std::uint32_t> of(const std::vector<std::uint32_t>& list,
                                                  position p,
                                                  position absence::*which) const noexcept {
    const auto place = [&](std::uint32_t i) { return in_step(away_[i].*which); };
    return std::ranges::equal_range(list, p, {}, place);
  }
  void index() {
    const auto place_of = [](const auto& x) { return std::pair(x.storage, x.from); };
    std::ranges::sort(away_, {}, place_of);
    std::ranges::sort(stays_, {}, place_of);
    first_.assign(owner_.size() + 1, 0);
    for (std::uint32_t i = 0; i < away_.size(); ++i) {
      const absence& a = away_[i];
      ++first_[a.storage + 1];
      leaving_.push_back(i);
      if (a.copied && a.copies_out && a.out_from < a.from) out_.push_back(i);
      if (a.copied && a.in_from <= a.to) coming_.push_back(i);
    }
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    // Not by stable_sort: Clang 19 finds a deprecated name in that of libstdc++ 12.
    const auto in_order = [this](position absence::*which) {
      return [this, which](std::uint32_t i) { return std::pair(in_step(away_[i].*which), i); };
    };
    std::ranges::sort(leaving_, {}, in_order(&absence::from));
    std::ranges::sort(out_, {}, in_order(&absence::out_from));
    std::ranges::sort(coming_, {}, [&](std::uint32_t i) {
      return std::tuple(in_step(away_[i].in_from), in_step(away_[i].to), i);
    });
  }

  std::uint64_t shape_ = 0;
  bool keeps_unused_ = false;
  position length_ = 0;
  std::vector<double> held_;                           // by position
  std::vector<std::uint32_t> owner_;                   // by storage: step_model::owner
  std::vector<absence> away_;                          // by storage, then by `from`
  std::vector<std::uint32_t> first_;                   // by storage: of its absences
  std::vector<stay> stays_;                            // by storage
  std::vector<std::uint32_t> leaving_, out_, coming_;  // absences, by when they do
};

}  // namespace delta::detail
