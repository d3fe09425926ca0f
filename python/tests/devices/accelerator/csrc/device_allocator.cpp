#include "device_allocator.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "current_stream.hpp"
#include "memory.hpp"

namespace simulated {

namespace {

constexpr std::size_t granularity = 512;
constexpr auto aggregate = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
// Far from any number that training meets, and no index.
constexpr int poison_byte = 0xFD;

thread_local StreamNumber current = 0;

}  // namespace

StreamNumber current_stream() {
  return current;
}

StreamNumber exchange_current_stream(StreamNumber stream) {
  return std::exchange(current, stream);
}

DeviceAllocator& DeviceAllocator::instance() {
  static auto* const allocator = new DeviceAllocator;  // tensors may outlive statics
  return *allocator;
}

DeviceAllocator::DeviceAllocator() {
  unowned_[DeviceMemory::instance().base()] = DeviceMemory::extent;
}

c10::DataPtr DeviceAllocator::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes == 0) {
    return {nullptr, nullptr, raw_deleter(), the_device};
  }
  TORCH_CHECK(failure_.empty(), failure_);
  TORCH_CHECK_WITH(OutOfMemoryError, bytes <= DeviceMemory::extent / 2,
                   "simulated device: no memory for ", bytes, " bytes");
  const std::size_t rounded = (bytes + granularity - 1) / granularity * granularity;
  const StreamNumber stream = current_stream();
  finish_delayed();
  std::byte* address = take_cached(rounded, stream);
  if (address == nullptr) {
    address = take_unowned(rounded, stream);
    // Fresh memory holds what anyone has left there. Nothing is queued that uses it: any stream may
    // have it at once, as from a driver.
    if (Scheduler::instance().chance(0.5)) {
      std::memset(DeviceMemory::instance().real(address, rounded), poison_byte, rounded);
    }
  }
  stats_.allocated_bytes[aggregate].increase(rounded);
  stats_.allocation[aggregate].increase(1);
  return {address, address, raw_deleter(), the_device};
}

c10::DeleterFnPtr DeviceAllocator::raw_deleter() const {
  return [](void* address) { DeviceAllocator::instance().free(address); };
}

void DeviceAllocator::copy_data(void* to, const void* from, std::size_t bytes) const {
  const DeviceMemory& memory = DeviceMemory::instance();
  std::byte* const target = memory.real(to, bytes);
  const std::byte* const source = memory.real(from, bytes);
  Scheduler::instance().enqueue(
      current_stream(), [=] { std::memcpy(target, source, bytes); }, 1e-6);
}

void DeviceAllocator::free(void* address) {
  if (address == nullptr) {
    return;
  }
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(static_cast<std::byte*>(address));
  TORCH_INTERNAL_ASSERT(block != blocks_.end() && !block->second.free);
  stats_.allocated_bytes[aggregate].decrease(block->second.bytes);
  stats_.allocation[aggregate].decrease(1);
  if (block->second.used_by.empty()) {
    cache(block);
    return;
  }
  Delayed delayed{block->first, {}};
  for (const StreamNumber user : block->second.used_by) {
    delayed.markers.push_back(Scheduler::instance().record(user));
  }
  delayed_.push_back(std::move(delayed));
}

// Exactly as large, the latest freed first; else the smallest that is large enough, split.
std::byte* DeviceAllocator::take_cached(std::size_t bytes, StreamNumber stream) {
  auto best = blocks_.end();
  for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
    const Block& candidate = block->second;
    if (!candidate.free || candidate.stream != stream || candidate.bytes < bytes) {
      continue;
    }
    if (best == blocks_.end() || candidate.bytes < best->second.bytes ||
        (candidate.bytes == best->second.bytes && candidate.freed_at > best->second.freed_at)) {
      best = block;
    }
  }
  if (best == blocks_.end()) {
    return nullptr;
  }
  if (best->second.bytes > bytes) {
    Block rest = best->second;
    rest.bytes -= bytes;
    blocks_[best->first + bytes] = rest;
    best->second.bytes = bytes;
  }
  best->second.free = false;
  best->second.used_by.clear();
  return best->first;
}

std::byte* DeviceAllocator::take_unowned(std::size_t bytes, StreamNumber stream) {
  auto& reserved = stats_.reserved_bytes[aggregate];
  if (Scheduler::instance().chance(0.5)) {
    release(true);
  }
  if (static_cast<std::size_t>(reserved.current) + bytes > capacity_) {
    Scheduler::instance().synchronize_all();
    ++stats_.num_alloc_retries;
    finish_delayed();
    release(false);
  }
  if (static_cast<std::size_t>(reserved.current) + bytes > capacity_) {
    ++stats_.num_ooms;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "simulated device out of memory: ", bytes,
                     " bytes asked for, ", reserved.current, " of ", capacity_, " in use");
  }
  const auto room = std::ranges::find_if(
      unowned_, [bytes](const auto& candidate) { return candidate.second >= bytes; });
  TORCH_INTERNAL_ASSERT(room != unowned_.end());
  std::byte* const address = room->first;
  const std::size_t rest = room->second - bytes;
  unowned_.erase(room);
  if (rest > 0) {
    unowned_[address + bytes] = rest;
  }
  blocks_[address] = {bytes, stream, false, 0, {}};
  reserved.increase(bytes);
  return address;
}

void DeviceAllocator::cache(Blocks::iterator block) {
  block->second.free = true;
  block->second.freed_at = ++frees_;
  poison(block->first, block->second.bytes, block->second.stream);
  merge(block);
}

// With the free neighbours of the same stream, or memory would end up in pieces.
void DeviceAllocator::merge(Blocks::iterator block) {
  const auto joins = [](const Blocks::iterator& left, const Blocks::iterator& right) {
    return left->second.free && right->second.free && left->second.stream == right->second.stream &&
           left->first + left->second.bytes == right->first;
  };
  if (const auto right = std::next(block); right != blocks_.end() && joins(block, right)) {
    block->second.bytes += right->second.bytes;
    blocks_.erase(right);
  }
  if (block == blocks_.begin()) {
    return;
  }
  if (const auto left = std::prev(block); joins(left, block)) {
    left->second.bytes += block->second.bytes;
    left->second.freed_at = block->second.freed_at;
    blocks_.erase(block);
  }
}

void DeviceAllocator::finish_delayed() {
  for (auto delayed = delayed_.begin(); delayed != delayed_.end();) {
    const bool done = std::ranges::all_of(delayed->markers, [](const MarkerPtr& marker) {
      return Scheduler::instance().is_done(marker);
    });
    if (done) {
      cache(blocks_.find(delayed->address));
      delayed = delayed_.erase(delayed);
    } else {
      ++delayed;
    }
  }
}

// What is cached goes to whoever asks next; with `only_idle`, of streams with nothing to run.
void DeviceAllocator::release(bool only_idle) {
  std::set<StreamNumber> idle;
  for (const StreamNumber stream : Scheduler::instance().streams()) {
    if (!only_idle || Scheduler::instance().idle(stream)) {
      idle.insert(stream);
    }
  }
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    if (block->second.free && idle.contains(block->second.stream)) {
      give_back(block->first, block->second.bytes);
      block = blocks_.erase(block);
    } else {
      ++block;
    }
  }
}

void DeviceAllocator::give_back(std::byte* address, std::size_t bytes) {
  stats_.reserved_bytes[aggregate].decrease(bytes);
  auto room = unowned_.emplace(address, bytes).first;
  if (const auto right = std::next(room);
      right != unowned_.end() && address + bytes == right->first) {
    room->second += right->second;
    unowned_.erase(right);
  }
  if (room != unowned_.begin()) {
    if (const auto left = std::prev(room); left->first + left->second == room->first) {
      left->second += room->second;
      unowned_.erase(room);
    }
  }
}

void DeviceAllocator::poison(std::byte* address, std::size_t bytes, StreamNumber stream) {
  if (!Scheduler::instance().chance(0.5)) {
    return;
  }
  std::byte* const real = DeviceMemory::instance().real(address, bytes);
  Scheduler::instance().enqueue_quietly(stream, [=] { std::memset(real, poison_byte, bytes); });
}

void DeviceAllocator::emptyCache(c10::MempoolId_t /*pool*/) {
  const std::lock_guard lock(mutex_);
  Scheduler::instance().synchronize_all();
  finish_delayed();
  Scheduler::instance().synchronize_all();  // the poison of what was delayed
  for (const auto& [address, block] : blocks_) {
    if (block.free) {
      DeviceMemory::instance().forget(address, block.bytes);
    }
  }
  release(false);
}

void DeviceAllocator::recordStream(const c10::DataPtr& data, c10::Stream stream) {
  // As with CUDA's: memory that another allocator gave out is its own affair.
  if (data.get() == nullptr || data.get_deleter() != raw_deleter()) {
    return;
  }
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(static_cast<std::byte*>(data.get_context()));
  if (block != blocks_.end() && block->second.stream != stream.id()) {
    block->second.used_by.insert(stream.id());
  }
}

c10::CachingDeviceAllocator::DeviceStats DeviceAllocator::getDeviceStats(c10::DeviceIndex) {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void DeviceAllocator::resetAccumulatedStats(c10::DeviceIndex) {
  const std::lock_guard lock(mutex_);
  for (auto* const stat : {&stats_.allocated_bytes, &stats_.allocation, &stats_.reserved_bytes}) {
    (*stat)[aggregate].reset_accumulated();
  }
  stats_.num_alloc_retries = 0;
  stats_.num_ooms = 0;
}

void DeviceAllocator::resetPeakStats(c10::DeviceIndex) {
  const std::lock_guard lock(mutex_);
  for (auto* const stat : {&stats_.allocated_bytes, &stats_.allocation, &stats_.reserved_bytes}) {
    (*stat)[aggregate].reset_peak();
  }
}

std::pair<std::size_t, std::size_t> DeviceAllocator::getMemoryInfo(c10::DeviceIndex) {
  const std::lock_guard lock(mutex_);
  const auto reserved = static_cast<std::size_t>(stats_.reserved_bytes[aggregate].current);
  return {capacity_ - std::min(capacity_, reserved), capacity_};
}

void DeviceAllocator::set_capacity(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  capacity_ = std::min(bytes, DeviceMemory::extent / 2);
}

void DeviceAllocator::set_failure(std::string sentence) {
  const std::lock_guard lock(mutex_);
  failure_ = std::move(sentence);
}

std::size_t DeviceAllocator::allocated() {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(stats_.allocated_bytes[aggregate].current);
}

std::size_t DeviceAllocator::peak() {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(stats_.allocated_bytes[aggregate].peak);
}

REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &DeviceAllocator::instance());

}  // namespace simulated
