// delta executor: a Device behind virtual functions, so that the sessions, which are dear to
// compile, are compiled once for every kind of machine. A call costs some nanoseconds.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "delta/storage/arena.hpp"
#include "delta/units.hpp"

namespace delta::executor {

class thread_pool;

/// Two memories and three lanes, with delta::Device's rules, and how the host gets at bytes of
/// the device. One per run; for one thread.
class machine {
 public:
  machine() = default;
  machine(const machine&) = delete;
  machine& operator=(const machine&) = delete;
  virtual ~machine() = default;

  /// delta::Device; see storage/arena.hpp.
  virtual std::byte* device_memory(bytes) = 0;
  virtual std::byte* host_memory(bytes) = 0;
  virtual stamp copy(direction, std::byte* to, const std::byte* from, bytes n,
                     const fence& after) = 0;
  virtual void begin(const fence& after) = 0;
  virtual void move(std::byte* to, const std::byte* from, bytes n) = 0;
  virtual stamp end() = 0;
  virtual bool reached(stamp) = 0;
  virtual void wait(stamp) = 0;
  virtual std::optional<nanoseconds> elapsed(stamp) = 0;
  virtual std::optional<nanoseconds> began(stamp) = 0;
  [[nodiscard]] virtual nanoseconds now() const = 0;
  [[nodiscard]] virtual nanoseconds waited() const = 0;
  [[nodiscard]] virtual double rate(direction) const = 0;
  [[nodiscard]] virtual nanoseconds latency(direction) const = 0;
  [[nodiscard]] virtual nanoseconds backlog(direction) const = 0;
  [[nodiscard]] virtual double move_rate() const = 0;
  [[nodiscard]] virtual double burden(direction) const { return 0; }
  virtual std::optional<nanoseconds> alone(stamp s) { return elapsed(s); }
  [[nodiscard]] virtual void* native_stream() = 0;

  /// How long the host itself has waited, for whatever; part of it is in waited().
  [[nodiscard]] virtual nanoseconds host_waited() const = 0;
  /// What it is called, for reports and traces: "NVIDIA H100 80GB HBM3".
  [[nodiscard]] virtual std::string name() const = 0;
  /// Whether a kernel is over when the call that launched it returns, so that the host's clock
  /// tells what it took.
  [[nodiscard]] virtual bool computes_at_once() const = 0;

  /// From here on operators are timed for `measured`, whatever a step then takes.
  virtual void time_operators() {}
  /// What an operator took of its lane, without what the host took to launch it; nothing where
  /// that is not known, or not any more. Where elapsed() is no such thing, only after
  /// time_operators().
  virtual std::optional<nanoseconds> measured(stamp s) { return elapsed(s); }

  /// Threads of the host's that stand idle whenever a function of the machine runs. Outlive it.
  virtual void lend(thread_pool&) {}
  /// Threads of the host's that copy, where any do; 0: those that compute.
  [[nodiscard]] virtual std::optional<int> copy_threads() const { return std::nullopt; }

  /// Calls `f`, which is no part of the program: where the machine can, its lanes are idle and
  /// its clock stands still meanwhile. How long it waited until they were idle.
  virtual nanoseconds stand_still(const std::function<void()>& f) { return f(), nanoseconds{}; }

  /// A moment in a profiler's timeline, where there is a profiler to draw it.
  virtual void mark_moment(const char*) {}

  /// Where the host finds `n` bytes of device memory, whose users are done (manager::acquire sees
  /// to that): the bytes themselves, or a copy of them, whose contents matter only if `reading`.
  /// One at a time. Throws what copying throws.
  virtual std::byte* map(std::byte* device, bytes n, bool reading) = 0;
  /// Ends what `map` began: with `writing`, what is there now is in the device's memory on return.
  virtual void unmap(bool writing) = 0;

  /// Memory of the host's that `copy` and `fetch` use while the host goes on, kept until the
  /// machine goes. Null: there is none; the host gets at bytes by `map` alone. Throws as
  /// host_memory.
  virtual std::byte* host_buffer(bytes) { return nullptr; }
  /// Between begin() and end(): the compute lane copies device memory into a host buffer.
  virtual void fetch(std::byte*, const std::byte*, bytes) {}
};

static_assert(Device<machine>);

}  // namespace delta::executor
