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
// says: a Device needs 'std::byte* device_memory(delta::bytes)'
// says: a Device needs 'std::byte* host_memory(delta::bytes)'
// says: a Device needs 'void move(std::byte*, const std::byte*, delta::bytes)'
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
  std::byte* device_memory();
  void* host_memory(bytes);
  void copy(direction, std::byte*, const std::byte*, bytes, const fence&);
  int move(std::byte*, const std::byte*, bytes);
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
  arena storage{machine, {.capacity = bytes{1}}};
  static_cast<void>(storage.used());
}
// says: 'native_stream' is there, but not as 'void* native_stream()'
// says: 'began' is there, but not as 'std::optional<delta::nanoseconds> began(delta::stamp)'
// says: 'move_rate' is there, but not as 'double move_rate()' (bytes per second)
// says: 'burden' is there, but not as 'double burden(delta::direction) const'
// says: 'alone' is there, but not as 'std::optional<delta::nanoseconds> alone(delta::stamp)'
// says: 'synchronous' is there, but not as 'static constexpr bool synchronous'
struct says_all_wrongly : right {
  int native_stream();
  nanoseconds began(stamp);
  const char* move_rate();
  double burden() const;
  nanoseconds alone(stamp);
  bool synchronous() const;
};
struct member {
  arena<says_all_wrongly> storage;
  explicit member(says_all_wrongly& machine) : storage{machine, {.capacity = bytes{1}}} {}
};
#endif
