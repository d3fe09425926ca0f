// delta tests: a heuristic whose answers nobody may keep: it gives those of another and does not
// say what they depend on. So the Filter asks about every candidate at every search (Algorithm 2 to
// the letter), and no closure's cost is kept: what the fast searches are compared with.
#pragma once

#include <concepts>
#include <functional>
#include <utility>

#include "delta/concepts.hpp"
#include "delta/detail/victims/scores.hpp"
#include "delta/manager.hpp"

namespace delta::test {

/// Of whatever heuristic. It is no template, so that a manager that asks always is compiled once
/// for all of them. Of a weight w it gives the score 1 / (w s), which is what one stands for.
class undeclared {
 public:
  template <Heuristic H>
    requires(!std::same_as<H, undeclared>)
  undeclared(H answers)
      : score_([h = std::move(answers)](const context& c, tensor_id t) {
          return detail::score_of(h, c, t);
        }) {}
  double score(const context& c, tensor_id t) const { return score_(c, t); }

 private:
  std::function<double(const context&, tensor_id)> score_;
};

/// The same policy, with a heuristic that nobody may keep answers of.
template <class Heuristic, class Decider, class Prefetcher>
policy<undeclared, Decider, Prefetcher> asking_always(policy<Heuristic, Decider, Prefetcher> p) {
  return {std::move(p.heuristic), std::move(p.decider), std::move(p.prefetcher)};
}

}  // namespace delta::test
