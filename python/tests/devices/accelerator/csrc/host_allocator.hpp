// Pinned host memory.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "scheduler.hpp"

namespace simulated {

/// Host memory that asynchronous copies may use. A freed block is given out again once the streams
/// that record_event() has named are through with what they had queued when it was freed.
class HostAllocator final : public at::HostAllocator {
 public:
  static HostAllocator& instance();

  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override;

  bool record_event(void* address, void* context, c10::Stream stream) override;
  void empty_cache() override;
  at::HostStats get_stats() override;
  void reset_accumulated_stats() override;
  void reset_peak_stats() override;

  /// Is the address in pinned memory that is in use?
  bool owns(const void* address);

 private:
  struct Block {
    std::size_t bytes = 0;
    bool in_use = false;
    std::set<StreamNumber> used_by;
    std::vector<MarkerPtr> markers;
  };
  using Blocks = std::map<std::byte*, Block>;

  HostAllocator() = default;
  void free(void* address);
  Blocks::iterator find(const void* address);
  bool done(const Block& block);

  std::mutex mutex_;
  Blocks blocks_;
  std::list<std::byte*> free_;  // the latest first
  at::HostStats stats_;
};

}  // namespace simulated
