// The rules of a trace, and what is known of one that keeps them.
#include "traces/trace.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "random_trace.hpp"

using namespace delta;
using namespace delta::test;

namespace {

using kind = trace::kind;

/// A variable of 8 bytes; f reads it, makes 4 bytes and a view of the variable, updates it.
trace small() {
  trace t;
  t.names = {"f"};
  t.tensors = {
      {.size = bytes{8}}, {.size = bytes{4}, .producer = 0}, {.view_of = 0, .producer = 0}};
  t.lists = {0, 1, 2, 0};
  t.operations = {{.name = 0,
                   .cost = nanoseconds{5},
                   .first = 0,
                   .inputs = 1,
                   .outputs = 2,
                   .updates = 1,
                   .workspace = bytes{100}}};
  t.events = {{kind::variable, 0}, {kind::run, 0}};
  return t;
}

std::string why_bad(const trace& t) {
  try {
    check(t);
  } catch (const bad_trace& bad) {
    const std::string line = bad.what();
    CHECK(bad.file().empty());
    CHECK(bad.line == 0);
    CHECK(line.starts_with("trace, event " + std::to_string(bad.event) + ": "));
    return line.substr(std::string("trace, event ").size());
  }
  return "kept";
}

/// The small trace after `change`.
std::string why_broken(auto&& change) {
  trace t = small();
  change(t);
  return why_bad(t);
}

}  // namespace

TEST_CASE("the lists of an operation") {
  const trace t = small();
  const auto& o = t.operations[0];
  CHECK(t.name(o) == "f");
  CHECK(t.inputs(o).size() == 1);
  CHECK(t.outputs(o)[1] == 2);
  CHECK(t.updates(o)[0] == 0);
}

TEST_CASE("traces that keep the rules") {
  CHECK(why_bad(trace{}) == "kept");
  CHECK(why_bad(small()) == "kept");
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    CHECK(why_bad(random_trace(seed, 300).take()) == "kept");
  }
}

TEST_CASE("each rule, broken") {
  const std::string not_held =
      "a tensor that nothing holds; expected: one that was made and not dropped since";
  const std::string order =
      "a tensor made out of its order; expected: tensors by number, each once";
  const std::string operations =
      "an operation out of its order; expected: operations by number, each once";
  const auto event = [](kind what, std::uint32_t index) {
    return [=](trace& t) { t.events.push_back({what, index}); };
  };
  CHECK(why_broken(event(kind::share, 3)) == "2: " + not_held);
  CHECK(why_broken(event(kind::drop, trace::none)) == "2: " + not_held);
  CHECK(why_broken(event(kind::read, 3)) == "2: " + not_held);
  CHECK(why_broken(event(kind::write, 3)) == "2: " + not_held);
  CHECK(why_broken(event(kind::run, 0)) == "2: " + operations);
  CHECK(why_broken(event(kind::run, 1)) == "2: " + operations);
  CHECK(why_broken(event(kind::constant, 0)) == "2: " + order);
  CHECK(why_broken(event(kind::constant, 3)) == "2: " + order);
  CHECK(why_broken(event(kind::backward, 1)) == "2: a mark with an index; expected: the index 0");
  CHECK(why_broken(event(static_cast<kind>(9), 0)) ==
        "2: an event of no known kind; expected: one of delta::trace::kind");
  CHECK(why_broken([](trace& t) { t.events[0].index = 1; }) == "0: " + order);
  CHECK(why_broken([](trace& t) { t.events.erase(t.events.begin()); }) == "0: " + not_held);
  CHECK(why_broken([](trace& t) { t.tensors[0].producer = 0; }) ==
        "0: a constant or variable with a producer, or that is a view; expected: neither");
  CHECK(why_broken([](trace& t) { t.tensors[0].view_of = 0; }) ==
        "0: a constant or variable with a producer, or that is a view; expected: neither");

  const auto operation = [](auto&& change) {
    return why_broken([&](trace& t) { change(t.operations[0]); });
  };
  CHECK(operation([](auto& o) { o.name = 1; }) ==
        "1: an operation's name outside `names`; expected: an index into it");
  CHECK(operation([](auto& o) { o.first = 5; }) ==
        "1: an operation's lists outside `lists`; expected: a range within it");
  CHECK(operation([](auto& o) { o.inputs = o.outputs = o.updates = trace::none; }) ==
        "1: an operation's lists outside `lists`; expected: a range within it");
  CHECK(operation([](auto& o) { o.traits = static_cast<trait>(16); }) ==
        "1: an unknown trait; expected: random, effect_once, never_replay, asynchronous");
  CHECK(operation([](auto& o) { o.cost = nanoseconds{-1}; }) ==
        "1: a negative cost; expected: 0 ns or more");
  CHECK(operation([](auto& o) { o.workspace = bytes{std::uint64_t{1} << 63}; }) ==
        "1: sizes beyond 63 bits; expected: less in all");
  CHECK(why_broken([](trace& t) {
          t.operations.push_back({.cost = nanoseconds::max()});
          t.events.push_back({kind::run, 1});
        }) == "2: costs beyond 63 bits; expected: less in all");

  const auto entry = [](std::size_t at, std::uint32_t value) {
    return [=](trace& t) { t.lists[at] = value; };
  };
  CHECK(why_broken(entry(0, 1)) == "1: " + not_held);
  CHECK(why_broken(entry(1, 0)) == "1: " + order);
  CHECK(why_broken(entry(2, 3)) == "1: " + order);
  CHECK(why_broken(entry(3, 2)) == "1: " + not_held);
  CHECK(why_broken([](trace& t) {
          t.lists.push_back(0);
          t.operations[0].updates = 2;
        }) == "1: a tensor that one operation updates twice; expected: each once");
  CHECK(why_broken([](trace& t) { t.tensors[1].producer = trace::none; }) ==
        "1: an output whose producer is another; expected: the operation that makes it");
  CHECK(why_broken([](trace& t) { t.tensors[2].view_of = 1; }) ==
        "1: a view of what its operation does not touch; expected: one of its inputs or updates");
  CHECK(why_broken([](trace& t) { t.tensors[2].view_of = 2; }) ==
        "1: a view of what its operation does not touch; expected: one of its inputs or updates");
  CHECK(why_broken([](trace& t) { t.tensors[2].size = bytes{1}; }) ==
        "1: a view with bytes of its own; expected: size 0");
  CHECK(why_broken([](trace& t) {
          t.tensors[1].size = bytes{std::numeric_limits<std::int64_t>::max()};
        }) == "1: sizes beyond 63 bits; expected: less in all");
  CHECK(why_broken([](trace& t) {
          t.recorded_on = {.granularity = std::uint64_t{1} << 32};
          t.tensors[1].size = bytes{std::uint64_t(std::numeric_limits<std::int64_t>::max()) - 200};
        }) == "1: sizes beyond 63 bits; expected: less in all");

  CHECK(why_broken([](trace& t) { t.tensors.emplace_back(); }) ==
        "2: a tensor that no event makes; expected: one event for each tensor");
  CHECK(why_broken([](trace& t) { t.operations.emplace_back(); }) ==
        "2: an operation that no event runs; expected: one event for each operation");
  const auto origin = [](const trace_origin& where) {
    return why_broken([&](trace& t) { t.recorded_on = where; });
  };
  const std::string rate = "2: a copy rate beyond 63 bits; expected: less";
  CHECK(origin({.rate_in = std::uint64_t{1} << 63}) == rate);
  CHECK(origin({.rate_out = std::uint64_t{1} << 63}) == rate);
  CHECK(origin({.rate_move = std::uint64_t{1} << 63}) == rate);
  CHECK(origin({.latency = nanoseconds{-1}}) == "2: a negative latency; expected: 0 ns or more");
  const std::string granularity =
      "2: a granularity that is no power of two; expected: one of at most 2^32";
  CHECK(origin({.granularity = 48}) == granularity);
  CHECK(origin({.granularity = std::uint64_t{1} << 33}) == granularity);
  CHECK(origin({.latency = nanoseconds{}, .granularity = std::uint64_t{1} << 32}) == "kept");
}

TEST_CASE("names are those of constants and variables") {
  CHECK(why_broken([](trace& t) { t.tensors[0].name = 0; }) == "kept");
  CHECK(why_broken([](trace& t) { t.tensors[0].name = 1; }) ==
        "0: a tensor's name outside `names`; expected: an index into it");
  CHECK(why_broken([](trace& t) { t.tensors[1].name = 0; }) ==
        "1: a name of what an operation makes; expected: none: it has the operation's");
}

TEST_CASE("anything may be read, and what no operation of the step has made may be written") {
  const auto more = [](std::vector<trace::event> events) {
    return why_broken(
        [&](trace& t) { t.events.insert(t.events.end(), events.begin(), events.end()); });
  };
  const std::string made =
      ": a write to what an operation of this step made; expected: a constant, a variable, or what "
      "an earlier step left";
  CHECK(more({{kind::read, 0}, {kind::read, 1}, {kind::read, 2}, {kind::write, 0}}) == "kept");
  CHECK(more({{kind::write, 1}}) == "2" + made);
  CHECK(more({{kind::write, 2}}) == "kept");  // a view of the variable
  CHECK(more({{kind::end_of_step, 0}, {kind::write, 1}}) == "kept");
  CHECK(more({{kind::drop, 1}, {kind::read, 1}}) ==
        "3: a tensor that nothing holds; expected: one that was made and not dropped since");
}

TEST_CASE("what is held behind the end of a step is no result") {
  trace t = small();
  CHECK(t.has_results());
  CHECK(trace{}.has_results());
  t.events.push_back({kind::end_of_step, 0});
  CHECK_FALSE(t.has_results());
  t.events.push_back({kind::drop, 1});
  CHECK(t.has_results());
}

TEST_CASE("references: as many drops as there are references, and none after the last") {
  trace t = small();
  t.events.insert(t.events.end(), {{kind::share, 2}, {kind::drop, 2}, {kind::drop, 2}});
  CHECK(why_bad(t) == "kept");
  t.events.push_back({kind::share, 2});
  CHECK(why_bad(t) ==
        "5: a tensor that nothing holds; expected: one that was made and not dropped since");
}

TEST_CASE("time and peak of the unmanaged run") {
  trace t = small();
  CHECK(total_cost(t) == nanoseconds{5});
  CHECK(unmanaged_peak(t) == bytes{112});
  t.recorded_on = {.granularity = 64};
  CHECK(unmanaged_peak(t) == bytes{64 + 64 + 128});
  CHECK(t.rounded(bytes{65}) == bytes{128});
  t.recorded_on = {.granularity = 1};
  CHECK(unmanaged_peak(t) == bytes{112});
  t.recorded_on.reset();
  t.operations[0].workspace = {};
  CHECK(unmanaged_peak(t) == bytes{12});

  // The variable's bytes stay while its view lives, and go with it.
  const auto peak_with_ten_more = [&](std::vector<trace::event> before) {
    trace more = t;
    more.events.insert(more.events.end(), before.begin(), before.end());
    more.tensors.push_back({.size = bytes{10}});
    more.events.push_back({kind::constant, 3});
    check(more);
    return unmanaged_peak(more).count;
  };
  CHECK(peak_with_ten_more({}) == 22);
  CHECK(peak_with_ten_more({{kind::drop, 1}}) == 18);
  CHECK(peak_with_ten_more({{kind::drop, 0}}) == 22);
  CHECK(peak_with_ten_more({{kind::drop, 0}, {kind::drop, 2}}) == 14);
  CHECK(peak_with_ten_more({{kind::share, 2}, {kind::drop, 0}, {kind::drop, 2}}) == 22);
}
