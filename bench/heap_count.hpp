// Counts what a program asks of its heap, by replacing operator new and delete in all their forms.
// For one source of a program: what is defined here must not be defined twice.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace delta::bench {

/// What operator new has given, and not got back. One thread.
struct heap {
  static inline std::uint64_t allocations = 0;  ///< calls of operator new since the beginning
  static inline std::uint64_t in_use = 0;       ///< bytes as asked for, what malloc adds left out
  static inline std::uint64_t blocks = 0;       ///< that are not given back yet

  /// Called at every allocation, where it is not null: to stop at the one that should not be.
  static inline void (*watch)(std::size_t) = nullptr;

  /// There is nothing more to be had.
  static inline bool dry = false;

  // The size is kept in front of the block, as operator delete need not be told it.
  [[nodiscard]] static void* take(std::size_t n, std::size_t alignment) noexcept {
    if (dry) return nullptr;
    const std::size_t front = std::max(alignment, alignof(std::max_align_t));
    // aligned_alloc wants a multiple of the alignment.
    void* const p = front > alignof(std::max_align_t)
                        ? std::aligned_alloc(front, (front + n + front - 1) / front * front)
                        : std::malloc(front + n);
    if (p == nullptr) return nullptr;
    ++allocations, ++blocks, in_use += n;
    if (watch != nullptr) watch(n);
    auto* const given = static_cast<std::byte*>(p) + front;
    std::memcpy(given - sizeof n, &n, sizeof n);
    return given;
  }
  static void give(void* p, std::size_t alignment) noexcept {
    if (p == nullptr) return;
    auto* const given = static_cast<std::byte*>(p);
    std::size_t n = 0;
    std::memcpy(&n, given - sizeof n, sizeof n);
    --blocks, in_use -= n;
    std::free(given - std::max(alignment, alignof(std::max_align_t)));
  }
  [[nodiscard]] static void* take_or_throw(std::size_t n, std::size_t alignment) {
    if (void* const p = take(n, alignment)) return p;
    throw std::bad_alloc();
  }
};

}  // namespace delta::bench

// Not inlined: g++ would see free() meet what it takes for operator new, and warn.
// NOLINTBEGIN(misc-definitions-in-headers): see above
#define DELTA_HEAP [[gnu::noinline]]
DELTA_HEAP void* operator new(std::size_t n) {
  return delta::bench::heap::take_or_throw(n, 1);
}
DELTA_HEAP void* operator new[](std::size_t n) {
  return delta::bench::heap::take_or_throw(n, 1);
}
DELTA_HEAP void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  return delta::bench::heap::take(n, 1);
}
DELTA_HEAP void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  return delta::bench::heap::take(n, 1);
}
DELTA_HEAP void* operator new(std::size_t n, std::align_val_t a) {
  return delta::bench::heap::take_or_throw(n, static_cast<std::size_t>(a));
}
DELTA_HEAP void* operator new[](std::size_t n, std::align_val_t a) {
  return delta::bench::heap::take_or_throw(n, static_cast<std::size_t>(a));
}
DELTA_HEAP void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return delta::bench::heap::take(n, static_cast<std::size_t>(a));
}
DELTA_HEAP void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return delta::bench::heap::take(n, static_cast<std::size_t>(a));
}
DELTA_HEAP void operator delete(void* p) noexcept {
  delta::bench::heap::give(p, 1);
}
DELTA_HEAP void operator delete[](void* p) noexcept {
  delta::bench::heap::give(p, 1);
}
DELTA_HEAP void operator delete(void* p, std::size_t) noexcept {
  delta::bench::heap::give(p, 1);
}
DELTA_HEAP void operator delete[](void* p, std::size_t) noexcept {
  delta::bench::heap::give(p, 1);
}
DELTA_HEAP void operator delete(void* p, const std::nothrow_t&) noexcept {
  delta::bench::heap::give(p, 1);
}
DELTA_HEAP void operator delete[](void* p, const std::nothrow_t&) noexcept {
  delta::bench::heap::give(p, 1);
}
DELTA_HEAP void operator delete(void* p, std::align_val_t a) noexcept {
  delta::bench::heap::give(p, static_cast<std::size_t>(a));
}
DELTA_HEAP void operator delete[](void* p, std::align_val_t a) noexcept {
  delta::bench::heap::give(p, static_cast<std::size_t>(a));
}
DELTA_HEAP void operator delete(void* p, std::size_t, std::align_val_t a) noexcept {
  delta::bench::heap::give(p, static_cast<std::size_t>(a));
}
DELTA_HEAP void operator delete[](void* p, std::size_t, std::align_val_t a) noexcept {
  delta::bench::heap::give(p, static_cast<std::size_t>(a));
}
DELTA_HEAP void operator delete(void* p, std::align_val_t a, const std::nothrow_t&) noexcept {
  delta::bench::heap::give(p, static_cast<std::size_t>(a));
}
DELTA_HEAP void operator delete[](void* p, std::align_val_t a, const std::nothrow_t&) noexcept {
  delta::bench::heap::give(p, static_cast<std::size_t>(a));
}
#undef DELTA_HEAP
// NOLINTEND(misc-definitions-in-headers)
