// delta tests: programs made from programs: the shortest that still fails, steps with a structure,
// the passes of a training loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "dice.hpp"
#include "random_program.hpp"

namespace delta::test {

/// Without the i-th operator and all that comes of it: where its outputs were used, nothing is.
inline program without_operator(const program& p, std::size_t i) {
  program q{p.constants, p.variables, {}};
  int first = p.sources();
  for (std::size_t k = 0; k < i; ++k) first += int(p.ops[k].outputs.size());
  const int gone = int(p.ops[i].outputs.size());
  for (std::size_t k = 0; k < p.ops.size(); ++k) {
    if (k == i) continue;
    program::op o = p.ops[k];
    for (auto* list : {&o.inputs, &o.updates, &o.drops}) {
      std::erase_if(*list, [&](int v) { return v >= first && v < first + gone; });
      for (int& v : *list) v -= v >= first + gone ? gone : 0;
    }
    q.ops.push_back(std::move(o));
  }
  return q;
}

/// The shortest program that can be had by leaving out, one thing after the other, for which
/// `fails` still holds. Each try is a call of it.
inline program shortened(program p, const std::function<bool(const program&)>& fails) {
  const auto attempt = [&](program q) { return fails(q) ? (p = std::move(q), true) : false; };
  for (bool any = true; any;) {
    any = false;
    for (std::size_t i = p.ops.size(); i-- > 0;) any = attempt(without_operator(p, i)) || any;
    for (std::size_t i = p.ops.size(); i-- > 0;) {
      const auto change = [&](auto&& f) {
        program q = p;
        return f(q.ops[i]) && attempt(std::move(q));
      };
      const auto clear = [](auto& x) {
        return !(x == std::decay_t<decltype(x)>{}) && (x = {}, true);
      };
      any = change([&](auto& o) { return clear(o.workspace); }) || any;
      any = change([&](auto& o) { return clear(o.backward); }) || any;
      any = change([&](auto& o) { return clear(o.step); }) || any;
      any = change([&](auto& o) { return o.cost != 1 && (o.cost = 1, true); }) || any;
      any =
          change([&](auto& o) { return o.traits != trait::pure && (o.traits = {}, true); }) || any;
      for (auto list : {&program::op::inputs, &program::op::updates, &program::op::drops})
        for (std::size_t k = (p.ops[i].*list).size(); k-- > 0;)
          any = change([&](auto& o) {
                  (o.*list).erase((o.*list).begin() + std::ptrdiff_t(k));
                  return true;
                }) ||
                any;
      for (std::size_t k = 0; k < p.ops[i].outputs.size(); ++k)
        any = change([&](auto& o) { return o.outputs[k] > 8 && (o.outputs[k] = 8, true); }) || any;
    }
  }
  return p;
}

/// Forward and back through layers: a chain, with residual connections, as diamonds, or with many
/// outputs; else a random program.
inline program attacking_program(std::uint64_t seed) {
  dice roll(seed);
  const std::uint64_t kind = roll.below(8);
  if (kind < 4)
    return random_program(roll.bits(), {.operators = int(4 + roll.below(36)),
                                        .steps = int(1 + roll.below(3)),
                                        .largest = std::uint32_t(16 + roll.below(300)),
                                        .updates = !roll.one_in(4),
                                        .several_outputs = !roll.one_in(4),
                                        .updates_made = roll.one_in(3)});
  const auto size = [&] { return std::uint32_t(8 + roll.below(200)); };
  program p;
  p.variables.assign(1 + roll.below(4), size());
  const int depth = int(2 + roll.below(10));
  for (int step = 0; step < 2; ++step) {
    int next = p.sources();
    for (const program::op& o : p.ops) next += int(o.outputs.size());
    std::vector<std::vector<int>> layers{{0}};
    std::vector<int> made;
    const auto add = [&](std::vector<int> inputs, std::size_t outputs, bool back) {
      program::op o{.inputs = std::move(inputs)};
      for (std::size_t k = 0; k < outputs; ++k) o.outputs.push_back(size());
      o.cost = 1 + std::int64_t(roll.below(50));
      o.workspace = roll.one_in(3) ? size() : 0;
      o.backward = back;
      if (roll.one_in(6)) o.traits = trait::random;
      std::vector<int> ids;
      for (std::size_t k = 0; k < outputs; ++k) ids.push_back(next), made.push_back(next++);
      p.ops.push_back(std::move(o));
      return ids;
    };
    for (int i = 0; i < depth; ++i) {
      std::vector<int> in = layers.back();
      if (kind == 5 && layers.size() > 2) in.push_back(layers[layers.size() - 3].front());
      if (kind == 6) {  // a diamond
        const int a = add(in, 1, false)[0], b = add(in, 1, false)[0];
        in = {a, b};
      }
      layers.push_back(add(in, kind == 7 ? 1 + roll.below(4) : 1, false));
    }
    std::vector<int> gradient = layers.back();
    for (int i = depth; i-- > 0;) {
      std::vector<int> in = layers[std::size_t(i)];
      in.insert(in.end(), gradient.begin(), gradient.end());
      std::vector<int> before = std::exchange(gradient, add(in, 1, i + 1 == depth));
      p.ops.back().drops = layers[std::size_t(i) + 1];
      if (i + 1 != depth)
        p.ops.back().drops.insert(p.ops.back().drops.end(), before.begin(), before.end());
    }
    p.ops.push_back({.inputs = gradient,
                     .updates = {int(roll.below(p.variables.size()))},
                     .drops = gradient,
                     .step = true});
    std::erase_if(made, [&](int v) {
      for (const program::op& o : p.ops)
        for (const int d : o.drops)
          if (d == v) return true;
      return false;
    });
    p.ops.back().drops.insert(p.ops.back().drops.end(), made.begin(), made.end());
  }
  return p;
}

/// Its operators of before the backward pass, which drop all that they make: as an evaluation,
/// whose end nobody tells.
inline program forward_of(const program& p) {
  program q{p.constants, p.variables, {}};
  std::vector<int> left;
  int next = p.sources();
  for (program::op o : p.ops) {
    if (o.backward) break;
    for (std::size_t k = 0; k < o.outputs.size(); ++k) left.push_back(next++);
    for (const int v : o.drops) std::erase(left, v);
    o.step = false;
    q.ops.push_back(std::move(o));
  }
  if (!q.ops.empty()) q.ops.back().drops.insert(q.ops.back().drops.end(), left.begin(), left.end());
  return q;
}

/// The program again and again, as in training, so that its steps are learned and planned; now and
/// then another: without one of its operators, with larger tensors, without its backward pass.
inline program training_of(const program& p, std::uint64_t seed) {
  dice roll(seed);
  std::vector<program> kinds{p};
  if (roll.one_in(2)) kinds.push_back(without_operator(p, roll.below(p.ops.size() - 1)));
  if (roll.one_in(2)) {
    kinds.push_back(p);
    for (program::op& o : kinds.back().ops)
      for (std::uint32_t& n : o.outputs) n += n / 2;
  }
  if (roll.one_in(2))
    if (program forward = forward_of(p); !forward.ops.empty()) kinds.push_back(std::move(forward));
  std::vector<std::size_t> turns(3);
  for (std::uint64_t more = 1 + roll.below(8); more-- > 0;)
    turns.push_back(roll.one_in(2) ? 0 : roll.below(kinds.size()));
  return in_turns(kinds, turns);
}

}  // namespace delta::test
