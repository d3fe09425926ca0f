// delta: the arena: two regions taken from a device once, at the start, which hold all tensors,
// workspace, and both ends of copies in flight, so that the budget can't be exceeded. A machine
// needs a Device only: the smallest is host_device.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "delta/detail/storage/machine_lanes.hpp"
#include "delta/detail/storage/storage_rules.hpp"
#include "delta/storage/device.hpp"
#include "delta/storage/storage.hpp"
#include "delta/units.hpp"

namespace delta {

/// What an arena takes from its device.
struct arena_options {
  bytes capacity{};                ///< the budget: what device_memory is asked for
  bytes host_capacity{};           ///< the host budget, likewise
  std::uint64_t granularity = 64;  ///< sizes are rounded up to it, addresses too; a power of two
  bool moving = true;              ///< off where somebody keeps addresses without holding blocks
};

namespace detail {

// A device's lanes as storage_rules wants them: offsets instead of addresses.
template <Device D>
class arena_lanes : public machine_lanes<D> {
  using base = machine_lanes<D>;

 public:
  // Takes both memories. Throws what the device throws; then nothing is kept.
  arena_lanes(D& device, const arena_options& o)
      : base(device),
        device_memory_(device.device_memory(o.capacity)),
        host_memory_(device.host_memory(o.host_capacity)) {}

  stamp copy(direction d, std::uint64_t device, std::uint64_t host, bytes n, const fence& after) {
    return base::copy(d, device_memory_ + device, host_memory_ + host, n, after);
  }
  // Of bytes that nobody uses.
  void copy_now(direction d, std::uint64_t device, std::byte* host, bytes n) {
    base::copy_now(d, device_memory_ + device, host, n, {});
  }
  void move(std::uint64_t to, std::uint64_t from, std::uint64_t n) {
    this->machine().move(device_memory_ + to, device_memory_ + from, bytes{n});
  }
  stamp end_moves(bytes) { return base::end(); }
  stamp end(nanoseconds) { return base::end(); }

  [[nodiscard]] std::byte* device_memory() const noexcept { return device_memory_; }
  [[nodiscard]] std::byte* host_memory() const noexcept { return host_memory_; }

 private:
  std::byte* device_memory_;
  std::byte* host_memory_;
};

}  // namespace detail

/// The Storage over a device, which outlives it. Its other members are storage_rules' (such as
/// peak() and waited()). A device that is wrong is told so in sentences.
///   my_device machine;
///   delta::arena storage{machine, {.capacity = 512_MiB, .host_capacity = 2_GiB}};
///   delta::manager manager{delta::online(), storage};
template <class D, class DeviceLanes = detail::arena_lanes<detail::checked_device<D>>>
class arena : public detail::storage_rules<DeviceLanes> {
  using base = detail::storage_rules<DeviceLanes>;

 public:
  /// Asks the device for both memories, once. Throws what they throw.
  arena(D& device, const arena_options& o) : arena(o, DeviceLanes(device, o)) {}

  /// Where the block is now: until something is allocated, unless the block is held. On a device
  /// whose compute runs on, the bytes are for its lanes; the host waits for a stamp first. O(1).
  [[nodiscard]] std::byte* data(const block& b) const {
    return this->lanes().device_memory() + this->offset(b);
  }
  /// Where the slab is: slabs never move. Its bytes are there once its transfer is done. O(1).
  [[nodiscard]] std::byte* data(const slab& h) const {
    return this->lanes().host_memory() + this->offset(h);
  }
  /// Copies bytes of a block from its byte `from` on to the host's heap, and back: for tests. Over
  /// when it returns; whoever uses the block must be done. Always true: there are bytes.
  bool read_bytes(const block& b, std::uint64_t from, std::span<std::byte> to) {
    if (!to.empty())
      this->lanes().copy_now(direction::out, this->offset(b) + from, to.data(), bytes{to.size()});
    return true;
  }
  bool write_bytes(const block& b, std::uint64_t to, std::span<const std::byte> from) {
    // A copy in only reads it.
    if (!from.empty())
      this->lanes().copy_now(direction::in, this->offset(b) + to,
                             const_cast<std::byte*>(from.data()), bytes{from.size()});
    return true;
  }
  /// What a kernel is launched on, where the device has something of the kind.
  [[nodiscard]] void* native_stream() const
    requires detail::has_native_stream<D>
  {
    return this->lanes().machine().native_stream();
  }

 protected:
  arena(const arena_options& o, DeviceLanes on)
      : base(o.capacity, o.host_capacity, o.granularity, o.moving, std::move(on)) {}
};

static_assert(Storage<arena<detail::device_archetype>>);

}  // namespace delta
