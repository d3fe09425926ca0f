// delta_torch: what is known of an allocation; and allocations of host memory, with that in front
// of them. PyTorch frees host memory by its address alone (oneDNN asks for it by raw_allocate,
// which leaves no other place), so what has to be known then stands before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

#include "delta/storage/heap_storage.hpp"
#include "delta/units.hpp"

namespace delta_torch {

/// Of one allocation. In the host's memory it stands in front of the bytes, as long as their
/// alignment, so that they are aligned, too; of a device's it stands apart.
struct alignas(64) header {
  void* memory = nullptr;       ///< the bytes
  delta::block block;           ///< of the budget; names nothing where the bytes do not count
  std::size_t size = 0;         ///< that was asked for
  std::uint64_t operation = 0;  ///< the number of the operator that took it
  header* next = nullptr;       ///< in the ring of those that count
  header* previous = nullptr;
  header* waiting = nullptr;  ///< in the list of those that are to be given back
  std::uint32_t place = 0;    ///< which allocation of its operator it was
  bool keep = false;          ///< when its block is freed it stays, once
  std::uint8_t before = 0;    ///< bytes from the beginning of the allocation to this header
};
static_assert(sizeof(header) == 64);

[[nodiscard]] inline header& header_of(void* memory) noexcept {
  return *(static_cast<header*>(memory) - 1);
}

/// `size` bytes, aligned to 64; null where there are none.
///
/// By malloc, not by posix_memalign: what the GNU C library's has freed does not hold another block
/// of the same size, as that asks for more before it is aligned. Where tensors leave and come back,
/// as here, a process would grow without end.
[[nodiscard]] inline void* headed_memory(std::size_t size) noexcept {
  constexpr std::size_t alignment = alignof(header), given = alignof(std::max_align_t);
  if (size > std::numeric_limits<std::size_t>::max() - 4 * alignment) return nullptr;
  void* const base = std::malloc(size + sizeof(header) + alignment - given);
  if (base == nullptr) return nullptr;
  const auto misaligned = reinterpret_cast<std::uintptr_t>(base) % alignment;
  const std::size_t before = misaligned == 0 ? 0 : alignment - misaligned;
  auto* h = ::new (static_cast<std::byte*>(base) + before) header{};
  h->memory = h + 1;
  h->size = size;
  h->before = static_cast<std::uint8_t>(before);
  return h->memory;
}
inline void free_headed(void* memory) noexcept {
  header& h = header_of(memory);
  std::free(reinterpret_cast<std::byte*>(&h) - h.before);
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
