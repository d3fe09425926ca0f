// delta_torch: CUDA's part: the gate before PyTorch's allocator, copies, and how much that may
// hold.
//
// There is no FreeMemoryCallback, which PyTorch's allocator would call before it gives up. It calls
// it with its own lock held, for whoever allocates. What delta's own source asks for is refused
// with an error instead, and then the manager lets something leave and asks again, so nothing is
// gained there. What passes the gate belongs to a graph that is being recorded, to a private pool
// or to another device: within the first, copies and events would become a part of the graph; to
// the others, what leaves is of no use, as its segments stay another pool's.
#include "cuda_part.hpp"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "gate.hpp"
#include "segments.hpp"

namespace delta_torch {

namespace {

class cuda_itself final : public surroundings {
 public:
  [[nodiscard]] c10::DeviceIndex device() const override { return c10::cuda::current_device(); }
  [[nodiscard]] cudaStream_t stream(c10::DeviceIndex d) const override {
    return c10::cuda::getCurrentCUDAStream(d).stream();
  }
  // Asked of the default stream while another one records, CUDA answers with an error. Whatever the
  // error is, PyTorch's own allocator meets it, too.
  [[nodiscard]] bool capturing(cudaStream_t s) const override {
    cudaStreamCaptureStatus status{};
    if (cudaStreamIsCapturing(s, &status) == cudaSuccess)
      return status != cudaStreamCaptureStatusNone;
    (void)cudaGetLastError();
    return true;
  }
};

constexpr cudaMemcpyKind kind_of(copied way) noexcept {
  return way == copied::to_host     ? cudaMemcpyDeviceToHost
         : way == copied::to_device ? cudaMemcpyHostToDevice
                                    : cudaMemcpyDeviceToDevice;
}

class part_of_cuda final : public device_part {
 public:
  [[nodiscard]] c10::Allocator& own() override { return gate_.own(); }
  void install(run_allocator& ours, c10::Device device) override {
    gate_.install(ours, device.index());
  }
  void remove() override { gate_.remove(); }

  void copy(copied way, void* to, const void* from, std::size_t size, c10::Stream s) override {
    const c10::OptionalDeviceGuard there(s.device());
    C10_CUDA_CHECK(
        cudaMemcpyAsync(to, from, size, kind_of(way), c10::cuda::CUDAStream(s).stream()));
    // When it is freed PyTorch waits for the copy before it gives these bytes to others.
    if (way != copied::within)
      (void)at::getHostAllocator(c10::kCUDA)
          ->record_event(way == copied::to_host ? to : const_cast<void*>(from), nullptr, s);
  }

  void limit(c10::Device, std::size_t bytes, std::size_t counted) override;
  void unlimit(c10::Device) noexcept override;
  void prepare(c10::Stream) override;

 private:
  cuda_itself cuda_;
  gate gate_{cuda_};
  expandable_segments segments_;
  std::mutex lock_;
  std::unordered_map<c10::DeviceIndex, double> shares_;  // what they were before a run
};

// As a share of the device's memory, which is how PyTorch counts. A limit of the user's own that is
// lower stays.
void part_of_cuda::limit(c10::Device device, std::size_t bytes, std::size_t counted) {
  const c10::OptionalDeviceGuard there(device);
  CUDAAllocator& own = gate_.own();
  const c10::DeviceIndex index = device.index();
  const std::lock_guard hold(lock_);
  const auto [before, first] = shares_.try_emplace(index, 1.0);
  if (first) {
    before->second = own.getMemoryFraction(index);
    segments_.turn_on(own);
    // What is cached is in segments of before, which would count, and be cut up.
    own.emptyCache({0, 0});
  }
  std::size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  // [0] is the sum over its pools.
  const auto taken = static_cast<std::size_t>(own.getDeviceStats(index).allocated_bytes[0].current);
  const std::size_t others = taken - std::min(taken, counted);
  own.setMemoryFraction(share_in_a_run(bytes, others, total, before->second), index);
}

void part_of_cuda::unlimit(c10::Device device) noexcept {
  const std::lock_guard hold(lock_);
  const auto before = shares_.find(device.index());
  if (before == shares_.end()) return;
  const double share = before->second;
  shares_.erase(before);
  // Behind an error of CUDA every call fails, and a run must end all the same.
  try {
    const c10::OptionalDeviceGuard there(device);
    gate_.own().setMemoryFraction(share, device.index());
    if (shares_.empty()) segments_.turn_off(gate_.own());
  } catch (const std::exception& e) {
    TORCH_WARN("delta: PyTorch's limit of memory is still the run's: ", e.what());
  }
}

// PyTorch makes a handle of cuBLAS for each thread, and in some versions a workspace for each
// handle and stream, and one of cuBLASLt, which stay. Made within an operator it would be taken for
// bytes of that operator's; made within a replay, whose bytes are somebody else's afterwards, it
// would be overwritten.
void part_of_cuda::prepare(c10::Stream s) {
  thread_local std::optional<c10::Stream> last;
  thread_local std::unordered_set<c10::Stream> prepared;
  if (last == s) return;
  if (!prepared.contains(s)) {
    const c10::OptionalDeviceGuard there(s.device());
    const uncounted_here plain;
    (void)at::cuda::getCurrentCUDABlasHandle();
    if (keeps_workspaces()) (void)at::cuda::getCUDABlasLtWorkspace();
    prepared.insert(s);
  }
  last = s;
}

}  // namespace

device_part& cuda_part() {
  static auto& one = *new part_of_cuda;
  return one;
}

}  // namespace delta_torch
