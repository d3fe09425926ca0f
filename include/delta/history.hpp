// delta: the steps that a manager has seen, and forecasts from them. A training step repeats, so
// the one before tells when each tensor will be used next, how long operators take, and when memory
// will be shortest.
//
//   recorded     the step under way, operator by operator; kept when it ends
//   followed     the record that the step under way has agreed with so far, if there is one
//   forecast     what the followed record says of a tensor
//
// The manager writes it, policies read it through their context. It is written only where a role
// declares `learns` (concepts.hpp); else every forecast is unknown.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "delta/detail/history/due_times.hpp"
#include "delta/step.hpp"
#include "delta/units.hpp"

namespace delta {

/// When a tensor will be used next.
struct forecast {
  enum class kind : std::uint8_t {
    unknown,  ///< nothing is known, or what was expected did not come true
    never,    ///< not again: it will be dropped
    known
  };
  kind what = kind::unknown;
  std::uint32_t position = 0;  ///< of a known one: the operator; beyond the step's: the next step's
  double in = 0;               ///< of a known one: ns of operators until then
};

/// The steps that were seen, and where the one under way stands.
class history {
 public:
  /// As many different steps are kept; the least recently used goes first.
  static constexpr std::size_t most_records = 32;
  /// As many operators in a row a step may have more, or less, than the record that it follows.
  static constexpr std::uint32_t most_differing = 8;

  // --- what policies ask ------------------------------------------------------------------------

  /// Does the step under way agree with one that was seen? Else what follows is unknown, or 0.
  [[nodiscard]] bool follows() const noexcept { return followed_ != none; }
  /// The record that it follows.
  [[nodiscard]] const step_record& followed() const noexcept { return records_[followed_].step; }

  /// When `t` will be used next, the operator at hand not counted. Amortised O(1).
  [[nodiscard]] forecast next_use(tensor_id t) const noexcept {
    if (!follows() || index(t) >= rows_.size()) return {};
    const row& r = rows_[index(t)];
    const step_record& e = followed();
    if (r.step != step_) {  // not touched in this step
      const bool due = r.again_step == step_ && r.again != none && r.again >= done_ &&
                       key_of(followed_) == coming_;
      return due ? known(r.again) : forecast{};
    }
    if (r.expected == none) return {};
    const step_record::storage& s = e.storages[r.expected];
    std::uint32_t& at = cursors_[r.expected];
    while (at < s.uses && e.uses[s.first_use + at] < done_) ++at;
    if (at < s.uses) return known(e.uses[s.first_use + at]);
    // What should be gone by now and is not is no longer what it was.
    if (s.died != none)
      return {done_ <= s.died + 1 ? forecast::kind::never : forecast::kind::unknown, 0, 0};
    return s.again == none ? forecast{} : known(e.length() + s.again);
  }
  /// Which storage of the followed record `t` stands for; step_record::none: none, or not touched
  /// yet in this step. O(1).
  [[nodiscard]] std::uint32_t storage_of(tensor_id t) const noexcept {
    if (!follows() || index(t) >= rows_.size() || rows_[index(t)].step != step_) return none;
    return rows_[index(t)].expected;
  }
  /// Will the program have dropped `t` before that operator begins, by the followed record? Later
  /// ones are the next step's. O(1).
  [[nodiscard]] bool dies_before(tensor_id t, std::uint32_t position) const noexcept {
    const std::uint32_t s = position == none ? none : storage_of(t);
    return s != none && followed().storages[s].died < position;
  }
  /// How many operators of the step touch `t`, by the followed record; 1 where that is not known.
  /// The same before and after the program drops it. O(1).
  [[nodiscard]] std::uint32_t uses_of(tensor_id t) const noexcept {
    if (!follows() || index(t) >= rows_.size()) return 1;
    const row& r = rows_[index(t)];
    const bool here = r.step == step_ || r.gone_under == forecasts_;
    return here && r.expected != none ? std::max(followed().storages[r.expected].uses, 1u) : 1;
  }
  /// Which forecasts hold: another number with every record that is followed, and every step.
  [[nodiscard]] std::uint64_t forecasts() const noexcept { return forecasts_; }
  /// ns of operators from now to the beginning of that one. O(1).
  [[nodiscard]] double time_until(std::uint32_t position) const noexcept {
    if (!follows()) return 0;
    const step_record &e = followed(), &next = records_[after_].step;
    const double at = position < e.length() ? e.operations[position].start
                      : position - e.length() < next.length()
                          ? e.time + next.operations[position - e.length()].start
                          : e.time + next.time;
    return std::max(0.0, (at - elapsed()) * time_scale_);
  }
  /// ns of operators until the program holds most; 0 when that is over. O(1).
  [[nodiscard]] double time_until_peak() const noexcept {
    return before_peak() ? time_until(followed().peak_at) : 0.0;
  }
  [[nodiscard]] bool before_peak() const noexcept {
    return follows() && done_ <= followed().peak_at;
  }
  /// The most that the program will hold in this step, in bytes.
  [[nodiscard]] double peak() const noexcept {
    return follows() ? static_cast<double>(followed().peak) * size_scale_ : 0.0;
  }
  /// How much more than now the program will hold at most until that operator is done, in bytes; 0
  /// if no more. O(operators until then).
  [[nodiscard]] double growth(std::uint32_t position) const noexcept {
    if (!follows()) return 0;
    const step_record& e = followed();
    std::uint64_t most = 0;
    for (std::uint32_t i = done_; i < e.length() && i <= position; ++i)
      most = std::max(most, e.operations[i].live);
    return std::max(0.0, static_cast<double>(most) * size_scale_ - static_cast<double>(live_));
  }
  /// What the operator after this one takes, in ns; 0 at the step's end.
  [[nodiscard]] double coming_cost() const noexcept {
    if (!follows() || done_ >= followed().length()) return 0;
    return followed().operations[done_].cost * time_scale_;
  }
  /// Bytes on the host alone that are due before that operator. O(log step).
  [[nodiscard]] double due_before(std::uint32_t position) const noexcept {
    return static_cast<double>(away_.due_before(position));
  }
  /// The same, of what was evicted.
  [[nodiscard]] double evicted_before(std::uint32_t position) const noexcept {
    return static_cast<double>(away_.evicted_before(position));
  }
  /// The tensor on the host that is used first, of several the one that left last; none. O(log
  /// step).
  [[nodiscard]] tensor_id first_due() const noexcept { return away_.first_due(); }
  /// Operators of the step under way that have begun, but for the one at hand.
  [[nodiscard]] std::uint32_t operators() const noexcept {
    return now_.length() - (running_ ? 1u : 0u);
  }
  /// Bytes that the program holds.
  [[nodiscard]] double live() const noexcept { return static_cast<double>(live_); }
  /// The operator of the followed record that comes next.
  [[nodiscard]] std::uint32_t position() const noexcept { return done_; }

  // --- what reports ask -------------------------------------------------------------------------

  /// Steps that ended; the record of the last of them, once there was one.
  [[nodiscard]] std::uint64_t steps() const noexcept { return step_ - 1; }
  [[nodiscard]] const step_record& last() const noexcept { return records_[last_].step; }
  /// What that step took, in ns by the storage's clock: operators, replays and waits.
  [[nodiscard]] double last_took() const noexcept { return took_; }
  /// The key of the step that is expected next: of its last operator,
  /// `step_record::operation::prefix`.
  [[nodiscard]] std::uint64_t coming() const noexcept { return coming_; }
  /// Steps that are kept, and the memory of all that is here, in bytes. O(records).
  [[nodiscard]] std::size_t records() const noexcept { return records_.size(); }
  [[nodiscard]] std::size_t footprint() const noexcept {
    std::size_t sum = now_.footprint() + away_.footprint() + rows_.capacity() * sizeof(row) +
                      4 * (cursors_.capacity() + twins_.capacity() + matches_.capacity() +
                           tensors_.capacity() + before_.capacity() + numbers_.capacity()) +
                      quiet_.capacity() * sizeof(quiet);
    for (const entry& e : records_) sum += e.step.footprint();
    return sum;
  }
  /// Times that a step stopped agreeing with what it followed and another record was taken, or
  /// none.
  [[nodiscard]] std::uint64_t switches() const noexcept { return switches_; }
  [[nodiscard]] std::uint64_t divergences() const noexcept { return divergences_; }

  /// Between steps: calls `visit(t)` for every tensor that the program held when the last one
  /// ended, and holds still, in the order of that step. O(its storages).
  template <class Visit>
  void for_each_held(const Visit& visit) const {
    for (std::uint32_t l = 0; l < before_.size(); ++l)
      if (const row& r = rows_[index(before_[l])]; r.before_step == step_ && r.before == l)
        visit(before_[l]);
  }
  /// The step that is expected next; and the one expected behind a step. Of a history that follows.
  [[nodiscard]] const step_record& behind() const noexcept { return records_[after_].step; }

  // --- what the manager tells -------------------------------------------------------------------

  /// A tensor appears, of that many rounded bytes; or the program holds it no more. Amortised O(1).
  void created(tensor_id t, bytes size) {
    if (index(t) >= rows_.size()) {
      rows_.resize(index(t) + 1 + index(t) / 8);  // as the ids, a little ahead
      away_.cover(rows_.size());
    }
    live_ += size.count;
  }
  void dropped(tensor_id t, bytes size, bool pinned = false) {
    changed(step_record::change::kind::dropped, t, size, pinned);
    live_ -= size.count;
    row& r = rows_[index(t)];
    if (r.step == step_ && !now_.operations.empty())
      now_.storages[r.local].died = now_.length() - 1;
    if (r.step == step_) r.gone_under = forecasts_;
    r.step = r.again_step = r.before_step = r.quiet_step = 0;
    away_.forget(t);
  }
  /// Between operators the program did that to a tensor; of a source, `created` first. Amortised
  /// O(1).
  void changed(step_record::change::kind what, tensor_id t, bytes size, bool pinned) {
    row& r = rows_[index(t)];
    std::uint32_t of = r.local;
    if (r.step != step_) {
      if (r.quiet_step != step_) {
        r.quiet_step = step_;
        r.quiet = static_cast<std::uint32_t>(quiet_.size());
        quiet_.push_back({t, size, pinned});
      }
      of = r.quiet | unnumbered;
    }
    now_.changes.push_back({now_.length(), of, what});
  }
  /// A step of another history, whose names are not known here: it is followed by one whose
  /// operators have none (""). `here`: by its storages, those from outside it that are here, and
  /// expected. `next`: the step behind it, if that is another one.
  void preload(const step_record& step, std::span<const tensor_id> here = {},
               const step_record* next = nullptr) {
    if (step.operations.empty()) return;
    std::uint64_t behind = 0;
    if (next != nullptr && !next->operations.empty()) learn(*next), behind = key_of(last_);
    learn(step);
    coming_ = key_of(last_);
    records_[last_].after = behind != 0 ? behind : coming_;
    ++step_;
    for (std::uint32_t l = 0; l < std::min(here.size(), step.storages.size()); ++l) {
      const step_record::storage& x = last().storages[l];
      if (index(here[l]) >= rows_.size() || x.born != none || x.uses == 0) continue;
      row& r = rows_[index(here[l])];
      r.again = last().uses[x.first_use], r.again_step = step_;
    }
    follow(last_, 0);
    refile();
  }
  /// The step that follows begins now: what was done since the end of the last one is nobody's
  /// time.
  void resumes(nanoseconds clock) noexcept { began_ = clock; }
  /// An operator is about to begin: with the first of all begins the first step, whatever took time
  /// before.
  void starts(nanoseconds clock) noexcept {
    if (step_ == 1 && now_.operations.empty()) began_ = clock;
  }
  /// An operator begins. `size_of(t)`: rounded bytes; `pinned(t)`: both ways. O(touched), but for
  /// one that differs.
  template <class SizeOf, class Pinned>
  void begin(std::string_view name, std::span<const tensor_id> touched, std::size_t inputs,
             const SizeOf& size_of, const Pinned& pinned) {
    step_record::operation o;
    o.kind = mix(mix(hash(name), inputs), touched.size());
    o.key = o.kind;
    o.first = static_cast<std::uint32_t>(now_.lists.size());
    o.inputs = static_cast<std::uint32_t>(inputs);
    o.updates = static_cast<std::uint32_t>(touched.size() - inputs);
    const std::uint32_t here = now_.length();
    before_it_ = {followed_, done_, extra_, static_cast<std::uint32_t>(tensors_.size()), shifted_};
    for (const tensor_id t : touched) {
      row& r = rows_[index(t)];
      if (r.step != step_) {
        if (r.before_step == step_) records_[last_].step.storages[r.before].again = here;
        enter(t, size_of(t), none, pinned(t));
        o.exact = mix(o.exact, size_of(t).count);  // until its end
      }
      o.key = mix(o.key, r.local);
      now_.lists.push_back(r.local);
    }
    now_.operations.push_back(o);
    matches_.push_back(none);
    running_ = true;
    match(here);
  }
  /// The operator was given up: it leaves no trace. (But of a record that was taken up for it, as
  /// that begins as the step did so far.) O(storages).
  void abort_operator() noexcept {
    running_ = false;
    const std::uint32_t here = now_.length() - 1;
    now_.lists.resize(now_.operations.back().first);
    now_.operations.pop_back();
    matches_.pop_back();
    for (std::size_t i = now_.changes.size(); i-- > 0 && now_.changes[i].at > here;) {
      step_record::change& c = now_.changes[i];
      c.at = here;
      if (c.storage >= unnumbered || c.storage < before_it_.storages) continue;
      const step_record::storage& s = now_.storages[c.storage];
      quiet_.push_back({tensors_[c.storage], s.size, s.pinned});
      c.storage = static_cast<std::uint32_t>(quiet_.size() - 1) | unnumbered;
    }
    while (tensors_.size() > before_it_.storages) {
      row& r = rows_[index(tensors_.back())];
      if (r.step == step_ && r.local == tensors_.size() - 1) {
        r.step = 0;
        if (r.quiet_step == step_) quiet_[r.quiet].local = none;
        if (r.before_step == step_) records_[last_].step.storages[r.before].again = r.again;
      }
      now_.storages.pop_back(), tensors_.pop_back(), twins_.pop_back();
    }
    for (step_record::storage& s : now_.storages)
      if (s.died == here) s.died = here - 1;
    if (!follows() || followed_ != before_it_.followed) return;
    // Uses that were passed are to come again.
    for (std::uint32_t i = before_it_.done; i < done_; ++i)
      for (const std::uint32_t s : followed().touched(followed().operations[i])) cursors_[s] = 0;
    done_ = before_it_.done, extra_ = before_it_.extra, shifted_ = before_it_.shifted;
    refile();
  }
  /// It has made these. `workspace` is rounded; `cost`, in ns, is what is known by now, negative:
  /// nothing.
  template <class SizeOf>
  void end(std::span<const tensor_id> made, bytes workspace, trait traits, double cost,
           const SizeOf& size_of) {
    running_ = false;
    const std::uint32_t here = now_.length() - 1;
    std::uint64_t sizes = mix(now_.operations[here].exact, workspace.count);
    for (const tensor_id t : made) {
      enter(t, size_of(t), here, false);
      sizes = mix(sizes, size_of(t).count);
      now_.lists.push_back(rows_[index(t)].local);
    }
    step_record::operation& o = now_.operations[here];
    o.outputs = static_cast<std::uint32_t>(made.size());
    o.workspace = workspace;
    o.traits = traits;
    o.cost = cost >= 0 ? cost : expected_cost(here);
    o.live = live_ + workspace.count;
    chain(o, sizes);
    compare(here);
  }
  /// What an operator of this step took, in ns: the first piece of it, or one more.
  void measured(std::uint32_t position, double cost, bool first) noexcept {
    double& kept = now_.operations[position].cost;
    kept = first ? cost : kept + cost;
  }
  /// A tensor's bytes are on the host alone from now on, or evicted; or on the device again, or of
  /// no use to anybody. O(log step).
  void moved_out(tensor_id t, bytes size, bool to_host) {
    away_.remove(t);
    away_.add(t, size, to_host, due(t));
  }
  void moved_in(tensor_id t) noexcept { away_.remove(t); }
  /// The step has ended: it is kept, and the next one begins. `living(visit)` calls
  /// `visit(t, size, pinned)` for every tensor that the program holds: one that the step did not
  /// touch takes memory, too. O(step + tensors).
  void end_of_step(nanoseconds clock) {
    end_of_step(clock, [](const auto&) {});
  }
  template <class Living>
  void end_of_step(nanoseconds clock, const Living& living) {
    if (now_.operations.empty()) return void(began_ = clock);
    took_ = static_cast<double>((clock - std::exchange(began_, clock)).count());
    // What lives and was not used in this step is not expected in the next one like it.
    for (std::uint32_t l = 0; l < before_.size(); ++l) {
      const row& r = rows_[index(before_[l])];
      if (r.before_step == step_ && r.before == l && r.step != step_)
        records_[last_].step.storages[l].again = none;
    }
    // What is known of the step behind one like this.
    for (std::uint32_t l = 0; follows() && l < twins_.size(); ++l)
      if (twins_[l] != none) now_.storages[l].again = followed().storages[twins_[l]].again;
    enter_untouched(living);
    note_origins();
    now_.finish();
    // Which step came after one like this; after the one before it came this one.
    std::uint64_t after = follows() ? records_[followed_].after : 0;
    if (follows()) records_[followed_].used = ++agreements_;
    if (last_ != none) records_[last_].after = prefix_;
    if (follows() && followed_ == last_ && key_of(last_) == prefix_) after = prefix_;
    if (after == 0) {  // nothing is known: the same again, presumably
      after = prefix_;
      for (step_record::storage& s : now_.storages)
        if (s.born == none && s.again == none && s.uses > 0) s.again = now_.uses[s.first_use];
    }
    last_ = keep();
    records_[last_].after = coming_ = after;
    ++step_;
    for (std::uint32_t l = 0; l < tensors_.size(); ++l) {
      row& r = rows_[index(tensors_[l])];
      if (r.step != step_ - 1 || r.local != l) continue;  // dropped; the id may be another's by now
      r.before = l;
      r.again = last().storages[l].again;
      r.before_step = r.again_step = step_;
    }
    now_.clear(), quiet_.clear();
    std::swap(before_, tensors_);
    tensors_.clear(), twins_.clear(), matches_.clear();
    prefix_ = exact_ = 0;
    follow(like(coming_, last_), 0);
    refile();
  }

 private:
  static constexpr std::uint32_t none = step_record::none;

  // Of a tensor, by its id. Steps are counted from 1.
  struct row {
    std::uint32_t step = 0;                   // in which it was touched last
    std::uint32_t again_step = 0;             // for which `again` holds
    std::uint32_t before_step = 0;            // for which `before` holds
    std::uint32_t local = none;               // its number in the step under way
    std::uint32_t expected = none;            // and in the record that is followed
    std::uint32_t again = none;               // its first use in this step, by the one before
    std::uint32_t before = none;              // its number in the step before
    std::uint32_t quiet = 0, quiet_step = 0;  // its place in `quiet_`, and in which step
    std::uint64_t gone_under = 0;  // dropped while these forecasts held, by which it was `expected`
  };
  // Not touched so far in the step under way, but something happened to it.
  struct quiet {
    tensor_id tensor;
    bytes size;
    bool pinned;
    std::uint32_t local = none;  // once it is touched
  };
  static constexpr std::uint32_t unnumbered = 0x80000000u;  // of a change: a place in `quiet_`
  struct entry {
    step_record step;
    std::uint64_t used = 0;   // when a step last agreed with it, in such times
    std::uint64_t after = 0;  // the key of the step that came after it; 0: not known
  };

  static std::uint64_t mix(std::uint64_t h, std::uint64_t x) noexcept {
    h = (h ^ x) * 0x9e3779b97f4a7c15u + 0x7f4a7c15u;  // multiply and shift
    return h ^ (h >> 29);
  }
  static std::uint64_t hash(std::string_view text) noexcept {
    std::uint64_t h = 0xcbf29ce484222325u;  // FNV-1a
    for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return h;
  }
  // An operator's prefixes: its own key and sizes behind those of all before it.
  void chain(step_record::operation& o, std::uint64_t sizes) noexcept {
    prefix_ = o.prefix = mix(mix(prefix_, o.key), o.outputs);
    exact_ = o.exact = mix(mix(exact_, o.prefix), sizes);
  }
  [[nodiscard]] forecast known(std::uint32_t position) const noexcept {
    return {forecast::kind::known, position, time_until(position)};
  }
  // ns of the followed record's operators before now; the one at hand is not over.
  [[nodiscard]] double elapsed() const noexcept {
    const step_record& e = followed();
    const bool within = running_ && matches_.back() != none;
    const std::uint32_t at = within ? done_ - 1 : done_;
    return at < e.length() ? e.operations[at].start : e.time;
  }
  [[nodiscard]] std::uint64_t key_of(std::uint32_t record) const noexcept {
    return records_[record].step.structure();
  }
  // The record of that structure that was used last; rather the one given, or where there is none.
  [[nodiscard]] std::uint32_t like(std::uint64_t key, std::uint32_t rather) const noexcept {
    if (key_of(rather) == key) return rather;
    std::uint32_t best = none;
    for (std::uint32_t i = 0; i < records_.size(); ++i)
      if (key_of(i) == key && (best == none || records_[i].used > records_[best].used)) best = i;
    return best == none ? rather : best;
  }
  // What the operator took in the followed record; 0 where that does not have it.
  [[nodiscard]] double expected_cost(std::uint32_t here) const noexcept {
    const bool has = follows() && matches_[here] != none;
    return has ? followed().operations[matches_[here]].cost : 0.0;
  }
  // Keeps a step of another history, all of whose operators are nameless.
  void learn(const step_record& step) {
    before_.clear();
    now_ = step;
    prefix_ = exact_ = 0;
    std::vector<bool> met(step.storages.size());
    for (step_record::operation& o : now_.operations) {
      o.kind = mix(mix(hash(""), o.inputs), std::uint64_t{o.inputs} + o.updates);
      o.key = o.kind;
      std::uint64_t sizes = 0;
      for (const std::uint32_t s : now_.touched(o)) {
        if (!met[s]) sizes = mix(sizes, step.storages[s].size.count);
        met[s] = true;
        o.key = mix(o.key, s);
      }
      sizes = mix(sizes, o.workspace.count);
      for (const std::uint32_t s : now_.outputs(o)) {
        sizes = mix(sizes, step.storages[s].size.count);
        met[s] = true;
      }
      chain(o, sizes);
    }
    last_ = keep();
    now_.clear(), quiet_.clear();
    prefix_ = exact_ = 0;
  }
  // A storage of the step under way.
  void enter(tensor_id t, bytes size, std::uint32_t born, bool pinned) {
    row& r = rows_[index(t)];
    r.step = step_;
    r.local = static_cast<std::uint32_t>(now_.storages.size());
    r.expected = none;
    r.gone_under = 0;
    if (r.quiet_step == step_) quiet_[r.quiet].local = r.local;
    append(t, size, born, pinned);
  }
  void append(tensor_id t, bytes size, std::uint32_t born, bool pinned) {
    step_record::storage s;
    s.size = size, s.born = born, s.pinned = pinned, s.tensor = t;
    now_.storages.push_back(s);
    tensors_.push_back(t);
    twins_.push_back(none);
  }
  // At the end of a step: what it held without touching it, behind all that it touched.
  template <class Living>
  void enter_untouched(const Living& living) {
    for (step_record::change& c : now_.changes) {
      using kind = step_record::change::kind;
      if (c.storage >= unnumbered) {
        quiet& q = quiet_[c.storage & ~unnumbered];
        if (q.local == none) {
          const row& r = rows_[index(q.tensor)];
          const bool lives = r.quiet_step == step_ && &quiet_[r.quiet] == &q;
          q.local = static_cast<std::uint32_t>(now_.storages.size());
          lives ? enter(q.tensor, q.size, none, q.pinned)
                : append(q.tensor, q.size, none, q.pinned);
        }
        c.storage = q.local;
        if (c.what == kind::dropped && c.at > 0) now_.storages[c.storage].died = c.at - 1;
      }
      if (c.what == kind::created) now_.storages[c.storage].created = true;
      if (c.what == kind::dropped) now_.storages[c.storage].dropped = true;
    }
    living([&](tensor_id t, bytes n, bool pinned) {
      if (rows_[index(t)].step != step_) enter(t, n, none, pinned);
    });
  }
  // What was there before the step, and what it was to the last step like this one: that may be
  // another storage, as of two that come by turns.
  void note_origins() {
    const std::uint32_t before = follows() && key_of(followed_) == prefix_ ? followed_ : none;
    if (before == none) return;
    const auto& left = records_[before].step.storages;
    numbers_.assign(rows_.size(), none);
    for (std::uint32_t l = 0; l < left.size(); ++l)
      if (!left[l].dropped &&
          index(left[l].tensor) < numbers_.size())  // it may have been preloaded
        numbers_[index(left[l].tensor)] = l;
    for (std::uint32_t l = 0; l < now_.storages.size(); ++l)
      if (now_.was_there(l)) now_.storages[l].was = numbers_[index(now_.storages[l].tensor)];
  }
  void expect(std::uint32_t local, std::uint32_t twin) noexcept {
    twins_[local] = twin;
    row& r = rows_[index(tensors_[local])];
    if (r.step == step_ && r.local == local) r.expected = twin;
  }

  // --- following --------------------------------------------------------------------------------

  // The operator at hand against what comes next: in the record, in another one with the same
  // beginning, or a little further on.
  void match(std::uint32_t here) {
    if (follows() && agrees(here, done_)) return take(here, done_);
    if (!follows() && here > 0) return;
    if (change_record(here, false)) return take(here, here);
    if (!follows()) return;
    shifted_ = true;
    for (std::uint32_t i = 1; i <= most_differing; ++i)
      if (agrees(here, done_ + i)) return take(here, done_ + i);
    if (++extra_ > most_differing) diverge();
  }
  // Could operator `here` be number `at` of the record? The same kind, and it touches the same, as
  // far as that is known: what only this step has may stand for anything.
  [[nodiscard]] bool agrees(std::uint32_t here, std::uint32_t at) const noexcept {
    const step_record& e = followed();
    if (at >= e.length()) return false;
    const step_record::operation &mine = now_.operations[here], &theirs = e.operations[at];
    if (!shifted_) return mine.key == theirs.key;
    if (mine.kind != theirs.kind) return false;
    const auto a = now_.touched(mine), b = e.touched(theirs);
    for (std::size_t i = 0; i < a.size(); ++i)
      if (twins_[a[i]] != none && twins_[a[i]] != b[i]) return false;
    return true;
  }
  void take(std::uint32_t here, std::uint32_t at) {
    const step_record& e = followed();
    const auto a = now_.touched(now_.operations[here]), b = e.touched(e.operations[at]);
    for (std::size_t i = 0; i < a.size(); ++i)
      if (twins_[a[i]] == none) expect(a[i], b[i]);
    matches_[here] = at;
    const bool skipped = at > done_;
    done_ = at + 1;
    extra_ = 0;
    if (skipped) refile();  // what was due there is overdue
  }
  // Another record that begins as this step does, up to and with operator `here`; `exact`: with the
  // same sizes, all outputs included. Of several the one with the same sizes so far, then the one
  // used last.
  bool change_record(std::uint32_t here, bool exact) {
    std::uint32_t best = none;
    const auto rank = [&](std::uint32_t i) {
      const auto& o = records_[i].step.operations;
      return std::pair(here > 0 && o[here - 1].exact == now_.operations[here - 1].exact,
                       records_[i].used);
    };
    for (std::uint32_t i = 0; i < records_.size(); ++i) {
      const auto& o = records_[i].step.operations;
      if (i == followed_ || o.size() <= here) continue;
      const bool same = exact ? o[here].exact == exact_
                              : (here == 0 || o[here - 1].prefix == prefix_) &&
                                    o[here].key == now_.operations[here].key;
      if (same && (best == none || rank(i) > rank(best))) best = i;
    }
    if (best == none) return false;
    take_up(best, here);
    return true;
  }
  // A record that began as this step did, of which `done` operators are over.
  void take_up(std::uint32_t record, std::uint32_t done) {
    follow(record, done);
    ++switches_;
    // Numbered alike so far; what the operator at hand touches first follows with its match.
    const auto known_so_far = std::min(twins_.size(), followed().storages.size());
    for (std::uint32_t l = 0; l < known_so_far; ++l) expect(l, l);
    refile();
  }
  void diverge() {
    follow(none, 0);
    refile();
    ++divergences_;
  }
  // The operator has ended: did it make as much, and as large, as the record says?
  void compare(std::uint32_t here) {
    if (!follows() || matches_[here] == none) return;
    const step_record& e = followed();
    const step_record::operation &mine = now_.operations[here],
                                 &theirs = e.operations[matches_[here]];
    if (mine.outputs != theirs.outputs) {
      if (change_record_after(here)) return;
      return diverge();
    }
    const auto a = now_.outputs(mine), b = e.outputs(theirs);
    for (std::size_t i = 0; i < a.size(); ++i) expect(a[i], b[i]);
    if (mine.exact == theirs.exact && !shifted_) return;
    if (!inexact_ && !shifted_ && change_record(here, true)) {
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
  bool change_record_after(std::uint32_t here) {
    for (std::uint32_t i = 0; i < records_.size(); ++i) {
      const auto& o = records_[i].step.operations;
      if (o.size() <= here || o[here].prefix != prefix_) continue;
      take_up(i, here + 1);
      matches_[here] = here;
      return true;
    }
    return false;
  }

  void follow(std::uint32_t record, std::uint32_t done) {
    followed_ = record;
    ++forecasts_;
    after_ = follows() ? like(records_[record].after, record) : none;
    done_ = done;
    shifted_ = inexact_ = false;
    extra_ = 0;
    time_scale_ = size_scale_ = 1;
    measured_ = recorded_ = 0;
    for (std::uint32_t l = 0; l < twins_.size(); ++l) expect(l, none);
    cursors_.assign(follows() ? followed().storages.size() : 0, 0);
  }
  // By other forecasts than before. For positions of the step, and of the one after it.
  void refile() {
    away_.reset(follows() ? std::size_t{followed().length()} + records_[after_].step.length() : 0,
                [&](tensor_id t) { return due(t); });
  }
  // The place of the record that the step goes to: of one just like it, else a new one, else the
  // one that was of no use for longest.
  std::uint32_t keep() {
    std::uint32_t place = none;
    for (std::uint32_t i = 0; i < records_.size() && place == none; ++i) {
      const auto& o = records_[i].step.operations;
      if (o.size() == now_.operations.size() && o.back().exact == exact_) place = i;
    }
    if (place == none && records_.size() < most_records) {
      place = static_cast<std::uint32_t>(records_.size());
      records_.emplace_back();
    }
    if (place == none)
      place = static_cast<std::uint32_t>(std::ranges::min_element(records_, {}, &entry::used) -
                                         records_.begin());
    step_record& kept = records_[place].step;
    const bool grown = kept.operations.empty();
    std::swap(kept, now_);
    if (grown) kept.fit(), now_.reserve_like(kept);
    records_[place].used = ++agreements_;
    return place;
  }
  [[nodiscard]] std::uint32_t due(tensor_id t) const noexcept {
    const forecast f = next_use(t);
    return f.what == forecast::kind::known ? f.position : none;
  }

  std::vector<entry> records_;
  step_record now_;                 // under way
  std::vector<row> rows_;           // by tensor
  std::vector<tensor_id> tensors_;  // by storage of the step under way
  std::vector<quiet> quiet_;
  std::vector<std::uint32_t> numbers_;          // scratch, by tensor
  std::vector<tensor_id> before_;               // by storage of the step before
  std::vector<std::uint32_t> twins_;            // likewise: the followed record's
  std::vector<std::uint32_t> matches_;          // by operator of the step under way: likewise
  mutable std::vector<std::uint32_t> cursors_;  // by storage of the followed record: its next use
  detail::due_times away_;
  std::uint32_t step_ = 1;
  std::uint64_t live_ = 0, switches_ = 0, divergences_ = 0, forecasts_ = 0;
  std::uint64_t prefix_ = 0, exact_ = 0, agreements_ = 0;
  std::uint64_t coming_ = 0;  // the key of the step for which `row::again` holds
  std::uint32_t followed_ = none, last_ = none;
  std::uint32_t after_ = none;  // the record of the step that comes after the followed one
  std::uint32_t done_ = 0;      // operators of the followed record so far, the one at hand included
  std::uint32_t extra_ = 0;     // in a row that the record does not have
  bool running_ = false;
  // As it was before the operator at hand began.
  struct {
    std::uint32_t followed = none, done = 0, extra = 0, storages = 0;
    bool shifted = false;
  } before_it_;
  bool shifted_ = false;  // the step has more or fewer operators: numbers differ
  bool inexact_ = false;  // sizes differ
  nanoseconds began_{};   // the step under way
  double took_ = 0;       // the last one
  double time_scale_ = 1, size_scale_ = 1, measured_ = 0, recorded_ = 0;
};

}  // namespace delta
