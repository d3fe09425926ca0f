// Near misses of Lanes, and what a device_heap says about each: see check.cmake.
#include "delta/storage/device_heap.hpp"

using namespace delta;

// A Device without its memories, and without moves.
struct right {
  stamp copy(direction, std::byte*, const std::byte*, bytes, const fence&);
  void begin(const fence&);
  stamp end();
  bool reached(stamp);
  void wait(stamp);
  std::optional<nanoseconds> elapsed(stamp);
  nanoseconds now() const;
  nanoseconds waited() const;
  double rate(direction) const;
  nanoseconds latency(direction) const;
  nanoseconds backlog(direction) const;
  void* native_stream();
};
static_assert(explain_lanes<right>() && Lanes<right> && !Device<right> &&
              Storage<device_heap<right>>);

#ifdef WITH_MISSES
// says: Lanes need 'delta::stamp copy(delta::direction, std::byte* to, const std::byte* from,
//   delta::bytes, const delta::fence& after)'
// says: Lanes need 'void begin(const delta::fence& after)' and 'delta::stamp end()'
// says: Lanes need 'bool reached(delta::stamp)', 'void wait(delta::stamp)' and
//   'std::optional<delta::nanoseconds> elapsed(delta::stamp)'
// says: Lanes need 'delta::nanoseconds now() const', 'delta::nanoseconds waited() const', 'double
//   rate(delta::direction) const', 'delta::nanoseconds latency(delta::direction) const' and
//   'delta::nanoseconds backlog(delta::direction) const'
struct lacks_one_of_each : right {
  void copy(direction, std::byte*, const std::byte*, bytes, const fence&);
  void end();
  bool wait(stamp);
  double now() const;
};
void deduced(lacks_one_of_each& machine) {
  device_heap storage{machine, {.capacity = bytes{1}}};
  static_cast<void>(storage.used());
}
// says: 'native_stream' is there, but not as 'void* native_stream()'
// says: 'move_rate' is there, but not as 'double move_rate() const' (bytes per second)
struct says_all_wrongly : right {
  int native_stream();
  double move_rate();
};
struct member {
  device_heap<says_all_wrongly> storage;
  explicit member(says_all_wrongly& machine) : storage{machine, {.capacity = bytes{1}}} {}
};
#endif
