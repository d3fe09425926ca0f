// The manager's constructor says of a wrong policy or storage what explain_... says, and nothing
// else: see check.cmake.
#include "delta/manager.hpp"
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"

using namespace delta;

void right(simulated& storage) {
  manager four{lru{}, cheaper{}, no_prefetch{}, storage};
  manager five{lru{}, cheaper{}, no_prefetch{}, storage, no_observer{}};
  manager two{online(), storage};
  manager three{online(), storage, no_observer{}};
  four.end_of_step(), five.end_of_step(), two.end_of_step(), three.end_of_step();
}

#ifdef WITH_MISSES
struct scores_in_words {
  const char* score(const context&, tensor_id) const { return ""; }
};
struct restores_by_number : cheaper {
  int restore(const context&, tensor_id) const { return 0; }
};
struct names_nothing {};
struct tells_no_time : simulated {
  int now() const { return 0; }
};

// Four wrong roles in one constructor: every sentence of each.
// says: a Heuristic needs 'double score(const delta::context&, delta::tensor_id) const' (lower
//   leaves first) or 'double weight(const delta::context&, delta::tensor_id) const' (it
//   stands for the score 1 / (weight x staleness))
// says: 'score' is there, but not as 'double score(const delta::context&, delta::tensor_id) const'
// says: 'restore' is there, but not as 'delta::restoration restore(const delta::context&,
//   delta::tensor_id)'
// says: a Prefetcher needs 'delta::tensor_id next(const delta::context&)' (what to reload now,
//   or delta::tensor_id::none)
// says: a Storage needs 'delta::nanoseconds now() const'
void four(tells_no_time& storage) {
  manager m{scores_in_words{}, restores_by_number{}, names_nothing{}, storage};
  m.end_of_step();
}

struct evicts_by_number : cheaper {
  static constexpr int evicts = 1;
};
// says: 'evicts' is there, but not as 'static constexpr bool evicts'
void with_observer(simulated& storage) {
  manager m{lru{}, evicts_by_number{}, no_prefetch{}, storage, no_observer{}};
  m.end_of_step();
}

struct rounds_nothing : simulated {
  void rounded(bytes) const {}
};
// says: a Storage needs 'delta::bytes rounded(delta::bytes) const'
void preset(rounds_nothing& storage) {
  manager m{online(), storage};
  m.end_of_step();
}
// says: a Storage changes: it can't be const
void preset_with_observer(const simulated& storage) {
  manager m{online(), storage, no_observer{}};
  m.end_of_step();
}
#endif
