// delta: the concepts Lanes (three serial lanes, for a device_heap) and Device (two memories beside
// them, for an arena). They obey the fences that they are given; storage_rules says who waits.
#pragma once

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

#define DELTA_DETAIL_LANES(name, params, ...) \
  DELTA_DETAIL_FUNCTION(lanes_##name, name, false, "Lanes need ", params, same, "", __VA_ARGS__)

/// `copy(direction, to, from, size, after)`, with any address on the host's side, queues a copy on
/// that direction's lane, behind `after`. Zero bytes give a stamp, too; addresses may be null then.
DELTA_DETAIL_LANES(copy,
                   (delta::direction, std::byte* to, const std::byte* from, delta::bytes,
                    const delta::fence& after),
                   delta::stamp);
/// `begin(after)` makes the compute lane wait before what is queued next, `end()` gives the stamp
/// of all that was queued on it so far, after a `begin`. `begin` may be called again before `end`,
/// and without one.
DELTA_DETAIL_LANES(begin, (const delta::fence& after), void);
DELTA_DETAIL_LANES(end, (), delta::stamp);
/// As in Storage: `reached` asks, `wait` makes the host wait, `elapsed` may know what work took. A
/// device that never knows leaves the manager to guess what is dear to recompute, by bytes.
DELTA_DETAIL_LANES(reached, (delta::stamp), bool);
DELTA_DETAIL_LANES(wait, (delta::stamp), void);
DELTA_DETAIL_LANES(elapsed, (delta::stamp), std::optional<delta::nanoseconds>);
/// As in Storage; `waited` is how long the host and the compute lane waited for copies.
DELTA_DETAIL_LANES(now, () const, delta::nanoseconds);
DELTA_DETAIL_LANES(waited, () const, delta::nanoseconds);
DELTA_DETAIL_LANES(rate, (delta::direction) const, double);
DELTA_DETAIL_LANES(latency, (delta::direction) const, delta::nanoseconds);
DELTA_DETAIL_LANES(backlog, (delta::direction) const, delta::nanoseconds);

/// `device_memory(bytes)`, `host_memory(bytes)` give the two memories, which the device owns and
/// keeps. Each is called once, and may throw std::bad_alloc. Both addresses are aligned to the
/// arena's granularity (64 unless told).
DELTA_DETAIL_NEEDED_CALL(device_memory, "a Device needs ", (delta::bytes), same, "", std::byte*);
DELTA_DETAIL_NEEDED_CALL(host_memory, "a Device needs ", (delta::bytes), same, "", std::byte*);
/// `move(to, from, size)`, between `begin` and `end`, moves bytes within the device on the compute
/// lane; the ranges may overlap, as with memmove.
DELTA_DETAIL_NEEDED_CALL(move, "a Device needs ", (std::byte*, const std::byte*, delta::bytes),
                         same, "", void);

// Detected, with defaults in the storages: those of concepts/members.hpp that Storage has, too, and

/// `synchronous`: work is over when the call that queues it has returned, so that nothing is ever
/// ordered (default: false).
DELTA_DETAIL_CONSTANT(synchronous, bool, "bool", false);

using lanes_rows = rows<lanes_copy_row, lanes_begin_row, lanes_end_row, lanes_reached_row,
                        lanes_wait_row, lanes_elapsed_row, lanes_now_row, lanes_waited_row,
                        lanes_rate_row, lanes_latency_row, lanes_backlog_row, native_stream_row,
                        began_row, move_rate_row, burden_row, alone_row, synchronous_row>;
using device_rows = rows<device_memory_row, host_memory_row, move_row>;

}  // namespace detail

/// What a device_heap needs of a machine: three lanes of work on addresses that they are told.
/// `static_assert(delta::explain_lanes<my_lanes>());` says what is missing.
template <class D>
concept Lanes = detail::lanes_rows::right<D>;

/// What an arena needs of a machine: 14 functions; host_device.hpp is a whole one.
/// `static_assert(delta::explain_device<my_device>());` says what is missing.
template <class D>
concept Device = Lanes<D> && detail::device_rows::right<D>;

/// Of Lanes: a sentence per function that is missing, or optional and wrong.
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
/// The least that is a Device; declared only. It takes the place of a wrong device in an arena,
/// once its sentences are printed; so it can be const, and be made from anything.
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
