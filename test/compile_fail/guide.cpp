// What docs/writing_a_policy.md shows to be wrong: see check.cmake.
#include "delta/delta.hpp"

using own =
    delta::manager<delta::policy<delta::lru, delta::cheaper, delta::no_prefetch>, delta::simulated>;

#ifdef WITH_MISSES
struct forgets_const {
  double weight(delta::context& c, delta::tensor_id t) const { return c.bytes(t); }
};
struct restores_by_action : delta::cheaper {
  delta::action restore(const delta::context&, delta::tensor_id) { return delta::action::evict; }
};
void manage(delta::simulated& storage) {
  delta::manager m{forgets_const{}, restores_by_action{}, delta::no_prefetch{}, storage};
  m.end_of_step();
}
// says: a Heuristic needs 'double score(const delta::context&, delta::tensor_id) const' (lower
//   leaves first) or 'double weight(const delta::context&, delta::tensor_id) const' (it
//   stands for the score 1 / (weight x staleness))
// says: 'weight' is there, but not as 'double weight(const delta::context&, delta::tensor_id)
//   const'
// says: 'restore' is there, but not as 'delta::restoration restore(const delta::context&,
//   delta::tensor_id)'
#endif
