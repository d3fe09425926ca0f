// delta: a Storage that hands everything on to another one: the base of those that change a little.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "delta/engine/any_storage.hpp"
#include "delta/units.hpp"

namespace delta {

/// It owns the interface that it is over, not the storage behind that. Members are any_storage's.
class forwarding_storage : public any_storage {
 public:
  explicit forwarding_storage(std::unique_ptr<any_storage> over) : over_(std::move(over)) {}

  std::optional<block> allocate(bytes n, lifetime l) override { return over_->allocate(n, l); }
  void free(block&& b) override { over_->free(std::move(b)); }
  void free(slab&& h) override { over_->free(std::move(h)); }
  [[nodiscard]] bytes capacity() const override { return over_->capacity(); }
  [[nodiscard]] bytes used() const override { return over_->used(); }
  [[nodiscard]] bytes host_capacity() const override { return over_->host_capacity(); }
  [[nodiscard]] bytes host_used() const override { return over_->host_used(); }
  [[nodiscard]] bytes rounded(bytes n) const override { return over_->rounded(n); }
  [[nodiscard]] bool knows(const block& b, bytes n) const override { return over_->knows(b, n); }
  void on_owner_changed(const block& b, tensor_id t) override { over_->on_owner_changed(b, t); }
  [[nodiscard]] bool may_fragment() const override { return over_->may_fragment(); }
  [[nodiscard]] bool may_allocate_in_operator() const override {
    return over_->may_allocate_in_operator();
  }

  std::optional<transfer> copy_out(block& b) override { return over_->copy_out(b); }
  transfer copy_in(slab&& h, block&& b) override {
    return over_->copy_in(std::move(h), std::move(b));
  }
  std::pair<block, slab> land(transfer&& t) override { return over_->land(std::move(t)); }
  void begin_operator(std::span<const block* const> reads,
                      std::span<const block* const> writes) override {
    over_->begin_operator(reads, writes);
  }
  stamp end_operator(nanoseconds cost) override { return over_->end_operator(cost); }

  bool reached(stamp s) override { return over_->reached(s); }
  void wait(stamp s) override { over_->wait(s); }
  std::optional<nanoseconds> elapsed(stamp s) override { return over_->elapsed(s); }
  std::optional<nanoseconds> began(stamp s) override { return over_->began(s); }
  std::optional<nanoseconds> alone(stamp s) override { return over_->alone(s); }
  [[nodiscard]] nanoseconds now() const override { return over_->now(); }
  [[nodiscard]] double rate(direction d) const override { return over_->rate(d); }
  [[nodiscard]] nanoseconds latency(direction d) const override { return over_->latency(d); }
  [[nodiscard]] nanoseconds backlog(direction d) const override { return over_->backlog(d); }
  [[nodiscard]] double burden(direction d) const override { return over_->burden(d); }

  std::byte* data(const block& b) override { return over_->data(b); }
  void hold(const block& b) override { over_->hold(b); }
  void unhold(const block& b) override { over_->unhold(b); }
  bool read_bytes(const block& b, std::uint64_t from, std::span<std::byte> to) override {
    return over_->read_bytes(b, from, to);
  }
  bool write_bytes(const block& b, std::uint64_t to, std::span<const std::byte> from) override {
    return over_->write_bytes(b, to, from);
  }
  void* native_stream() override { return over_->native_stream(); }
  bytes largest_hole() override { return over_->largest_hole(); }
  std::optional<bytes> bytes_to_move(bytes n) override { return over_->bytes_to_move(n); }
  double move_rate() override { return over_->move_rate(); }
  [[nodiscard]] stamp last_operator() const override { return over_->last_operator(); }

 protected:
  [[nodiscard]] any_storage& over() const noexcept { return *over_; }

 private:
  void walk(void (*f)(void*, std::uint32_t, bytes, bool), void* to) override {
    over_->walk_blocks([&](std::uint32_t row, bytes n, bool used) { f(to, row, n, used); });
  }

  std::unique_ptr<any_storage> over_;
};

}  // namespace delta
