// delta executor: bytes of a device where the host can touch them, for as long as an object lives.
#pragma once

#include <cstddef>
#include <utility>

#include "delta/units.hpp"
#include "device/machine.hpp"

namespace delta::executor {

/// machine::map, ended at the latest when this goes. One at a time for each machine.
///
///   host_view view(where, address, size, false);
///   fill(view.data());
///   view.write();
class host_view {
 public:
  /// With `reading`, data() has the device's contents. Throws what map throws.
  host_view(machine& where, std::byte* device, bytes n, bool reading)
      : where_(&where), data_(where.map(device, n, reading)) {}
  host_view(const host_view&) = delete;
  host_view& operator=(const host_view&) = delete;
  ~host_view() {
    if (where_ != nullptr) where_->unmap(false);
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// Ends it: what is at data() now is the device's on return. Throws what unmap throws; it is
  /// ended all the same.
  void write() { std::exchange(where_, nullptr)->unmap(true); }

 private:
  machine* where_;
  std::byte* data_;
};

}  // namespace delta::executor
