// Attacks on what is promised: programs, training, faults at every call, members that are declined.
// A few cases of each; `./run.sh attack` goes on for as long as it is told, from a seed that is
// printed.
#include "attack.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "dice.hpp"
#include "process.hpp"
#include "program_variants.hpp"
#include "seeds.hpp"

using namespace delta;
using namespace delta::test;

namespace {

constexpr std::array<const char*, 7> policies{"unmanaged", "paper",    "dtr",  "online",
                                              "adaptive",  "swap_lru", "clean"};

// Those that go on wherever the largest operator fits, with enough memory of the host.
bool offloads(const std::string& policy) {
  return policy != "unmanaged" && policy != "paper" && policy != "dtr";
}

std::uint64_t asked(const char* name, std::uint64_t otherwise) {
  const char* const text = environment(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// Calls `f(seed)` for so many seeds, or for DELTA_ATTACK_SECONDS, from DELTA_ATTACK_SEED on.
template <class F>
void attack(const char* name, std::uint64_t usual, const F& f) {
  using clock = std::chrono::steady_clock;
  const std::uint64_t first = asked("DELTA_ATTACK_SEED", 1);
  const std::chrono::seconds limit(asked("DELTA_ATTACK_SECONDS", 0));
  const auto began = clock::now();
  std::uint64_t seed = first;
  const std::uint64_t cases = std::max<std::uint64_t>(seeds(usual), 4);
  const auto more = [&] {
    return limit.count() > 0 ? clock::now() - began < limit : seed < first + cases;
  };
  attack_tally sum;
  for (; more(); ++seed) f(seed, sum);
  MESSAGE(std::string(name), ": ", seed - first, " seeds from ", first, " on: ", sum.faults,
          " faults, ", sum.evictions, " evictions, ", sum.recomputes, " recomputes, ", sum.reloads,
          " reloads, ", sum.prefetches, " of them early; ", sum.copies_ahead, " copies ahead, ",
          sum.clean_drops, " clean drops; ", sum.planned, " steps under a plan; ", sum.nested,
          " kernels that call back, ", sum.rewritten, " writes of the host");
  CHECK(sum.evictions > 0);
  CHECK(sum.recomputes > 0);
  CHECK(sum.reloads > 0);
  if (seed - first < 10) return;  // of a few perhaps none does
  CHECK(sum.clean_drops > 0);
  CHECK(sum.nested > 0);
  CHECK(sum.rewritten > 0);
}

/// Fails with a test of a few lines where anything is wrong.
bool withstands(std::uint64_t seed, const program& p, const setting& s, attack_tally& sum) {
  const std::string what = attacked(p, s, &sum);
  if (what.empty()) return true;
  const auto fails = [&](const program& q) { return attacked(q, s) == what; };
  const program shortest = shortened(p, fails);
  FAIL_CHECK("seed ", seed, ": ", what, "\n",
             as_test(shortest, s, what.substr(0, what.find('\n'))));
  return false;
}

/// A setting in which the program has to do something.
setting tight(dice& roll, const program& p) {
  setting s;
  s.policy = roll.any(policies);
  s.memory = roll.any(memory_kinds);
  s.how = static_cast<manner>(roll.below(manners));
  const std::uint64_t least = largest_footprint(p, 64).count;
  s.budget = round_up(bytes{least * (100 + 10 * roll.below(16)) / 100}, 64).count;
  s.host = roll.one_in(4) ? roll.below(2000) : 1 << 20;
  s.seed = roll.bits();
  s.nests = roll.one_in(2), s.rewrites = roll.one_in(3);
  return s;
}

}  // namespace

TEST_CASE("attack: programs") {
  attack("programs", 300, [](std::uint64_t seed, attack_tally& sum) {
    dice roll(seed);
    const program p = attacking_program(roll.bits());
    setting s = tight(roll, p);
    // Addresses that are shown, and blocks that do not move, may lie in the way.
    s.passes = s.how == manner::whole && s.host == 1 << 20 && offloads(s.policy) &&
               s.memory != memory_kind::fixed;
    withstands(seed, p, s, sum);
  });
}

TEST_CASE("attack: training") {
  attack("training", 100, [](std::uint64_t seed, attack_tally& sum) {
    dice roll(seed);
    const program step = attacking_program(roll.bits());
    const program p = training_of(step, roll.bits());
    setting s = tight(roll, p);
    s.policy = "adaptive";
    s.passes = s.how == manner::whole && s.host == 1 << 20 && s.memory != memory_kind::fixed;
    withstands(seed, p, s, sum);
  });
}

TEST_CASE("attack: faults") {
  attack("faults", 12, [](std::uint64_t seed, attack_tally& sum) {
    dice roll(seed);
    const bool again = roll.one_in(2);  // under a plan
    program p = random_program(roll.bits(), {.operators = 8, .steps = again ? 1 : 2});
    if (again) p = repeated(p, 4);
    setting s = tight(roll, p);
    if (again) s.policy = "adaptive";
    s.host = 1 << 20;
    // At the first such call, the second, and so on until there is none; now and then two.
    for (std::size_t kind = 0; kind < failing_kinds; ++kind)
      for (std::uint64_t at = 1; at < 400; ++at) {
        s.faults = {};
        s.faults[0] = {static_cast<failing>(kind), at};
        if (roll.one_in(3))
          s.faults[1] = {static_cast<failing>(roll.below(failing_kinds)), 1 + roll.below(at + 4)};
        const std::uint64_t before = sum.faults;
        if (!withstands(seed, p, s, sum)) return;
        if (sum.faults == before) break;  // there is no such call any more
      }
  });
}

TEST_CASE("attack: declined") {
  attack("declined", 4, [](std::uint64_t seed, attack_tally& sum) {
    dice roll(seed);
    const program p = repeated(attacking_program(roll.bits()), 4);
    setting s = tight(roll, p);
    s.host = 1 << 20;
    s.seed |= 1;  // planned, however small
    for (const char* policy : {"paper", "adaptive"}) {
      s.policy = policy;
      // One of 3, in a slow build one of 61, each seed others.
      constexpr unsigned apart = slow_build ? 61 : 3;
      for (auto set = static_cast<unsigned>(seed % apart); set < declined_sets; set += apart) {
        if (policy != std::string("adaptive") && has(set, declined::learning)) break;
        s.without = set;
        if (!withstands(seed, p, s, sum)) return;
      }
    }
  });
}

TEST_CASE("a program that fails is made short, and stays a program") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    const program p = random_program(seed);
    // As if anything went wrong that has an output of 32 bytes or more, made from another one.
    const auto fails = [](const program& q) {
      (void)evaluate(q);  // throws where it uses what is not there
      return std::ranges::any_of(q.ops, [&](const program::op& o) {
        return !o.outputs.empty() && o.outputs.front() >= 32 &&
               std::ranges::any_of(o.inputs, [&](int v) { return v >= q.sources(); });
      });
    };
    if (!fails(p)) continue;
    const program q = shortened(p, fails);
    CHECK(fails(q));
    CHECK(q.ops.size() == 2);
    CHECK(as_test(q, {}, "x").find("CHECK(attacked(p, {.policy = \"online\"") != std::string::npos);
  }
}

TEST_CASE("what an attack checks is seen when it is broken") {
  // Too little memory that is said to suffice, and copies of which one has other bits.
  const program p = random_program(7);
  const std::uint64_t least = largest_footprint(p, 64).count;
  CHECK(attacked(p, {.policy = "online", .budget = least, .host = 1 << 20, .passes = true}) == "");
  CHECK(attacked(p, {.policy = "unmanaged", .budget = least, .host = 1 << 20, .passes = true})
            .find("memory suffices, and yet: ") == 0);
  int seen = 0;
  for (std::uint64_t at = 1; at <= 5; ++at)
    seen += attacked(p, {.policy = "swap_lru",
                         .budget = least,
                         .host = 1 << 20,
                         .faults = {{{failing::bits, at}, {}}}}) == "the bits differ";
  CHECK(seen > 0);
}
