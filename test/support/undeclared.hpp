// delta tests: a heuristic whose answers nobody may keep: it gives those of `H` and does not say
// what they depend on. So the Filter asks about every candidate at every search (Algorithm 2 to the
// letter), and no closure's cost is kept: what the fast searches are compared with.
#pragma once

#include <utility>

#include "delta/concepts.hpp"
#include "delta/manager.hpp"

namespace delta::test {

template <Heuristic H>
struct undeclared;
template <Heuristic H>
  requires weighs_tensor<H>
struct undeclared<H> {
  H answers;
  double weight(const context& c, tensor_id t) const { return answers.weight(c, t); }
};
template <Heuristic H>
  requires scores_tensor<H>
struct undeclared<H> {
  H answers;
  double score(const context& c, tensor_id t) const { return answers.score(c, t); }
};

/// The same policy, with a heuristic that nobody may keep answers of.
template <class Heuristic, class Decider, class Prefetcher>
policy<undeclared<Heuristic>, Decider, Prefetcher> asking_always(
    policy<Heuristic, Decider, Prefetcher> p) {
  return {{std::move(p.heuristic)}, std::move(p.decider), std::move(p.prefetcher)};
}

}  // namespace delta::test
