// delta tests: storages and devices that fail at a chosen call, with an exception of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include "delta/storage/arena.hpp"
#include "delta/storage/simulated.hpp"
#include "machine.hpp"
#include "storage_check.hpp"

namespace delta::test {

struct fault : std::runtime_error {
  fault() : std::runtime_error("a fault was injected") {}
};

/// Throws at one call of many, or from it on; 0: never.
class fuse {
 public:
  explicit fuse(std::uint64_t at, bool for_good = false) : at_(at), for_good_(for_good) {}
  void burn() {
    if (++calls_ == at_ || (for_good_ && blown())) throw fault();
  }
  [[nodiscard]] std::uint64_t calls() const { return calls_; }
  [[nodiscard]] bool blown() const { return at_ != 0 && calls_ >= at_; }

 private:
  std::uint64_t at_, calls_ = 0;
  bool for_good_;
};

/// A Storage that fails before it does anything; at the end of an operator, after.
class faulty_storage {
 public:
  faulty_storage(fuse& f, bytes capacity, bytes host)
      : fuse_(&f),
        inner_({.capacity = capacity,
                .host_capacity = host,
                .rate_out = 2e9,
                .rate_in = 2e9,
                .granularity = 64}) {}
  std::optional<block> allocate(bytes n, lifetime l) { return lit().allocate(n, l); }
  void free(block&& b) noexcept { inner_.free(std::move(b)); }
  void free(slab&& h) noexcept { inner_.free(std::move(h)); }
  std::optional<transfer> copy_out(block& b) { return lit().copy_out(b); }
  transfer copy_in(slab&& h, block&& b) { return lit().copy_in(std::move(h), std::move(b)); }
  std::pair<block, slab> land(transfer&& t) { return inner_.land(std::move(t)); }
  void begin_operator(std::span<const block* const> r, std::span<const block* const> w) {
    lit().begin_operator(r, w);
  }
  stamp end_operator(nanoseconds cost) {
    const stamp s = inner_.end_operator(cost);
    fuse_->burn();
    return s;
  }
  bool reached(stamp s) { return lit().reached(s); }
  void wait(stamp s) { lit().wait(s); }
  std::optional<nanoseconds> elapsed(stamp s) { return lit().elapsed(s); }
  nanoseconds now() const { return inner_.now(); }
  double rate(direction d) const { return inner_.rate(d); }
  nanoseconds latency(direction d) const { return inner_.latency(d); }
  nanoseconds backlog(direction d) const { return inner_.backlog(d); }
  bytes capacity() const { return inner_.capacity(); }
  bytes used() const { return inner_.used(); }
  bytes host_capacity() const { return inner_.host_capacity(); }
  bytes host_used() const { return inner_.host_used(); }
  bytes rounded(bytes n) const { return inner_.rounded(n); }
  auto check_invariants() const { return delta::check_invariants(inner_); }

 private:
  simulated& lit() {
    fuse_->burn();
    return inner_;
  }
  fuse* fuse_;
  simulated inner_;
};
static_assert(Storage<faulty_storage>);

/// A Device whose work fails: copies, moves, the ends and beginnings of operators, waits.
class faulty_device : public immediate {
 public:
  explicit faulty_device(fuse& f) : fuse_(&f) {}
  stamp copy(direction d, std::byte* to, const std::byte* from, bytes n, const fence& after) {
    fuse_->burn();
    return immediate::copy(d, to, from, n, after);
  }
  void begin(const fence& after) {
    fuse_->burn();
    immediate::begin(after);
  }
  void move(std::byte* to, const std::byte* from, bytes n) {
    fuse_->burn();
    immediate::move(to, from, n);
  }
  stamp end() {
    fuse_->burn();
    return immediate::end();
  }
  bool reached(stamp s) {
    fuse_->burn();
    return immediate::reached(s);
  }
  void wait(stamp s) {
    fuse_->burn();
    immediate::wait(s);
  }

 private:
  fuse* fuse_;
};
static_assert(Device<faulty_device>);

}  // namespace delta::test
