#include "host_allocator.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace simulated {

namespace {

constexpr std::size_t page = 4096;
constexpr int poison_byte = 0xDB;

}  // namespace

HostAllocator& HostAllocator::instance() {
  static auto* const allocator = new HostAllocator;
  return *allocator;
}

c10::DataPtr HostAllocator::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes == 0) {
    return {nullptr, nullptr, raw_deleter(), c10::DeviceType::CPU};
  }
  const std::size_t rounded = std::bit_ceil(std::max(bytes, page));
  const auto reused = std::ranges::find_if(free_, [&](std::byte* address) {
    const Block& block = blocks_.at(address);
    return block.bytes == rounded && done(block);
  });
  std::byte* address = nullptr;
  if (reused != free_.end()) {
    address = *reused;
    free_.erase(reused);
  } else {
    address = static_cast<std::byte*>(std::aligned_alloc(page, rounded));
    TORCH_CHECK(address != nullptr, "no pinned memory for ", rounded, " bytes");
    stats_.allocated_bytes.increase(rounded);
    stats_.allocations.increase(1);
  }
  blocks_[address] = {rounded, true, {}, {}};
  stats_.active_bytes.increase(rounded);
  stats_.active_requests.increase(1);
  return {address, address, raw_deleter(), c10::DeviceType::CPU};
}

c10::DeleterFnPtr HostAllocator::raw_deleter() const {
  return [](void* address) { HostAllocator::instance().free(address); };
}

void HostAllocator::copy_data(void* to, const void* from, std::size_t bytes) const {
  default_copy_data(to, from, bytes);
}

void HostAllocator::free(void* address) {
  if (address == nullptr) {
    return;
  }
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(static_cast<std::byte*>(address));
  TORCH_INTERNAL_ASSERT(block != blocks_.end() && block->second.in_use);
  block->second.in_use = false;
  for (const StreamNumber stream : block->second.used_by) {
    block->second.markers.push_back(Scheduler::instance().record(stream));
  }
  // What a copy still needs although no one said so is lost at once, and a test sees it.
  if (done(block->second) && Scheduler::instance().chance(0.5)) {
    std::memset(block->first, poison_byte, block->second.bytes);
  }
  free_.push_front(block->first);
  stats_.active_bytes.decrease(block->second.bytes);
  stats_.active_requests.decrease(1);
}

bool HostAllocator::record_event(void* address, void* /*context*/, c10::Stream stream) {
  const std::lock_guard lock(mutex_);
  const auto block = find(address);
  if (block == blocks_.end() || !block->second.in_use) {
    return false;
  }
  block->second.used_by.insert(stream.id());
  return true;
}

void HostAllocator::empty_cache() {
  const std::lock_guard lock(mutex_);
  for (auto address = free_.begin(); address != free_.end();) {
    const auto block = blocks_.find(*address);
    if (!done(block->second)) {
      ++address;
      continue;
    }
    stats_.allocated_bytes.decrease(block->second.bytes);
    stats_.allocations.decrease(1);
    std::free(block->first);
    blocks_.erase(block);
    address = free_.erase(address);
  }
}

at::HostStats HostAllocator::get_stats() {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void HostAllocator::reset_accumulated_stats() {
  const std::lock_guard lock(mutex_);
  stats_.allocated_bytes.reset_accumulated();
  stats_.allocations.reset_accumulated();
  stats_.active_bytes.reset_accumulated();
  stats_.active_requests.reset_accumulated();
}

void HostAllocator::reset_peak_stats() {
  const std::lock_guard lock(mutex_);
  stats_.allocated_bytes.reset_peak();
  stats_.allocations.reset_peak();
  stats_.active_bytes.reset_peak();
  stats_.active_requests.reset_peak();
}

bool HostAllocator::owns(const void* address) {
  const std::lock_guard lock(mutex_);
  const auto block = find(address);
  return block != blocks_.end() && block->second.in_use;
}

HostAllocator::Blocks::iterator HostAllocator::find(const void* address) {
  auto* const wanted = const_cast<std::byte*>(static_cast<const std::byte*>(address));
  const auto after = blocks_.upper_bound(wanted);
  if (after == blocks_.begin()) {
    return blocks_.end();
  }
  const auto block = std::prev(after);
  return wanted < block->first + block->second.bytes ? block : blocks_.end();
}

bool HostAllocator::done(const Block& block) {
  return std::ranges::all_of(
      block.markers, [](const MarkerPtr& marker) { return Scheduler::instance().is_done(marker); });
}

REGISTER_HOST_ALLOCATOR(at::kPrivateUse1, &HostAllocator::instance())

}  // namespace simulated
