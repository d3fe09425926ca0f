// delta: the rules of a storage, written once for every kind of lanes: who may have which bytes,
// and what must be over before they are touched. `simulated` and `arena` differ in their lanes
// only; the places of `device_heap` are allocations.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "delta/detail/storage/regions.hpp"
#include "delta/storage/device.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// The Storage calls: places in two memories (a `region`, or `allocations`), and the fences between
/// three lanes. Every stretch of memory knows who wrote it last and who reads it since; a call
/// joins the fences of what it touches, queues its work behind them, and leaves its own stamp. The
/// eight transfer rules are kept here and nowhere else:
///
///  1 a copy out follows the last writer         5 an operator follows the copy in of what it reads
///  2 reuse of a block follows its copy out      6 reuse of a slab follows its copy in
///  3 a copy in follows its own copy out         7 copies are ordered by explicit stamps: there is
///  4 a copy in follows all former users of         no "current stream" to be captured too late
///    its destination                            8 packing is an operator like any other: rule 1
///
/// For example, y may take x's block while x's copy out still reads it: the operator that writes y
/// is ordered behind the copy (rule 2), and the host waits for nothing. `Lanes` throws where its
/// device does. Whatever throws leaves the books in order, and every token with its owner: the
/// device's bytes may then be half moved, so the manager is poisoned.
template <class Lanes, class Places = region>
class storage_rules : protected Lanes {
  friend struct storage_check;
  using stretch_of = typename Places::row;  // no name that who derives may have

 public:
  storage_rules(const storage_rules&) = delete;
  storage_rules& operator=(const storage_rules&) = delete;

  /// A block of rounded(n) bytes; zero bytes take none and always fit. nullopt: no room, or room
  /// only between blocks that can't move now (held, being copied, or an operator runs); else what
  /// is in the way slides together. The block's next writer, the operator if one runs, is ordered
  /// behind copies that still read its bytes. O(log holes); O(blocks) where something has to move.
  [[nodiscard]] std::optional<block> allocate(bytes n, lifetime life) {
    const bytes size = rounded(n);
    // The first test also keeps rounding from wrapping round.
    if (n > capacity() || size > saturating_sub(capacity(), used())) return std::nullopt;
    auto i = device_.place(size.count, life, n.count);
    if constexpr (Places::can_move) {
      if (const auto w = i ? std::nullopt : window_for(size)) {
        moves_ += device_.close(*w, life, lanes());
        moved_ += bytes{w->moved};
        i = device_.place(size.count, life);
      }
    }
    if (!i) return std::nullopt;
    try {
      if (running_) join_operator(*i);
    } catch (...) {
      device_.release(*i);
      throw;
    }
    return block{*i};
  }
  /// Makes a hole at once, which keeps the fence of the last users (rule 2): also while a copy
  /// reads it, or the operator runs that it was allocated in. O(log holes), no heap.
  void free(block&& b) noexcept {
    const std::uint32_t i = std::exchange(b, block{}).index();
    if (running_) leave_operator(i);
    device_.release(i);
  }
  void free(slab&& h) noexcept { host_.release(std::exchange(h, slab{}).index()); }

  /// Queues a copy to a fresh slab; takes the block. nullopt, and the block as it was: the host has
  /// no hole that is large enough (slabs do not move). O(log holes).
  [[nodiscard]] std::optional<transfer> copy_out(block& b) {
    stretch_of& from = device_[b.index()];
    const auto i = host_.place(from.size, lifetime::transient, from.content().count);
    if (!i) return std::nullopt;
    slab h{*i};
    stretch_of& to = host_[*i];
    const fence after = fence{from.written}.join(to.users());  // rules 1 and 6
    const stamp done = queue_copy(direction::out, from, to, after, h);
    from.read.join(done);  // rule 2
    to.write_at(done);     // rule 3
    return transfer{std::move(b), std::move(h), done};
  }
  /// Queues a copy back; takes both. Block and slab have the same size: the slab was copied out of
  /// such a block. O(1).
  [[nodiscard]] transfer copy_in(slab&& h, block&& b) {
    stretch_of& from = host_[h.index()];
    stretch_of& to = device_[b.index()];
    assert(from.size == to.size && "a slab goes back into a block of its size");
    const fence after = fence{from.written}.join(to.users());  // rules 3 and 4
    slab none;
    const stamp done = queue_copy(direction::in, to, from, after, none);
    from.read.join(done);  // rule 6
    to.write_at(done);     // rule 5
    return {std::move(b), std::move(h), done};
  }
  /// Both ends, at any time: the fences order what follows.
  [[nodiscard]] std::pair<block, slab> land(transfer&& t) noexcept { return std::move(t).take(); }

  /// The compute lane waits for the last writers of what is read, and for all users of what is
  /// written. Blocks named here can't be freed before end_operator, nor move. A block may be in
  /// both lists, or twice in one: holds count. O(blocks named).
  void begin_operator(std::span<const block* const> reads, std::span<const block* const> writes) {
    assert(!running_ && "the operator before has not ended");
    // Nothing has to be ordered, and blocks may be another's by the end.
    if constexpr (value_of_synchronous<Lanes>()) return Lanes::begin({});
    reads_.clear();
    writes_.clear();
    fence after;
    for (const block* b : reads) {
      after.join(device_[b->index()].written);
      reads_.push_back(b->index());
    }
    for (const block* b : writes) {
      after.join(device_[b->index()].users());
      writes_.push_back(b->index());
    }
    // Holds only now: if the lanes throw, there is nothing to take back.
    Lanes::begin(after);
    for (auto i : reads_) ++device_[i].holds;
    for (auto i : writes_) ++device_[i].holds;
    named_ = writes_.size();
    left_.clear();
    running_ = true;
  }
  /// The operator is queued; its stamp goes to all that it touched.
  stamp end_operator(nanoseconds cost) {
    if constexpr (value_of_synchronous<Lanes>()) return last_ = Lanes::end(cost);
    assert(running_ && "no operator has begun");
    running_ = false;
    for (auto i : reads_) --device_[i].holds;
    for (auto i : writes_) --device_[i].holds;
    const stamp done = Lanes::end(cost);  // if it throws, the blocks can be freed all the same
    for (auto i : reads_) device_[i].read.join(done);
    for (auto i : writes_) device_[i].write_at(done);
    for (const auto& [offset, size] : left_) device_.note_use(offset, size, done);
    return last_ = done;
  }
  /// The stamp of the operator that ended last; point 0: none has.
  [[nodiscard]] stamp last_operator() const noexcept { return last_; }

  /// True if that is a block in use here, and as large as a request of `n` bytes. O(1).
  [[nodiscard]] bool knows(const block& b, bytes n) const noexcept {
    return device_.has(b.index(), rounded(n).count);
  }

  /// The block may not move until it was released as often as it was held.
  void hold(const block& b) noexcept { ++device_[b.index()].holds; }
  void unhold(const block& b) noexcept {
    assert(device_[b.index()].holds > 0);
    --device_[b.index()].holds;
  }

  /// The lanes' word; see storage/storage.hpp, and of `waited` storage/device.hpp.
  using Lanes::elapsed, Lanes::began, Lanes::alone, Lanes::reached, Lanes::wait, Lanes::waited;
  using Lanes::rate, Lanes::latency, Lanes::backlog, Lanes::burden, Lanes::move_rate, Lanes::now;

  /// The budgets, in whole granules; what is taken of them; the most that ever was. O(1).
  [[nodiscard]] bytes capacity() const noexcept { return device_.capacity(); }
  [[nodiscard]] bytes used() const noexcept { return device_.used(); }
  [[nodiscard]] bytes peak() const noexcept { return device_.peak(); }
  [[nodiscard]] bytes host_capacity() const noexcept { return host_.capacity(); }
  [[nodiscard]] bytes host_used() const noexcept { return host_.used(); }
  [[nodiscard]] bytes host_peak() const noexcept { return host_.peak(); }
  /// What a request of `n` bytes takes; the most that could be had in one piece now. O(1).
  [[nodiscard]] bytes rounded(bytes n) const noexcept { return round_up(n, granularity_); }
  [[nodiscard]] bytes largest_hole() const noexcept { return device_.largest_hole(); }
  /// How many bytes would have to move for `n` bytes in one piece (0: a hole is large enough);
  /// nullopt: what can't move now prevents it, or of 0 bytes: blocks never move. O(blocks).
  [[nodiscard]] std::optional<bytes> bytes_to_move(bytes n) {
    if (n == bytes{}) return moving_ ? std::optional(n) : std::nullopt;
    if constexpr (Places::can_move)
      if (const auto w = window_for(rounded(n))) return bytes{w->moved};
    return std::nullopt;
  }
  /// Calls `f(row, size, used)` for every stretch in address order: blocks (used, `row` is the
  /// token's index) and the holes between them. O(blocks).
  template <class F>
  void walk_blocks(F&& f) const {
    device_.walk([&](std::uint32_t i, const stretch_of& r) { f(i, bytes{r.size}, r.used); });
  }
  /// How many blocks were moved to make room, and how many bytes these were.
  [[nodiscard]] std::uint64_t moves() const noexcept { return moves_; }
  [[nodiscard]] bytes moved_bytes() const noexcept { return moved_; }

 protected:
  storage_rules(bytes capacity, bytes host_capacity, std::uint64_t granularity, bool moving,
                Lanes lanes, bool places = true)
      : storage_rules(granularity, moving, Places{round_down(capacity, granularity), places},
                      Places{round_down(host_capacity, granularity), places}, std::move(lanes)) {}
  storage_rules(std::uint64_t granularity, bool moving, Places device, Places host, Lanes lanes)
      : Lanes(std::move(lanes)),
        granularity_(granularity),
        moving_(moving),
        device_(std::move(device)),
        host_(std::move(host)) {}
  // Protected: nobody deletes a storage through it, so nothing needs to be virtual.
  ~storage_rules() = default;

  [[nodiscard]] Lanes& lanes() noexcept { return *this; }
  [[nodiscard]] const Lanes& lanes() const noexcept { return *this; }
  [[nodiscard]] Places& device() noexcept { return device_; }
  [[nodiscard]] const Places& device() const noexcept { return device_; }
  [[nodiscard]] Places& host() noexcept { return host_; }
  [[nodiscard]] const Places& host() const noexcept { return host_; }
  [[nodiscard]] bool running() const noexcept { return running_; }
  [[nodiscard]] std::uint64_t offset(const block& b) const { return device_[b.index()].offset; }
  [[nodiscard]] std::uint64_t offset(const slab& h) const { return host_[h.index()].offset; }

  // A granule that is not whole can't be given out.
  [[nodiscard]] static bytes round_down(bytes n, std::uint64_t granularity) noexcept {
    assert(granularity > 0 && (granularity & (granularity - 1)) == 0);
    return bytes{n.count & ~(granularity - 1)};
  }
  // Comes while an operator runs, which writes these bytes. If it throws nothing has changed.
  void join_operator(std::uint32_t i) {
    try {
      writes_.push_back(i);
      reserve_left(0);
      if (const fence after = device_[i].users(); after != fence{}) Lanes::begin(after);
    } catch (...) {
      std::erase(writes_, i);
      throw;
    }
    ++device_[i].holds;
  }
  // The operator that runs may use these bytes, which go: who gets them next waits for it.
  void note_left(std::uint64_t offset, std::uint64_t size) {
    reserve_left(1);
    left_.emplace_back(offset, size);
  }
  // Whether a copy touches it now. What was found reached is forgotten: asking may be dear. Kernels
  // do not count: they run inside brackets, and moving is queued behind them on the same lane.
  bool copying(stretch_of& r) {
    for (fence* f : {&r.written, &r.read})
      for (const lane e : {lane::copy_out, lane::copy_in}) {
        auto& point = f->point[static_cast<std::size_t>(e)];
        if (point == 0) continue;
        if (!Lanes::reached({e, point})) return true;
        point = 0;
      }
    return false;
  }

 private:
  // `fresh` goes back when the device throws, so that a failed copy leaves no trace.
  stamp queue_copy(direction d, const stretch_of& device, const stretch_of& host,
                   const fence& after, slab& fresh) {
    try {
      const bytes n = std::min(device.content(), host.content());
      return Lanes::copy(d, device.offset, host.offset, n, after);
    } catch (...) {
      if (fresh) free(std::move(fresh));
      throw;
    }
  }
  // There is room for all that came meanwhile, and for `more`, as `free` may not fail.
  void reserve_left(std::size_t more) {
    const std::size_t most = left_.size() + writes_.size() - named_ + more;
    if (left_.capacity() < most) left_.reserve(2 * most);
  }
  // Goes before it has ended, and came meanwhile.
  void leave_operator(std::uint32_t i) noexcept {
    const auto joined = writes_.begin() + static_cast<std::ptrdiff_t>(named_);
    const auto at = std::find(joined, writes_.end(), i);
    if (at == writes_.end()) return;
    writes_.erase(at);
    --device_[i].holds;
    left_.emplace_back(device_[i].offset, device_[i].size);
  }
  // Where blocks can move together to make a hole of `n` bytes, if they may.
  [[nodiscard]] auto window_for(bytes n) {
    if (!moving_ || running_) return std::optional<typename Places::window>{};
    return device_.cheapest_window(n.count, [&](stretch_of& r) { return r.holds || copying(r); });
  }

  std::uint64_t granularity_;
  bool moving_, running_ = false;
  Places device_, host_;
  std::vector<std::uint32_t> reads_, writes_;  // of the running operator
  std::size_t named_ = 0;  // of `writes_`, those that it began with; the others came meanwhile
  std::vector<std::pair<std::uint64_t, std::uint64_t>> left_;  // they that went: offset, size
  stamp last_{lane::compute, 0};
  std::uint64_t moves_ = 0;
  bytes moved_{};
};

}  // namespace delta::detail
