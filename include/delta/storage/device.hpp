// delta: the concept Device: two memories and three serial engines, what an arena needs of a
// machine. The fences that a Device is given are all that it must obey; who waits for whom is
// decided in storage_rules.
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>

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

/// `copy(direction, to, from, size, after)` queues a copy on that direction's engine, to start when
/// `after` is reached. A copy of zero bytes still gives a stamp.
template <class D>
concept copies_both_ways =
    requires(D& d, direction way, std::byte* to, const std::byte* from, bytes n, const fence& f) {
      { d.copy(way, to, from, n, f) } -> std::same_as<stamp>;
    };

/// `begin(after)` makes the compute engine wait before what is queued next, `end()` gives the stamp
/// of all that was queued on it so far. `move(to, from, size)`, between the two, moves bytes within
/// the device on the compute engine; the ranges may overlap, as with memmove.
template <class D>
concept brackets_compute =
    requires(D& d, const fence& f, std::byte* to, const std::byte* from, bytes n) {
      { d.begin(f) } -> std::same_as<void>;
      { d.move(to, from, n) } -> std::same_as<void>;
      { d.end() } -> std::same_as<stamp>;
    };

/// As in Storage: `reached` asks, `wait` makes the host wait, `elapsed` may know what work took.
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
///   static_assert(delta::Device<my_device>);
///
/// Optional functions, called where a device has them: `native_stream()` -> void*, what a kernel is
/// launched on; `began(stamp)` -> optional<nanoseconds>, when work began, by now()'s clock;
/// `move_rate()` -> double, bytes per second within the device; `burden(direction)` -> double, what
/// kernels lose by copies that way beside them, in ns per ns of copying; `alone(stamp)` ->
/// optional<nanoseconds>, what work on the compute engine would have taken without copies beside
/// it, known when `elapsed` is.
template <class D>
concept Device = has_two_memories<D> && copies_both_ways<D> && brackets_compute<D> &&
                 answers_for_stamps<D> && knows_time_and_rates<D>;

namespace detail {
/// The least that is a Device; declared only.
struct device_archetype {
  std::byte* device_memory(bytes);
  std::byte* host_memory(bytes);
  stamp copy(direction, std::byte*, const std::byte*, bytes, const fence&);
  void begin(const fence&);
  void move(std::byte*, const std::byte*, bytes);
  stamp end();
  bool reached(stamp);
  void wait(stamp);
  std::optional<nanoseconds> elapsed(stamp);
  nanoseconds now() const;
  nanoseconds waited() const;
  double rate(direction) const;
  nanoseconds latency(direction) const;
  nanoseconds backlog(direction) const;
};
}  // namespace detail

static_assert(Device<detail::device_archetype>);

}  // namespace delta
