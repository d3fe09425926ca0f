// The device's memory as PyTorch allocates it: cached, and in the order of the streams.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "scheduler.hpp"

namespace simulated {

/// What is freed on a stream is given out again to that stream at once, the latest first: the
/// stream's order is all that keeps the new use behind the old one. Another stream gets it only
/// once the first stream has nothing left to run. Memory that record_stream() has named another
/// stream for waits until what that stream had queued when it was freed has run.
class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  static DeviceAllocator& instance();

  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override;

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t pool = {0, 0}) override;
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override;

  void set_capacity(std::size_t bytes);
  /// The device is lost: who asks for memory is told what a kernel has done before. Empty: it is
  /// not.
  void set_failure(std::string sentence);
  std::size_t allocated();
  std::size_t peak();

 private:
  struct Block {
    std::size_t bytes = 0;
    StreamNumber stream = 0;
    bool free = false;
    std::uint64_t freed_at = 0;
    std::set<StreamNumber> used_by;
  };
  using Blocks = std::map<std::byte*, Block>;
  // Freed, but another stream may still use it.
  struct Delayed {
    std::byte* address;
    std::vector<MarkerPtr> markers;
  };

  DeviceAllocator();
  void free(void* address);
  std::byte* take_cached(std::size_t bytes, StreamNumber stream);
  std::byte* take_unowned(std::size_t bytes, StreamNumber stream);
  void cache(Blocks::iterator block);
  void merge(Blocks::iterator block);
  void finish_delayed();
  void release(bool only_idle);
  void give_back(std::byte* address, std::size_t bytes);
  void poison(std::byte* address, std::size_t bytes, StreamNumber stream);

  std::mutex mutex_;
  Blocks blocks_;  // given out, delayed or cached
  std::list<Delayed> delayed_;
  std::map<std::byte*, std::size_t> unowned_;  // what no stream has
  std::uint64_t frees_ = 0;
  std::size_t capacity_ = std::size_t{4} << 30;
  std::string failure_;
  c10::CachingDeviceAllocator::DeviceStats stats_;
};

}  // namespace simulated
