// delta_torch: an allocator for CUDA that asks another one, whatever it is asked.
#pragma once

#include <atomic>
#include <functional>
#include <unordered_set>
#include <vector>

#include "versions.hpp"

namespace delta_torch {

using c10::DeviceIndex;
using c10::MempoolId_t;

/// What the allocator's interface has in all versions of PyTorch that this is for.
class forwarding_base : public CUDAAllocator {
 public:
  /// The one that is asked. From any thread.
  [[nodiscard]] CUDAAllocator& native() const noexcept {
    return *native_.load(std::memory_order_acquire);
  }
  void ask(CUDAAllocator& native) noexcept { native_.store(&native, std::memory_order_release); }

  // --- c10::Allocator, c10::DeviceAllocator
  // -----------------------------------------------------------------------------------------------

  c10::DataPtr allocate(std::size_t size) override { return native().allocate(size); }
  bool is_simple_data_ptr(const c10::DataPtr& p) const override {
    return native().is_simple_data_ptr(p);
  }
  c10::DeleterFnPtr raw_deleter() const override { return native().raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t size) const override {
    native().copy_data(to, from, size);
  }
  bool initialized() override { return native().initialized(); }
  void emptyCache(MempoolId_t p) override { native().emptyCache(p); }
  void recordStream(const c10::DataPtr& p, c10::Stream s) override { native().recordStream(p, s); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex d) override {
    return native().getDeviceStats(d);
  }
  void resetAccumulatedStats(DeviceIndex d) override { native().resetAccumulatedStats(d); }
  void resetPeakStats(DeviceIndex d) override { native().resetPeakStats(d); }
  std::pair<std::size_t, std::size_t> getMemoryInfo(DeviceIndex d) override {
    return native().getMemoryInfo(d);
  }

  // --- CUDAAllocator
  // -----------------------------------------------------------------------------------------------

  void* raw_alloc(std::size_t size) override { return native().raw_alloc(size); }
  void* raw_alloc_with_stream(std::size_t size, cudaStream_t s) override {
    return native().raw_alloc_with_stream(size, s);
  }
  void raw_delete(void* p) override { native().raw_delete(p); }
  void init(int devices) override { native().init(devices); }
  double getMemoryFraction(DeviceIndex d) override { return native().getMemoryFraction(d); }
  void setMemoryFraction(double share, DeviceIndex d) override {
    native().setMemoryFraction(share, d);
  }
  std::vector<c10::cuda::CUDACachingAllocator::StreamSegmentSize> getExpandableSegmentSizes(
      DeviceIndex d) override {
    return native().getExpandableSegmentSizes(d);
  }
  void enable(bool on) override { native().enable(on); }
  bool isEnabled() const override { return native().isEnabled(); }
  void cacheInfo(DeviceIndex d, std::size_t* largest) override { native().cacheInfo(d, largest); }
  void* getBaseAllocation(void* p, std::size_t* size) override {
    return native().getBaseAllocation(p, size);
  }
  void recordStream(const c10::DataPtr& p, c10::cuda::CUDAStream s) override {
    native().recordStream(p, s);
  }
  void beginAllocateToPool(DeviceIndex d, MempoolId_t p,
                           std::function<bool(cudaStream_t)> filter) override {
    native().beginAllocateToPool(d, p, std::move(filter));
  }
  void endAllocateToPool(DeviceIndex d, MempoolId_t p) override {
    native().endAllocateToPool(d, p);
  }
  void releasePool(DeviceIndex d, MempoolId_t p) override { native().releasePool(d, p); }
  int getPoolUseCount(DeviceIndex d, MempoolId_t p) override {
    return native().getPoolUseCount(d, p);
  }
  void createOrIncrefPool(DeviceIndex d, MempoolId_t p, std::shared_ptr<CUDAAllocator> a) override {
    native().createOrIncrefPool(d, p, std::move(a));
  }
  void setUseOnOOM(DeviceIndex d, MempoolId_t p, bool on) override {
    native().setUseOnOOM(d, p, on);
  }
  void setNoSplit(DeviceIndex d, MempoolId_t p) override { native().setNoSplit(d, p); }
  bool checkPoolLiveAllocations(DeviceIndex d, MempoolId_t p,
                                const std::unordered_set<void*>& expected) override {
    return native().checkPoolLiveAllocations(d, p, expected);
  }
  c10::cuda::CUDACachingAllocator::ShareableHandle shareIpcHandle(void* p) override {
    return native().shareIpcHandle(p);
  }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return native().getIpcDevPtr(std::move(handle));
  }
  bool isHistoryEnabled() override { return native().isHistoryEnabled(); }
  void recordHistory(bool on, c10::cuda::CUDACachingAllocator::CreateContextFn context,
                     std::size_t most, c10::cuda::CUDACachingAllocator::RecordContext when,
                     bool clear, const std::vector<std::string>& skip) override {
    native().recordHistory(on, context, most, when, clear, skip);
  }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& data) override {
    native().recordAnnotation(data);
  }
  void pushCompileContext(std::string& data) override { native().pushCompileContext(data); }
  void popCompileContext() override { native().popCompileContext(); }
  void setUserMetadata(const std::string& data) override { native().setUserMetadata(data); }
  std::string getUserMetadata() override { return native().getUserMetadata(); }
  void attachOutOfMemoryObserver(
      c10::cuda::CUDACachingAllocator::OutOfMemoryObserver observer) override {
    native().attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(
      c10::cuda::CUDACachingAllocator::AllocatorTraceTracker tracker) override {
    native().attachAllocatorTraceTracker(std::move(tracker));
  }
  void enablePeerAccess(DeviceIndex from, DeviceIndex to) override {
    native().enablePeerAccess(from, to);
  }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device,
                          std::size_t size, cudaStream_t s, bool peers) override {
    return native().memcpyAsync(to, to_device, from, from_device, size, s, peers);
  }
  std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> getCheckpointState(
      DeviceIndex d, MempoolId_t p) override {
    return native().getCheckpointState(d, p);
  }
  c10::cuda::CUDACachingAllocator::CheckpointDelta setCheckpointPoolState(
      DeviceIndex d,
      std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> state) override {
    return native().setCheckpointPoolState(d, std::move(state));
  }
  std::string name() override { return native().name(); }

 private:
  std::atomic<CUDAAllocator*> native_{nullptr};
};

using forwarding = in_every_version<forwarding_base>;

}  // namespace delta_torch
