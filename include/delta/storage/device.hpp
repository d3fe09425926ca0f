// delta: the concepts Engines and Device: three serial engines, what a device_heap needs of a
// machine; and two memories beside them, for an arena. The fences that these are given are all that
// they must obey; who waits for whom is decided in storage_rules.
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <type_traits>

#include "delta/detail/concepts/member_names.hpp"
#include "delta/units.hpp"

namespace delta {

// ---------------------------------------------------------------------------------------------
// Semantic rules:
//  * Work on one engine runs in the order in which it was queued. Nothing needs to be done when a
//    function returns, except where its comment says so; fences name only work that was queued
//    before.
//  * A stamp's point is larger than those of all earlier stamps of its engine; 0 is never given.
//    When a stamp is reached, all that it was ordered after is reached, too.
//  * Once reached(s) has said yes it says so for ever. It says yes in the end, though nobody waits.
//  * The host may touch memory only after reached() or wait() said that its users are done; what
//    the host did before it queues work, that work sees.
// ---------------------------------------------------------------------------------------------

/// `device_memory(bytes)`, `host_memory(bytes)` give the two memories, which the device owns and
/// keeps. Each is called once, and may throw std::bad_alloc. Both addresses are aligned to the
/// arena's granularity (64 unless told).
template <class D>
concept has_two_memories = requires(D& d, bytes n) {
  { d.device_memory(n) } -> std::same_as<std::byte*>;
  { d.host_memory(n) } -> std::same_as<std::byte*>;
};

/// `copy(direction, to, from, size, after)`, with any address on the host's side, queues a copy on
/// that direction's engine, to start when `after` is reached. A copy of zero bytes still gives a
/// stamp; its addresses may be null.
template <class D>
concept copies_both_ways =
    requires(D& d, direction way, std::byte* to, const std::byte* from, bytes n, const fence& f) {
      { d.copy(way, to, from, n, f) } -> std::same_as<stamp>;
    };

/// `begin(after)` makes the compute engine wait before what is queued next, `end()` gives the stamp
/// of all that was queued on it so far, after a `begin`. `begin` may be called again before `end`,
/// and without one.
template <class D>
concept brackets_compute = requires(D& d, const fence& f) {
  { d.begin(f) } -> std::same_as<void>;
  { d.end() } -> std::same_as<stamp>;
};
/// `move(to, from, size)`, between the two, moves bytes within the device on the compute engine;
/// the ranges may overlap, as with memmove.
template <class D>
concept moves_bytes = requires(D& d, std::byte* to, const std::byte* from, bytes n) {
  { d.move(to, from, n) } -> std::same_as<void>;
};

/// As in Storage: `reached` asks, `wait` makes the host wait, `elapsed` may know what work took. A
/// device that never knows leaves the manager to guess what is dear to recompute, by bytes.
template <class D>
concept answers_for_stamps = requires(D& d, stamp s) {
  { d.reached(s) } -> std::same_as<bool>;
  { d.wait(s) } -> std::same_as<void>;
  { d.elapsed(s) } -> std::same_as<std::optional<nanoseconds>>;
};

/// As in Storage; `waited` is how long the host and the compute engine waited for copies.
template <class D>
concept knows_time_and_rates = requires(const D& d, direction way) {
  { d.now() } -> std::same_as<nanoseconds>;
  { d.waited() } -> std::same_as<nanoseconds>;
  { d.rate(way) } -> std::same_as<double>;
  { d.latency(way) } -> std::same_as<nanoseconds>;
  { d.backlog(way) } -> std::same_as<nanoseconds>;
};

/// Detected, with defaults in the storages. `native_stream()`: what a kernel is launched on
/// (default: null).
template <class D>
concept launches_on_a_stream = requires(D& d) {
  { d.native_stream() } -> std::convertible_to<void*>;
};
/// `began(stamp)`: when work began, by now()'s clock (default: not known).
template <class D>
concept times_beginnings = requires(D& d, stamp s) {
  { d.began(s) } -> std::same_as<std::optional<nanoseconds>>;
};
/// `move_rate()`: bytes per second within the device (default: one core's). What operators of
/// unknown cost are priced by, too.
template <class D>
concept knows_its_move_rate = requires(const D& d) {
  { d.move_rate() } -> std::convertible_to<double>;
};
/// `burden(direction)`: what kernels lose by copies that way beside them, in ns per ns of copying
/// (default: 0).
template <class D>
concept knows_burdens = requires(const D& d, direction way) {
  { d.burden(way) } -> std::convertible_to<double>;
};
/// `alone(stamp)`: what work on the compute engine would have taken without copies beside it, known
/// when `elapsed` is (default: what that says).
template <class D>
concept times_work_alone = requires(D& d, stamp s) {
  { d.alone(s) } -> std::same_as<std::optional<nanoseconds>>;
};
template <class D>
concept right_stream_of_device_or_none = launches_on_a_stream<D> || !detail::names_native_stream<D>;
template <class D>
concept right_began_of_device_or_none = times_beginnings<D> || !detail::names_began<D>;
template <class D>
concept right_move_rate_of_device_or_none = knows_its_move_rate<D> || !detail::names_move_rate<D>;
template <class D>
concept right_burden_of_device_or_none = knows_burdens<D> || !detail::names_burden<D>;
template <class D>
concept right_alone_of_device_or_none = times_work_alone<D> || !detail::names_alone<D>;

/// What a machine must have for a device_heap, whose memory is a framework's: work of three engines
/// on addresses that they are told. `static_assert(delta::explain_engines<my_engines>());` says
/// what is missing.
template <class D>
concept Engines = copies_both_ways<D> && brackets_compute<D> && answers_for_stamps<D> &&
                  knows_time_and_rates<D> && right_stream_of_device_or_none<D> &&
                  right_began_of_device_or_none<D> && right_move_rate_of_device_or_none<D> &&
                  right_burden_of_device_or_none<D> && right_alone_of_device_or_none<D>;

/// What a machine must have for an arena: 14 functions in five groups. In outline, where everything
/// is done at once:
///
///   struct my_device {
///     std::byte* device_memory(delta::bytes n);  // and host_memory: kept by the device
///     delta::stamp copy(delta::direction d, std::byte* to, const std::byte* from, delta::bytes n,
///                       const delta::fence& after);  // wait for `after`, copy, count up
///     void begin(const delta::fence& after);         // and move, end
///     bool reached(delta::stamp s);                  // and wait, elapsed
///     double rate(delta::direction d) const;         // and latency, backlog, now, waited
///   };
///   static_assert(delta::explain_device<my_device>());
template <class D>
concept Device = Engines<D> && has_two_memories<D> && moves_bytes<D>;

namespace detail {
// What both are told of functions that are there, or not.
template <class D>
consteval bool explain_optional_of_device() {
  static_assert(right_stream_of_device_or_none<D>,
                "'native_stream' is there, but not as 'void* native_stream()'");
  static_assert(right_began_of_device_or_none<D>,
                "'began' is there, but not as "
                "'std::optional<delta::nanoseconds> began(delta::stamp)'");
  static_assert(right_move_rate_of_device_or_none<D>,
                "'move_rate' is there, but not as 'double move_rate() const' (bytes per second)");
  static_assert(right_burden_of_device_or_none<D>,
                "'burden' is there, but not as 'double burden(delta::direction) const'");
  static_assert(right_alone_of_device_or_none<D>,
                "'alone' is there, but not as "
                "'std::optional<delta::nanoseconds> alone(delta::stamp)'");
  return true;
}
}  // namespace detail

/// Of a Device: a sentence per group of functions that is not there as a whole, and per optional
/// function that is wrong. An arena says them of its device.
template <class D>
consteval bool explain_device() {
  static_assert(has_two_memories<D>,
                "a Device needs 'std::byte* device_memory(delta::bytes)' and "
                "'std::byte* host_memory(delta::bytes)'");
  static_assert(copies_both_ways<D>,
                "a Device needs 'delta::stamp copy(delta::direction, std::byte* to, const "
                "std::byte* from, delta::bytes, const delta::fence& after)'");
  static_assert(brackets_compute<D> && moves_bytes<D>,
                "a Device needs 'void begin(const delta::fence& after)', 'void move(std::byte* to, "
                "const std::byte* from, delta::bytes)' and 'delta::stamp end()'");
  static_assert(answers_for_stamps<D>,
                "a Device needs 'bool reached(delta::stamp)', 'void wait(delta::stamp)' and "
                "'std::optional<delta::nanoseconds> elapsed(delta::stamp)'");
  static_assert(knows_time_and_rates<D>,
                "a Device needs 'delta::nanoseconds now() const', 'delta::nanoseconds waited() "
                "const', 'double rate(delta::direction) const', 'delta::nanoseconds "
                "latency(delta::direction) const' and 'delta::nanoseconds "
                "backlog(delta::direction) const'");
  return detail::explain_optional_of_device<D>();
}

/// The same of Engines. A device_heap says them of its machine.
template <class D>
consteval bool explain_engines() {
  static_assert(copies_both_ways<D>,
                "Engines need 'delta::stamp copy(delta::direction, std::byte* to, const std::byte* "
                "from, delta::bytes, const delta::fence& after)'");
  static_assert(brackets_compute<D>,
                "Engines need 'void begin(const delta::fence& after)' and 'delta::stamp end()'");
  static_assert(answers_for_stamps<D>,
                "Engines need 'bool reached(delta::stamp)', 'void wait(delta::stamp)' and "
                "'std::optional<delta::nanoseconds> elapsed(delta::stamp)'");
  static_assert(knows_time_and_rates<D>,
                "Engines need 'delta::nanoseconds now() const', 'delta::nanoseconds waited() "
                "const', 'double rate(delta::direction) const', 'delta::nanoseconds "
                "latency(delta::direction) const' and 'delta::nanoseconds "
                "backlog(delta::direction) const'");
  return detail::explain_optional_of_device<D>();
}

namespace detail {
/// The least that is a Device; declared only. In an arena it takes the place of one that is wrong,
/// once its sentences are printed, so that nothing else is said about it; so it can be const, and
/// be made from anything.
struct device_archetype {
  template <class T>
  explicit(false) device_archetype(const T&);
  std::byte* device_memory(bytes) const;
  std::byte* host_memory(bytes) const;
  stamp copy(direction, std::byte*, const std::byte*, bytes, const fence&) const;
  void begin(const fence&) const;
  void move(std::byte*, const std::byte*, bytes) const;
  stamp end() const;
  bool reached(stamp) const;
  void wait(stamp) const;
  std::optional<nanoseconds> elapsed(stamp) const;
  nanoseconds now() const;
  nanoseconds waited() const;
  double rate(direction) const;
  nanoseconds latency(direction) const;
  nanoseconds backlog(direction) const;
};
template <class D>
using checked_device =
    std::conditional_t<explain_device<D>() && Device<D>, D, const device_archetype>;
template <class D>
using checked_engines =
    std::conditional_t<explain_engines<D>() && Engines<D>, D, const device_archetype>;
}  // namespace detail

static_assert(Device<detail::device_archetype> && Device<const detail::device_archetype>);

}  // namespace delta
