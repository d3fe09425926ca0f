// A near miss of an observer that asks for a check, without what checks: see check.cmake.
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"

void unwatched(delta::simulated& storage) {
  delta::manager m{delta::online(), storage};
  m.end_of_step();
}

#ifdef WITH_MISSES
// says: an observer with 'checks_replays' needs #include <delta/testing/replay_check.hpp>
struct checks : delta::no_observer {
  bool checks_replays() const;
};
void watch(delta::simulated& storage) {
  delta::manager m{delta::online(), storage, checks{}};
  m.end_of_step();
}
#endif
