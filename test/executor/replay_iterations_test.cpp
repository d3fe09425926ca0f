// Replays of several training steps: figures for each, a limit for each, and nothing that grows
// from one to the next.
// ctest-labels: slow
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "delta/presets.hpp"
#include "process.hpp"
#include "recordings.hpp"
#include "replay/replay_jobs.hpp"
#include "replay/replay_named.hpp"
#include "skip.hpp"
#include "trace/perturb.hpp"
#include "trace/repeat.hpp"

using namespace delta;
using namespace delta::executor;
using namespace delta::test;

namespace {

using verdict = replay_result::verdict;

/// A chain of `depth` operators forward, of 100 bytes and 100 ns each, and back, from a variable
/// that is updated in the end; `tail` follows.
trace chain(const std::string& tail, int depth = 8) {
  const auto n = [](int number) { return std::to_string(number); };
  std::string text = R"({"delta_trace":1})"
                     "\n"
                     R"({"variable":100,"name":"weight"})"
                     "\n"
                     R"({"constant":50,"name":"batch"})"
                     "\n";
  for (int i = 0; i < depth; ++i)
    text +=
        R"({"run":"forward","cost":100,"inputs":[0,)" + n(i + 1) + R"(],"outputs":[100]})" + "\n";
  int gradient = depth + 1;
  for (int i = depth; i > 0; --i, ++gradient) {
    text += R"({"run":"backward","cost":100,"inputs":[)" + n(i) + "," + n(gradient) +
            R"(],"outputs":[100]})" + "\n" + R"({"drop":)" + n(gradient) + "}\n";
    if (i > 1) text += R"({"drop":)" + n(i) + "}\n";
  }
  return parsed(text + R"({"run":"update","cost":10,"inputs":[)" + n(gradient) +
                R"(],"updates":[0]})" + "\n" + tail);
}
trace with_results() {
  return chain("");
}
trace with_end() {
  return chain(R"({"drop":1}
{"drop":17}
{"mark":"end_of_step"}
)");
}

replay_machine machine_for_part(const trace& t, double part) {
  const bytes peak = unmanaged_peak(t);
  return {.budget = bytes{std::uint64_t(double(peak.count) * part)},
          .host_budget = peak * 4,
          .rate_out = 2e9,
          .rate_in = 2e9,
          .thrash_limit = 4,
          .limit_steps = true};
}

/// Figures of steps add up to those of the whole, and the time of each is accounted for.
void check_sums(const replay_result& r) {
  step_figures sum;
  for (const step_figures& s : r.steps) {
    CHECK(s.time == s.unmanaged + s.recompute + s.stall);
    sum.time += s.time, sum.recompute += s.recompute, sum.stall += s.stall;
    sum.evaluations += s.evaluations, sum.walked += s.walked;
    sum.counts = difference(sum.counts, difference({}, s.counts));
  }
  CHECK(sum.time == r.time);
  CHECK(sum.recompute == r.recompute);
  CHECK(sum.stall == r.stall);
  CHECK(sum.evaluations == r.evaluations);
  CHECK(sum.walked == r.walked);
  CHECK(sum.counts.operators == r.counts.operators);
  CHECK(sum.counts.evictions == r.counts.evictions);
  CHECK(sum.counts.recomputes == r.counts.recomputes);
  CHECK(sum.counts.bytes_in == r.counts.bytes_in);
  CHECK(sum.counts.recompute_time == r.counts.recompute_time);
  CHECK(r.steps.back().peak == r.peak);
  CHECK(r.steps.back().host_peak == r.host_peak);
}

/// Behind each of ten steps there is what was there behind the first, and on the host no more than
/// what comes once.
void check_growth(const trace& t, const replay_machine& on) {
  const trace program = repeat_trace(t, 10);
  for (const std::string_view policy : {"dtr", "online"}) {
    CAPTURE(policy);
    const replay_result r = replay_named(policy, program, on);
    REQUIRE(r.result == verdict::pass);
    REQUIRE(r.steps.size() == 10);
    check_sums(r);
    const step_figures& first = r.steps.front();
    for (const step_figures& s : r.steps) {
      CHECK(s.live_tensors == first.live_tensors);
      CHECK(s.live_records == first.live_records);
      CHECK(s.device_after + s.host_after == first.device_after + first.host_after);
    }
  }
}

}  // namespace

TEST_CASE("one step: its figures are those of the replay") {
  for (const trace& t : {with_results(), with_end()}) {
    const replay_result r = replay_named("online", t, machine_for_part(t, 0.6));
    REQUIRE(r.result == verdict::pass);
    REQUIRE(r.steps.size() == 1);
    CHECK(r.steps[0].unmanaged == nanoseconds{1610});
    check_sums(r);
  }
}

TEST_CASE("the first of several steps is as the one of a trace that is replayed once") {
  const trace t = with_results();
  const replay_machine on = machine_for_part(t, 0.6);
  const replay_result once = replay_named("dtr", t, on);
  const replay_result often = replay_named("dtr", repeat_trace(t, 3), on);
  REQUIRE(once.result == verdict::pass);
  REQUIRE(often.steps.size() == 3);
  CHECK(often.steps[0].time == once.time);
  CHECK(often.steps[0].counts.recomputes == once.counts.recomputes);
  CHECK(once.counts.recomputes > 0);
}

TEST_CASE("nothing grows over ten steps") {
  for (const trace& t : {with_results(), with_end()}) check_growth(t, machine_for_part(t, 0.6));
  const char* const data = environment("DELTA_DATA");
  if (data == nullptr || *data == '\0') {
    skip("ten steps of a real model", "DELTA_DATA is not set");
    return;
  }
  const trace t = read_trace(std::filesystem::path(data) / "traces" / "resnet32.log.gz");
  for (const double part : {0.2, 0.5}) {
    replay_machine on = machine_for_part(t, part);
    on.rate_out = on.rate_in = 12e9;
    check_growth(t, on);
  }
}

TEST_CASE("a step that takes too long ends it, though all together would not") {
  const trace t = with_results();
  // The second of three steps is fifty times as fast on the device, its copies are not.
  trace program = repeat_trace(t, 3);
  const std::size_t per_step = program.operations.size() / 3;
  for (std::size_t i = per_step; i < 2 * per_step; ++i) program.operations[i].cost /= 50;
  replay_machine on = machine_for_part(t, 0.5);
  on.limit_steps = false;
  const replay_result all = replay_named("swap_lru", program, on);
  CHECK(all.result == verdict::pass);
  CHECK(all.steps.size() == 3);
  on.limit_steps = true;
  const replay_result each = replay_named("swap_lru", program, on);
  CHECK(each.result == verdict::thrash);
  REQUIRE(each.steps.size() == 2);
  CHECK(double(each.steps[1].time.count()) > 4 * double(each.steps[1].unmanaged.count()));
  CHECK(each.time == each.steps[0].time + each.steps[1].time);
}

TEST_CASE("a row for each iteration, up to the one that fails") {
  const trace t = with_results();
  const trace program = repeat_trace(t, 3);
  replay_job job{.subject = &program,
                 .name = "chain",
                 .unmanaged = unmanaged(program),
                 .policy = "online",
                 .machine = machine_for_part(t, 0.6),
                 .step = &t,
                 .perturbed_by = {.operators_faster = 2}};
  std::vector<replay_job> jobs(4, job);
  jobs[1].policy = "simrd:dtr";
  jobs[2].policy = "unmanaged";
  jobs[3].step = nullptr;
  const auto rows = replay_iterations(jobs);
  REQUIRE(rows.size() == 4);
  REQUIRE(rows[0].size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    const replay_row& r = rows[0][i];
    CHECK(r.iteration == i + 1);
    CHECK(r.result == "pass");
    CHECK(r.unmanaged_time_ns == 1610);
    CHECK(r.overhead == double(r.time_ns) / 1610);
    CHECK(r.bound_overhead == rows[0][0].bound_overhead);
    CHECK(r.operators_faster == 2);
    CHECK(r.live_tensors == 2);
    CHECK(r.live_records == 0);
    CHECK(*r.device_bytes_after + *r.host_bytes_after == 150);
  }
  REQUIRE(rows[1].size() == 1);
  CHECK(rows[1][0].unmanaged_time_ns == 1610);
  CHECK_FALSE(rows[1][0].live_tensors.has_value());
  REQUIRE(rows[2].size() == 1);
  CHECK(rows[2][0].result == "oom");
  CHECK(rows[2][0].error.has_value());
  REQUIRE(rows[3].size() == 1);
  CHECK(rows[3][0].iteration == 1);
  CHECK(rows[3][0].unmanaged_time_ns == 3 * 1610);
  CHECK(replay_jobs(jobs)[0].iteration == 3);
}
