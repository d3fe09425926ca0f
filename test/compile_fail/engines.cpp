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
// says: Lanes need 'void begin(const delta::fence& after)'
// says: Lanes need 'delta::stamp end()'
// says: Lanes need 'bool reached(delta::stamp)'
// says: Lanes need 'void wait(delta::stamp)'
// says: Lanes need 'std::optional<delta::nanoseconds> elapsed(delta::stamp)'
// says: Lanes need 'delta::nanoseconds now() const'
// says: Lanes need 'delta::nanoseconds waited() const'
// says: Lanes need 'double rate(delta::direction) const'
// says: Lanes need 'delta::nanoseconds latency(delta::direction) const'
// says: Lanes need 'delta::nanoseconds backlog(delta::direction) const'
struct has_none_right : right {
  void copy(direction, std::byte*, const std::byte*, bytes, const fence&);
  bool begin(const fence&);
  void end();
  int reached(stamp);
  bool wait(stamp);
  nanoseconds elapsed(stamp);
  double now() const;
  nanoseconds waited();
  float rate(direction) const;
  double latency(direction) const;
  nanoseconds backlog() const;
};
void deduced(has_none_right& machine) {
  device_heap storage{machine, {.capacity = bytes{1}}};
  static_cast<void>(storage.used());
}
// says: 'native_stream' is there, but not as 'void* native_stream()'
// says: 'move_rate' is there, but not as 'double move_rate()' (bytes per second)
struct says_all_wrongly : right {
  int native_stream();
  const char* move_rate();
};
struct member {
  device_heap<says_all_wrongly> storage;
  explicit member(says_all_wrongly& machine) : storage{machine, {.capacity = bytes{1}}} {}
};
#endif
