// delta: a Storage whose blocks are allocations of their own on an accelerator: for frameworks that
// have a caching allocator there, ordered by the stream that they compute on.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "delta/detail/storage/allocations.hpp"
#include "delta/detail/storage/machine_lanes.hpp"
#include "delta/detail/storage/storage_rules.hpp"
#include "delta/storage/device.hpp"
#include "delta/storage/memory_source.hpp"
#include "delta/storage/storage.hpp"
#include "delta/units.hpp"

namespace delta {

/// What a heap_storage or a device_heap keeps to.
struct heap_options {
  bytes capacity{};       ///< the budget
  bytes host_capacity{};  ///< the host budget
  /// Sizes count rounded up to it, and the sources are asked for as many; a power of two.
  std::uint64_t granularity = 64;
  /// Of blocks. What was released may be handed out again at once, also while it is still used:
  /// whoever uses it next does so on the compute lane, or is a block of this storage.
  memory_source device = aligned_heap();
  /// Of slabs, which copies must be able to reach (pinned memory). What was released may be handed
  /// out again at once, but to this storage only, or to who waits for the copies that use it.
  memory_source host = aligned_heap();
  /// Others have memory of `device`, too, and use it on the compute lane, unseen by this storage.
  /// So that lane waits for the copies of bytes before they go back to the source, and a copy
  /// into bytes that have come from it waits for all that the compute lane was given by then.
  /// Off: a copy waits for those alone who used the same bytes before, as blocks.
  bool shared = true;
  /// Is told where a tensor's bytes are from now on, and by null that they go. Nothing: nobody is.
  std::function<void(tensor_id, std::byte*)> on_owner_changed = {};
};

namespace detail {
// A machine's lanes as storage_rules wants them, where offsets are addresses.
template <Lanes D>
class addressed_lanes : public machine_lanes<D> {
  using base = machine_lanes<D>;

 public:
  using base::base;
  stamp copy(direction d, std::uint64_t device, std::uint64_t host, bytes n, const fence& after) {
    return base::copy(d, address_of(device), address_of(host), n, after);
  }
  stamp end(nanoseconds) { return base::end(); }
  static constexpr bool synchronous = value_of_synchronous<D>();
};
template <class D>
using heap_rules = storage_rules<addressed_lanes<checked_lanes<D>>,
                                 allocations<addressed_lanes<checked_lanes<D>>::synchronous>>;
}  // namespace detail

/// A budget of bytes, one allocation per block, on a machine whose lanes run on: what is free is
/// always in one piece, nothing moves, and addresses hold until a block is freed. storage_rules has
/// the order between kernels and copies, and the members that are not here. The machine and the
/// sources outlive it. One thread at a time. Other allocations count once they are `adopt`ed. What
/// the machine throws comes through, with blocks and slabs as they were, unless said otherwise.
///
///   my_lanes machine;
///   delta::device_heap memory{machine, {.capacity = 8_GiB, .host_capacity = 32_GiB,
///                                       .device = caching_allocator(), .host = pinned_memory()}};
///   delta::manager manager{delta::adaptive(), memory};
///   const auto w = manager.variable(size, "weights", memory.adopt(address, size, freed).value());
template <class D>
class device_heap : public detail::heap_rules<D> {
  using base = detail::heap_rules<D>;
  using lanes_type = detail::addressed_lanes<detail::checked_lanes<D>>;
  static constexpr bool synchronous = lanes_type::synchronous;

 public:
  device_heap(D& on, heap_options o)
      : base(o.granularity, /*moving=*/false,
             {o.device, base::round_down(o.capacity, o.granularity), !o.shared},
             {o.host, base::round_down(o.host_capacity, o.granularity), true}, lanes_type{on}),
        options_(std::move(o)) {
    assert(options_.device.allocate != nullptr && options_.host.allocate != nullptr);
  }
  /// Waits until nothing uses its memory any more, and gives back what is left.
  ~device_heap() {
    try {
      wait_for(this->device().users());
      wait_for(this->host().users());
    } catch (...) {  // a machine that is lost uses nothing
    }
  }

  // --- what a framework does beside the manager
  // ---------------------------------------------------

  /// Called with `self`, the address and the size when adopted bytes are freed; null: nothing is.
  using release_function = void (*)(void* self, void* memory, std::size_t size);

  /// Bytes of the program's own as a block: they count from now on, and `given_back` is called,
  /// with `n`, when the block is freed. Work on the compute lane before its first copy may use
  /// them; while an operator runs they are that operator's, too. nullopt: no room for rounded(n)
  /// more. O(log blocks). Throws misuse where bytes of it are a block's already, std::bad_alloc,
  /// and what the machine throws; then nothing has changed.
  [[nodiscard]] std::optional<block> adopt(std::byte* at, bytes n, release_function given_back,
                                           void* self = nullptr) {
    const bytes size = this->rounded(n);
    if (n > this->capacity() || size > detail::saturating_sub(this->capacity(), this->used()))
      return std::nullopt;
    const std::uint32_t i =
        this->device().adopt(at, size.count, n.count, {nullptr, given_back, self});
    try {
      if (this->running()) this->join_operator(i);
    } catch (...) {
      static_cast<void>(this->device().drop_deleter(i));
      this->device().release(i);
      throw;
    }
    if (!this->running()) used_unseen(this->device()[i]);
    return block{i};
  }
  /// The bytes of a block are the program's again, with what gives them back; the block is gone,
  /// and they count no more. The compute lane waits for the copies of them before later work;
  /// `on_owner_changed` is told that they go. O(log blocks). If it throws nothing has changed.
  [[nodiscard]] std::pair<std::byte*, memory_source> surrender(block&& b) {
    detail::allocation& r = row_of(b);
    let_compute_wait(r);
    memory_source from = this->device().drop_deleter(b.index());
    if (!r.adopted) from.allocate = options_.device.allocate;
    std::byte* const at = r.at();
    tell(std::exchange(r.owner, tensor_id::none), nullptr);
    base::free(std::move(b));
    return {at, from};
  }
  /// Called before work on the compute lane uses the block's bytes outside any operator: that lane
  /// waits for the copies of them, and their next copy for what the lane is given until then. A
  /// block just allocated between operators needs it only where nothing is `shared`. O(1).
  void settle(const block& b)
    requires(!synchronous)
  {
    detail::allocation& r = row_of(b);
    let_compute_wait(r);
    used_unseen(r);
  }
  /// The bytes of the block at that address go back to their source now, for an allocation
  /// elsewhere that lacks room; the block counts as before. Until it is freed, which gives back
  /// nothing more, it has no bytes, and its tensor must not be read. In an operator order is kept
  /// as by `free`. False: no block is there. O(log blocks). If it throws nothing has changed.
  bool lend(std::byte* at)
    requires(!synchronous)
  {
    const auto i = this->device().find(at);
    if (!i) return false;
    detail::allocation& r = this->device()[*i];
    if (this->running()) this->note_left(r.offset, r.gives);
    if (options_.shared) let_compute_wait(r);
    tell(std::exchange(r.owner, tensor_id::none), nullptr);
    this->device().lend(*i);
    return true;
  }
  /// Another budget from now on: as much as is in use already, or more. O(1).
  void set_capacity(bytes n) noexcept {
    this->device().set_capacity(base::round_down(n, options_.granularity));
  }
  /// `peak` and `host_peak` begin anew, with what is in use. O(1).
  void reset_peak() noexcept {
    this->device().reset_peak();
    this->host().reset_peak();
  }

  // --- the Storage ------------------------------------------------------------------------------

  /// nullopt also where the source has no memory.
  [[nodiscard]] std::optional<block> allocate(bytes n, lifetime life) {
    forget_past(this->device());
    auto b = base::allocate(n, life);
    if (b && options_.shared && !this->running()) used_unseen(row_of(*b));
    return b;
  }
  /// The bytes go back to their source at once. A machine that throws here is lost: they don't.
  void free(block&& b) noexcept {
    detail::allocation& r = row_of(b);
    tell(std::exchange(r.owner, tensor_id::none), nullptr);
    try {
      if (options_.shared) let_compute_wait(r);
    } catch (...) {
      static_cast<void>(this->device().drop_deleter(b.index()));
    }
    base::free(std::move(b));
  }
  void free(slab&& h) noexcept { base::free(std::move(h)); }
  [[nodiscard]] std::optional<transfer> copy_out(block& b) {
    forget_past(this->host());
    see(row_of(b));
    return base::copy_out(b);
  }
  [[nodiscard]] transfer copy_in(slab&& h, block&& b) {
    see(row_of(b));
    return base::copy_in(std::move(h), std::move(b));
  }

  /// The address, until the block is freed; null for no bytes. On a machine whose compute runs on,
  /// the bytes are for its lanes; the host waits for a stamp first. O(1).
  [[nodiscard]] std::byte* data(const block& b) const { return this->device()[b.index()].at(); }
  [[nodiscard]] std::byte* data(const slab& h) const { return this->host()[h.index()].at(); }
  [[nodiscard]] bool may_fragment() const noexcept { return false; }
  [[nodiscard]] bool may_allocate_in_operator() const noexcept { return synchronous; }
  void on_owner_changed(const block& b, tensor_id t) {
    detail::allocation& r = row_of(b);
    const tensor_id before = std::exchange(r.owner, t);
    if (before != t) tell(before, nullptr);
    tell(t, r.at());
  }
  /// Copies bytes of a block from its byte `from` on to the host's heap, and back: for checks and
  /// tests. Over when it returns; behind all who use the block. Always true: there are bytes.
  bool read_bytes(const block& b, std::uint64_t from, std::span<std::byte> to) {
    if (!to.empty()) copy_now(direction::out, b, from, to.data(), to.size());
    return true;
  }
  bool write_bytes(const block& b, std::uint64_t to, std::span<const std::byte> from) {
    // A copy in only reads it.
    if (!from.empty())
      copy_now(direction::in, b, to, const_cast<std::byte*>(from.data()), from.size());
    return true;
  }
  /// What a kernel is launched on, where the machine has something of the kind.
  [[nodiscard]] void* native_stream() const
    requires detail::has_native_stream<D>
  {
    return this->lanes().machine().native_stream();
  }

 private:
  [[nodiscard]] detail::allocation& row_of(const block& b) noexcept {
    return this->device()[b.index()];
  }
  // For copies: what it computes is in order anyway.
  void let_compute_wait(detail::allocation& r) {
    if (!synchronous && this->copying(r)) this->lanes().begin(r.users());
  }
  void used_unseen(detail::allocation& r) noexcept {
    if (synchronous) return;
    r.unseen = true;
    r.unseen_after = std::max(seen_, this->last_operator().point);
  }
  // The next copy of it is behind all that the compute lane was given by now, unless an operator
  // has written it since: that came later.
  void see(detail::allocation& r) {
    if (!std::exchange(r.unseen, false) || r.offset == 0) return;
    if (r.written.point[static_cast<std::size_t>(lane::compute)] > r.unseen_after) return;
    try {
      this->lanes().begin({});
      const stamp now = this->lanes().end({});
      if (this->running()) this->lanes().begin({});  // for the `end` of the operator
      r.written.join(now);
      seen_ = now.point;
    } catch (...) {
      r.unseen = true;
      throw;
    }
  }
  void copy_now(direction d, const block& b, std::uint64_t from, std::byte* host, std::size_t n) {
    detail::allocation& r = row_of(b);
    see(r);
    this->lanes().copy_now(d, r.at() + from, host, bytes{n}, r.users());
  }
  template <class Places>
  void forget_past(Places& of) {
    // Within an operator what it has used is noted at its end.
    if (!this->running() && of.should_forget())
      of.forget([&](stamp s) { return this->reached(s); });
  }
  void wait_for(const fence& f) {
    for (std::size_t e = 0; e < lane_count; ++e)
      if (f.point[e] != 0) this->wait({static_cast<lane>(e), f.point[e]});
  }
  void tell(tensor_id t, std::byte* at) const {
    if (t != tensor_id::none && options_.on_owner_changed) options_.on_owner_changed(t, at);
  }

  heap_options options_;
  std::uint64_t seen_ = 0;  // the last point of the compute lane that was asked for by `see`
};

static_assert(Storage<device_heap<detail::device_archetype>>);

}  // namespace delta
