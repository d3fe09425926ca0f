// delta_torch: what differs from one accelerator to the next, behind virtual functions: how its
// allocator is replaced, and how bytes are copied. What is here does for every device that keeps to
// PyTorch's interfaces; the CUDA part is an extension of its own, as it needs CUDA's libraries.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstddef>

namespace delta_torch {

/// A budget that is none, for a run that is only measured: more than any machine has.
inline constexpr std::size_t no_limit = std::size_t{1} << 46;

/// The ways that bytes are copied.
enum class copied : unsigned char { to_host, to_device, within };

/// What a part asks for memory while a run is on.
class run_allocator : public c10::Allocator {
 public:
  /// A stream uses bytes of its own, too, past PyTorch's operators: as recordStream says of the
  /// device's. False: they are none of its own. From any thread.
  virtual bool used_by(const at::DataPtr&, c10::Stream) = 0;
};

/// Of one type of device.
class device_part {
 public:
  device_part() = default;
  device_part(const device_part&) = delete;
  device_part& operator=(const device_part&) = delete;
  virtual ~device_part() = default;

  /// PyTorch's own allocator of these devices, whatever is installed.
  [[nodiscard]] virtual c10::Allocator& own() = 0;
  /// From now on what PyTorch allocates on this device is asked of `ours`; and no longer.
  virtual void install(run_allocator& ours, c10::Device) = 0;
  virtual void remove() = 0;
  /// Queues a copy on a stream, which is this thread's current one. Host memory is pinned, and its
  /// allocator has to be told of the stream (at::HostAllocator::record_event), as copy_ does: it is
  /// freed while copies of it are under way, and the program may get it next.
  virtual void copy(copied, void* to, const void* from, std::size_t size, c10::Stream) = 0;
  /// Bytes of `own` that a stream uses, too: they are nobody's, once freed, until what is queued
  /// there by now is over.
  virtual void used_by(const at::DataPtr& data, c10::Stream s) {
    if (auto* const a = dynamic_cast<c10::DeviceAllocator*>(&own()))
      a->recordStream(data, s);
    else
      c10::impl::VirtualGuardImpl(s.device_type()).recordDataPtrOnStream(data, s);
  }
  /// What a run of so many bytes needs of the allocator: that it holds little more than these, of
  /// which `counted` are taken. And that the run is over.
  virtual void limit(c10::Device, std::size_t bytes, std::size_t counted) = 0;
  virtual void unlimit(c10::Device) noexcept = 0;
  /// This thread is about to queue kernels on this stream, its current one: what libraries keep for
  /// both is made now, and does not count.
  virtual void prepare(c10::Stream) = 0;
};

/// The name of a capsule of Python that holds a device_part of another extension. Its number grows
/// with each change of the functions above, so that an extension left from an older build is
/// refused.
inline constexpr const char* device_part_capsule = "delta_torch.device_part.2";

/// By what every device has: SetAllocator, and copy_ of tensors.
[[nodiscard]] device_part& generic_part(c10::DeviceType);
/// Another part for a type of device, which takes the generic one's place. It lives for ever.
void use_part(c10::DeviceType, device_part&);
[[nodiscard]] device_part& part_of(c10::DeviceType);

}  // namespace delta_torch
