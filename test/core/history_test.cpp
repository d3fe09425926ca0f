// What a history says of steps that repeat: every forecast against the program itself.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "delta/history.hpp"
#include "dice.hpp"
#include "history_player.hpp"
#include "seeds.hpp"

using namespace delta;
using namespace delta::test;

namespace {

const auto unchecked = [](std::size_t, bool) {};

/// The answer for one tensor, against what will really be.
void check_forecast(const forecast& told, const forecast& right) {
  CAPTURE(told.position);
  CAPTURE(right.position);
  REQUIRE(int(told.what) == int(right.what));
  if (right.what != forecast::kind::known) return;
  REQUIRE(told.position == right.position);
  REQUIRE(told.in == doctest::Approx(right.in));
}

/// All forecasts in a step of `s`, which is followed by one of `after`.
auto exactly(const history_player& player, const step_script& s, const step_script& after,
             double scale = 1, const step_script* before = nullptr) {
  return [&player, s, after, scale, before](std::size_t done, bool running) {
    CAPTURE(done);
    CAPTURE(running);
    REQUIRE(player.past.follows());
    REQUIRE(player.past.position() == done);
    for (const auto& [value, t] : player.living) {
      CAPTURE(value);
      forecast right = truth(s, value, done, running, after);
      right.in *= scale;
      // What a whole step does not use is forgotten.
      if (before != nullptr && value < s.what.sources() && s.use_from(0, value) >= done &&
          (before->use_from(0, value) == before->length() || s.use_from(0, value) == s.length()))
        right = {};
      check_forecast(player.past.next_use(t), right);
    }
  };
}

}  // namespace

TEST_CASE("history: of the first step nothing is known") {
  for (std::uint64_t seed = 1; seed <= seeds(100); ++seed) {
    CAPTURE(seed);
    const step_script s = random_script(seed);
    history_player player;
    CHECK(player.past.records() == 0);
    CHECK(player.past.steps() == 0);
    const auto sources = player.sources_of(s);
    player.play(s, sources, 1, [&](std::size_t, bool) {
      REQUIRE(!player.past.follows());
      for (const auto& [value, t] : player.living)
        REQUIRE(player.past.next_use(t).what == forecast::kind::unknown);
      REQUIRE(player.past.coming_cost() == 0);
    });
    player.end_of_step();
    CHECK(player.past.records() == 1);
    CHECK(player.past.steps() == 1);
    CHECK(player.past.last().length() == s.length());
    CHECK(player.past.last_took() == s.time(0, s.length()));
  }
}

TEST_CASE("history: from the second step on every forecast of a program that repeats is right") {
  for (std::uint64_t seed = 1; seed <= seeds(300); ++seed) {
    CAPTURE(seed);
    const step_script s =
        random_script(seed, "", {.operators = 24, .steps = 1, .updates_made = seed % 2 == 0});
    history_player player;
    const auto sources = player.sources_of(s);
    player.play(s, sources);
    for (int step = 2; step <= 4; ++step) {
      CAPTURE(step);
      player.play(s, sources, 1, exactly(player, s, s));
      player.end_of_step();
      // What outlived the step before was held until its second operator.
      if (step > 2) CHECK(player.past.records() <= 2);
    }
    CHECK(player.past.divergences() == 0);
  }
}

TEST_CASE("history: tensors that live across steps are known before the step touches them") {
  for (std::uint64_t seed = 1; seed <= seeds(300); ++seed) {
    CAPTURE(seed);
    const step_script s = random_script(seed);
    history_player player;
    const auto sources = player.sources_of(s);
    for (int step = 1; step <= 3; ++step) {
      player.play(s, sources);
      for (int v = 0; v < s.what.sources(); ++v) {
        CAPTURE(v);
        const std::size_t first = s.use_from(0, v);
        const forecast told = player.past.next_use(sources[std::size_t(v)]);
        if (first == s.length()) {
          CHECK(told.what == forecast::kind::unknown);
          continue;
        }
        check_forecast(told, {forecast::kind::known, std::uint32_t(first), s.time(0, first)});
      }
    }
  }
}

TEST_CASE("history: what the program holds at most, and what the coming operator takes") {
  for (std::uint64_t seed = 1; seed <= seeds(200); ++seed) {
    CAPTURE(seed);
    const step_script s = random_script(seed);
    history_player player;
    const auto sources = player.sources_of(s);
    player.play(s, sources), player.play(s, sources);
    const std::uint64_t peak = player.past.followed().peak;
    std::uint64_t most = 0;
    player.play(s, sources, 1, [&](std::size_t done, bool running) {
      if (running) return;
      const step_record::operation& o = player.past.followed().operations[done - 1];
      most = std::max(most, o.live);
      const double coming = done < s.length() ? double(s.what.ops[done].cost) : 0.0;
      CHECK(player.past.coming_cost() == coming);
    });
    CHECK(peak == most);
  }
}

TEST_CASE("history: two programs by turns are both known, and what comes first in the other") {
  for (std::uint64_t seed = 1; seed <= seeds(200); ++seed) {
    CAPTURE(seed);
    // Of one kind, or with the same sources but nothing else in common.
    const step_script a = random_script(2 * seed, "");
    step_script b = random_script(2 * seed + 1, seed % 2 == 0 ? "" : "other ");
    if (a.what.sources() != b.what.sources()) continue;
    history_player player;
    const auto sources = player.sources_of(a);
    for (int turn = 1; turn <= 5; ++turn) {
      CAPTURE(turn);
      for (const bool first : {true, false}) {
        CAPTURE(first);
        const step_script &s = first ? a : b, &after = first ? b : a;
        if (turn < 3) {
          player.play(s, sources, 1, unchecked);
        } else {
          player.play(s, sources, 1, exactly(player, s, after, 1, &after));
        }
        player.end_of_step();
      }
    }
    CHECK(player.past.records() <= 4);
  }
}

TEST_CASE("history: a batch of another size is known by its structure; sizes and times scale") {
  for (std::uint64_t seed = 1; seed <= seeds(200); ++seed) {
    CAPTURE(seed);
    const step_script s = random_script(seed);
    history_player player, twice;
    const auto small = player.sources_of(s);
    player.play(s, small), player.play(s, small);
    for (const tensor_id t : small) player.drop(t);
    const auto large = player.sources_of(s, 2);
    // Nothing has told yet that this batch is larger until an operator has ended.
    player.play(s, large, 2, [&](std::size_t done, bool running) {
      REQUIRE(player.past.follows());
      for (const auto& [value, t] : player.living) {
        CAPTURE(value);
        CAPTURE(done);
        forecast right = truth(s, value, done, running, s);
        right.in *= 2;
        const forecast told = player.past.next_use(t);
        const bool touched = value >= s.what.sources() || s.use_from(0, value) < done;
        if (!touched) continue;  // these are other sources
        CAPTURE(told.position);
        REQUIRE(int(told.what) == int(right.what));
        if (right.what != forecast::kind::known || (done == 1 && running)) continue;
        REQUIRE(told.position == right.position);
        REQUIRE(told.in == doctest::Approx(right.in));
      }
      if (done == 2 && !running) REQUIRE(player.past.size_scale() == doctest::Approx(2));
    });
    player.end_of_step();
    CHECK(player.past.divergences() == 0);
    const std::size_t records = player.past.records();
    // Both are known from now on, each with its own sizes.
    player.play(s, large, 2, exactly(player, s, s, 2));
    player.end_of_step();
    CHECK(player.past.records() <= records + 1);
  }
}

TEST_CASE("history: repetition takes no more memory, and 40 programs no more than 32") {
  for (std::uint64_t seed = 1; seed <= seeds(50); ++seed) {
    CAPTURE(seed);
    const step_script s = random_script(seed);
    history_player player;
    const auto sources = player.sources_of(s);
    for (int step = 1; step <= 4; ++step) player.play(s, sources);
    const std::size_t steady = player.past.footprint();
    for (int step = 5; step <= 30; ++step) {
      player.play(s, sources);
      CHECK(player.past.footprint() == steady);
    }
    CHECK(player.past.records() <= 2);
  }
  history_player player;
  std::size_t full = 0;
  for (std::uint64_t round = 1; round <= 3; ++round)
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      const step_script s = random_script(seed, std::to_string(seed));
      const auto sources = player.sources_of(s);
      player.play(s, sources);
      for (const tensor_id t : sources) player.drop(t);
      CHECK(player.past.records() == std::min<std::uint64_t>(32, 40 * (round - 1) + seed));
      if (round == 2) full = std::max(full, player.past.footprint());
    }
  CHECK(player.past.footprint() <= 2 * full);
}

TEST_CASE("history: of 33 programs the one that was of no use for longest is forgotten") {
  history_player player;
  std::vector<step_script> scripts;
  for (std::uint64_t seed = 1; seed <= 33; ++seed)
    scripts.push_back(random_script(seed, std::to_string(seed)));
  const auto play = [&](std::size_t which) {
    const auto sources = player.sources_of(scripts[which]);
    bool known = false;
    player.play(scripts[which], sources, 1, [&](std::size_t done, bool) {
      known = known || (done == 2 && player.past.follows() && player.past.position() == 2);
    });
    player.end_of_step();
    for (const tensor_id t : sources) player.drop(t);
    return known;
  };
  for (std::size_t i = 0; i < 32; ++i) play(i);
  CHECK(play(0));  // used again: the second is the oldest now
  CHECK(!play(32));
  CHECK(play(0));
  CHECK(play(2));
  CHECK(!play(1));
}
