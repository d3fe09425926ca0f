// delta_torch: allocations of host memory with a header in front of them. PyTorch frees an
// allocation by its address alone (oneDNN asks for memory by raw_allocate, which leaves no other
// place), so what has to be known then stands before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

#include "delta/storage/heap_storage.hpp"
#include "delta/units.hpp"

namespace delta_torch {

/// In front of every allocation; as long as the alignment, so that what follows is aligned, too.
struct alignas(64) header {
  delta::block block;           ///< of the budget; names nothing where the bytes do not count
  std::size_t size = 0;         ///< that was asked for
  std::uint64_t operation = 0;  ///< the number of the operator that took it
  header* next = nullptr;       ///< in the ring of those that count
  header* previous = nullptr;
  header* waiting = nullptr;  ///< in the list of those that are to be given back
  std::uint32_t place = 0;    ///< which allocation of its operator it was
  bool keep = false;          ///< when its block is freed it stays, once
};
static_assert(sizeof(header) == 64);

[[nodiscard]] inline header& header_of(void* memory) noexcept {
  return *(static_cast<header*>(memory) - 1);
}
[[nodiscard]] inline void* memory_of(header& h) noexcept {
  return &h + 1;
}

/// `size` bytes, aligned to 64; null where there are none.
[[nodiscard]] inline void* headed_memory(std::size_t size) noexcept {
  if (size > std::numeric_limits<std::size_t>::max() - 2 * sizeof(header)) return nullptr;
  void* base = nullptr;
  if (posix_memalign(&base, alignof(header), size + sizeof(header)) != 0) return nullptr;
  auto* h = ::new (base) header{};
  h->size = size;
  return memory_of(*h);
}
inline void free_headed(void* memory) noexcept {
  std::free(&header_of(memory));
}

/// The same as a source of a heap_storage. What is to be kept is left to the program.
[[nodiscard]] inline delta::memory_source headed_source() noexcept {
  return {[](void*, std::size_t size) { return headed_memory(size); },
          [](void*, void* memory, std::size_t) {
            header& h = header_of(memory);
            if (h.keep)
              h.keep = false;
            else
              free_headed(memory);
          }};
}

}  // namespace delta_torch
