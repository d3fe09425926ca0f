// delta_torch: the allocator that stands before PyTorch's own while a run is on. What asks for
// bytes of the run's device is sent to delta's; everything else is PyTorch's own allocator's
// affair.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <mutex>
#include <unordered_map>

#include "device_part.hpp"
#include "forwarding.hpp"

namespace delta_torch {

/// What the gate asks of CUDA, so that it can be tested where there is none. From any thread.
class surroundings {
 public:
  surroundings() = default;
  surroundings(const surroundings&) = delete;
  surroundings& operator=(const surroundings&) = delete;
  virtual ~surroundings() = default;

  /// This thread's current device, and its current stream on one.
  [[nodiscard]] virtual c10::DeviceIndex device() const = 0;
  [[nodiscard]] virtual cudaStream_t stream(c10::DeviceIndex) const = 0;
  /// Is what is queued there recorded for a graph?
  [[nodiscard]] virtual bool capturing(cudaStream_t) const = 0;
};

/// While it lives, this thread's allocations pass the gate.
class uncounted_here {
 public:
  uncounted_here() : before_(here()) { here() = true; }
  ~uncounted_here() { here() = before_; }
  uncounted_here(const uncounted_here&) = delete;
  uncounted_here& operator=(const uncounted_here&) = delete;
  [[nodiscard]] static bool& here() noexcept {
    thread_local bool on = false;
    return on;
  }

 private:
  bool before_;
};

/// It lives for ever, as other threads may be in a call of it when it is removed. Where it is
/// installed it is both c10's allocator of CUDA and the one that c10::cuda knows.
///
/// To PyTorch's own allocator go: other devices' allocations; those of a private pool that was
/// begun behind the gate; those of a stream that records a graph, as these must be the graph's own
/// for as long as it lives; raw ones for another stream than the thread's, whose order delta does
/// not know.
class gate final : public forwarding {
 public:
  explicit gate(const surroundings& where) : where_(&where) {}

  /// `ours` is asked for bytes of this device. Neither is to be called while the other runs.
  void install(run_allocator& ours, c10::DeviceIndex device);
  /// Nothing more is asked of `ours`. PyTorch has its own allocator back: at once, or, where raw
  /// pointers of ours are still out, with the last of them, as the own one would free their bytes
  /// and not what owns them.
  void remove();
  /// PyTorch's own, whatever is installed.
  [[nodiscard]] CUDAAllocator& own() const;

  c10::DataPtr allocate(std::size_t size) override;
  /// None: what is allocated here does not always have the same one.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void* raw_alloc(std::size_t size) override;
  void* raw_alloc_with_stream(std::size_t size, cudaStream_t) override;
  void raw_delete(void*) override;
  /// Of bytes of ours, too: callers in C++ come past PyTorch's operators.
  void recordStream(const c10::DataPtr&, c10::Stream) override;
  void recordStream(const c10::DataPtr&, c10::cuda::CUDAStream) override;
  void beginAllocateToPool(c10::DeviceIndex, c10::MempoolId_t,
                           std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(c10::DeviceIndex, c10::MempoolId_t) override;

 private:
  struct private_pool {
    c10::DeviceIndex device;
    c10::MempoolId_t id;
    std::function<bool(cudaStream_t)> filter;
  };
  [[nodiscard]] bool counts() const;
  [[nodiscard]] bool in_private_pool(cudaStream_t) const;
  void* keep(c10::DataPtr&&);
  void restore();

  const surroundings* where_;
  std::atomic<run_allocator*> ours_{nullptr};
  std::atomic<c10::DeviceIndex> device_{-1};
  std::atomic<bool> active_{false};
  c10::Allocator* before_ = nullptr;  // what c10 knew
  std::atomic<std::size_t> pools_begun_{0};
  mutable std::mutex lock_;  // of what follows
  std::list<private_pool> pools_;
  std::unordered_map<void*, c10::DataPtr> raw_;
};

}  // namespace delta_torch
