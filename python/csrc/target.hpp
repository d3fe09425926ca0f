// delta_torch: the device that a run manages, as the rest of the adapter sees it: its memory by
// PyTorch's own allocator, and the order of what runs on it. cpu_target.cpp is the CPU,
// accelerator.cpp every other device that PyTorch knows.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "device_part.hpp"
#include "host_memory.hpp"
#include "managed_memory.hpp"

namespace delta_torch {

/// The device whose tensors are managed. Written while no run is on; read by every operator.
inline c10::Device device_of_run{c10::kCPU};
[[nodiscard]] inline c10::Device managed_device() noexcept {
  return device_of_run;
}

/// Which operator, with arguments of which sizes: what it costs, and how much memory it takes, is
/// remembered by that.
struct signature {
  std::uint64_t hash = 0;  ///< 0: none
};

/// Memory and order of one device. Where its lock matters is said; else all calls come under the
/// session's lock `state`.
class target {
 public:
  target() = default;
  target(const target&) = delete;
  target& operator=(const target&) = delete;
  virtual ~target() = default;

  [[nodiscard]] virtual c10::Device device() const noexcept = 0;
  /// The memory of a run. Throws c10::Error where the device does not do what it takes.
  [[nodiscard]] virtual std::unique_ptr<managed_memory> open(const memory_options&) = 0;
  /// That memory is gone.
  virtual void closed() = 0;
  /// PyTorch's allocations of this device's memory go through `ours` until `remove`.
  virtual void install(run_allocator& ours) = 0;
  virtual void remove() = 0;
  /// PyTorch's allocator is to hold little more than `bytes`, of which `counted` are taken; and the
  /// run is over.
  virtual void limit(delta::bytes bytes, delta::bytes counted) = 0;
  virtual void unlimit() = 0;

  // --- allocations: from any thread, with or without the lock
  // -----------------------------------------

  /// Memory by the allocator of before, that does not count. Null data: there is none.
  [[nodiscard]] virtual at::DataPtr uncounted(std::size_t size) = 0;
  /// The same for a replay, whose kernel must not be refused what it had before: past the run's
  /// limit, where the device has the memory. Under the lock.
  [[nodiscard]] virtual at::DataPtr scratch(std::size_t size) = 0;
  /// Throws what the allocator of before has failed with since it last gave memory, where that was
  /// not the want of it. Under the lock.
  virtual void rethrow_failure() = 0;
  /// What is known of the bytes of a DataPtr of ours; null: it is none.
  [[nodiscard]] virtual header* header_of_data(const at::DataPtr&) const noexcept = 0;
  /// The header of bytes that a managed_memory has given for a block.
  [[nodiscard]] virtual header& head(void* memory) = 0;
  /// A DataPtr of ours that owns what is behind a header.
  [[nodiscard]] virtual at::DataPtr pointer(header&) const = 0;
  /// Of an output's bytes, while it is replayed: nothing is freed.
  [[nodiscard]] virtual at::DataPtr replayed(void* memory) const = 0;
  /// Bytes that a managed_memory has given are PyTorch's alone: nobody else frees them.
  [[nodiscard]] virtual at::DataPtr plain(void* memory, std::size_t size) = 0;
  /// Bytes that stay when their block is freed next, once; or do not after all.
  virtual void keep(void* memory, bool) = 0;
  /// The header is of no use any more; its bytes are another's.
  virtual void retire(header&) noexcept = 0;
  /// Frees the bytes behind a header, and the header.
  virtual void free(header&) noexcept = 0;
  /// Is that how PyTorch's own allocator of this device frees?
  [[nodiscard]] virtual bool frees_so(c10::DeleterFnPtr) const noexcept = 0;

  // --- work
  // -----------------------------------------------------------------------------------------------

  /// Copies within the device, or fills with zeros, in the order of its operators.
  virtual void copy(void* to, const void* from, std::size_t size) = 0;
  virtual void clear(void* memory, std::size_t size) = 0;
  /// From which operators without a generator of their own draw.
  [[nodiscard]] virtual at::Generator generator() const = 0;

  /// A kernel of the program is about to be queued by this thread, and was queued: its stream waits
  /// for delta's, and then delta's for it. Without a lock; one at a time.
  virtual void before_kernel() = 0;
  virtual void after_kernel() = 0;
  /// While it lives what this thread queues is queued where delta's operators are: for a replay.
  class on_compute {
   public:
    explicit on_compute(target& t) : target_(&t), before_(t.enter_compute()) {}
    ~on_compute() { target_->leave_compute(before_); }
    on_compute(const on_compute&) = delete;
    on_compute& operator=(const on_compute&) = delete;

   private:
    target* target_;
    std::uint64_t before_;
  };
  /// The kernel queued next is this one: it may be measured.
  virtual void expect(signature) = 0;
  /// The most that it takes lately, in bytes, its outputs included; 0: not known. And it took so
  /// much.
  [[nodiscard]] virtual std::uint64_t taken_by(signature) const noexcept = 0;
  virtual void took(signature, std::uint64_t bytes) = 0;
  /// Is it what `device="cuda"`, without a number, names on this thread?
  [[nodiscard]] virtual bool is_current() const = 0;
  /// Is work remembered by signatures at all?
  [[nodiscard]] virtual bool remembers() const noexcept = 0;
  /// What the program has queued on that stream uses these bytes, past PyTorch's operators: when
  /// they are freed they are nobody's until it is over.
  virtual void used_by(void* memory, c10::Stream) = 0;
  /// The same of bytes that are still those of PyTorch's own allocator.
  virtual void used_by(const at::DataPtr& outside, c10::Stream) = 0;

 private:
  virtual std::uint64_t enter_compute() = 0;
  virtual void leave_compute(std::uint64_t before) = 0;
};

/// The target of a device; made once, lives for ever. Throws c10::Error where PyTorch has no such
/// device.
[[nodiscard]] target& target_of(c10::Device);
[[nodiscard]] target& cpu_target();

/// How DataPtrs of ours to the host's memory are freed; in session.cpp.
void release_memory(void* memory) noexcept;

}  // namespace delta_torch
