// What a history says of steps that change: operators more or fewer, given up, another program.
// Unknown or right, from where the change is noticed.
#include <doctest/doctest.h>

#include <algorithm>
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

/// All forecasts are what the script says, as far as they are known. `done`: of its operators.
void check_known(const history_player& player, const step_script& s, std::size_t done,
                 std::uint64_t& known) {
  for (const auto& [value, t] : player.living) {
    CAPTURE(value);
    const forecast told = player.past.next_use(t);
    if (told.what == forecast::kind::unknown) continue;
    const forecast right = truth(s, value, done, false, s);
    if (told.what == forecast::kind::known && told.position >= s.length()) continue;
    REQUIRE(int(told.what) == int(right.what));
    if (right.what != forecast::kind::known) continue;
    ++known;
    REQUIRE(told.position == right.position);
    REQUIRE(told.in == doctest::Approx(right.in));
  }
}

void check_unknown(const history_player& player) {
  REQUIRE(!player.past.follows());
  for (const auto& [value, t] : player.living)
    REQUIRE(player.past.next_use(t).what == forecast::kind::unknown);
}

/// Operators that the script does not have, which read what lives.
void insert(history_player& player, int many, dice& roll) {
  for (int i = 0; i < many; ++i) {
    std::vector<tensor_id> read;
    for (const auto& [value, t] : player.living)
      if (roll.one_in(4)) read.push_back(t);
    for (const tensor_id t : player.operate("inserted " + std::to_string(i), read, {}, {8}))
      player.drop(t);
  }
}

/// The first `head` operators of `a`, then those of `b` from there on.
step_script joined(const step_script& a, std::size_t head, const std::string& tail) {
  step_script s = a;
  for (std::size_t i = head; i < s.length(); ++i) s.names[i] = tail + s.names[i];
  return s;
}

}  // namespace

TEST_CASE("history: a program that changes for good is unknown from there on, and known again") {
  for (std::uint64_t seed = 1; seed <= seeds(300); ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    const step_script a = random_script(seed);
    const std::size_t at = roll.below(a.length());
    const step_script b = joined(a, at, "changed ");
    history_player player;
    const auto sources = player.sources_of(a);
    player.play(a, sources), player.play(a, sources);
    std::uint64_t known = 0;
    player.play(b, sources, 1, [&](std::size_t done, bool running) {
      CAPTURE(done);
      const std::size_t different = done > at ? done - at : 0;
      if (different > detail::step_matcher::most_differing) return check_unknown(player);
      REQUIRE(player.past.follows());
      if (different == 0 && !running) check_known(player, a, done, known);
    });
    player.end_of_step();
    if (b.length() - at > detail::step_matcher::most_differing)
      CHECK(player.past.divergences() == 1);
    // The same again, and the first one again: both are there.
    for (const step_script* s : {&b, &a, &b, &b, &a}) {
      player.play(*s, sources, 1, [&](std::size_t done, bool running) {
        CAPTURE(done);
        REQUIRE(player.past.follows());
        REQUIRE(player.past.position() == done);
        if (!running && done > at) check_known(player, *s, done, known);
      });
      player.end_of_step();
    }
    CHECK(player.past.divergences() <= 1);
    CHECK(player.past.records() <= 4);
  }
}

TEST_CASE("history: up to eight operators more are passed over") {
  std::uint64_t known = 0;
  for (std::uint64_t seed = 1; seed <= seeds(300); ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    const step_script s = random_script(seed);
    history_player player;
    const auto sources = player.sources_of(s);
    player.play(s, sources), player.play(s, sources);
    const std::size_t every = 1 + roll.below(5);
    for (std::size_t i = 0; i < s.length(); ++i) {
      CAPTURE(i);
      if (i > 0 && i % every == 0) {
        insert(player, int(1 + roll.below(detail::step_matcher::most_differing)), roll);
        REQUIRE(player.past.follows());
        REQUIRE(player.past.position() == i);
        check_known(player, s, i, known);
      }
      player.play(s, sources, 1, unchecked, i, i + 1);
      REQUIRE(player.past.follows());
      REQUIRE(player.past.position() == i + 1);
      check_known(player, s, i + 1, known);
    }
    player.end_of_step();
    CHECK(player.past.divergences() == 0);
  }
  CHECK(known > 1000);
}

TEST_CASE("history: operators before the first one are passed over, too") {
  for (std::uint64_t seed = 1; seed <= seeds(100); ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    const step_script s = random_script(seed);
    history_player player;
    const auto sources = player.sources_of(s);
    player.play(s, sources), player.play(s, sources);
    for (int v = 0; v < s.what.sources(); ++v) player.living[v] = sources[std::size_t(v)];
    insert(player, int(1 + roll.below(detail::step_matcher::most_differing)), roll);
    REQUIRE(player.past.follows());
    std::uint64_t known = 0;
    player.play(s, sources, 1, [&](std::size_t done, bool running) {
      CAPTURE(done);
      REQUIRE(player.past.follows());
      REQUIRE(player.past.position() == done);
      if (!running) check_known(player, s, done, known);
    });
    player.end_of_step();
    CHECK(player.past.divergences() == 0);
  }
}

TEST_CASE("history: the ninth operator more in a row is one too many") {
  for (std::uint64_t seed = 1; seed <= seeds(100); ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    const step_script s = random_script(seed);
    history_player player;
    const auto sources = player.sources_of(s);
    player.play(s, sources), player.play(s, sources);
    const std::size_t at = roll.below(s.length());
    player.play(s, sources, 1, unchecked, 0, at);
    if (at == 0) player.living.clear();
    insert(player, 8, roll);
    CHECK(player.past.follows());
    insert(player, 1, roll);
    check_unknown(player);
    if (at > 0) player.play(s, sources, 1, unchecked, at);
    check_unknown(player);
    player.end_of_step();
    CHECK(player.past.follows());
  }
}

TEST_CASE("history: up to eight operators fewer are passed over, and those that made something") {
  for (std::uint64_t seed = 1; seed <= seeds(200); ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    constexpr int length = 40;
    history_player player;
    std::vector<tensor_id> weights;
    for (int i = 0; i < length; ++i) weights.push_back(player.make(16));
    const tensor_id images = player.make(32);
    const auto step = [&](int skip_from, int skip_to, const auto& check) {
      std::vector<tensor_id> made;
      for (int i = 0; i < length; ++i) {
        if (i >= skip_from && i < skip_to) continue;
        const tensor_id x = i == 0 || i >= 20 ? images : made[std::size_t(i) / 2];
        const std::vector<tensor_id> read{weights[std::size_t(i)], x};
        for (const tensor_id t :
             player.operate("layer " + std::to_string(i % 12), read, {}, {8}, 0, i + 1))
          made.push_back(t);
        check(i);
      }
      for (const tensor_id t : made) player.drop(t);
      player.end_of_step();
    };
    const auto anything = [](int) {};
    step(length, length, anything), step(length, length, anything);
    const int from = int(20 + roll.below(5)), many = int(1 + roll.below(8));
    step(from, from + many, [&](int i) {
      CAPTURE(i);
      REQUIRE(player.past.follows());
      REQUIRE(player.past.position() == std::uint32_t(i + 1));
      if (i + 1 == from || i + 1 == length) return;
      const forecast next = player.past.next_use(weights[std::size_t(i) + 1]);
      REQUIRE(int(next.what) == int(forecast::kind::known));
      REQUIRE(next.position == std::uint32_t(i + 1));
      REQUIRE(next.in == 0);
    });
    CHECK(player.past.divergences() == 0);
  }
}

TEST_CASE("history: what is overdue is unknown") {
  history_player player;
  const tensor_id a = player.make(8), b = player.make(8);
  const auto step = [&](bool skips, bool holds) {
    const tensor_id x = player.operate("first", {a}, {}, {8})[0];
    if (!skips) player.operate("second", {b, x}, {}, {});
    player.operate("third", {a}, {}, {});
    if (skips) CHECK(player.past.next_use(b).what == forecast::kind::unknown);
    if (!holds) player.drop(x);
    player.operate("fourth", {a}, {}, {});
    if (holds) CHECK(player.past.next_use(x).what == forecast::kind::unknown);
    player.operate("fifth", {a}, {}, {});
    if (holds) player.drop(x);
    player.end_of_step();
  };
  step(false, false), step(false, false);
  CHECK(player.past.next_use(b).what == forecast::kind::known);
  step(true, false);
  step(false, false);
  step(false, true);
}

TEST_CASE("history: what no step uses any more is not expected for ever") {
  history_player player;
  const tensor_id a = player.make(8), b = player.make(8);
  for (int step = 1; step <= 6; ++step) {
    player.operate("first", {a}, {}, {});
    if (step < 3) player.operate("second", {b}, {}, {});
    player.operate("third", {a}, {}, {});
    player.end_of_step();
    if (step == 2) CHECK(player.past.next_use(b).what == forecast::kind::known);
    if (step > 2) CHECK(player.past.next_use(b).what == forecast::kind::unknown);
    CHECK(player.past.next_use(a).position == 0);
  }
}

TEST_CASE("history: an operator given up and tried again leaves no trace") {
  for (std::uint64_t seed = 1; seed <= seeds(200); ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    const step_script s = random_script(seed);
    history_player player;
    const auto sources = player.sources_of(s);
    player.play(s, sources);
    std::uint64_t known = 0;
    for (int step = 2; step <= 4; ++step) {
      for (std::size_t i = 0; i < s.length(); ++i) {
        CAPTURE(i);
        if (i == 0)
          for (int v = 0; v < s.what.sources(); ++v) player.living[v] = sources[std::size_t(v)];
        for (std::uint64_t tries = roll.below(12); tries-- > 0;) {
          const program::op& o = s.what.ops[i];
          std::vector<tensor_id> in, out;
          for (const int v : o.inputs) in.push_back(player.living.at(v));
          for (const int v : o.updates) out.push_back(player.living.at(v));
          // The same, or another one.
          player.begin(roll.one_in(2) ? s.names[i] : "given up", in, out);
          for (const auto& [value, t] : player.living) (void)player.past.next_use(t);
          player.past.abort();
          REQUIRE(player.past.follows());
          REQUIRE(player.past.position() == i);
          check_known(player, s, i, known);
        }
        player.play(s, sources, 1, unchecked, i, i + 1);
        REQUIRE(player.past.position() == i + 1);
      }
      player.end_of_step();
    }
    CHECK(known > 0);
    CHECK(player.past.records() == 1);
    CHECK(player.past.divergences() == 0);
  }
}

TEST_CASE("history: the end of a step without operators is none") {
  history_player player;
  player.past.end_of_step(nanoseconds{5}, detail::graph{});
  CHECK(player.past.steps() == 0);
  CHECK(player.past.records() == 0);
  const step_script s = random_script(1);
  const auto sources = player.sources_of(s);
  player.play(s, sources);
  const std::uint32_t length = player.past.last().length();
  player.past.end_of_step(nanoseconds{1000000}, detail::graph{});
  CHECK(player.past.steps() == 1);
  CHECK(player.past.last().length() == length);
  CHECK(player.past.follows());
}

TEST_CASE("history: a preloaded step is followed by one whose operators have no names") {
  for (std::uint64_t seed = 1; seed <= seeds(200); ++seed) {
    CAPTURE(seed);
    step_script s = random_script(seed);
    history_player teacher, pupil;
    const auto there = teacher.sources_of(s);
    teacher.play(s, there), teacher.play(s, there);
    s.names.assign(s.length(), "");
    const auto here = pupil.sources_of(s);
    // Sources are numbered as they are met: here, as they are used first.
    std::vector<tensor_id> met(teacher.past.last().storages.size(), tensor_id::none);
    std::vector<int> order;
    for (std::size_t i = 0; i < s.length(); ++i)
      for (const auto* list : {&s.what.ops[i].inputs, &s.what.ops[i].updates})
        for (const int v : *list)
          if (v < s.what.sources() && std::ranges::find(order, v) == order.end())
            order.push_back(v);
    for (std::uint32_t l = 0, next = 0; l < met.size(); ++l)
      if (const auto& x = teacher.past.last().storages[l];
          x.born == step_record::none && x.uses > 0)
        met[l] = here[std::size_t(order[next++])];
    pupil.past.preload(teacher.past.last(), met);
    for (const int v : order) {
      const forecast told = pupil.past.next_use(here[std::size_t(v)]);
      CHECK(told.what == forecast::kind::known);
      CHECK(told.position == s.use_from(0, v));
    }
    CHECK(pupil.past.records() == 1);
    CHECK(pupil.past.followed().peak == teacher.past.followed().peak);
    std::uint64_t known = 0;
    pupil.play(s, here, 1, [&](std::size_t done, bool running) {
      REQUIRE(pupil.past.follows());
      REQUIRE(pupil.past.position() == done);
      if (!running) check_known(pupil, s, done, known);
    });
    pupil.end_of_step();
    CHECK(pupil.past.records() == 1);
    CHECK(known > 0);
    pupil.past.preload(step_record{});  // nothing to learn
    CHECK(pupil.past.records() == 1);
  }
}

TEST_CASE("history: of records that begin as the step does it takes the one of the same sizes") {
  history_player player;
  const tensor_id a = player.make(8);
  const auto step = [&](std::uint64_t size, const char* second) {
    if (player.past.follows()) CHECK(player.past.stands_for(a) == 0);
    const tensor_id x = player.operate("first", {a}, {}, {size})[0];
    player.begin(second, {x}, {});
    const std::uint64_t taken =
        player.past.follows() ? player.past.followed().storages[1].size.count : 0;
    player.end({});
    CHECK(player.past.storage_of(x) == (player.past.follows() ? 1 : step_record::none));
    player.drop(x);
    player.end_of_step();
    return taken;
  };
  step(8, "one"), step(16, "one");
  step(8, "other");
  step(16, "one");
  step(8, "other");
  const std::uint64_t before = player.past.forecasts();
  CHECK(step(8, "one") == 8);
  CHECK(player.past.forecasts() > before + 1);  // another record was taken up within the step
  CHECK(player.past.divergences() == 0);
}

namespace {

// A history that is told of tensors of a graph, so of what no operator touches, too.
struct recorded {
  detail::graph g;
  detail::step_recorder past;

  tensor_id make(bytes size, pin pinned = pin::none) {
    const tensor_id t = g.add_tensor(size, size);
    g[t].pinned = pinned;
    past.created(t, size, false, false);
    return t;
  }
  void drop(tensor_id t) {
    past.dropped(t, g[t]);
    g[t].references = 0;
  }
  void begin(const char* name, const std::vector<tensor_id>& inputs, nanoseconds clock = {}) {
    past.begin(name, inputs, inputs.size(), clock, g);
  }
  void end(const std::vector<tensor_id>& made, bytes workspace = {},
           const std::vector<detail::replaced_input>& replaced = {}) {
    past.end(made, workspace, trait::pure, 1, g, 0, replaced);
  }
};

}  // namespace

TEST_CASE("history: a record says what was held untouched, and what was dropped, and when") {
  recorded it;
  const tensor_id x = it.make(8_B), y = it.make(16_B), z = it.make(32_B),
                  constant = it.make(64_B, pin::both);
  it.begin("first", {x}, nanoseconds{500});
  CHECK(it.past.began() == 500);  // whatever was before is no part of the step
  it.end({});
  // What the program did within an operator that was given up it did before that.
  it.begin("given up", {x, y});
  it.drop(x), it.drop(y);
  it.past.abort();
  it.drop(z);
  it.begin("second", {});
  it.end({});
  it.past.end_of_step(nanoseconds{600}, it.g);
  CHECK(it.past.last_took() == 100);
  const step_record& r = it.past.last();
  REQUIRE(r.storages.size() == 4);
  for (const step_record::storage& s : r.storages) {
    CAPTURE(index(s.tensor));
    CHECK(s.dropped == (s.tensor != constant));
    CHECK(s.died == (s.tensor != constant ? 0 : step_record::none));
    CHECK(s.pinned == (s.tensor == constant));
  }
  REQUIRE(r.changes.size() == 3);
  for (const step_record::change& c : r.changes) CHECK(c.at == 1);
}

TEST_CASE("history: what an operator made in the block of an input counts once") {
  recorded it;
  const tensor_id x = it.make(8_B);
  it.begin("in place", {x});
  const tensor_id y = it.make(8_B);
  it.end({y}, 4_B, {{x, 0}});
  it.drop(x);
  it.past.end_of_step({}, it.g);
  CHECK(it.past.last().peak == 12);
}
