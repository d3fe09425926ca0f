// delta_torch: the host's pinned memory of a run, in chunks that all sizes share.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Allocator.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <exception>
#include <map>
#include <unordered_map>
#include <utility>

#include "delta/detail/storage/regions.hpp"

namespace delta_torch {

/// PyTorch's allocator of pinned memory rounds up to a power of two, keeps what is freed for the
/// same size alone, and takes long for each new piece. So it is asked for powers of two: as much as
/// there is already, from 16 MiB up to 256 MiB, and more only where one slab is larger. All goes
/// back to the system with the run. Not before: while a run is on, what is freed is in use by
/// copies. Under the session's lock `state`.
class pinned_chunks {
 public:
  explicit pinned_chunks(at::HostAllocator& of) : allocator_(&of) {}
  ~pinned_chunks() {
    chunks_.clear();
    try {
      allocator_->empty_cache();
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): it stays PyTorch's
    }
  }
  pinned_chunks(const pinned_chunks&) = delete;
  pinned_chunks& operator=(const pinned_chunks&) = delete;

  /// Null: the machine has none. O(chunks + log slabs).
  [[nodiscard]] void* allocate(std::size_t size) {
    for (auto& [base, c] : chunks_)
      if (void* const at = c.place(base, size); at != nullptr) return at;
    const std::size_t wanted = std::bit_ceil(std::max(size, std::clamp(bytes_, smallest, largest)));
    at::DataPtr data;
    try {
      data = allocator_->allocate(wanted);
    } catch (const std::exception&) {  // of a driver, short memory is an error like any other
    }
    auto* const base = static_cast<std::byte*>(data.get());
    if (base == nullptr) return nullptr;
    bytes_ += wanted;
    return chunks_.try_emplace(base, std::move(data), wanted).first->second.place(base, size);
  }
  void release(void* at) noexcept {
    auto of = chunks_.upper_bound(static_cast<std::byte*>(at));
    if (of != chunks_.begin()) (--of)->second.release(at);
  }

 private:
  static constexpr std::size_t smallest = std::size_t{16} << 20, largest = std::size_t{256} << 20;

  class chunk {
   public:
    chunk(at::DataPtr&& data, std::size_t size)
        : data_(std::move(data)), places_(delta::bytes{size}) {}
    void* place(std::byte* base, std::size_t size) {
      const auto i = places_.place(size, delta::lifetime::persistent);
      if (!i.has_value()) return nullptr;
      void* const at = base + places_[*i].offset;
      taken_.emplace(at, *i);
      return at;
    }
    void release(void* at) noexcept {
      const auto i = taken_.find(at);
      if (i == taken_.end()) return;
      places_.release(i->second);
      taken_.erase(i);
    }

   private:
    at::DataPtr data_;
    delta::detail::region places_;
    std::unordered_map<void*, std::uint32_t> taken_;
  };

  at::HostAllocator* allocator_;
  std::map<std::byte*, chunk> chunks_;
  std::size_t bytes_ = 0;
};

}  // namespace delta_torch
