// Near misses of what else a manager is given: an observer, and a storage that would not live.
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "delta/timeline.hpp"

void watched(delta::simulated& storage, delta::timeline& lanes) {
  delta::manager m{delta::online(), storage, delta::observed_by{&lanes}};
  m.end_of_step();
}

#ifdef WITH_MISSES
struct hears_numbers {
  void on(int);
};
// says: an Observer needs 'void on(const delta::event&)'
void watch(delta::simulated& storage) {
  delta::manager m{delta::online(), storage, hears_numbers{}};
  m.end_of_step();
}
// says: a manager keeps a reference to its storage: give it a variable that outlives the manager,
//   not a temporary
void forget() {
  delta::manager m{delta::online(), delta::simulated{{.capacity = delta::bytes{1}}}};
  m.end_of_step();
}
#endif
