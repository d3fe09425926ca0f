// With its arguments written out the manager names the atom that fails: see check.cmake.
#include "delta/manager.hpp"
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"

using namespace delta;

using right = manager<lru, cheaper, no_prefetch, simulated>;

#ifdef WITH_MISSES
struct asks_nothing {};
struct restores_by_number : cheaper {
  int restore(const context&, tensor_id) const { return 0; }
};
struct tells_no_time : simulated {
  int now() const { return 0; }
};
// mentions: scores_tensor
using wrong_heuristic = manager<asks_nothing, cheaper, no_prefetch, simulated>;
// mentions: right_restore_or_none
using wrong_decider = manager<lru, restores_by_number, no_prefetch, simulated>;
// mentions: names_next_reload
using wrong_prefetcher = manager<lru, cheaper, asks_nothing, simulated>;
// mentions: tells_time
using wrong_storage = manager<lru, cheaper, no_prefetch, tells_no_time>;
#endif
