// Random programs of a framework whose allocator and in-place operators are its own: every byte is
// compared with a run of the same program in memory of its own, whatever leaves meanwhile.
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "delta/adaptive.hpp"
#include "delta/presets.hpp"
#include "delta/testing/replay_check.hpp"
#include "dice.hpp"
#include "machine.hpp"
#include "random_program.hpp"
#include "seeds.hpp"
#include "storage_check.hpp"

using namespace delta;
using namespace delta::test;

namespace {

constexpr std::uint64_t largest = 3;  // units of a tensor

// What the bytes of a tensor are: a function of one number.
struct value {
  std::uint64_t seed = 0;
  std::uint64_t units = 1;
  [[nodiscard]] std::size_t size() const { return std::size_t(units * unit.count) - 5; }
};
void fill(std::byte* p, const value& v) {
  expand(v.seed, {p, v.size()});
}
std::uint64_t seed_of(std::uint64_t h, const std::byte* p, std::size_t n) {
  return mix(h, hash({p, n}));
}

// An operator: reads `in`, and makes `out`, of which the first may be written over the first input.
struct kernel_of {
  std::vector<std::size_t> in;
  std::vector<value> out;
  std::size_t scratch;  // its place; a replay has it, and the first run's is elsewhere
  void operator()(call& c) const { run(c, c.workspace(scratch)); }
  void run(call& c, std::byte* temporary) const {
    // First all that is read, as the first output may lie over it.
    std::uint64_t h = 17;
    for (std::size_t i = 0; i < in.size(); ++i) h = seed_of(h, c.in(i), in[i]);
    std::memcpy(temporary, &h, sizeof h);
    for (std::size_t k = 0; k < out.size(); ++k) {
      std::uint64_t from = 0;
      std::memcpy(&from, temporary, sizeof from);
      expand(mix(from, k), {c.out(k), out[k].size()});
    }
  }
};

// The same in memory of its own: what the values' seeds are.
std::uint64_t unmanaged(const std::vector<value>& in, std::size_t k) {
  std::uint64_t h = 17;
  for (const value& v : in) {
    std::vector<std::byte> data(v.size());
    fill(data.data(), v);
    h = seed_of(h, data.data(), data.size());
  }
  return mix(h, k);
}

template <class Manager>
class framework {
 public:
  framework(Manager& m, arena<immediate>& s, std::uint64_t seed)
      : manager_(m), storage_(s), roll_(seed) {}
  ~framework() {
    for (auto& [b, v] : own_) manager_.give_back(std::move(b));
  }
  void step() {
    for (int i = 0; i < 25; ++i, ++done) {
      switch (roll_.below(8)) {
        case 0:
          source();
          break;
        case 1:
          check_one();
          break;
        case 2:
          drop_one();
          break;
        case 3:
          keep_or_give_back();
          break;
        default:
          operate();
          break;
      }
      CHECK(storage_.used() <= storage_.capacity());
    }
    while (live_.size() > 6) drop_one();
    manager_.end_of_step();
  }
  void check_all() {
    for (const auto& [t, v] : live_) check(t, v);
    for (const auto& [b, v] : own_) CHECK(right(storage_.data(b), v));
  }
  void drop_all() {
    while (!live_.empty()) drop_one();
  }
  std::uint64_t done = 0;  // calls that need room

 private:
  value fresh() { return {roll_.bits(), 1 + roll_.below(largest)}; }
  static bool right(const std::byte* p, const value& v) {
    std::vector<std::byte> wanted(v.size());
    fill(wanted.data(), v);
    return std::memcmp(wanted.data(), p, wanted.size()) == 0;
  }
  void check(tensor_id t, const value& v) {
    const auto view = manager_.acquire(t);
    CHECK(view.size() == bytes{v.size()});
    CHECK(right(view.data(), v));
  }
  block filled(const value& v) {
    block b = manager_.take_block(bytes{v.size()});
    fill(storage_.data(b), v);
    return b;
  }
  // Weights: written by the framework, and handed over.
  void source() {
    if (live_.size() > 12) return;
    const value v = fresh();
    block b = filled(v);
    live_[manager_.variable(bytes{v.size()}, "source", std::move(b))] = v;
  }
  void keep_or_give_back() {
    if (own_.size() < 2 && roll_.one_in(2)) {
      const value v = fresh();
      own_.emplace_back(filled(v), v);
    } else if (!own_.empty()) {
      CHECK(right(storage_.data(own_.back().first), own_.back().second));
      manager_.give_back(std::move(own_.back().first));
      own_.pop_back();
    }
  }
  auto any() { return std::next(live_.begin(), std::ptrdiff_t(roll_.below(live_.size()))); }
  void check_one() {
    if (!live_.empty()) check(*any());
  }
  void check(const std::pair<const tensor_id, value>& x) { check(x.first, x.second); }
  void drop_one() {
    if (live_.empty()) return;
    const auto at = any();
    manager_.drop(at->first);
    live_.erase(at);
  }
  void operate() {
    if (live_.size() > 14) return drop_one();
    std::vector<tensor_id> in;
    std::vector<value> read;
    for (std::uint64_t k = live_.empty() ? 0 : roll_.below(4); k-- > 0;) {
      const auto at = any();
      in.push_back(at->first), read.push_back(at->second);
    }
    kernel_of kernel{{}, {}, 0};
    for (const value& v : read) kernel.in.push_back(v.size());
    auto op = manager_.begin(operation_span{.inputs = in, .name = "random"});
    ++done;
    if (roll_.one_in(2)) (void)op.arguments();
    const bool wanted = roll_.one_in(2);
    const bool in_place = wanted && !in.empty() && manager_.recomputable(in[0]);
    const std::uint64_t outputs = 1 + roll_.below(3);
    if (in_place) {
      op.replace(in[0]);
      kernel.out.push_back({unmanaged(read, 0), read[0].units});
    }
    if (roll_.one_in(3)) kernel.scratch = op.workspace(unit) + 1;
    ++done;
    std::vector<bytes> sizes;
    const bool at_once = roll_.one_in(3);
    while (kernel.out.size() < outputs) {
      const value v{unmanaged(read, kernel.out.size()), 1 + roll_.below(largest)};
      kernel.out.push_back(v);
      ++done;
      if (at_once)
        sizes.emplace_back(v.size());
      else if (roll_.one_in(2))
        op.allocate(bytes{v.size()});
      else
        op.allocate(bytes{v.size()}, manager_.take_block(bytes{v.size()}));
    }
    ++done;
    op.allocate(sizes);
    ++done;
    op.replay_workspace(unit);
    block temporary = manager_.take_block(unit);
    call c = op.arguments();
    kernel.run(c, storage_.data(temporary));
    manager_.give_back(std::move(temporary));
    ++done;
    if (roll_.one_in(8)) return;  // given up; what it replaced is made again
    std::vector<tensor_id> made(kernel.out.size());
    op.end(made, kernel);
    for (std::size_t k = 0; k < made.size(); ++k) live_[made[k]] = kernel.out[k];
    if (in_place && roll_.one_in(2)) {
      manager_.drop(in[0]);
      live_.erase(in[0]);
    }
  }

  Manager& manager_;
  arena<immediate>& storage_;
  dice roll_;
  std::map<tensor_id, value> live_;
  std::vector<std::pair<block, value>> own_;
};

struct outcome {
  std::uint64_t errors = 0, named = 0, replaced = 0, recomputed = 0, reloaded = 0, checked = 0;
};

// How far it came, and the budget that an error has named.
struct end {
  std::uint64_t done;
  bytes budget;
};

template <class Policy, class Observer = no_observer>
end try_one(std::uint64_t seed, std::uint64_t units, std::uint64_t host, Policy policy, outcome& o,
            Observer told = {}) {
  CAPTURE(seed);
  CAPTURE(units);
  end reached{~std::uint64_t{0}, {}};
  immediate device;
  arena<immediate> storage{
      device, {.capacity = unit * units, .host_capacity = unit * host, .moving = seed % 3 != 0}};
  {
    manager m{std::move(policy), storage, told};
    framework program(m, storage, seed);
    try {
      for (int s = 0; s < 3; ++s) program.step();
      program.check_all();
    } catch (const budget_exceeded& e) {
      ++o.errors;  // the budget is a small one; the manager can be used on
      reached = {program.done, e.report.smallest_budget};
    }
    program.drop_all();
    o.replaced += m.counts().replacements, o.recomputed += m.counts().recomputes;
    o.reloaded += m.counts().reloads, o.checked += m.counts().replays_checked;
    m.end_of_step();
    CHECK(m.live_tensors() == 0);
    CHECK(m.live_records() == 0);
  }
  CHECK(storage.used() == bytes{});
  CHECK(storage.host_used() == bytes{});
  CHECK(check_invariants(storage) == "");
  return reached;
}

}  // namespace

TEST_CASE("adoption, property: with a budget that an error names the program comes further") {
  outcome all;
  const std::uint64_t n = seeds(1000);
  for (std::uint64_t seed = 0; seed < n; ++seed) {
    CAPTURE(seed);
    const std::uint64_t units = 8 + seed % 14;
    const auto compare = [&](const auto& policy) {
      const end first = try_one(seed, units, 400, policy, all);
      if (first.budget.count == 0) return;
      ++all.named;
      CHECK(first.budget > unit * units);
      CHECK(try_one(seed, first.budget.count / unit.count, 400, policy, all).done > first.done);
    };
    compare(obeying(says_evict));
    compare(obeying(says_offload));
  }
  MESSAGE(n, " seeds: ", all.errors, " errors, ", all.named, " with a budget");
  CHECK(all.named > n / 4);
}

TEST_CASE("adoption, property: every value is right under every policy and budget") {
  outcome all;
  const std::uint64_t n = seeds(200);
  for (std::uint64_t seed = 0; seed < n; ++seed) {
    const std::uint64_t units = 18 + seed % 29;
    try_one(seed, units, 200, obeying(says_evict), all);
    try_one(seed, units, 200, obeying(says_offload), all);
    try_one(seed, units, seed % 2 == 0 ? 200 : 0, online(), all);
    try_one(seed, units, 200, adaptive(), all);
  }
  MESSAGE(n, " seeds: ", all.errors, " budgets too small, ", all.replaced, " replaced, ",
          all.recomputed, " recomputed, ", all.reloaded, " reloaded");
  CHECK(all.errors < 2 * n);
  CHECK(all.replaced > n);
  CHECK(all.recomputed > n);
  CHECK(all.reloaded > n);
}

TEST_CASE("adoption, property: replays are right where each is checked") {
  outcome all;
  const std::uint64_t n = seeds(100);
  for (std::uint64_t seed = 0; seed < n; ++seed)
    try_one(seed, 24 + seed % 40, 200, online(), all, replay_check{});
  CHECK(all.checked > n);
}
