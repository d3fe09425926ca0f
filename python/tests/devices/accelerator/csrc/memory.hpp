// The simulated device's memory: addresses that only the device can follow.
#pragma once

#include <cstddef>
#include <cstdint>

namespace simulated {

/// The addresses that are given out lie in a reservation that no one may read or write: a host that
/// follows one dies of SIGSEGV. The bytes themselves are a file in memory, mapped at another place
/// that the device's thread alone uses.
class DeviceMemory {
 public:
  static DeviceMemory& instance();

  /// How far apart the first and the last address are; more than any capacity, since the allocator
  /// leaves gaps.
  static constexpr std::size_t extent = std::size_t{64} << 30;

  std::byte* base() const { return reserved_; }
  bool contains(const void* address) const;

  /// Where the device finds the bytes of a device address. An address that isn't one, or a range
  /// that doesn't end inside the memory, is an error (std::logic_error).
  std::byte* real(const void* address, std::size_t bytes) const;

  /// Gives the pages back to the system; they read as zeros afterwards.
  void forget(const void* address, std::size_t bytes) const;

 private:
  DeviceMemory();

  int file_ = -1;
  std::byte* reserved_ = nullptr;
  std::byte* mapped_ = nullptr;
};

}  // namespace simulated
