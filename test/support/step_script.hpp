// delta tests: random programs of steps, made from a seed: what they make, use and drop within a
// step and across steps, sources and host accesses included. No bytes: for virtual time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "delta/detail/runtime/run_in_place.hpp"
#include "delta/manager.hpp"
#include "dice.hpp"

namespace delta::test {

/// One kind of step, as a list of actions on numbered values. Those below `shared` are the
/// program's variables, which all kinds use; what is still held at the end stays until the next
/// step of the kind makes it anew.
struct action_list {
  enum class kind : std::uint8_t { make, operate, drop, read, write };
  struct act {
    kind what = kind::operate;
    std::vector<int> inputs{}, updates{}, outputs{};  ///< of others than operators: outputs alone
    bool pinned = false;
    std::int64_t cost = 0;  ///< ns
    std::uint64_t workspace = 0;
    trait traits = trait::pure;
    std::size_t replaced = 0;  ///< so many last outputs take over the blocks of the first inputs
  };
  std::vector<act> acts;
  std::vector<std::uint64_t> sizes;  ///< by value

  /// The most that a step holds, beside `others`, in bytes; both of what has one block.
  [[nodiscard]] std::uint64_t peak(int shared, std::uint64_t others = 0) const {
    std::vector<bool> held(sizes.size());
    std::uint64_t now = others, most = 0;
    for (int v = 0; v < shared; ++v) held[std::size_t(v)] = true, now += sizes[std::size_t(v)];
    for (int round = 0; round < 2; ++round)
      for (const act& a : acts)
        for (const int v : a.outputs) {
          const bool comes = a.what == kind::make || a.what == kind::operate;
          if (!comes && a.what != kind::drop) continue;
          if (held[std::size_t(v)] == comes) continue;
          held[std::size_t(v)] = comes;
          comes ? now += sizes[std::size_t(v)] : now -= sizes[std::size_t(v)];
          most = std::max(most, now + a.workspace);
        }
    return most;
  }
};

/// Forward passes and their way back, several of them; sources that come on the way, and some that
/// nobody uses; variables that are updated, once or more; a batch that every step makes anew; what
/// stays until some place in the next step; at the end some are left that were used long ago. With
/// `in_place`, some operators of the forward passes write their results over an input, which is
/// dropped then or read on the way back.
inline action_list random_actions(std::uint64_t seed, const std::vector<std::uint64_t>& variables,
                                  bool in_place = false) {
  using kind = action_list::kind;
  dice roll(seed);
  action_list s;
  s.sizes = variables;
  const int shared = int(variables.size());
  const auto size = [&] {
    return roll.one_in(4) ? 8 + roll.below(500) : 1000 + roll.below(64'000);
  };
  const auto value = [&] { return s.sizes.push_back(size()), int(s.sizes.size()) - 1; };
  const auto add = [&](kind what, int v, bool pinned = false) {
    s.acts.push_back({.what = what, .outputs = {v}, .pinned = pinned});
  };
  std::vector<int> late;  // dropped somewhere in the next step
  // The batch: the old one goes before the new one comes, or after, or much later.
  int batch = -1;
  if (!roll.one_in(3)) {
    batch = value();
    const auto order = roll.below(3);
    if (order == 0) add(kind::drop, batch);
    if (order < 2) add(kind::make, batch, roll.one_in(4));
    if (order == 2) {  // two by turns: the other one is dropped on the way
      const int other = value();
      s.sizes[std::size_t(other)] = s.sizes[std::size_t(batch)];
      add(kind::make, other), add(kind::drop, batch), add(kind::make, batch);
      late.push_back(other);
    }
    if (!roll.one_in(3)) add(kind::write, batch);
  }
  std::vector<int> live, sources;
  const auto cost = [&] {
    return roll.one_in(12) ? std::int64_t{0} : std::int64_t(1000 + roll.below(40'000));
  };
  for (auto pass = 1 + roll.below(3); pass-- > 0;) {
    const auto depth = 3 + roll.below(10);
    for (std::uint64_t i = 0; i < depth; ++i) {
      action_list::act a{.cost = cost()};
      if (!live.empty()) a.inputs.push_back(live.back());
      if (live.size() > 2 && roll.one_in(3)) a.inputs.push_back(roll.any(live));
      if (!roll.one_in(3)) a.inputs.push_back(int(roll.below(std::uint64_t(shared))));
      if (batch >= 0 && live.empty()) a.inputs.push_back(batch);
      if (!sources.empty() && roll.one_in(2)) a.inputs.push_back(roll.any(sources));
      a.outputs.push_back(value());
      if (roll.one_in(5)) a.outputs.push_back(value());
      if (roll.one_in(4)) a.workspace = size();
      if (roll.one_in(8)) a.traits = trait::random;
      const bool over = in_place && !live.empty() && roll.one_in(3);
      if (over) {
        s.sizes.push_back(s.sizes[std::size_t(live.back())]);
        a.outputs.push_back(int(s.sizes.size()) - 1), a.replaced = 1;
      }
      const bool gone_at_once = over && roll.one_in(2);
      if (gone_at_once) live.pop_back();
      live.insert(live.end(), a.outputs.begin(), a.outputs.end());
      s.acts.push_back(a);
      if (gone_at_once) add(kind::drop, a.inputs[0]);
      if (roll.one_in(5)) {
        sources.push_back(value());
        add(kind::make, sources.back(), roll.one_in(2));
        if (roll.one_in(2)) add(kind::write, sources.back());
      }
      if (!sources.empty() && roll.one_in(8)) {
        const auto gone = sources.begin() + std::ptrdiff_t(roll.below(sources.size()));
        add(kind::drop, *gone);
        sources.erase(gone);
      }
      if (!late.empty() && roll.one_in(4)) add(kind::drop, late.back()), late.pop_back();
    }
    int gradient = -1;
    while (!live.empty()) {
      action_list::act a{.inputs = {live.back()}, .cost = cost()};
      if (gradient >= 0) a.inputs.push_back(gradient);
      if (roll.one_in(3)) a.updates.push_back(int(roll.below(std::uint64_t(shared))));
      if (roll.one_in(2) || gradient < 0) a.outputs.push_back(value());
      if (!a.updates.empty() && !a.outputs.empty() && roll.one_in(2))
        a.traits = a.traits | trait::effect_once;
      s.acts.push_back(a);
      if (roll.one_in(10)) add(kind::read, roll.any(live));
      add(kind::drop, live.back()), live.pop_back();
      if (!a.outputs.empty()) {
        if (gradient >= 0) add(kind::drop, gradient);
        gradient = a.outputs[0];
      }
    }
    if (roll.one_in(3)) add(kind::read, gradient);
    add(kind::drop, gradient);
  }
  for (const int v : sources) add(kind::drop, v);
  for (const int v : late) add(kind::drop, v);
  // What outlives the step, and goes early in the next one: from the front on.
  for (auto n = roll.below(3); n-- > 0;) {
    const int v = value();
    s.acts.push_back({.inputs = {0}, .outputs = {v}, .cost = cost()});
    action_list::act gone{.what = kind::drop, .outputs = {v}};
    s.acts.insert(s.acts.begin() + std::ptrdiff_t(roll.below(6)), gone);
  }
  return s;
}

/// Runs steps of any kinds on one manager.
template <class Manager>
class step_player {
 public:
  step_player(Manager& m, const std::vector<std::uint64_t>& variables) : manager_(&m) {
    for (const std::uint64_t n : variables) shared_.push_back(m.variable(bytes{n}));
  }
  /// One step of that kind, to its end, or a part of one. What the manager throws ends it where it
  /// is.
  void step(std::size_t which, const action_list& s, bool ends = true) {
    using kind = action_list::kind;
    auto& held = held_[which];
    const auto id = [&](int v) {
      return std::size_t(v) < shared_.size() ? shared_[std::size_t(v)] : held.at(v);
    };
    std::vector<tensor_id> inputs, updates, made;
    std::vector<bytes> sizes;
    for (const action_list::act& a : s.acts) {
      const int v = a.outputs.empty() ? -1 : a.outputs[0];
      switch (a.what) {
        case kind::make: {
          const bytes n{s.sizes[std::size_t(v)]};
          const tensor_id fresh = a.pinned ? manager_->constant(n) : manager_->variable(n);
          if (held.contains(v)) manager_->drop(held.at(v));  // replaced
          held[v] = fresh;
          break;
        }
        case kind::drop:
          if (held.contains(v)) manager_->drop(held.at(v)), held.erase(v);
          break;
        case kind::read:
          (void)manager_->acquire(id(v));
          break;
        case kind::write:
          (void)manager_->acquire(id(v), access::write);
          break;
        case kind::operate: {
          inputs.clear(), updates.clear(), sizes.clear();
          for (const int i : a.inputs) inputs.push_back(id(i));
          for (const int u : a.updates) updates.push_back(id(u));
          for (std::size_t i = 0; i + a.replaced < a.outputs.size(); ++i)
            sizes.emplace_back(s.sizes[std::size_t(a.outputs[i])]);
          detail::run_in_place(*manager_,
                               operation_span{.inputs = inputs,
                                              .outputs = sizes,
                                              .updates = updates,
                                              .workspace = bytes{a.workspace},
                                              .traits = a.traits,
                                              .cost = nanoseconds{a.cost},
                                              .name = "act"},
                               std::span(inputs).first(a.replaced), made, [](call&) {});
          for (std::size_t i = 0; i < made.size(); ++i) held[a.outputs[i]] = made[i];
        }
      }
    }
    if (ends) manager_->end_of_step();
  }

 private:
  Manager* manager_;
  std::vector<tensor_id> shared_;
  std::map<std::size_t, std::map<int, tensor_id>> held_;  // by kind of step and value
};

}  // namespace delta::test
