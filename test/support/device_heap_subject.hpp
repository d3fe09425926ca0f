// delta tests: a device_heap over the adversary and a framework's allocator, which hands out again
// at once what was freed last, and uses it meanwhile: a missing order is a wrong byte.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adversary.hpp"
#include "delta/storage/device_heap.hpp"
#include "storage_subject.hpp"

namespace delta::test {

/// Memory of one pool, cut and joined as it comes and goes. What was freed last is given first.
class recycled_memory {
 public:
  recycled_memory(std::byte* begin, std::size_t size) : free_{{begin, size}} {}
  /// `user`: what comes back is written over by a kernel of the framework's, as long as `writing`.
  recycled_memory(adversary& user, std::byte* begin, std::size_t size)
      : recycled_memory(begin, size) {
    user_ = &user;
  }
  [[nodiscard]] memory_source source() {
    return {[](void* self, std::size_t n) -> void* {
              return static_cast<recycled_memory*>(self)->take(n);
            },
            [](void* self, void* at, std::size_t n) {
              static_cast<recycled_memory*>(self)->give({static_cast<std::byte*>(at), n});
            },
            this};
  }
  std::byte* take(std::size_t n) {
    const auto r = std::find_if(free_.rbegin(), free_.rend(), [&](range f) { return f.size >= n; });
    if (r == free_.rend()) return nullptr;
    std::byte* const at = r->begin;
    *r = {at + n, r->size - n};
    taken_ += n;
    if (r->size == 0) free_.erase(std::next(r).base());
    return at;
  }
  void give(range r) {
    taken_ -= r.size;
    if (user_ != nullptr && writing)
      user_->launch({}, {r}, [r] { std::fill_n(r.begin, r.size, std::byte{0xee}); });
    for (std::size_t i = 0; i < free_.size();) {
      const range f = free_[i];
      if (f.begin + f.size != r.begin && r.begin + r.size != f.begin) {
        ++i;
        continue;
      }
      r = {std::min(r.begin, f.begin), r.size + f.size};
      free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    free_.push_back(r);
  }
  /// Bytes that are out.
  [[nodiscard]] std::size_t taken() const { return taken_; }
  bool writing = true;

 private:
  std::vector<range> free_;  // in the order in which they came back
  std::size_t taken_ = 0;
  adversary* user_ = nullptr;
};

/// Shows the contract what it looks at besides: what a block was asked for, as no more is copied.
template <class D>
struct shown_device_heap : device_heap<D> {
  using device_heap<D>::device_heap;
  std::optional<block> allocate(bytes n, lifetime l) {
    auto b = device_heap<D>::allocate(n, l);
    if (b) sizes[b->index()] = n;
    return b;
  }
  template <class F>
  void walk_blocks(const F& f) const {
    for (const auto& [i, size] : sizes) f(i, size, true);
  }
  std::map<std::uint32_t, bytes> sizes;
};

/// Eight times the budget, as pieces must not be what makes a request fail.
inline bytes pool_of(bytes budget) {
  return budget * 8 + 64_B;
}

/// `shared`: the framework uses what comes back; else the pool is the storage's alone.
template <bool Shared>
struct device_heap_subject : subject_base<shown_device_heap<adversary>, adversary> {
  explicit device_heap_subject(subject_sizes o = {}, wait_reason ignored = wait_reason::none)
      : device(o.seed, ignored),
        memory(device, device.device_memory(pool_of(o.capacity)), pool_of(o.capacity).count),
        host(device.host_memory(pool_of(o.host_capacity)), pool_of(o.host_capacity).count),
        storage(device, {.capacity = o.capacity,
                         .host_capacity = o.host_capacity,
                         .granularity = 64,
                         .device = memory.source(),
                         .host = host.source(),
                         .shared = Shared}) {
    memory.writing = Shared;
  }
  /// Runs everything to its end first.
  [[nodiscard]] std::vector<std::string> complaints() {
    device.drain();
    return device.violations();
  }
  adversary device;
  recycled_memory memory, host;
  shown_device_heap<adversary> storage;
};

}  // namespace delta::test
