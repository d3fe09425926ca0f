// delta: a Storage behind virtual functions, so that one compiled manager serves every storage. A
// call costs some nanoseconds more than the storage's own.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "delta/storage/storage.hpp"
#include "delta/units.hpp"

namespace delta {

/// The Storage concept's members and its optional ones as virtual functions: meaning, rules and
/// errors are those of storage/storage.hpp. An optional member that a storage does not have answers
/// with the default that a manager would take.
class any_storage {
 public:
  any_storage() = default;
  any_storage(const any_storage&) = delete;
  any_storage& operator=(const any_storage&) = delete;
  virtual ~any_storage() = default;

  // Memory.
  virtual std::optional<block> allocate(bytes, lifetime) = 0;
  virtual void free(block&&) = 0;
  virtual void free(slab&&) = 0;
  [[nodiscard]] virtual bytes capacity() const = 0;
  [[nodiscard]] virtual bytes used() const = 0;
  [[nodiscard]] virtual bytes host_capacity() const = 0;
  [[nodiscard]] virtual bytes host_used() const = 0;
  [[nodiscard]] virtual bytes rounded(bytes) const = 0;
  [[nodiscard]] virtual bool knows(const block&, bytes) const = 0;
  virtual void on_owner_changed(const block&, tensor_id) = 0;
  [[nodiscard]] virtual bool may_fragment() const = 0;
  [[nodiscard]] virtual bool may_allocate_in_operator() const = 0;

  // Copies and operators.
  virtual std::optional<transfer> copy_out(block&) = 0;
  virtual transfer copy_in(slab&&, block&&) = 0;
  virtual std::pair<block, slab> land(transfer&&) = 0;
  virtual void begin_operator(std::span<const block* const> reads,
                              std::span<const block* const> writes) = 0;
  virtual stamp end_operator(nanoseconds cost) = 0;

  // Time.
  virtual bool reached(stamp) = 0;
  virtual void wait(stamp) = 0;
  virtual std::optional<nanoseconds> elapsed(stamp) = 0;
  virtual std::optional<nanoseconds> began(stamp) = 0;
  virtual std::optional<nanoseconds> alone(stamp) = 0;
  [[nodiscard]] virtual nanoseconds now() const = 0;
  [[nodiscard]] virtual double rate(direction) const = 0;
  [[nodiscard]] virtual nanoseconds latency(direction) const = 0;
  [[nodiscard]] virtual nanoseconds backlog(direction) const = 0;
  [[nodiscard]] virtual double burden(direction) const = 0;

  // Addresses and places.
  virtual std::byte* data(const block&) = 0;
  virtual void hold(const block&) = 0;
  virtual void unhold(const block&) = 0;
  virtual bool read_bytes(const block&, std::uint64_t from, std::span<std::byte> to) = 0;
  virtual bool write_bytes(const block&, std::uint64_t to, std::span<const std::byte> from) = 0;
  virtual void* native_stream() = 0;
  virtual bytes largest_hole() = 0;
  virtual std::optional<bytes> bytes_to_move(bytes) = 0;
  virtual double move_rate() = 0;
  /// `f(row, size, used)` for blocks and holes in address order.
  template <class F>
  void walk_blocks(F&& f) {
    using callable = std::remove_reference_t<F>;
    walk([](void* to, std::uint32_t row, bytes size,
            bool used) { (*static_cast<callable*>(to))(row, size, used); },
         const_cast<void*>(static_cast<const void*>(&f)));
  }

  /// The stamp of the operator that ended last, of those that were ended here; point 0: none was.
  [[nodiscard]] virtual stamp last_operator() const = 0;

 private:
  virtual void walk(void (*f)(void*, std::uint32_t, bytes, bool), void* to) = 0;
};

static_assert(Storage<any_storage>);

namespace detail {

/// The adaptor for `S`; it does not own the storage.
template <Storage S>
class storage_of final : public any_storage {
 public:
  explicit storage_of(S& storage) noexcept : storage_(&storage) {}

  std::optional<block> allocate(bytes n, lifetime l) override { return storage_->allocate(n, l); }
  void free(block&& b) override { storage_->free(std::move(b)); }
  void free(slab&& h) override { storage_->free(std::move(h)); }
  [[nodiscard]] bytes capacity() const override { return asked().capacity(); }
  [[nodiscard]] bytes used() const override { return asked().used(); }
  [[nodiscard]] bytes host_capacity() const override { return asked().host_capacity(); }
  [[nodiscard]] bytes host_used() const override { return asked().host_used(); }
  [[nodiscard]] bytes rounded(bytes n) const override { return asked().rounded(n); }
  [[nodiscard]] bool knows(const block& b, bytes n) const override {
    if constexpr (detail::has_knows<S>)
      return asked().knows(b, n);
    else
      return true;
  }
  void on_owner_changed(const block& b, tensor_id t) override {
    if constexpr (detail::has_on_owner_changed<S>) storage_->on_owner_changed(b, t);
  }
  [[nodiscard]] bool may_fragment() const override { return detail::may_fragment(asked()); }
  [[nodiscard]] bool may_allocate_in_operator() const override {
    return detail::may_allocate_in_operator(asked());
  }

  std::optional<transfer> copy_out(block& b) override { return storage_->copy_out(b); }
  transfer copy_in(slab&& h, block&& b) override {
    return storage_->copy_in(std::move(h), std::move(b));
  }
  std::pair<block, slab> land(transfer&& t) override { return storage_->land(std::move(t)); }
  void begin_operator(std::span<const block* const> reads,
                      std::span<const block* const> writes) override {
    storage_->begin_operator(reads, writes);
  }
  stamp end_operator(nanoseconds cost) override { return last_ = storage_->end_operator(cost); }

  bool reached(stamp s) override { return storage_->reached(s); }
  void wait(stamp s) override { storage_->wait(s); }
  std::optional<nanoseconds> elapsed(stamp s) override { return storage_->elapsed(s); }
  std::optional<nanoseconds> began(stamp s) override {
    if constexpr (detail::has_began<S>)
      return storage_->began(s);
    else
      return std::nullopt;
  }
  std::optional<nanoseconds> alone(stamp s) override {
    if constexpr (detail::has_burdens<S>)
      return storage_->alone(s);
    else
      return storage_->elapsed(s);
  }
  [[nodiscard]] nanoseconds now() const override { return asked().now(); }
  [[nodiscard]] double rate(direction d) const override { return asked().rate(d); }
  [[nodiscard]] nanoseconds latency(direction d) const override { return asked().latency(d); }
  [[nodiscard]] nanoseconds backlog(direction d) const override { return asked().backlog(d); }
  [[nodiscard]] double burden(direction d) const override {
    if constexpr (detail::has_burdens<S>)
      return asked().burden(d);
    else
      return 0;
  }

  std::byte* data(const block& b) override {
    if constexpr (detail::has_data<S>)
      return storage_->data(b);
    else
      return nullptr;
  }
  void hold(const block& b) override {
    if constexpr (detail::has_hold<S>) storage_->hold(b);
  }
  void unhold(const block& b) override {
    if constexpr (detail::has_hold<S>) storage_->unhold(b);
  }
  bool read_bytes(const block& b, std::uint64_t from, std::span<std::byte> to) override {
    if constexpr (detail::has_bytes<S>)
      return storage_->read_bytes(b, from, to);
    else
      return false;
  }
  bool write_bytes(const block& b, std::uint64_t to, std::span<const std::byte> from) override {
    if constexpr (detail::has_bytes<S>)
      return storage_->write_bytes(b, to, from);
    else
      return false;
  }
  void* native_stream() override {
    if constexpr (detail::has_native_stream<S>)
      return storage_->native_stream();
    else
      return nullptr;
  }
  // A storage that does not show its holes is treated as if all free bytes were one hole.
  bytes largest_hole() override {
    if constexpr (detail::has_holes<S>)
      return storage_->largest_hole();
    else
      return detail::saturating_sub(capacity(), used());
  }
  std::optional<bytes> bytes_to_move(bytes n) override {
    if constexpr (detail::has_holes<S>)
      return storage_->bytes_to_move(n);
    else
      return std::nullopt;
  }
  double move_rate() override {
    if constexpr (detail::has_holes<S>)
      return storage_->move_rate();
    else
      return 0;
  }
  [[nodiscard]] stamp last_operator() const override { return last_; }

 private:
  void walk(void (*f)(void*, std::uint32_t, bytes, bool), void* to) override {
    if constexpr (detail::has_holes<S>)
      storage_->walk_blocks(
          [&](std::uint32_t row, bytes size, bool used) { f(to, row, size, used); });
  }
  [[nodiscard]] const S& asked() const noexcept { return *storage_; }

  S* storage_;
  stamp last_{lane::compute, 0};
};

}  // namespace detail

/// A storage as any_storage. The storage itself is not owned, and must outlive what is returned.
/// One that is wrong is told so in sentences.
template <class S>
[[nodiscard]] std::unique_ptr<any_storage> over(S& storage) {
  return std::make_unique<detail::storage_of<detail::checked_storage<S>>>(storage);
}

}  // namespace delta
