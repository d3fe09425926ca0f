// Near misses of what else a manager is given: an observer, and a storage that would not live; and
// of what delta::engine is given.
#include "delta/engine/manager_of.hpp"
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
// says: a manager keeps a reference to its storage: give it a variable that outlives the manager,
//   not a temporary
struct made_at_once : delta::simulated {
  made_at_once();
};
void forget_watched() {
  delta::manager m{delta::lru{}, delta::cheaper{}, delta::no_prefetch{}, made_at_once{},
                   delta::no_observer{}};
  m.end_of_step();
}
// says: a Storage changes: it can't be const
void preset(const delta::simulated& storage) {
  delta::manager m{delta::online(), storage};
  m.end_of_step();
}
// says: 'listens' is there, but not as 'bool listens() const'
struct listens_by_number : delta::no_observer {
  int listens() const;
};
void watch_from_afar(delta::simulated& storage, listens_by_number& lanes) {
  delta::manager m{delta::online(), storage, delta::observed_by{&lanes}};
  m.end_of_step();
}
// says: 'checks_replays' is there, but not as 'bool checks_replays() const'
struct checks_by_chance : delta::no_observer {
  bool checks_replays();
};
void watch_twice(delta::simulated& storage) {
  delta::manager m{delta::online(), storage, checks_by_chance{}};
  m.end_of_step();
}
// What is made for delta::engine, by a type's own storage and policy.
// says: a Storage needs 'delta::nanoseconds now() const'
struct tells_no_time : delta::simulated {
  int now() const;
};
// says: 'may_keep' is there, but not as 'bool may_keep() const'
struct keeps_in_words : delta::evict_only {
  const char* may_keep() const;
};
auto engine(tells_no_time& storage) {
  return delta::make_manager(delta::policy{delta::lru{}, keeps_in_words{}, delta::no_prefetch{}},
                             delta::over(storage));
}
#endif
