// delta: a plan of residency under construction: for every storage the positions at which it must
// be on the device, and for each of them how it gets there.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "delta/detail/planning/plan_copies.hpp"
#include "delta/detail/planning/step_model.hpp"

namespace delta::detail {

/// The plan. Recomputing adds needs to its operator's inputs, which get there in turn by the
/// cheapest way: so a recomputation's closure is priced, and what it makes may stay for the next
/// one. Its cost, in ns: recomputations; copies that find no time on their lane, and what copies
/// cost kernels; and what the memory's profile charges.
/// kernels; and what the memory's profile charges.
class residency_plan : public plan_copies {
 public:
  /// Everything is kept. O(record).
  residency_plan(const step_model& m, const planning_machine& on) : plan_copies(m, on) {}

  /// Becomes another plan of the same model; the effort stays.
  void take(const residency_plan& other) {
    const double effort = effort_ + 240.0 * static_cast<double>(needs_.size());
    *this = other;
    effort_ = effort;
  }
  /// From now on copies may be exposed (need::exposed): for plans that do not fit otherwise.
  void expose_copies() noexcept { exposes_ = true; }
  /// Compares the ways to one need, and takes the cheapest. True: another one than before.
  bool improve(std::uint32_t s, std::size_t k) {
    need& asked = needs_[s][k];
    if (asked.how == way::born) return false;
    const auto [from, to] = around(s, k);
    if (asked.how == way::kept && !memory_.is_paid_for(from, to)) return false;
    if (asked.asked != 0 && !memory_.changed_since(from, to, asked.asked)) return false;
    const choice now{asked.how, asked.exposed};
    choice best = now;
    double least = -least_gain * period() / length();
    for (const choice& c : std::span(choices).first(exposes_ ? choices.size() : not_exposed)) {
      if (c == now || !possible(s, k, c.how)) continue;
      if (most_saved(s, k, c.how) < least_cost(s, k, c.how)) continue;
      begin();
      set(s, k, c);
      const double change = settle();
      if (!given_up_ && change < least) least = change, best = c;
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
    memory_.commit();
    memory_.note_change(from, to);
    return true;
  }
  /// Passes end where the effort is over that.
  void stop_passes_at(double most) noexcept { most_ = most; }
  /// True if it is.
  [[nodiscard]] bool is_over() const noexcept { return effort_ > most_; }
  /// Asks every need of those storages, in order. How many changed. `anew`: prices have changed.
  std::size_t pass(std::span<const std::uint32_t> order, bool anew) {
    if (anew) {
      memory_.tick();
      memory_.note_change(0, model_->length());
    }
    effort_ += 24.0 * static_cast<double>(order.size());
    std::size_t changed = 0;
    for (const std::uint32_t s : order) {
      if (is_over()) break;
      for (std::size_t k = 0; k < needs_[s].size(); ++k) changed += improve(s, k) ? 1 : 0;
    }
    return changed;
  }

 private:
  struct choice {
    way how;
    std::array<bool, 2> exposed;
    bool operator==(const choice&) const = default;
  };
  static constexpr std::size_t not_exposed = 3;  // of the choices, the first ones
  static constexpr std::array<choice, 6> choices{{{way::kept, {false, false}},
                                                  {way::recomputed, {false, false}},
                                                  {way::copied, {false, false}},
                                                  {way::copied, {false, true}},
                                                  {way::copied, {true, false}},
                                                  {way::copied, {true, true}}}};
  static constexpr std::uint32_t most_work = 4000;  // of one change: closures that are too large
  static constexpr double least_gain = 1e-6;        // of the mean operator's time
  static constexpr double bound_effort = 48;        // of a price that is read, in ns
  static constexpr double work_effort = 90;         // of a part of a closure

  // What another way to that need saves at most of the present one's ns, and costs at least: these
  // rule out most ways untried. Not quite bounds: of 300,000 ways 1 in 10,000 was better.
  [[nodiscard]] double most_saved(std::uint32_t s, std::size_t k, way to) {
    const need& n = needs_[s][k];
    if (n.how == way::recomputed || n.how == to) return 1e300;
    const double copies = n.how == way::copied ? copy_of(n).cost : 0;
    if (to == way::kept) return copies;
    const auto [from, until] = around(s, k);
    effort_ += bound_effort;
    return copies - memory_.price(from, until, -(*model_)[s].size);
  }
  [[nodiscard]] double least_cost(std::uint32_t s, std::size_t k, way to) {
    const need& n = needs_[s][k];
    if (to == way::recomputed) return cost_of((*model_)[s].producer);
    if (to == way::copied) return is_end(s, k) ? 0 : hidden_cost(s, 1);
    effort_ += bound_effort;
    if (n.how != way::copied) return 0;
    const copy& c = copy_of(n);
    return memory_.price(c.out_until + 1, c.in_from, (*model_)[s].size);
  }
  void mark_around(std::uint32_t s, std::size_t k) {
    mark(needs_[s][k].at);
    if (k > 0 || (*model_)[s].cyclic) mark(before(s, k));
  }
  // Decides how an open need gets there.
  void apply(std::uint32_t s, std::size_t k, const choice& c) {
    need& n = change(s, k);
    n.asked = 0, n.how = c.how, n.exposed = c.exposed;
    count_copied(s, way::open, c.how);
    mark_around(s, k);
    if (c.how == way::kept) keep(s, k, (*model_)[s].size);
    if (c.how == way::copied) place(s, k);
    if (c.how == way::recomputed) add_replay((*model_)[s].producer, n.at);
  }
  // The same, with the copies that wait as it had them before.
  void apply_as(std::uint32_t s, std::size_t k, way how) {
    apply(s, k, {how, needs_[s][k].exposed});
  }
  void keep(std::uint32_t s, std::size_t k, double bytes) {
    const auto [a, b] = between(s, k);
    hold(a, b, bytes);
  }
  void clear(std::uint32_t s, std::size_t k) {
    const need n = needs_[s][k];
    mark_around(s, k);
    if (n.how == way::kept) keep(s, k, -(*model_)[s].size);
    if (n.how == way::copied) take_back(s, k);
    change(s, k).how = way::open;
    count_copied(s, n.how, way::open);
    if (n.how == way::recomputed) drop_replay((*model_)[s].producer, n.at);
  }
  void set(std::uint32_t s, std::size_t k, const choice& c) {
    const position p = needs_[s][k].at;
    const bool copies = needs_[s][k].how == way::copied || c.how == way::copied;
    clear(s, k);
    apply(s, find(s, p), c);
    if (copies && !given_up_) pay_anew(s);
  }
  // True if need `k` is there, and not the end of the step: whether the storage is asked for in
  // between changes nothing but that position.
  [[nodiscard]] bool stays_on(std::uint32_t s, std::size_t k) const noexcept {
    return k < needs_[s].size() && (k > 0 || (*model_)[s].cyclic);
  }
  // A storage that stays is asked for at need `k`, too, or no more: the position itself says who is
  // there. Counted as the ranges on both sides, and both in one.
  void cut(std::uint32_t s, std::size_t k, double bytes) {
    const position p = needs_[s][k].at;
    const auto [from, behind] = between(s, k);
    const auto [begin, to] = between(s, k + 1);
    change(s, k).asked = change(s, k + 1).asked = 0;
    mark_around(s, k), mark(needs_[s][k + 1].at);
    memory_.add(p, p + 1, bytes);
    memory_.touch(from, to);  // recomputations there that read it may cost other than before
    count_range(from, behind), count_range(begin, to), count_range(from, to);
  }
  void count_work() {
    effort_ += work_effort;
    if (++work_ > most_work) given_up_ = true;
  }
  void add_replay(std::uint32_t o, position p) {
    count_work();
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
    effort_ += work_effort;
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
  // A recomputation at `p` reads it: it gets there the cheapest way, and may stay for later.
  void add_need(std::uint32_t part, position p) {
    const std::uint32_t s = model_->owner(part);
    const step_model::storage& x = (*model_)[s];
    if (!x.movable || given_up_) return;
    if (part != s) p += length();
    count_work();
    mark(p);
    auto& v = needs_[s];
    std::size_t k = find(s, p);
    if (needed_at(s, k, p)) return void(++change(s, k).readers);
    const bool tail = k == v.size() && !x.cyclic;
    const std::size_t next = k == v.size() ? 0 : k;
    const way next_way = tail ? way::open : v[next].how;
    const position next_at = tail ? 0 : v[next].at;
    if (next_way == way::kept && stays_on(s, k)) {
      add(s, k, {.at = p, .how = way::kept});
      return cut(s, k, -x.size);
    }
    if (!tail) clear(s, next), k = find(s, p);
    add(s, k, {.at = p});
    const double reload = copy_time(s, 1);
    way how = way::kept, then = next_way;
    if (next_way != way::kept) {
      const double keep = across_taking(s, k) ? 1e300 : price_of_keeping(s, k);
      const std::size_t n = tail ? 0 : find(s, next_at);
      const bool again = model_->recomputable(s, p);
      const double recompute = again ? cost_of(x.producer) : 1e300;
      const double hold_on = tail ? 0 : price_of_keeping(s, n);
      const double later = next_way == way::copied          ? 0.5 * reload
                           : x.producer != step_model::none ? cost_of(x.producer)
                                                            : 1e300;
      const bool may_copy = possible(s, k, way::copied);
      if (!tail && next_way == way::copied && may_copy && hold_on < later)
        how = way::copied;
      else if (keep < recompute && (keep < reload || !may_copy))
        how = way::kept;
      else if (again)
        how = way::recomputed;
      else
        how = keep < reload || !may_copy ? way::kept : way::copied;
      if (!tail && how != way::kept && hold_on < later) then = way::kept;
    }
    apply(s, find(s, p), {how, {}});
    if (!tail) apply_as(s, find(s, next_at), then);
    if ((next_way == way::copied || how == way::copied) && !given_up_) pay_anew(s);
  }
  void remove_need(std::uint32_t part, position p) {
    const std::uint32_t s = model_->owner(part);
    const step_model::storage& x = (*model_)[s];
    if (!x.movable || given_up_) return;
    if (part != s) p += length();
    mark(p);
    auto& v = needs_[s];
    std::size_t k = find(s, p);
    if (!needed_at(s, k, p)) return;
    if (v[k].readers > 1 || v[k].own) return void(--change(s, k).readers);
    const way mine = v[k].how;
    const bool tail = k + 1 == v.size() && !x.cyclic;
    const std::size_t next = k + 1 < v.size() ? k + 1 : 0;
    const position next_at = tail ? 0 : v[next].at;
    const way next_way = tail ? way::open : v[next].how;
    const bool was_taken = k > 0 && next_at > x.taken && v[k - 1].at <= x.taken;
    if (mine == way::kept && next_way == way::kept && stays_on(s, k + 1) && !was_taken) {
      cut(s, k, x.size);
      return remove(s, k);
    }
    if (!tail) clear(s, next), k = find(s, p);
    clear(s, k);
    remove(s, find(s, p));
    if (!tail) {
      const std::size_t n = find(s, next_at);
      way h = next_way != way::kept ? next_way : mine;
      if (h == way::recomputed && !model_->recomputable(s, next_at)) h = way::kept;
      if (h == way::copied && across_drop(s, n)) h = way::kept;
      if (h != way::recomputed && across_taking(s, n) && model_->recomputable(s, next_at))
        h = way::recomputed;
      apply_as(s, n, h);
    } else if (k > 0) {
      mark(v[k - 1].at);
    }
    if ((mine == way::copied || next_way == way::copied) && !given_up_) pay_anew(s);
  }

  bool exposes_ = false;
  double most_ = 1e300;  // effort
};

}  // namespace delta::detail
