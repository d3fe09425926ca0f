// delta tests: random sequences of storage calls, with a shadow of what every block and slab holds.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "storage_check.hpp"
#include "storage_subject.hpp"

namespace delta::test {

/// A random program. What it does follows from the seed and from the storage's answers alone, so
/// two storages that answer alike do the same, and leave the same trace.
template <class Subject>
class storage_program {
 public:
  /// `checks_data` off: only what the storage answers is checked, not what is in the memory.
  storage_program(Subject& subject, std::uint64_t seed, bool checks_data = true)
      : it_(subject), s_(subject.storage), random_(seed), checks_data_(checks_data) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      step();
      CHECK(s_.used() <= s_.capacity());
      CHECK(s_.host_used() <= s_.host_capacity());
      CHECK(s_.used() == taken_);
      CHECK(s_.host_used() == host_taken_);
      if (const auto fault = check_invariants(s_); !fault.empty()) FAIL(fault);
      note(s_.now());
      note(s_.waited());
      note(s_.used().count);
      note(s_.moved_bytes().count);
    }
    finish();
  }
  /// Clocks, stamps and decisions, in order.
  [[nodiscard]] const std::vector<std::uint64_t>& trace() const { return trace_; }

 private:
  struct tensor {
    block where;
    std::uint64_t value;
    bytes size;
    int holds = 0;
  };
  struct copy {
    slab where;
    std::uint64_t value;
    bytes size;
  };
  struct flight {
    transfer what;
    std::uint64_t value;
    bytes size;
  };

  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  void note(std::uint64_t n) { trace_.push_back(n); }
  void note(nanoseconds t) { note(static_cast<std::uint64_t>(t.count())); }
  void note(stamp p) { note(p.point), stamps_.push_back(p); }
  template <class T>
  T taken(std::vector<T>& from, std::size_t i) {
    std::swap(from[i], from.back());
    T last = std::move(from.back());
    from.pop_back();
    return last;
  }
  /// Any, but half of the time the one that was had last: races live among neighbours in time.
  std::size_t any(std::size_t size) { return below(2) ? size - 1 : below(size); }

  void step() {
    switch (below(16)) {
      case 0:
      case 1:
      case 2:
        return make();
      case 3:
      case 4:
        return operate();
      case 5:
      case 6:
        return drop_block();
      case 7:
      case 8:
      case 9:
        return copy_out();
      case 10:
      case 11:
        return copy_in();
      case 12:
        return drop_slab();
      case 13:
        return land();
      case 14:
        return hold();
      default:
        return ask();
    }
  }

  /// "Free means fits": when a request within the free bytes is refused, then only for what is held
  /// or in flight. Once nothing is, it must be placed.
  std::optional<block> get(bytes n) {
    const lifetime life = below(3) ? lifetime::transient : lifetime::persistent;
    auto b = s_.allocate(n, life);
    if (!b && s_.rounded(n) <= s_.capacity() - s_.used()) {
      settle();
      b = s_.allocate(n, life);
      CHECK_MESSAGE(b, "free bytes suffice, nothing is held or in flight, yet there is no room");
    }
    note(b ? 1u : 0u);
    if (b) taken_ += s_.rounded(n);
    return b;
  }
  void make() {
    const bytes n{below(8) ? below(s_.capacity().count / 4) : below(2)};
    auto b = get(n);
    if (!b) return drop_block();
    tensor t{std::move(*b), ++values_, n};
    note(it_.operate(s_, {}, std::vector{use(t)}, cost()));
    blocks_.push_back(std::move(t));
  }
  /// Reads some, writes over one or none.
  void operate() {
    std::vector<typename Subject::use> reads, writes;
    for (std::uint64_t i = below(3); i > 0 && !blocks_.empty(); --i)
      reads.push_back(use(blocks_[any(blocks_.size())]));
    if (!blocks_.empty() && below(3)) {
      tensor& t = blocks_[any(blocks_.size())];
      if (below(2)) reads.push_back(use(t));  // in place
      t.value = ++values_;
      writes.push_back(use(t));
    }
    note(it_.operate(s_, reads, writes, cost()));
  }
  void drop_block() {
    if (blocks_.empty()) return;
    tensor t = taken(blocks_, any(blocks_.size()));
    while (t.holds-- > 0) s_.unhold(t.where);
    taken_ -= s_.rounded(t.size);
    s_.free(std::move(t.where));
  }
  void drop_slab() {
    if (slabs_.empty()) return;
    copy c = taken(slabs_, any(slabs_.size()));
    host_taken_ -= s_.rounded(c.size);
    s_.free(std::move(c.where));
  }
  void copy_out() {
    if (blocks_.empty()) return;
    const std::size_t i = any(blocks_.size());
    if (blocks_[i].holds) return;
    auto t = s_.copy_out(blocks_[i].where);
    note(t ? 1u : 0u);
    if (!t) return drop_slab();
    tensor from = taken(blocks_, i);
    host_taken_ += s_.rounded(from.size);
    depart(std::move(*t), from.value, from.size);
  }
  void copy_in() {
    if (slabs_.empty()) return;
    const std::size_t i = any(slabs_.size());
    auto b = get(slabs_[i].size);
    if (!b) return drop_block();
    copy from = taken(slabs_, i);
    depart(s_.copy_in(std::move(from.where), std::move(*b)), from.value, from.size);
  }
  void depart(transfer t, std::uint64_t value, bytes size) {
    note(t.done());
    flights_.push_back({std::move(t), value, size});
    if (below(4)) land();
  }
  /// Whether the copy is done or not. Both ends hold the value now.
  void land() {
    if (flights_.empty()) return;
    flight f = taken(flights_, any(flights_.size()));
    auto [b, h] = s_.land(std::move(f.what));
    blocks_.push_back({std::move(b), f.value, f.size});
    slabs_.push_back({std::move(h), f.value, f.size});
    if (below(2)) drop_last(blocks_), taken_ -= s_.rounded(f.size);
    if (below(2)) drop_last(slabs_), host_taken_ -= s_.rounded(f.size);
  }
  template <class T>
  void drop_last(std::vector<T>& from) {
    s_.free(std::move(from.back().where));
    from.pop_back();
  }
  void hold() {
    if (blocks_.empty()) return;
    tensor& t = blocks_[any(blocks_.size())];
    if (t.holds && below(3)) return --t.holds, s_.unhold(t.where);
    if (!below(4)) ++t.holds, s_.hold(t.where);
  }
  void ask() {
    if (stamps_.empty()) return;
    const stamp p = stamps_[any(stamps_.size())];
    if (below(4)) return note(s_.reached(p) ? 1u : 0u);
    s_.wait(p);
    CHECK(s_.reached(p));
    for (const auto d : {direction::out, direction::in}) note(s_.backlog(d));
  }
  /// Nothing held, nothing in flight.
  void settle() {
    for (tensor& t : blocks_)
      for (; t.holds > 0; --t.holds) s_.unhold(t.where);
    while (!flights_.empty()) land();
    for (const stamp p : stamps_) {
      s_.wait(p);
      while (!s_.reached(p)) {
      }
    }
    stamps_.clear();
  }
  void finish() {
    settle();
    for (tensor& t : blocks_) it_.operate(s_, std::vector{use(t)}, {}, nanoseconds{1});
    for (copy& c : slabs_) check(c);
    while (!blocks_.empty()) drop_block();
    while (!slabs_.empty()) drop_slab();
    CHECK(s_.used() == bytes{});
    CHECK(s_.host_used() == bytes{});
    CHECK(s_.largest_hole() == s_.capacity());
  }
  /// Slabs are read by the host, which has waited for everything.
  void check(const copy& c) {
    if constexpr (requires { s_.data(c.where); })
      for (std::size_t i = 0; checks_data_ && i < c.size.count; ++i)
        if (s_.data(c.where)[i] != pattern(c.value, i)) FAIL("a slab does not hold its value");
  }

  typename Subject::use use(const tensor& t) const { return {&t.where, t.value}; }
  nanoseconds cost() { return nanoseconds{static_cast<std::int64_t>(below(3) * 400)}; }

  Subject& it_;
  decltype(Subject::storage)& s_;
  std::mt19937_64 random_;
  bool checks_data_;
  std::vector<tensor> blocks_;
  std::vector<copy> slabs_;
  std::vector<flight> flights_;
  std::vector<stamp> stamps_;
  std::uint64_t values_ = 0;
  bytes taken_{}, host_taken_{};
  std::vector<std::uint64_t> trace_;
};

/// Small enough that everything touches everything.
inline subject_sizes tight_sizes(std::uint64_t seed) {
  return {.capacity = bytes{1024 + seed % 3 * 512}, .host_capacity = 1_KiB, .seed = seed};
}

/// Runs the program of a seed, checks it, and gives its trace.
template <class Subject>
std::vector<std::uint64_t> trace_of(std::uint64_t seed, int steps) {
  CAPTURE(seed);
  Subject it(tight_sizes(seed));
  storage_program program(it, seed);
  program.run(steps);
  CHECK(it.wrong() == 0);
  for (const auto& text : it.complaints()) FAIL_CHECK(text);
  return program.trace();
}

/// Without that wait, some program must touch bytes that nothing orders. Data is wrong then, too,
/// so only the detector is asked.
template <class Subject>
void check_that_wait_is_needed(wait_reason ignored) {
  const std::string name = name_of(ignored);
  CAPTURE(name);
  std::uint64_t seed = 0;
  std::vector<std::string> found;
  while (found.empty() && ++seed <= 2000) {
    Subject it(tight_sizes(seed), ignored);
    storage_program program(it, seed, /*checks_data=*/false);
    program.run(80);
    found = it.complaints();
  }
  CHECK_FALSE(found.empty());
  if (!found.empty()) MESSAGE(name, " ignored, seed ", seed, ": ", found.front());
}
/// Of the first `count` waits.
template <class Subject>
void check_that_every_wait_is_needed(std::size_t count = wait_reasons) {
  for (std::size_t w = 0; w < count; ++w)
    check_that_wait_is_needed<Subject>(static_cast<wait_reason>(w));
}

}  // namespace delta::test
