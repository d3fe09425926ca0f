// delta: the lanes of a device, called with addresses, and defaults for the optional functions of a
// device. arena and device_heap stand on it.
#pragma once

#include <cstddef>
#include <optional>

#include "delta/storage/device.hpp"
#include "delta/storage/storage.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// The lanes of a machine, which outlives it. What it throws comes through.
template <Lanes D>
class machine_lanes {
 public:
  explicit machine_lanes(D& on) noexcept : machine_(&on) {}

  /// Whichever way: the address on the device, then the host's.
  stamp copy(direction d, std::byte* there, std::byte* here, bytes n, const fence& after) {
    const bool out = d == direction::out;
    return machine_->copy(d, out ? here : there, out ? there : here, n, after);
  }
  /// The same, over when it returns.
  void copy_now(direction d, std::byte* there, std::byte* here, bytes n, const fence& after) {
    machine_->wait(copy(d, there, here, n, after));
  }
  void begin(const fence& after) { machine_->begin(after); }
  stamp end() { return machine_->end(); }
  bool reached(stamp s) { return machine_->reached(s); }
  void wait(stamp s) { machine_->wait(s); }
  std::optional<nanoseconds> elapsed(stamp s) { return machine_->elapsed(s); }
  /// A machine need not know.
  std::optional<nanoseconds> began(stamp s) {
    return answer_or<began_row>(std::optional<nanoseconds>(), *machine_, s);
  }
  /// What a machine does not say is nothing, and that work took what it would have taken alone.
  [[nodiscard]] double burden(direction d) const { return answer_or<burden_row>(0.0, asked(), d); }
  std::optional<nanoseconds> alone(stamp s) {
    if constexpr (has_alone<D>) return machine_->alone(s);
    return machine_->elapsed(s);
  }
  [[nodiscard]] nanoseconds now() const { return asked().now(); }
  [[nodiscard]] nanoseconds waited() const { return asked().waited(); }
  [[nodiscard]] double rate(direction d) const { return asked().rate(d); }
  /// The machine's word where it gives one.
  [[nodiscard]] double move_rate() const {
    return answer_or<move_rate_row>(assumed_move_rate, *machine_);
  }
  [[nodiscard]] nanoseconds latency(direction d) const { return asked().latency(d); }
  [[nodiscard]] nanoseconds backlog(direction d) const { return asked().backlog(d); }

  [[nodiscard]] D& machine() const noexcept { return *machine_; }

 private:
  [[nodiscard]] const D& asked() const noexcept { return *machine_; }
  D* machine_;
};

}  // namespace delta::detail
