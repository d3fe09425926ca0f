// delta: a table of blocks that are allocations of a memory_source: who has which, and what the
// next user of an address must wait for, where the address went back to the source and came again.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "delta/detail/storage/address_fences.hpp"
#include "delta/error.hpp"
#include "delta/storage/memory_source.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// The address that a stretch's `offset` is the number of, where places are allocations.
[[nodiscard]] inline std::byte* address_of(std::uint64_t offset) noexcept {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the rules of storages know offsets only
  return reinterpret_cast<std::byte*>(offset);
}

/// An allocation: a stretch whose `offset` is its address as a number, 0 where it has no bytes.
struct allocation : stretch {
  std::uint64_t asked = 0;  ///< bytes that are the tensor's; `size` counts
  /// Who gets the bytes, and as how many: the source, or whom adopted bytes go back to.
  void (*given_back)(void* self, void* memory, std::size_t size) = nullptr;
  void* self = nullptr;
  std::uint64_t gives = 0;
  tensor_id owner = tensor_id::none;
  bool adopted = false;  ///< not the source's
  /// Kernels outside any operator may use it: its next copy waits for the whole compute lane,
  /// unless an operator has written it after the point `unseen_after`.
  bool unseen = false;
  std::uint64_t unseen_after = 0;

  [[nodiscard]] bytes content() const noexcept { return bytes{asked}; }
  [[nodiscard]] std::byte* at() const noexcept { return address_of(offset); }
};

/// As many allocations as there are blocks, within a budget: `region`'s interface as far as
/// storage_rules needs it, without holes and moves. Released bytes go back to their source at once,
/// whoever still uses them; what the source hands out again waits for these (address_fences). No
/// heap is used once the table has grown, and never by `release`. `place` and `release` are O(log
/// allocations), or O(1) where work is over when its call returns (`synchronous`): nobody is waited
/// for.
template <bool synchronous>
class allocations {
 public:
  using row = allocation;
  static constexpr bool can_move = false;

  /// `keeps_users` off: nobody waits for past users here, as something else sees to it.
  allocations(const memory_source& source, bytes capacity, bool keeps_users)
      : source_(source), capacity_(capacity.count), keeps_users_(keeps_users) {}
  allocations(allocations&&) noexcept = default;
  allocations& operator=(allocations&&) = delete;
  /// Whatever is left goes back.
  ~allocations() {
    for (const row& r : rows_) give_back(r);
  }

  [[nodiscard]] row& operator[](std::uint32_t i) noexcept {
    assert(i < rows_.size() && rows_[i].used && "a token that was freed, or another storage's");
    return rows_[i];
  }
  [[nodiscard]] const row& operator[](std::uint32_t i) const noexcept {
    return const_cast<allocations&>(*this)[i];
  }
  [[nodiscard]] bool has(std::uint32_t i, std::uint64_t n) const noexcept {
    return i < rows_.size() && rows_[i].used && rows_[i].size == n;
  }
  /// The row whose bytes begin there. O(log allocations).
  [[nodiscard]] std::optional<std::uint32_t> find(const std::byte* at) const noexcept
    requires(!synchronous)
  {
    const auto it = by_address_.find(reinterpret_cast<std::uintptr_t>(at));
    return it == by_address_.end() ? std::nullopt : std::optional(it->second);
  }
  [[nodiscard]] bytes capacity() const noexcept { return bytes{capacity_}; }
  [[nodiscard]] bytes used() const noexcept { return bytes{used_}; }
  [[nodiscard]] bytes peak() const noexcept { return bytes{peak_}; }
  [[nodiscard]] bytes largest_hole() const noexcept { return saturating_sub(capacity(), used()); }
  void set_capacity(bytes n) noexcept { capacity_ = n.count; }
  void reset_peak() noexcept { peak_ = used_; }

  /// `n` bytes of the source, which count, of which `asked` are used; nullopt: no room in the
  /// budget, or no memory. Whoever used them before is among the users. A throw changes nothing.
  [[nodiscard]] std::optional<std::uint32_t> place(std::uint64_t n, lifetime, std::uint64_t asked) {
    if (n > largest_hole().count) return std::nullopt;
    prepare_row();
    std::byte* at = nullptr;
    if (n > 0) {
      at = static_cast<std::byte*>(source_.allocate(source_.self, n));
      if (at == nullptr) return std::nullopt;
    }
    return take(at, n, asked, {nullptr, source_.release, source_.self}, n);
  }
  /// Bytes of somebody's own, of which there are `asked`, and which count as `n`. There is room.
  /// Throws misuse where any of them are a block's already, if that is known.
  [[nodiscard]] std::uint32_t adopt(std::byte* at, std::uint64_t n, std::uint64_t asked,
                                    const memory_source& from) {
    if constexpr (!synchronous) {
      const std::uint64_t begin = reinterpret_cast<std::uintptr_t>(at);
      const auto next = by_address_.lower_bound(begin);
      const bool reaches = next != by_address_.end() && next->first < begin + asked;
      const bool within = next != by_address_.begin() &&
                          std::prev(next)->first + rows_[std::prev(next)->second].gives > begin;
      if (asked > 0 && (reaches || within))
        throw misuse("adopt: these bytes are a block's already");
    }
    prepare_row();
    const std::uint32_t i = take(at, n, asked, from, asked);
    rows_[i].adopted = true;
    return i;
  }
  /// They count no more, and go back. Who gets them next waits for their users.
  void release(std::uint32_t i) noexcept {
    assert((*this)[i].holds == 0 && "freed while held, or in use by the running operator");
    lend(i);
    used_ -= rows_[i].size;
    rows_[i] = {};
    spare_rows_.push_back(i);  // there is room: prepare_row
  }
  /// They go back, and count as before.
  void lend(std::uint32_t i) noexcept {
    row& r = (*this)[i];
    if (r.offset == 0) return;
    if constexpr (!synchronous) {
      if (keeps_users_) past_.add(r.offset, r.offset + r.gives, r.users());
      nodes_[i] = by_address_.extract(r.offset);
    }
    give_back(r);
    r.offset = r.asked = r.gives = 0;
  }
  /// Nobody gets them when they are released. Gives who would have.
  memory_source drop_deleter(std::uint32_t i) noexcept {
    row& r = (*this)[i];
    return {nullptr, std::exchange(r.given_back, nullptr), std::exchange(r.self, nullptr)};
  }

  /// That work has used these bytes, which went back meanwhile, or are in use by it.
  void note_use(std::uint64_t offset, std::uint64_t size, stamp done) noexcept {
    past_.note_use(offset, offset + size, done);
  }
  /// Past users are many, and it is worth asking which of them are over.
  [[nodiscard]] bool should_forget() const noexcept { return past_.should_forget(); }
  /// Forgets those of which `reached(stamp)` says so.
  template <class Reached>
  void forget(Reached&& reached) {
    past_.forget(reached);
  }
  /// Everybody who may use, or have used, bytes of this memory.
  [[nodiscard]] fence users() const noexcept {
    fence all = past_.all();
    for (const row& r : rows_) all.join(r.users());
    return all;
  }

  /// Calls `f(row, allocation)` for every one that has bytes, in address order.
  template <class F>
  void walk(F&& f) const {
    for (const auto& [at, i] : by_address_) f(i, rows_[i]);
  }

 private:
  friend struct storage_check;
  using index_type = std::map<std::uint64_t, std::uint32_t>;

  // A spare row, with its node of the index and a place among the spares: no heap later on.
  void prepare_row() {
    if (!spare_rows_.empty()) return;
    const auto i = static_cast<std::uint32_t>(rows_.size());
    if (rows_.size() == rows_.capacity()) {
      const std::size_t n = std::max<std::size_t>(64, rows_.size() * 2);
      spare_rows_.reserve(n);
      if constexpr (!synchronous) nodes_.reserve(n);
      rows_.reserve(n);
    }
    if constexpr (!synchronous) {
      index_type one{{0, i}};
      nodes_.push_back(one.extract(one.begin()));
    }
    rows_.emplace_back();
    spare_rows_.push_back(i);
  }
  std::uint32_t take(std::byte* at, std::uint64_t n, std::uint64_t asked, const memory_source& from,
                     std::uint64_t gives) noexcept {
    const std::uint32_t i = spare_rows_.back();
    spare_rows_.pop_back();
    row& r = rows_[i];
    r.offset = gives > 0 ? reinterpret_cast<std::uintptr_t>(at) : 0;
    r.size = n, r.asked = asked, r.gives = gives;
    r.given_back = from.release, r.self = from.self;
    r.used = true;
    if constexpr (!synchronous) {
      if (r.offset != 0) {
        nodes_[i].key() = r.offset;
        const auto placed = by_address_.insert(std::move(nodes_[i]));
        assert(placed.inserted && "these bytes are a block's already");
        static_cast<void>(placed);
        r.written = past_.take(r.offset, r.offset + gives);
      }
    }
    used_ += n;
    peak_ = std::max(peak_, used_);
    return i;
  }
  static void give_back(const row& r) noexcept {
    if (r.offset != 0 && r.given_back != nullptr) r.given_back(r.self, r.at(), r.gives);
  }

  memory_source source_;
  std::uint64_t capacity_, used_ = 0, peak_ = 0;
  bool keeps_users_;
  std::vector<row> rows_;                     // by token
  std::vector<std::uint32_t> spare_rows_;     // of nobody
  std::vector<index_type::node_type> nodes_;  // of rows without bytes
  index_type by_address_;
  address_fences past_;
};

}  // namespace delta::detail
