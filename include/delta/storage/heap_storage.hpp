// delta: a Storage whose blocks are allocations of their own, in the host's memory: for frameworks
// that have an allocator, whose tensors exist before delta hears of them.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "delta/storage/host_device.hpp"
#include "delta/storage/memory_source.hpp"
#include "delta/storage/storage.hpp"
#include "delta/units.hpp"

namespace delta {

/// What a heap_storage keeps to.
struct heap_options {
  bytes capacity{};                ///< the budget
  bytes host_capacity{};           ///< the host budget
  std::uint64_t granularity = 64;  ///< sizes count rounded up to it; a power of two
  /// Of blocks, and of slabs.
  memory_source device = aligned_heap(), host = aligned_heap();
  /// Is told where a tensor's bytes are from now on, and by null that they go. Nothing: nobody is.
  std::function<void(tensor_id, std::byte*)> on_owner_changed = {};
};

/// A budget of bytes, in allocations as many as there are blocks: what is free is always in one
/// piece, nothing moves, and addresses hold until a block is freed. Copies and kernels are over
/// when their call returns, and are measured. One thread at a time. Any other allocation of the
/// program counts once it was `adopt`ed.
///
///   delta::heap_storage memory{{.capacity = 512_MiB, .host_capacity = 2_GiB}};
///   delta::manager manager{delta::adaptive(), memory};
///   const auto w = manager.variable(size, "weights", memory.adopt(address, size, freed).value());
class heap_storage {
 public:
  explicit heap_storage(heap_options o) : options_(std::move(o)) {
    assert(options_.granularity > 0 && (options_.granularity & (options_.granularity - 1)) == 0);
    options_.capacity = round_down(options_.capacity);
    options_.host_capacity = round_down(options_.host_capacity);
  }
  heap_storage(const heap_storage&) = delete;
  heap_storage& operator=(const heap_storage&) = delete;
  /// Frees what is left of both.
  ~heap_storage() {
    for (row& r : device_.rows) release(r, options_.device);
    for (row& r : host_.rows) release(r, options_.host);
  }

  // --- what a framework does beside the manager
  // ---------------------------------------------------

  /// Called with `self`, the address and the size when adopted bytes are freed; null: nothing is.
  using release_function = void (*)(void* self, void* memory, std::size_t size);

  /// Bytes of the program's own as a block: they count from now on, and `given_back` is called
  /// when the block is freed. nullopt: the budget has no room for rounded(n) more. O(1). Throws
  /// std::bad_alloc, and then nothing has changed.
  [[nodiscard]] std::optional<block> adopt(std::byte* at, bytes n, release_function given_back,
                                           void* self = nullptr) {
    const bytes size = rounded(n);
    if (n > capacity() || size > detail::saturating_sub(capacity(), used())) return std::nullopt;
    const std::uint32_t i = device_.fresh();
    device_.take(i, {.at = at, .asked = n, .size = size, .release = given_back, .self = self});
    return block{i};
  }
  /// The bytes of a block are the program's again, with whatever gives them back; the block is
  /// gone, and they count no more. Whose they were is told that they go. O(1).
  [[nodiscard]] std::pair<std::byte*, memory_source> surrender(block&& b) {
    const std::uint32_t i = std::exchange(b, block{}).index();
    const row gone = device_.leave(i);
    tell(gone.owner, nullptr);
    if (gone.adopted()) return {gone.at, {nullptr, gone.release, gone.self}};
    return {gone.at, options_.device};
  }
  /// Another budget from now on: as much as is in use already, or more. O(1).
  void set_capacity(bytes n) noexcept { options_.capacity = round_down(n); }
  /// `peak` and `host_peak` begin anew, with what is in use. O(1).
  void reset_peak() noexcept {
    device_.peak = device_.used;
    host_.peak = host_.used;
  }

  // --- the Storage ------------------------------------------------------------------------------

  /// nullopt also where the source has no memory.
  [[nodiscard]] std::optional<block> allocate(bytes n, lifetime) {
    const auto i = place(device_, options_.device, n, capacity());
    return i ? std::optional(block{*i}) : std::nullopt;
  }
  void free(block&& b) noexcept {
    row gone = device_.leave(std::exchange(b, block{}).index());
    tell(gone.owner, nullptr);
    release(gone, options_.device);
  }
  void free(slab&& h) noexcept {
    row gone = host_.leave(std::exchange(h, slab{}).index());
    release(gone, options_.host);
  }
  [[nodiscard]] std::optional<transfer> copy_out(block& b) {
    const row& from = device_[b.index()];
    const auto i = place(host_, options_.host, from.asked, host_capacity());
    if (!i) return std::nullopt;
    const stamp done = clock_.copy(direction::out, host_[*i].at, from.at, from.asked, {});
    return transfer{std::move(b), slab{*i}, done};
  }
  [[nodiscard]] transfer copy_in(slab&& h, block&& b) {
    const row& from = host_[h.index()];
    const stamp done = clock_.copy(direction::in, device_[b.index()].at, from.at, from.asked, {});
    return {std::move(b), std::move(h), done};
  }
  [[nodiscard]] std::pair<block, slab> land(transfer&& t) noexcept { return std::move(t).take(); }
  void begin_operator(std::span<const block* const>, std::span<const block* const>) {
    clock_.begin({});
  }
  stamp end_operator(nanoseconds) { return clock_.end(); }

  [[nodiscard]] bool reached(stamp s) const noexcept { return clock_.reached(s); }
  void wait(stamp s) const noexcept { clock_.wait(s); }
  [[nodiscard]] std::optional<nanoseconds> elapsed(stamp s) const { return clock_.elapsed(s); }
  [[nodiscard]] std::optional<nanoseconds> began(stamp s) const { return clock_.began(s); }
  [[nodiscard]] nanoseconds now() const { return clock_.now(); }
  [[nodiscard]] nanoseconds waited() const noexcept { return clock_.waited(); }
  [[nodiscard]] double rate(direction d) const noexcept { return clock_.rate(d); }
  [[nodiscard]] nanoseconds latency(direction d) const noexcept { return clock_.latency(d); }
  [[nodiscard]] nanoseconds backlog(direction d) const noexcept { return clock_.backlog(d); }
  [[nodiscard]] double burden(direction d) const noexcept { return clock_.burden(d); }
  [[nodiscard]] std::optional<nanoseconds> alone(stamp s) const { return clock_.elapsed(s); }

  /// The budgets, what is taken of them, and the most that ever was. O(1).
  [[nodiscard]] bytes capacity() const noexcept { return options_.capacity; }
  [[nodiscard]] bytes host_capacity() const noexcept { return options_.host_capacity; }
  [[nodiscard]] bytes used() const noexcept { return device_.used; }
  [[nodiscard]] bytes host_used() const noexcept { return host_.used; }
  [[nodiscard]] bytes peak() const noexcept { return device_.peak; }
  [[nodiscard]] bytes host_peak() const noexcept { return host_.peak; }
  [[nodiscard]] bytes rounded(bytes n) const noexcept { return round_up(n, options_.granularity); }

  /// The address, until the block is freed; null for no bytes.
  [[nodiscard]] std::byte* data(const block& b) noexcept { return device_[b.index()].at; }
  [[nodiscard]] bool may_fragment() const noexcept { return false; }
  [[nodiscard]] bool may_allocate_in_operator() const noexcept { return true; }
  [[nodiscard]] bool knows(const block& b, bytes n) const noexcept {
    return b.index() < device_.rows.size() && device_.rows[b.index()].used &&
           device_.rows[b.index()].size == rounded(n);
  }
  void on_owner_changed(const block& b, tensor_id t) {
    row& r = device_[b.index()];
    const tensor_id before = std::exchange(r.owner, t);
    if (before != t) tell(before, nullptr);
    tell(t, r.at);
  }
  bool read_bytes(const block& b, std::uint64_t from, std::span<std::byte> to) {
    if (!to.empty()) std::memcpy(to.data(), data(b) + from, to.size());
    return true;
  }
  bool write_bytes(const block& b, std::uint64_t to, std::span<const std::byte> from) {
    if (!from.empty()) std::memcpy(data(b) + to, from.data(), from.size());
    return true;
  }
  /// Empty when the sums are right, else what is not. For tests; O(blocks).
  [[nodiscard]] std::string_view check_invariants() const noexcept {
    for (const memory* m : {&device_, &host_}) {
      bytes sum;
      for (const row& r : m->rows)
        if (r.used) sum += r.size;
      if (sum != m->used) return "used() is not the sum of the blocks";
    }
    return used() <= capacity() && host_used() <= host_capacity() ? "" : "over a budget";
  }

 private:
  // A granule that is not whole can't be given out.
  [[nodiscard]] bytes round_down(bytes n) const noexcept {
    return bytes{n.count & ~(options_.granularity - 1)};
  }
  struct row {
    std::byte* at = nullptr;
    bytes asked{}, size{};  // the request; what it counts for
    release_function release = nullptr;
    void* self = nullptr;
    tensor_id owner = tensor_id::none;
    bool used = false, own = false;  // in use; from the source

    [[nodiscard]] bool adopted() const noexcept { return !own; }
  };
  // A table of rows, used again.
  struct memory {
    std::vector<row> rows;
    std::vector<std::uint32_t> spare;
    bytes used{}, peak{};

    [[nodiscard]] row& operator[](std::uint32_t i) noexcept {
      assert(i < rows.size() && rows[i].used && "a token that was freed, or another storage's");
      return rows[i];
    }
    // A row that nobody has; what comes back later has its place among the spare ones.
    [[nodiscard]] std::uint32_t fresh() {
      if (!spare.empty()) return spare.back();
      rows.emplace_back();
      try {
        spare.reserve(rows.capacity());
      } catch (...) {
        rows.pop_back();
        throw;
      }
      spare.push_back(static_cast<std::uint32_t>(rows.size() - 1));
      return spare.back();
    }
    void take(std::uint32_t i, row r) noexcept {
      spare.pop_back();
      rows[i] = r;
      rows[i].used = true;
      used += r.size;
      peak = std::max(peak, used);
    }
    row leave(std::uint32_t i) noexcept {
      row& r = (*this)[i];
      used -= r.size;
      spare.push_back(i);
      return std::exchange(r, row{});
    }
  };

  std::optional<std::uint32_t> place(memory& m, const memory_source& from, bytes n,
                                     bytes capacity) {
    const bytes size = rounded(n);
    // The first test also keeps rounding from wrapping round.
    if (n > capacity || size > detail::saturating_sub(capacity, m.used)) return std::nullopt;
    const std::uint32_t i = m.fresh();
    std::byte* at = nullptr;
    if (size.count > 0) {
      at = static_cast<std::byte*>(from.allocate(from.self, size.count));
      if (at == nullptr) return std::nullopt;
    }
    m.take(i, {.at = at, .asked = n, .size = size, .own = true});
    return i;
  }
  static void release(row& r, const memory_source& source) noexcept {
    if (r.at == nullptr) return;
    if (r.own)
      source.release(source.self, r.at, r.size.count);
    else if (r.release != nullptr)
      r.release(r.self, r.at, r.asked.count);
    r.at = nullptr;
  }
  void tell(tensor_id t, std::byte* at) const {
    if (t != tensor_id::none && options_.on_owner_changed) options_.on_owner_changed(t, at);
  }

  heap_options options_;
  memory device_, host_;
  host_device clock_;  // its memories are not asked for: it copies, and measures
};

static_assert(Storage<heap_storage>);

}  // namespace delta
