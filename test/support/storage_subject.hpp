// delta tests: a storage under test together with what computes on it, so that one test runs on
// bytes in name only, on the CPU, and on the adversary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "adversary.hpp"
#include "delta/storage/simulated.hpp"
#include "delta/testing/timed_arena.hpp"

namespace delta::test {

/// Byte `i` of a block that holds `value`.
inline std::byte pattern(std::uint64_t value, std::size_t i) noexcept {
  return static_cast<std::byte>((value * 0x9e3779b97f4a7c15u >> 40) + i * 13);
}

/// What a copy costs in every model that has a virtual clock.
inline constexpr copy_rates test_rates{
    .out = 1e9, .in = 2e9, .move = 8e9, .latency = nanoseconds{50}};

/// Fills and checks the blocks of a Storage by operators. `Device` is void where there is none.
template <class S, class Device>
class subject_base {
 public:
  /// What an operator uses: a block, and the value that it holds, or shall hold after.
  struct use {
    const block* where;
    std::uint64_t value;
  };

  /// One operator: checks the values of `reads`, then writes those of `writes`.
  stamp operate(S& storage, std::span<const use> reads, std::span<const use> writes,
                nanoseconds cost) {
    std::vector<const block*> in, out;
    for (const use& u : reads) in.push_back(u.where);
    for (const use& u : writes) out.push_back(u.where);
    storage.begin_operator(in, out);
    if constexpr (requires { storage.data(*in[0]); }) {
      std::vector<range> from, to;
      std::vector<std::uint64_t> expected, written;
      for (const use& u : reads) {
        from.push_back({storage.data(*u.where), size_of(storage, *u.where)});
        expected.push_back(u.value);
      }
      for (const use& u : writes) {
        to.push_back({storage.data(*u.where), size_of(storage, *u.where)});
        written.push_back(u.value);
      }
      auto work = [this, from, to, expected, written] {
        for (std::size_t k = 0; k < from.size(); ++k) check(from[k], expected[k]);
        for (std::size_t k = 0; k < to.size(); ++k)
          for (std::size_t i = 0; i < to[k].size; ++i) to[k].begin[i] = pattern(written[k], i);
      };
      if constexpr (requires(Device& d) { d.launch(from, to, work); })
        static_cast<Device*>(storage.native_stream())->launch(from, to, work);
      else
        work();
    }
    return storage.end_operator(cost);
  }
  stamp write(S& storage, const block& b, std::uint64_t value) {
    const use u{&b, value};
    return operate(storage, {}, {&u, 1}, nanoseconds{100});
  }
  stamp expect(S& storage, const block& b, std::uint64_t value) {
    const use u{&b, value};
    return operate(storage, {&u, 1}, {}, nanoseconds{100});
  }
  /// How often an operator read what it should not have read.
  [[nodiscard]] std::size_t wrong() const { return wrong_; }

 private:
  /// The arena knows the sizes; a subject asks it by walking, which is slow and fine.
  static std::size_t size_of(const S& storage, const block& b) {
    std::size_t found = 0;
    storage.walk_blocks([&](std::uint32_t row, bytes size, bool used) {
      if (used && row == b.index()) found = size.count;
    });
    return found;
  }
  void check(range r, std::uint64_t value) {
    for (std::size_t i = 0; i < r.size; ++i)
      if (r.begin[i] != pattern(value, i)) {
        ++wrong_;
        return;
      }
  }
  std::size_t wrong_ = 0;
};

/// The sizes that a test asks for.
struct subject_sizes {
  bytes capacity = 4_KiB;
  bytes host_capacity = 4_KiB;
  std::uint64_t seed = 1;  ///< for models that roll dice
};

/// Bytes in name only.
struct simulated_subject : subject_base<simulated, void> {
  explicit simulated_subject(subject_sizes o = {})
      : storage({.capacity = o.capacity,
                 .host_capacity = o.host_capacity,
                 .rate_out = test_rates.out,
                 .rate_in = test_rates.in,
                 .latency = test_rates.latency,
                 .granularity = 64,
                 .rate_move = test_rates.move}) {}
  [[nodiscard]] std::vector<std::string> complaints() const { return {}; }
  simulated storage;
};

/// An arena in its device's own time, or with a virtual clock.
template <class D, bool Virtual>
struct clocked_arena : arena<D> {
  using arena<D>::arena;
};
template <class D>
struct clocked_arena<D, true> : timed_arena<D> {
  clocked_arena(D& device, const arena_options& o) : timed_arena<D>(device, o, test_rates) {}
};

/// The arena over the adversary.
template <bool Virtual>
struct adversary_subject : subject_base<clocked_arena<adversary, Virtual>, adversary> {
  explicit adversary_subject(subject_sizes o = {}, wait_reason ignored = wait_reason::none)
      : device(o.seed, ignored),
        storage(device, {.capacity = o.capacity, .host_capacity = o.host_capacity}) {}
  /// Runs everything to its end first.
  [[nodiscard]] std::vector<std::string> complaints() {
    device.drain();
    return device.violations();
  }
  adversary device;
  clocked_arena<adversary, Virtual> storage;
};

}  // namespace delta::test
