// delta: the record of the step under way, as it is written: operators, the storages that they
// touch, and what the program does between operators.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "delta/detail/tensors/records.hpp"
#include "delta/kernel.hpp"
#include "delta/step.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Numbers the storages of a step in the order in which it touches them, and writes its record.
class step_log {
 public:
  static constexpr std::uint32_t none = step_record::none;

  /// What is known of a tensor, by its id. Steps are counted from 1.
  struct row {
    std::uint32_t step = 0;   ///< the step that touched it last
    std::uint32_t local = 0;  ///< its number in that step
    // Each of these holds in the step whose number stands before it.
    std::uint32_t before_step = 0;
    std::uint32_t before = 0;  ///< its number in the step before
    std::uint32_t again_step = 0;
    std::uint32_t again = none;     ///< its first use, as foretold when the step before ended
    std::uint32_t again_as = none;  ///< and its number in the step that was expected then
    std::uint32_t quiet_step = 0;
    std::uint32_t quiet = 0;  ///< its place in `quiet_`, the tensors that are not touched yet
    // Of a tensor that was dropped: its storage in the followed record, while these forecasts hold.
    std::uint64_t gone_under = 0;
    std::uint32_t gone_as = none;
  };

  [[nodiscard]] const step_record& record() const noexcept { return record_; }
  [[nodiscard]] step_record& record() noexcept { return record_; }
  /// The step's number.
  [[nodiscard]] std::uint32_t step() const noexcept { return step_; }
  [[nodiscard]] bool knows(tensor_id t) const noexcept { return index(t) < rows_.size(); }
  [[nodiscard]] row& of(tensor_id t) noexcept { return rows_[index(t)]; }
  [[nodiscard]] const row& of(tensor_id t) const noexcept { return rows_[index(t)]; }
  /// True if the step has touched it.
  [[nodiscard]] bool touched(tensor_id t) const noexcept { return of(t).step == step_; }
  /// The structure of all operators that have ended (step_record::operation::prefix).
  [[nodiscard]] std::uint64_t prefix() const noexcept { return prefix_; }
  [[nodiscard]] std::size_t footprint() const noexcept {
    return record_.footprint() + rows_.capacity() * sizeof(row) +
           sizeof(none) * numbers_.capacity() + quiet_.capacity() * sizeof(quiet);
  }

  /// A tensor appears: there are rows for it. Amortised O(1).
  void cover(tensor_id t) {
    if (!knows(t)) rows_.resize(index(t) + 1 + index(t) / 8);  // as the ids, a little ahead
  }
  /// Between operators the program did that to a tensor. Amortised O(1).
  void changed(step_record::change::kind what, tensor_id t, bytes size, bool pinned) {
    row& r = of(t);
    std::uint32_t which = r.local;
    if (r.step != step_) {
      if (r.quiet_step != step_) {
        r.quiet_step = step_;
        r.quiet = static_cast<std::uint32_t>(quiet_.size());
        quiet_.push_back({t, size, pinned});
      }
      which = r.quiet | unnumbered;
    }
    record_.changes.push_back({record_.length(), which, what});
  }
  /// The program holds it no more: its id may soon be another's.
  void dropped(tensor_id t) noexcept {
    row& r = of(t);
    if (r.step == step_ && !record_.operations.empty())
      record_.storages[r.local].died = record_.length() - 1;
    r.step = r.again_step = r.before_step = r.quiet_step = 0;
  }

  /// An operator begins. `size_of(t)`: rounded bytes; `pinned(t)`: both ways; `entering(t)` is
  /// called before a tensor is numbered. O(touched).
  template <class SizeOf, class Pinned, class Entering>
  void begin(std::string_view name, std::span<const tensor_id> touched, std::size_t inputs,
             const SizeOf& size_of, const Pinned& pinned, const Entering& entering) {
    step_record::operation o;
    o.kind = mix(mix(hash(name), inputs), touched.size());
    o.key = o.kind;
    o.first = static_cast<std::uint32_t>(record_.lists.size());
    o.inputs = static_cast<std::uint32_t>(inputs);
    o.updates = static_cast<std::uint32_t>(touched.size() - inputs);
    storages_before_ = static_cast<std::uint32_t>(record_.storages.size());
    for (const tensor_id t : touched) {
      if (!this->touched(t)) {
        entering(t);
        enter(t, size_of(t), none, pinned(t));
        o.exact = mix(o.exact, size_of(t).count);  // until its end
      }
      o.key = mix(o.key, of(t).local);
      record_.lists.push_back(of(t).local);
    }
    record_.operations.push_back(o);
  }
  /// It was given up, and leaves no trace; `left(t)` is called for what it touched first. Gives the
  /// number of storages that are left. O(storages).
  template <class Left>
  std::uint32_t abort(const Left& left) {
    const std::uint32_t here = record_.length() - 1;
    record_.lists.resize(record_.operations.back().first);
    record_.operations.pop_back();
    for (std::size_t i = record_.changes.size(); i-- > 0 && record_.changes[i].at > here;) {
      step_record::change& c = record_.changes[i];
      c.at = here;
      if (c.storage >= unnumbered || c.storage < storages_before_) continue;
      const step_record::storage& s = record_.storages[c.storage];
      quiet_.push_back({s.tensor, s.size, s.pinned});
      c.storage = static_cast<std::uint32_t>(quiet_.size() - 1) | unnumbered;
    }
    for (; record_.storages.size() > storages_before_; record_.storages.pop_back()) {
      const tensor_id t = record_.storages.back().tensor;
      row& r = of(t);
      if (r.step != step_ || r.local != record_.storages.size() - 1) continue;
      r.step = 0;
      if (r.quiet_step == step_) quiet_[r.quiet].local = none;
      left(t);
    }
    for (step_record::storage& s : record_.storages)
      if (s.died == here) s.died = here - 1;
    return storages_before_;
  }
  /// It has made these, some of them in the blocks of inputs. `live`: bytes that the program holds,
  /// workspace and inputs that were replaced included.
  template <class SizeOf>
  void end(std::span<const tensor_id> made, bytes workspace, trait traits, double cost,
           std::uint64_t live, const SizeOf& size_of, std::span<const replaced_input> replaced) {
    const std::uint32_t here = record_.length() - 1;
    std::uint64_t sizes = mix(record_.operations[here].exact, workspace.count);
    for (const tensor_id t : made) {
      enter(t, size_of(t), here, false);
      sizes = mix(sizes, size_of(t).count);
      record_.lists.push_back(of(t).local);
    }
    for (const replaced_input& r : replaced) {
      record_.storages[of(made[r.output]).local].replaces = of(r.tensor).local;
      live -= size_of(r.tensor).count;
    }
    step_record::operation& o = record_.operations[here];
    o.outputs = static_cast<std::uint32_t>(made.size());
    o.workspace = workspace;
    o.traits = traits;
    o.cost = cost;
    o.live = live;
    chain(o, sizes);
  }
  /// What an operator took, in ns: the first piece of it, or one more.
  void measured(std::uint32_t position, double cost, bool first) noexcept {
    assert(position < record_.length());
    double& kept = record_.operations[position].cost;
    kept = first ? cost : kept + cost;
  }

  /// At the end of the step: what it held without touching it, behind all that it touched. `living`
  /// calls `visit(t, size, pinned)` for all that the program holds. O(changes + tensors).
  template <class Living>
  void enter_untouched(const Living& living) {
    for (step_record::change& c : record_.changes) {
      using kind = step_record::change::kind;
      if (c.storage >= unnumbered) {
        quiet& q = quiet_[c.storage & ~unnumbered];
        if (q.local == none) {
          const row& r = of(q.tensor);
          const bool lives = r.quiet_step == step_ && &quiet_[r.quiet] == &q;
          q.local = static_cast<std::uint32_t>(record_.storages.size());
          lives ? enter(q.tensor, q.size, none, q.pinned)
                : append(q.tensor, q.size, none, q.pinned);
        }
        c.storage = q.local;
        if (c.what == kind::dropped && c.at > 0) record_.storages[c.storage].died = c.at - 1;
      }
      if (c.what == kind::created) record_.storages[c.storage].created = true;
      if (c.what == kind::dropped) record_.storages[c.storage].dropped = true;
    }
    living([&](tensor_id t, bytes n, bool pinned) {
      if (!touched(t)) enter(t, n, none, pinned);
    });
  }
  /// What was there before the step, and what it was to the last step like this one, `before`: that
  /// may be another storage, as of two that come by turns. Only what operators of `before` touch
  /// has the same number in both. O(storages + tensors).
  void note_origins(const step_record& before) {
    const auto& left = before.storages;
    numbers_.assign(rows_.size(), none);
    for (std::uint32_t l = 0; l < left.size(); ++l)
      if (left[l].uses > 0 && !left[l].dropped &&
          index(left[l].tensor) < numbers_.size())  // it may have been preloaded
        numbers_[index(left[l].tensor)] = l;
    for (std::uint32_t l = 0; l < record_.storages.size(); ++l)
      if (record_.was_there(l))
        record_.storages[l].was = numbers_[index(record_.storages[l].tensor)];
  }
  /// The step's number goes on; its tensors are still those of the one that has ended.
  void count_step() noexcept { ++step_; }

  /// A step of another history, its operators nameless, replaces the one that has not begun.
  void copy(const step_record& step) {
    record_ = step;
    prefix_ = exact_ = 0;
    std::vector<bool> met(step.storages.size());
    for (step_record::operation& o : record_.operations) {
      o.kind = mix(mix(hash(""), o.inputs), std::uint64_t{o.inputs} + o.updates);
      o.key = o.kind;
      std::uint64_t sizes = 0;
      for (const std::uint32_t s : record_.touched(o)) {
        if (!met[s]) sizes = mix(sizes, step.storages[s].size.count);
        met[s] = true;
        o.key = mix(o.key, s);
      }
      sizes = mix(sizes, o.workspace.count);
      for (const std::uint32_t s : record_.outputs(o)) {
        sizes = mix(sizes, step.storages[s].size.count);
        met[s] = true;
      }
      chain(o, sizes);
    }
  }
  /// The record is empty.
  void clear() noexcept {
    record_.clear(), quiet_.clear();
    prefix_ = exact_ = 0;
  }

 private:
  // Not touched so far in the step under way, but something happened to it.
  struct quiet {
    tensor_id tensor;
    bytes size;
    bool pinned;
    std::uint32_t local = none;  // once it is touched
  };
  static constexpr std::uint32_t unnumbered = 0x80000000u;  // of a change: a place in `quiet_`

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
  void enter(tensor_id t, bytes size, std::uint32_t born, bool pinned) {
    row& r = of(t);
    r.step = step_;
    r.local = static_cast<std::uint32_t>(record_.storages.size());
    r.gone_under = 0;
    if (r.quiet_step == step_) quiet_[r.quiet].local = r.local;
    append(t, size, born, pinned);
  }
  void append(tensor_id t, bytes size, std::uint32_t born, bool pinned) {
    step_record::storage s;
    s.size = size, s.born = born, s.pinned = pinned, s.tensor = t;
    record_.storages.push_back(s);
  }

  step_record record_;
  std::vector<row> rows_;  // by tensor
  std::vector<quiet> quiet_;
  std::vector<std::uint32_t> numbers_;  // scratch, by tensor
  std::uint32_t step_ = 1;
  std::uint32_t storages_before_ = 0;  // when the operator at hand began
  std::uint64_t prefix_ = 0, exact_ = 0;
};

}  // namespace delta::detail
