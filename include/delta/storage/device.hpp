// delta: the concepts Lanes and Device: three serial lanes, what a device_heap needs of a
// machine; and two memories beside them, for an arena. The fences that these are given are all that
// they must obey; who waits for whom is decided in storage_rules.
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>

#include "delta/detail/concepts/members.hpp"
#include "delta/units.hpp"

namespace delta {

// ---------------------------------------------------------------------------------------------
// Semantic rules:
//  * Work on one lane runs in the order in which it was queued. Nothing needs to be done when a
//    function returns, except where its comment says so; fences name only work that was queued
//    before.
//  * A stamp's point is larger than those of all earlier stamps of its lane; 0 is never given.
//    When a stamp is reached, all that it was ordered after is reached, too.
//  * Once reached(s) has said yes it says so for ever. It says yes in the end, though nobody waits.
//  * The host may touch memory only after reached() or wait() said that its users are done; what
//    the host did before it queues work, that work sees.
// ---------------------------------------------------------------------------------------------

namespace detail {

/// `device_memory(bytes)`, `host_memory(bytes)` give the two memories, which the device owns and
/// keeps. Each is called once, and may throw std::bad_alloc. Both addresses are aligned to the
/// arena's granularity (64 unless told).
DELTA_DETAIL_NEEDED(
    memories,
    "a Device needs 'std::byte* device_memory(delta::bytes)' and "
    "'std::byte* host_memory(delta::bytes)'",
    requires(T& d, bytes n) {
      { d.device_memory(n) } -> std::same_as<std::byte*>;
      { d.host_memory(n) } -> std::same_as<std::byte*>;
    });
/// `copy(direction, to, from, size, after)`, with any address on the host's side, queues a copy on
/// that direction's lane, to start when `after` is reached. A copy of zero bytes still gives a
/// stamp; its addresses may be null.
DELTA_DETAIL_NEEDED_CALL(copy, "Lanes need ",
                         (delta::direction, std::byte* to, const std::byte* from, delta::bytes,
                          const delta::fence& after),
                         same, "", delta::stamp);
/// `begin(after)` makes the compute lane wait before what is queued next, `end()` gives the stamp
/// of all that was queued on it so far, after a `begin`. `begin` may be called again before `end`,
/// and without one.
DELTA_DETAIL_NEEDED(
    brackets,
    "Lanes need 'void begin(const delta::fence& after)' and 'delta::stamp "
    "end()'",
    requires(T& d, const fence& f) {
      { d.begin(f) } -> std::same_as<void>;
      { d.end() } -> std::same_as<stamp>;
    });
/// `move(to, from, size)`, between the two, moves bytes within the device on the compute lane;
/// the ranges may overlap, as with memmove.
DELTA_DETAIL_NEEDED(
    move,
    "a Device needs 'void move(std::byte* to, const std::byte* from, "
    "delta::bytes)'",
    requires(T& d, std::byte* to, const std::byte* from, bytes n) {
      { d.move(to, from, n) } -> std::same_as<void>;
    });
/// As in Storage: `reached` asks, `wait` makes the host wait, `elapsed` may know what work took. A
/// device that never knows leaves the manager to guess what is dear to recompute, by bytes.
DELTA_DETAIL_NEEDED(
    stamps,
    "Lanes need 'bool reached(delta::stamp)', 'void wait(delta::stamp)' and "
    "'std::optional<delta::nanoseconds> elapsed(delta::stamp)'",
    requires(T& d, stamp s) {
      { d.reached(s) } -> std::same_as<bool>;
      { d.wait(s) } -> std::same_as<void>;
      { d.elapsed(s) } -> std::same_as<std::optional<nanoseconds>>;
    });
/// As in Storage; `waited` is how long the host and the compute lane waited for copies.
DELTA_DETAIL_NEEDED(
    time_and_rates,
    "Lanes need 'delta::nanoseconds now() const', 'delta::nanoseconds waited() "
    "const', 'double rate(delta::direction) const', 'delta::nanoseconds "
    "latency(delta::direction) const' and 'delta::nanoseconds "
    "backlog(delta::direction) const'",
    requires(const T& d, direction way) {
      { d.now() } -> std::same_as<nanoseconds>;
      { d.waited() } -> std::same_as<nanoseconds>;
      { d.rate(way) } -> std::same_as<double>;
      { d.latency(way) } -> std::same_as<nanoseconds>;
      { d.backlog(way) } -> std::same_as<nanoseconds>;
    });

// Detected, with defaults in the storages; and `native_stream` and `began` (concepts/members.hpp).

/// `move_rate()`: bytes per second within the device (default: one core's). What operators of
/// unknown cost are priced by, too.
DELTA_DETAIL_DETECTED_CALL(move_rate, () const, convertible, " (bytes per second)", double);
/// `burden(direction)`: what kernels lose by copies that way beside them, in ns per ns of copying
/// (default: 0).
DELTA_DETAIL_DETECTED_CALL(burden, (delta::direction) const, convertible, "", double);
/// `alone(stamp)`: what work on the compute lane would have taken without copies beside it, known
/// when `elapsed` is (default: what that says).
DELTA_DETAIL_DETECTED_CALL(alone, (delta::stamp), same, "", std::optional<delta::nanoseconds>);

/// `synchronous`: work is over when the call that queues it has returned, so that nothing is ever
/// ordered (default: false).
DELTA_DETAIL_CONSTANT(synchronous, bool, "bool", false);

using lanes_rows = rows<copy_row, brackets_row, stamps_row, time_and_rates_row, native_stream_row,
                        began_row, move_rate_row, burden_row, alone_row, synchronous_row>;
using device_rows = rows<memories_row, move_row>;

}  // namespace detail

/// What a machine must have for a device_heap, whose memory is a framework's: work of three lanes
/// on addresses that they are told. `static_assert(delta::explain_lanes<my_lanes>());` says
/// what is missing.
template <class D>
concept Lanes = detail::lanes_rows::right<D>;

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
concept Device = Lanes<D> && detail::device_rows::right<D>;

/// Of Lanes: a sentence per group of functions that is not there as a whole, and per optional
/// function that is wrong. A device_heap says them of its machine.
template <class D>
consteval bool explain_lanes() {
  return detail::lanes_rows::tell<D>();
}
/// The same of a Device. An arena says them of its device.
template <class D>
consteval bool explain_device() {
  return detail::lanes_rows::tell<D>() && detail::device_rows::tell<D>();
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
DELTA_DETAIL_CHECKED(device, Device, const device_archetype);
DELTA_DETAIL_CHECKED(lanes, Lanes, const device_archetype);
}  // namespace detail

static_assert(Device<detail::device_archetype> && Device<const detail::device_archetype>);

}  // namespace delta
