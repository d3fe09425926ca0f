// delta tests: random calls of a manager, of all kinds, in any order that a program may make them:
// small tensors, and a budget of some hundred bytes that the test chooses.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "delta/manager.hpp"

namespace delta::test {

/// False: there was no room, and a typed error said so.
template <class F>
bool had_room(const F& f) {
  try {
    f();
    return true;
  } catch (const budget_exceeded&) {
    return false;
  }
}

/// What the program holds in the end. The same seed gives the same calls as long as the manager
/// finds room in the same places.
template <class Manager>
std::vector<tensor_id> do_anything(Manager& m, std::mt19937_64& rng, int steps) {
  using view = decltype(m.acquire(tensor_id{}));
  constexpr auto nothing = [](call&) {};
  const auto below = [&](std::uint64_t n) { return rng() % n; };
  std::vector<tensor_id> held;
  std::vector<view> views;
  views.reserve(6);
  const auto any = [&] { return held[below(held.size())]; };
  const auto act = [&] {
    const std::uint64_t what = held.size() < 2 ? 0 : below(16);
    if (what == 0) {
      held.push_back(m.variable(bytes{below(30)}));
    } else if (what < 6) {
      const std::array inputs{any(), any()};
      std::vector<bytes> outputs;
      for (std::uint64_t n = 1 + below(3); n > 0; --n) outputs.emplace_back(below(60));
      std::vector<tensor_id> ids(outputs.size());
      m.run(operation_span{.inputs = inputs,
                           .outputs = outputs,
                           .workspace = bytes{below(30)},
                           .cost = nanoseconds{std::int64_t(below(1000))}},
            ids, nothing);
      held.insert(held.end(), ids.begin(), ids.end());
    } else if (what == 6) {
      const std::array inputs{any()}, updates{any()};
      m.run(operation_span{.inputs = inputs, .updates = updates}, {}, nothing);
    } else if (what < 11) {
      const std::uint64_t i = below(held.size());
      const tensor_id gone = std::exchange(held[i], held.back());
      held.pop_back();
      m.drop(gone);
    } else if (what == 11 && views.size() < 5) {
      views.push_back(m.acquire(any()));
    } else if (what == 12 && !views.empty()) {
      views.pop_back();
    } else if (what == 13 && below(3) == 0) {
      m.forbid(any(), static_cast<pin>(below(4)));
    } else if (what == 14 && below(6) == 0) {
      m.end_of_step();
    } else {
      m.make_room(bytes{below(400)});
    }
  };
  for (int step = 0; step < steps; ++step) (void)had_room(act);
  return held;
}

}  // namespace delta::test
