// Near misses of a Device, and what an arena says about each: see check.cmake.
#include "delta/storage/arena.hpp"

using namespace delta;

struct right : detail::device_archetype {
  void* native_stream();
  std::optional<nanoseconds> began(stamp);
  float move_rate() const;
  double burden(direction) const;
  std::optional<nanoseconds> alone(stamp);
};
static_assert(explain_device<right>() && Storage<arena<right>>);

#ifdef WITH_MISSES
// says: a Device needs 'std::byte* device_memory(delta::bytes)' and 'std::byte*
//   host_memory(delta::bytes)'
// says: a Device needs 'void move(std::byte* to, const std::byte* from, delta::bytes)'
// says: Lanes need 'delta::stamp copy(delta::direction, std::byte* to, const std::byte* from,
//   delta::bytes, const delta::fence& after)'
// says: Lanes need 'void begin(const delta::fence& after)' and 'delta::stamp end()'
// says: Lanes need 'bool reached(delta::stamp)', 'void wait(delta::stamp)' and
//   'std::optional<delta::nanoseconds> elapsed(delta::stamp)'
// says: Lanes need 'delta::nanoseconds now() const', 'delta::nanoseconds waited() const', 'double
//   rate(delta::direction) const', 'delta::nanoseconds latency(delta::direction) const' and
//   'delta::nanoseconds backlog(delta::direction) const'
struct lacks_one_of_each : right {
  void* host_memory(bytes);
  void copy(direction, std::byte*, const std::byte*, bytes, const fence&);
  int move(std::byte*, const std::byte*, bytes);
  void end();
  bool wait(stamp);
  double now() const;
};
void deduced(lacks_one_of_each& machine) {
  arena storage{machine, {.capacity = bytes{1}}};
  static_cast<void>(storage.used());
}
// says: 'native_stream' is there, but not as 'void* native_stream()'
// says: 'began' is there, but not as 'std::optional<delta::nanoseconds> began(delta::stamp)'
// says: 'move_rate' is there, but not as 'double move_rate() const' (bytes per second)
// says: 'burden' is there, but not as 'double burden(delta::direction) const'
// says: 'alone' is there, but not as 'std::optional<delta::nanoseconds> alone(delta::stamp)'
// says: 'synchronous' is there, but not as 'static constexpr bool synchronous'
struct says_all_wrongly : right {
  int native_stream();
  nanoseconds began(stamp);
  double move_rate();
  double burden() const;
  nanoseconds alone(stamp);
  bool synchronous() const;
};
struct member {
  arena<says_all_wrongly> storage;
  explicit member(says_all_wrongly& machine) : storage{machine, {.capacity = bytes{1}}} {}
};
#endif
