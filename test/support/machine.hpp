// delta tests: a device that does everything at once, an arena on it, and kernels whose results can
// be told apart: for tests that look at one behaviour at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "delta/heuristic.hpp"
#include "delta/manager.hpp"
#include "delta/prefetcher.hpp"
#include "delta/testing/timed_arena.hpp"

namespace delta::test {

/// The simplest Device: all work is done when a function returns.
class immediate {
 public:
  std::byte* device_memory(bytes n) { return reserve(device_, n); }
  std::byte* host_memory(bytes n) { return reserve(host_, n); }
  stamp copy(direction d, std::byte* to, const std::byte* from, bytes n, const fence&) {
    std::memcpy(to, from, n.count);
    return {lane_of(d), ++points_};
  }
  void begin(const fence&) {}
  void move(std::byte* to, const std::byte* from, bytes n) { std::memmove(to, from, n.count); }
  stamp end() { return {lane::compute, ++points_}; }
  bool reached(stamp) const { return true; }
  void wait(stamp) const {}
  [[nodiscard]] std::optional<nanoseconds> elapsed(stamp) const { return std::nullopt; }
  [[nodiscard]] nanoseconds now() const { return {}; }
  [[nodiscard]] nanoseconds waited() const { return {}; }
  [[nodiscard]] double rate(direction) const { return 1e9; }
  [[nodiscard]] nanoseconds latency(direction) const { return {}; }
  [[nodiscard]] nanoseconds backlog(direction) const { return {}; }

 private:
  static std::byte* reserve(std::vector<std::byte>& memory, bytes n) {
    memory.resize(n.count + 64);
    return memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
  }
  std::vector<std::byte> device_, host_;
  std::uint64_t points_ = 0;
};
static_assert(Device<immediate>);

inline constexpr bytes unit{64};  ///< most tensors of these tests; holds one number

/// An arena of so many units. With a clock, copies are late by the model.
struct machine {
  machine(std::uint64_t units, std::uint64_t host_units,
          std::optional<copy_rates> clock = std::nullopt)
      : storage(device, {.capacity = unit * units, .host_capacity = unit * host_units}, clock) {}
  immediate device;
  timed_arena<immediate> storage;
};

/// A decider whose next answer the test chooses.
struct obedient {
  const action* word;
  action decide(const context&, tensor_id) const noexcept { return *word; }
};
/// Evicts what it can.
inline constexpr action says_evict = action::evict;
inline constexpr action says_offload = action::offload;
inline constexpr action says_keep = action::keep;
/// A policy that obeys `word`, which outlives it; the stalest tensor leaves first.
inline policy<lru, obedient, no_prefetch> obeying(const action& word) {
  return {{}, {&word}, {}};
}

inline std::uint64_t number(const std::byte* p) {
  std::uint64_t n;
  std::memcpy(&n, p, sizeof n);
  return n;
}
inline void put(std::byte* p, std::uint64_t n) {
  std::memcpy(p, &n, sizeof n);
}

/// A kernel without inputs: the numbers `value`, `value` + 1, ... in its outputs.
inline auto gives(std::uint64_t value, std::size_t outputs = 1) {
  return [=](call& c) {
    for (std::size_t k = 0; k < outputs; ++k) put(c.out(k), value + k);
  };
}
/// The sum of `n` inputs, plus `more` for each output.
inline auto sums(std::size_t n, std::uint64_t more = 0, std::size_t outputs = 1) {
  return [=](call& c) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += number(c.in(i));
    for (std::size_t k = 0; k < outputs; ++k) put(c.out(k), sum + more * (k + 1));
  };
}
/// Adds `n` to what is updated.
inline auto adds(std::uint64_t n) {
  return [=](call& c) { put(c.update(0), number(c.update(0)) + n); };
}

template <class Manager>
std::uint64_t read(Manager& m, tensor_id t) {
  const auto view = m.acquire(t);
  return number(view.data());
}
template <class Manager>
tensor_id variable_of(Manager& m, std::uint64_t value) {
  const tensor_id t = m.variable(unit);
  const auto held = m.acquire(t, access::write);
  put(held.data(), value);
  return t;
}
/// An operator that needs `units` at once and leaves nothing: what can go goes.
template <class Manager>
void squeeze(Manager& m, std::uint64_t units) {
  m.template run<0>({.workspace = unit * units, .name = "squeeze"}, [](call&) {});
}

}  // namespace delta::test
