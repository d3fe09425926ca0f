// delta: where a storage takes memory from whose blocks are allocations of their own: two functions
// of C, so that a framework's allocator is one as it is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace delta {

/// Where the bytes of a heap_storage or a device_heap come from. `allocate` gives as many bytes as
/// it is asked for, or null; `release` gets them back, with the same size. Both with `self`.
struct memory_source {
  void* (*allocate)(void* self, std::size_t size) = nullptr;
  void (*release)(void* self, void* memory, std::size_t size) = nullptr;
  void* self = nullptr;
};

namespace detail {
// No lambdas: g++ warns where a program has a global of their parameters' names. Not aligned_alloc:
// what glibc frees of that can't hold the same block again, and the process would grow without end.
// malloc's address stands before the aligned bytes.
template <std::size_t alignment>
void* take_from_heap(void*, std::size_t size) noexcept {
  constexpr std::size_t unit = std::max(alignment, alignof(std::max_align_t));
  if (size > std::numeric_limits<std::size_t>::max() - unit) return nullptr;
  void* const base = std::malloc(size + unit);
  if (base == nullptr) return nullptr;
  // At least alignof(max_align_t) bytes: malloc aligns to that.
  const std::size_t before = unit - reinterpret_cast<std::uintptr_t>(base) % unit;
  std::byte* const memory = static_cast<std::byte*>(base) + before;
  std::memcpy(memory - sizeof(base), &base, sizeof(base));
  return memory;
}
inline void give_to_heap(void*, void* memory, std::size_t) noexcept {
  void* base = nullptr;
  std::memcpy(&base, static_cast<std::byte*>(memory) - sizeof(base), sizeof(base));
  std::free(base);
}
}  // namespace detail

/// malloc's, aligned to `alignment`, a power of two of at least 8 bytes.
template <std::size_t alignment = 64>
[[nodiscard]] memory_source aligned_heap() noexcept {
  return {&detail::take_from_heap<alignment>, &detail::give_to_heap};
}

}  // namespace delta
