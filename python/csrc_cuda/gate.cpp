// delta_torch: the gate.
#include "gate.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace delta_torch {

static_assert(!std::is_abstract_v<gate>,
              "this PyTorch's CUDA allocator has a function that versions.hpp does not know");

namespace {
constexpr std::uint8_t highest = 255;
std::atomic<CUDAAllocator*>& installed() {
  return c10::cuda::CUDACachingAllocator::allocator;
}
}  // namespace

void gate::install(run_allocator& ours, c10::DeviceIndex device) {
  const std::lock_guard hold(lock_);
  ours_ = &ours;
  device_ = device;
  if (installed() != this) {
    pools_.clear();  // of an earlier run, whose ends it did not see
    pools_begun_ = 0;
    ask(*installed().load());
    before_ = c10::GetAllocator(c10::kCUDA);
    installed() = this;
    c10::SetAllocator(c10::kCUDA, this, highest);
  }
  active_ = true;
}

void gate::remove() {
  const std::lock_guard hold(lock_);
  active_ = false;
  if (raw_.empty()) restore();
}

// Unless another one has been put before the gate: that one goes on asking it.
void gate::restore() {
  CUDAAllocator* expected = this;
  if (!installed().compare_exchange_strong(expected, &native())) return;
  if (c10::GetAllocator(c10::kCUDA) == this) c10::SetAllocator(c10::kCUDA, before_, highest);
}

CUDAAllocator& gate::own() const {
  CUDAAllocator* const now = installed();
  return now == this ? native() : *now;
}

// Is what this thread allocates now the run's?
bool gate::counts() const {
  if (!active_ || uncounted_here::here()) return false;
  const c10::DeviceIndex device = device_;
  if (where_->device() != device) return false;
  const cudaStream_t stream = where_->stream(device);
  return !in_private_pool(stream) && !where_->capturing(stream);
}

bool gate::in_private_pool(cudaStream_t stream) const {
  if (pools_begun_ == 0) return false;
  const std::lock_guard hold(lock_);
  const c10::DeviceIndex device = device_;
  return std::ranges::any_of(
      pools_, [&](const private_pool& p) { return p.device == device && p.filter(stream); });
}

c10::DataPtr gate::allocate(std::size_t size) {
  return counts() ? ours_.load()->allocate(size) : native().allocate(size);
}

void* gate::raw_alloc(std::size_t size) {
  return counts() ? keep(ours_.load()->allocate(size)) : native().raw_alloc(size);
}

void* gate::raw_alloc_with_stream(std::size_t size, cudaStream_t stream) {
  if (counts() && where_->stream(device_) == stream) return keep(ours_.load()->allocate(size));
  return native().raw_alloc_with_stream(size, stream);
}

void* gate::keep(c10::DataPtr&& data) {
  void* const at = data.get();
  if (at == nullptr) return nullptr;
  c10::DataPtr stale;  // freed without the lock, which frees may need
  const std::lock_guard hold(lock_);
  c10::DataPtr& place = raw_[at];
  stale = std::exchange(place, std::move(data));
  return at;
}

void gate::raw_delete(void* at) {
  c10::DataPtr gone;
  {
    const std::lock_guard hold(lock_);
    if (const auto i = raw_.find(at); i != raw_.end()) {
      gone = std::move(i->second);
      raw_.erase(i);
      if (!active_ && raw_.empty()) restore();
    }
  }
  if (gone.get() == nullptr) native().raw_delete(at);
}

void gate::recordStream(const c10::DataPtr& data, c10::Stream s) {
  if (!active_ || !ours_.load()->used_by(data, s)) native().recordStream(data, s);
}

void gate::recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream s) {
  if (!active_ || !ours_.load()->used_by(data, s.unwrap())) native().recordStream(data, s);
}

void gate::beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t id,
                               std::function<bool(cudaStream_t)> filter) {
  {
    const std::lock_guard hold(lock_);
    pools_.push_back({device, id, filter});
    ++pools_begun_;
  }
  native().beginAllocateToPool(device, id, std::move(filter));
}

void gate::endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t id) {
  native().endAllocateToPool(device, id);
  const std::lock_guard hold(lock_);
  pools_.remove_if([&](const private_pool& p) { return p.device == device && p.id == id; });
  pools_begun_ = pools_.size();
}

}  // namespace delta_torch
