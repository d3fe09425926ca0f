// delta: rehearses a recorded step: runs it under a policy in virtual time, from where the tensors
// are now, to tell what the next step would take.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "delta/context.hpp"
#include "delta/detail/runtime/run_in_place.hpp"
#include "delta/detail/tensors/staging.hpp"
#include "delta/error.hpp"
#include "delta/manager.hpp"
#include "delta/step.hpp"
#include "delta/storage/simulated.hpp"

namespace delta::detail {

/// The step to come, as far as it is known when one has ended: what the program will do, by a
/// record, and where everything is when it begins. `rehearse` plays it, exactly in virtual time
/// where the step repeats its record: same operators, same times, and the same tensors (by id or
/// size) in the same places on the device.
class next_step {
 public:
  /// `step` as it would be now, at the end of another one. It must live as long as this. Copies
  /// reach `reached` of the rates that policies are told. O(tensors + storages).
  next_step(const context& c, const step_record& step, double reached = 1) : step_(&step) {
    const history& past = c.past();
    if (past.follows() && &past.followed() == &step) next_ = &past.behind();
    const auto whole = [](double x) { return bytes{static_cast<std::uint64_t>(std::max(x, 0.0))}; };
    const auto time = [](double x) { return nanoseconds{static_cast<std::int64_t>(x)}; };
    const copy_rates rates{.out = c.rate(direction::out),
                           .in = c.rate(direction::in),
                           .latency = time(c.latency(direction::out))};
    machine_ = {.capacity = whole(c.budget()),
                .host_capacity = whole(c.host_free()),
                .rate_out = rates.out,
                .rate_in = rates.in,
                .latency = rates.latency,
                .rate_move = c.shown_.move_rate,
                .real_rate = reached,
                .places = !c.shown_.layout.empty(),
                .burden_out = c.burden(direction::out),
                .burden_in = c.burden(direction::in)};
    begin_.ahead = c.pricing_.now->ahead;
    begin_.unmanaged_peak = c.pricing_.now->unmanaged_peak;
    begin_.copies.assign(c.shown_.copies.begin(), c.shown_.copies.end());
    begin_.layout.assign(c.shown_.layout.begin(), c.shown_.layout.end());
    for (const queued_copy& q : begin_.copies)
      begin_.over[static_cast<std::size_t>(q.way)] += rates.cost(q.way, q.size);
    for (const direction d : {direction::out, direction::in}) {
      nanoseconds& over = begin_.over[static_cast<std::size_t>(d)];
      over = std::max(over - time(c.backlog(d)), nanoseconds{});
    }
    const auto add = [&](tensor_id t) {
      const residency where = c.where(t);
      begin_.tensors.push_back({.tensor = t,
                                .size = c.at(t).footprint,
                                .pinned = c.at(t).pinned,
                                .where = where,
                                .clean = c.is_clean(t) && where == residency::resident,
                                .prefetched_unused = c.at(t).prefetched_unused,
                                .used = c.clock() - c.pricing_.tensors->last_use(t)});
      const bool on_host = where != residency::resident || c.is_clean(t) || c.is_copying(t);
      if (on_host) machine_.host_capacity += begin_.tensors.back().size;
    };
    for (const tensor_id t : c.offloaded()) add(t);
    past.for_each_held([&](tensor_id t) {
      if (c.where(t) != residency::host) add(t);
    });
    const bool here = past.steps() > 0 && &step == &past.last();
    cast(here);
    // What policies expect of a tensor now is what they shall expect.
    if (past.follows() && &past.followed() == &step)
      for (std::size_t s = 0; s < expected_.size(); ++s) {
        const auto known = [&](tensor_id t) {
          const forecast f = c.next_use(t);
          return f.what == forecast::kind::known && f.position < step.length();
        };
        if (expected_[s] != tensor_id::none && !known(expected_[s])) expected_[s] = tensor_id::none;
      }
  }
  [[nodiscard]] const step_record& step() const noexcept { return *step_; }
  /// The step behind it, as far as known; else null.
  [[nodiscard]] const step_record* next() const noexcept { return next_; }
  [[nodiscard]] const simulated_options& machine() const noexcept { return machine_; }
  /// Where everything is when it begins.
  [[nodiscard]] const residency_snapshot& begin() const noexcept { return begin_; }
  /// By storage of the record: the tensor that plays it, if any; the one that policies expect to.
  [[nodiscard]] const std::vector<tensor_id>& played() const noexcept { return played_; }
  [[nodiscard]] const std::vector<tensor_id>& expected() const noexcept { return expected_; }
  /// Storages that should be there, and nobody plays: the step begins by making them.
  [[nodiscard]] const std::vector<std::uint32_t>& missing() const noexcept { return missing_; }
  /// Tensors that are there, and have no part in the step: it begins by dropping them.
  [[nodiscard]] const std::vector<tensor_id>& leftover() const noexcept { return leftover_; }

 private:
  static constexpr std::uint32_t none = step_record::none;

  // By storage: true if the step has anything to do with it.
  [[nodiscard]] std::vector<bool> parts() const {
    std::vector<bool> all(step_->storages.size());
    for (std::size_t s = 0; s < all.size(); ++s) all[s] = step_->storages[s].uses > 0;
    for (const step_record::change& c : step_->changes) all[c.storage] = true;
    return all;
  }
  // Who plays which storage: what was it to the last step like this one, else what has its id, else
  // what has its size. `last`: the step that has just ended is to come again.
  void cast(bool last) {
    const auto& storages = step_->storages;
    played_.assign(storages.size(), tensor_id::none);
    std::vector<bool> taken(begin_.tensors.size());
    std::vector<std::uint32_t> by_id(begin_.tensors.size());
    for (std::uint32_t i = 0; i < by_id.size(); ++i) by_id[i] = i;
    const auto id_of = [&](std::uint32_t i) { return begin_.tensors[i].tensor; };
    std::ranges::sort(by_id, {}, id_of);
    const auto with_id = [&](tensor_id t) {
      const auto at = std::ranges::lower_bound(by_id, t, {}, id_of);
      return at != by_id.end() && id_of(*at) == t ? *at : none;
    };
    // Takes it for that storage, where it fits.
    const auto take = [&](std::size_t s, std::uint32_t i) {
      if (i == none || taken[i] || played_[s] != tensor_id::none) return;
      const tensor_snapshot& x = begin_.tensors[i];
      if (x.size != storages[s].size || (x.pinned == pin::both) != storages[s].pinned) return;
      played_[s] = x.tensor, taken[i] = true;
    };
    const std::vector<bool> has_part = parts();
    const auto for_each_old = [&](const auto& visit) {
      for (std::size_t s = 0; s < storages.size(); ++s)
        if (has_part[s] && step_->was_there(s)) visit(s);
    };
    for_each_old([&](std::size_t s) {
      if (storages[s].was != none) take(s, with_id(storages[storages[s].was].tensor));
    });
    for_each_old([&](std::size_t s) { take(s, with_id(storages[s].tensor)); });
    for_each_old([&](std::size_t s) {
      for (std::size_t k = 0; k < by_id.size() && played_[s] == tensor_id::none; ++k)
        take(s, by_id[k]);
    });
    expected_ = played_;
    for_each_old([&](std::size_t s) {
      if (played_[s] == tensor_id::none) missing_.push_back(static_cast<std::uint32_t>(s));
    });
    if (!last) return;
    for (std::size_t s = 0; s < storages.size(); ++s) {
      const step_record::storage& x = storages[s];
      if (x.dropped || step_->was_there(s)) continue;
      const std::uint32_t i = with_id(x.tensor);
      if (x.created)  // a source that was made and kept, unless it has replaced another one
        take(s, i), expected_[s] = played_[s];
      else if (i != none &&
               !taken[i])  // an operator will make it anew, so it can't be meant to stay
        taken[i] = true, leftover_.push_back(x.tensor);
    }
  }

  const step_record* step_;
  const step_record* next_ = nullptr;
  simulated_options machine_;
  residency_snapshot begin_;
  std::vector<tensor_id> played_, expected_, leftover_;
  std::vector<std::uint32_t> missing_;
};

/// Steps that a rehearsal runs one behind the other, at most.
inline constexpr int most_rehearsed = 6;

/// How steps come along that are rehearsed one behind the other, in ns.
struct step_course {
  std::vector<double> longer;    ///< by position: than its operator it took, in the last of them
  std::vector<double> ended_at;  ///< when so many operators had ended, in the latest of them
};

/// A step takes longer than it may.
struct too_long {};
/// Runs steps on a manager in virtual time, as their records say.
template <class Manager>
class step_rehearsal {
 public:
  /// Times are by that storage's clock; a step that takes more than `limit` ns is given up.
  step_rehearsal(Manager& m, const simulated& storage, double limit)
      : manager_(&m), storage_(&storage), limit_(limit) {}

  /// What that step takes, to its end, in ns; how it comes along goes into `course`, if given.
  /// Throws too_long.
  double run(const next_step& what, step_course* course = nullptr) {
    const step_record& step = what.step();
    began_ = storage_->now();
    ids_ = what.played();
    for (const tensor_id t : what.leftover()) manager_->drop(t);
    for (const std::uint32_t s : what.missing()) ids_[s] = make(step.storages[s]);
    changed_ = 0;
    if (course != nullptr) course->longer.assign(step.length(), 0.0);
    if (course != nullptr) course->ended_at.resize(step.length() + std::size_t{1}, 0.0);
    for (std::uint32_t i = 0; i < step.length(); ++i) {
      const double begun = since_began();
      change_until(what, i);
      operate(step, i);
      if (course == nullptr) continue;
      const double ended = since_began();
      course->longer[i] = std::max(0.0, ended - begun - step.operations[i].cost);
      double& latest = course->ended_at[i + 1];
      latest = std::max(latest, ended);
    }
    change_until(what, step.length());
    manager_->end_of_step();
    return since_began();
  }

 private:
  [[nodiscard]] double since_began() const noexcept {
    return static_cast<double>((storage_->now() - began_).count());
  }
  tensor_id make(const step_record::storage& x) {
    return x.pinned ? manager_->constant(x.size) : manager_->variable(x.size);
  }
  void change_until(const next_step& what, std::uint32_t position) {
    using kind = step_record::change::kind;
    const step_record& step = what.step();
    for (; changed_ < step.changes.size() && step.changes[changed_].at <= position; ++changed_) {
      const step_record::change& x = step.changes[changed_];
      const bool stays =
          step.storages[x.storage].created && what.played()[x.storage] != tensor_id::none;
      tensor_id& t = ids_[x.storage];
      switch (x.what) {
        case kind::created:
          if (!stays) t = make(step.storages[x.storage]);
          break;
        case kind::dropped:
          manager_->drop(t);
          break;
        case kind::read:
          (void)manager_->acquire(t);
          break;
        case kind::written:
          // What stays was written when it was made.
          if (!stays || x.at > 0) (void)manager_->acquire(t, access::write);
          break;
      }
    }
  }
  // Of every operator, and every replay: a restore may take for ever.
  void check_time() const {
    if (since_began() > limit_) throw too_long{};
  }
  void operate(const step_record& step, std::uint32_t i) {
    const step_record::operation& o = step.operations[i];
    const auto touched = step.touched(o), outputs = step.outputs(o);
    inputs_.clear(), updates_.clear(), replaced_.clear(), sizes_.clear();
    for (std::size_t k = 0; k < touched.size(); ++k)
      (k < o.inputs ? inputs_ : updates_).push_back(ids_[touched[k]]);
    for (const std::uint32_t s : outputs)
      if (const step_record::storage& x = step.storages[s]; x.replaces == step_record::none)
        sizes_.push_back(x.size);
      else
        replaced_.push_back(ids_[x.replaces]);
    run_in_place(*manager_,
                 operation_span{.inputs = inputs_,
                                .outputs = sizes_,
                                .updates = updates_,
                                .workspace = o.workspace,
                                .traits = o.traits,
                                .cost = nanoseconds{static_cast<std::int64_t>(o.cost)},
                                .name = ""},
                 replaced_, made_, [this](call&) { check_time(); });
    std::size_t fresh = 0, in_place = sizes_.size();
    for (const std::uint32_t s : outputs)
      ids_[s] = made_[step.storages[s].replaces == step_record::none ? fresh++ : in_place++];
  }

  Manager* manager_;
  const simulated* storage_;
  nanoseconds began_{};  // the step under way
  double limit_;
  std::vector<tensor_id> ids_, inputs_, updates_, replaced_, made_;
  std::vector<bytes> sizes_;
  std::size_t changed_ = 0;
};

/// What that step and the one behind it would take, in ns, in virtual time, under a policy that
/// knows them already. A step that repeats itself and gets faster is run again, `most` times in
/// all; the last counts. Infinite where they do not end, or not within `limit` ns each. Takes
/// milliseconds, as their decisions. `course`: as of step_rehearsal::run. Throws std::bad_alloc.
template <class P>
[[nodiscard]] std::array<double, 2> rehearse_both(const next_step& what, P p, double limit = never,
                                                  int most = most_rehearsed,
                                                  step_course* course = nullptr) {
  std::array<double, 2> took{never, never};
  simulated storage(what.machine());
  try {
    manager m{std::move(p), storage};
    m.stage(what.begin());
    m.preload(what.step(), what.expected(), what.next());
    step_rehearsal play(m, storage, limit);
    took[0] = play.run(what, course);
    if (what.next() == nullptr) return took;
    const history& past = m.past();
    const bool repeats = what.next()->structure() == what.step().structure();
    double before = took[0];
    for (int run = 1; run < most; ++run) {
      if (!past.follows() || past.followed().length() != what.next()->length()) break;
      took[1] = play.run(next_step(m.seen(), past.followed()), course);
      if (!repeats || took[1] >= before) break;
      before = took[1];
    }
  } catch (const error&) {
    // The budget does not do for this policy.
  } catch (too_long) {
  }
  return took;
}
/// The same of one step.
template <class P>
[[nodiscard]] double rehearse(const next_step& what, P p, double limit = never) {
  return rehearse_both(what, std::move(p), limit, 1)[0];
}

/// Mean of the first few of repeating steps, by `rehearse_both`: a change must pay off in these.
[[nodiscard]] inline double mean_of_few(const std::array<double, 2>& took) noexcept {
  constexpr double few = 8;
  return took[1] < never ? took[1] + (took[0] - took[1]) / few : never;
}

}  // namespace delta::detail
