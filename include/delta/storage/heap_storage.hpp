// delta: a Storage whose blocks are allocations of their own, in the host's memory: for frameworks
// that have an allocator, whose tensors exist before delta hears of them.
#pragma once

#include <utility>

#include "delta/storage/device_heap.hpp"
#include "delta/storage/host_device.hpp"
#include "delta/storage/storage.hpp"

namespace delta {

namespace detail {
// A base, so that it is there before the heap.
struct own_host {
  host_device its_machine;  // its memories are not asked for: it copies, and measures
};
}  // namespace detail

/// A device_heap on the host, with a machine of its own: copies and kernels are over when their
/// call returns, and are measured. One thread at a time.
///   delta::heap_storage memory{{.capacity = 512_MiB, .host_capacity = 2_GiB}};
///   delta::manager manager{delta::adaptive(), memory};
///   const auto w = manager.variable(size, "weights", memory.adopt(address, size, freed).value());
class heap_storage : detail::own_host, public device_heap<host_device> {
 public:
  explicit heap_storage(heap_options o) : device_heap(its_machine, std::move(o)) {}
};

static_assert(Storage<heap_storage>);

}  // namespace delta
