// The smallest budget that keeps to an overhead: what it says is what its curve says, the grid is
// as fine as promised, and nothing below it can be had.
// ctest-labels: long_sanitized
#include "replay/find_budget.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "replay/budget_report.hpp"
#include "replay/least_budget.hpp"
#include "replay/replay_jobs.hpp"
#include "trace/file.hpp"
#include "traces/bound.hpp"

using namespace delta;
using namespace delta::executor;

namespace {

std::string numbers(std::initializer_list<std::size_t> list) {
  std::string text;
  for (const std::size_t n : list) text += (text.empty() ? "" : ",") + std::to_string(n);
  return text;
}

/// A network of `depth` operators forward, each result read by the next, by one later, and by its
/// own way back. Sizes (up to 2 MB) and times (up to 1 ms) differ by the seed.
trace network(std::size_t depth, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t limit) { return std::size_t(random() % limit); };
  std::string text = "{\"delta_trace\":1}\n{\"constant\":100000}\n";
  const auto operation = [&](const std::string& inputs) {
    // Drawn in this order under every compiler.
    const std::size_t size = 1 + below(2'000'000), cost = 1000 + below(1'000'000);
    text += R"({"run":"layer","cost":)" + std::to_string(cost) + R"(,"inputs":[)" + inputs +
            R"(],"outputs":[)" + std::to_string(size) + "]}\n";
  };
  const auto drop = [&](std::size_t tensor) {
    text += R"({"drop":)" + std::to_string(tensor) + "}\n";
  };
  for (std::size_t i = 0; i < depth; ++i)
    operation(i == 0 ? "0" : numbers({i, std::min(i - 1, below(depth))}));
  text += "{\"mark\":\"backward\"}\n";
  for (std::size_t i = depth, gradient = depth; i-- > 0; ++gradient) {
    operation(numbers({i, gradient}));
    drop(gradient);
    if (i > 0) drop(i);
  }
  return parse_trace(text, "network");
}

budget_question question_of(const trace& t, double max_overhead) {
  return {.machine = {.host_budget = unmanaged_peak(t) * 4, .rate_out = 2e9, .rate_in = 2e9},
          .max_overhead = max_overhead};
}

const std::vector<std::string> policies{"unmanaged", "paper", "dtr", "online", "simrd:dtr"};

/// Everything that `a` says, from its curve alone.
void check_answer(const budget_answer& a, const trace& t) {
  const auto peak = unmanaged_peak(t);
  REQUIRE(!a.curve.empty());
  CHECK(a.curve.front().budget_bytes == least_budget(t).count);
  CHECK(a.curve.back().budget_bytes == peak.count);
  std::vector<std::size_t> keeping;
  for (std::size_t i = 0; i < a.curve.size(); ++i) {
    const replay_row& r = a.curve[i];
    if (i > 0) CHECK(a.curve[i - 1].budget_bytes < r.budget_bytes);
    CHECK(r.policy == a.policy);
    CHECK(r.max_overhead == a.max_overhead);
    CHECK(r.keeps == (r.result == "pass" && r.overhead <= a.max_overhead));
    CHECK(r.bound_overhead.has_value());
    if (*r.keeps) keeping.push_back(i);
  }
  CHECK(a.smallest.has_value() == !keeping.empty());
  if (keeping.empty()) {
    CHECK_FALSE(a.safe.has_value());
    CHECK(a.holes == 0);
    return;
  }
  CHECK(*a.smallest == keeping.front());
  CHECK(a.holes == a.curve.size() - keeping.front() - keeping.size());
  CHECK(a.safe.has_value() == *a.curve.back().keeps);
  if (a.safe) {
    CHECK((*a.safe == *a.smallest) == (a.holes == 0));
    CHECK(a.curve.size() - *a.safe <= keeping.size());
    CHECK((*a.safe == 0 || !*a.curve[*a.safe - 1].keeps));
    for (std::size_t i = *a.safe; i < a.curve.size(); ++i) CHECK(*a.curve[i].keeps);
  }
  if (*a.smallest > 0) {
    const auto gap = a.curve[*a.smallest].budget_bytes - a.curve[*a.smallest - 1].budget_bytes;
    CHECK(double(gap) <= 0.005 * double(peak.count) + 1);
  }
}

}  // namespace

TEST_CASE("random networks: every answer is that of its curve, and 64 budgets are tried") {
  std::size_t holes = 0, none = 0, found = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const trace t = network(12, seed);
    for (const double most : {1.0, 1.1, 1.5}) {
      CAPTURE(seed);
      CAPTURE(most);
      const auto answers = find_budgets(t, policies, question_of(t, most));
      REQUIRE(answers.size() == policies.size());
      for (std::size_t i = 0; i < answers.size(); ++i) {
        CAPTURE(policies[i]);
        CHECK(answers[i].policy == policies[i]);
        CHECK(answers[i].max_overhead == most);
        CHECK(answers[i].curve.size() >= 64);
        CHECK(answers[i].curve.size() <= 64 + 4);
        check_answer(answers[i], t);
        holes += answers[i].holes;
        ++(answers[i].smallest ? found : none);
      }
    }
  }
  // The cases that matter did occur.
  CHECK(holes > 0);
  CHECK(none > 0);
  CHECK(found > 0);
}

TEST_CASE("the unmanaged policy needs the unmanaged peak, and no less was found") {
  const trace t = network(10, 3);
  const budget_answer a = find_budget(t, "unmanaged", question_of(t, 1.0));
  REQUIRE(a.smallest.has_value());
  CHECK(a.curve[*a.smallest].budget_bytes == unmanaged_peak(t).count);
  CHECK(a.curve[*a.smallest].overhead == 1.0);
  CHECK(a.safe == a.smallest);
}

TEST_CASE("one policy, or several at once: the same answer") {
  const trace t = network(12, 7);
  const budget_question question = question_of(t, 1.2);
  const auto together = find_budgets(t, policies, question);
  for (const budget_answer& a : together) {
    const budget_answer alone = find_budget(t, a.policy, question);
    CHECK(alone.smallest == a.smallest);
    CHECK(alone.safe == a.safe);
    REQUIRE(alone.curve.size() == a.curve.size());
    for (std::size_t i = 0; i < a.curve.size(); ++i) {
      CHECK(alone.curve[i].budget_bytes == a.curve[i].budget_bytes);
      CHECK(alone.curve[i].time_ns == a.curve[i].time_ns);
    }
  }
}

TEST_CASE("the least budget: with a byte less every policy is out of memory") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const trace t = network(8, seed);
    const unmanaged_cost cost = unmanaged(t);
    replay_machine machine = question_of(t, 2).machine;
    machine.budget = bytes{least_budget(t).count - 1};
    std::vector<replay_job> jobs;
    jobs.reserve(policies.size());
    for (const std::string& policy : policies)
      jobs.push_back({&t, "network", cost, policy, machine, {}});
    for (const replay_row& r : replay_jobs(jobs)) CHECK_MESSAGE(r.result == "oom", r.policy);
  }
}

TEST_CASE("the least budget counts constants while they are held, workspace, and results") {
  const auto least = [](const std::string& events) {
    return least_budget(parse_trace("{\"delta_trace\":1}\n" + events, "text"));
  };
  const std::string constant = "{\"constant\":100}\n";
  CHECK(least("") == bytes{});
  CHECK(least(constant) == bytes{100});
  const std::string run = R"({"run":"a","inputs":[0,0],"outputs":[7,{"view_of":0}],"workspace":5})"
                          "\n";
  CHECK(least(constant + run) == bytes{112});
  CHECK(least("{\"variable\":100}\n" + run) == bytes{112});
  CHECK(least(constant + run + "{\"constant\":50}\n") == bytes{157});
  // A view keeps its base; without either the constant is gone.
  CHECK(least(constant + run + "{\"drop\":0}\n{\"constant\":50}\n") == bytes{157});
  CHECK(least(constant + run + "{\"drop\":0}\n{\"drop\":2}\n{\"constant\":50}\n") == bytes{112});
  const std::string two = "{\"variable\":30}\n{\"variable\":40}\n";
  CHECK(least(two) == bytes{70});
  // After the end of a step there are no results; what the program reads has to be there.
  const std::string end = R"({"mark":"end_of_step"}
)";
  CHECK(least(two + end) == bytes{});
  CHECK(least(constant + two + R"({"read":2}
)" + end) == bytes{140});
  CHECK(least_budget(parse_trace(R"({"delta_trace":1,"granularity":64}
)" + two,
                                 "text")) == bytes{128});
}

TEST_CASE("an empty trace needs nothing") {
  const trace t = parse_trace("{\"delta_trace\":1}\n", "empty");
  const budget_answer a = find_budget(t, "online", {});
  REQUIRE(a.curve.size() == 1);
  CHECK(a.smallest == 0);
  CHECK(a.safe == 0);
  CHECK(a.curve.front().budget_bytes == 0);
}

TEST_CASE("a bound is that of its trace, budget and rates, whoever else is asked") {
  const trace first = network(10, 1), second = network(10, 2);
  std::vector<replay_job> jobs;
  for (const trace* t : {&first, &second}) {
    for (const double rate : {1e9, 4e9}) {
      for (const double part : {0.05, 0.4, 0.4, 0.7}) {
        replay_machine m = question_of(*t, 2).machine;
        m.budget = bytes{std::uint64_t(part * double(unmanaged_peak(*t).count))};
        m.rate_out = m.rate_in = rate;
        for (const char* policy : {"dtr", "simrd:lru"})
          jobs.push_back({t, "network", unmanaged(*t), policy, m, part});
      }
    }
  }
  const auto rows = replay_jobs(jobs);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const replay_machine& m = jobs[i].machine;
    const double bound = lower_bound(*jobs[i].subject, {m.budget, m.rate_out, m.rate_in});
    CHECK(rows[i].bound_overhead.value_or(std::numeric_limits<double>::infinity()) == bound);
    CHECK(rows[i].ratio == jobs[i].ratio);
  }
}

TEST_CASE("the table: the best is marked, none says so, holes are explained") {
  const trace t = network(12, 5);
  const auto text = [&](const std::vector<std::string>& list, double most) {
    std::ostringstream out;
    print_answers(out, find_budgets(t, list, question_of(t, most)));
    return out.str();
  };
  const std::string good = text({"unmanaged", "online"}, 1.5);
  CHECK(good.starts_with("trace: unmanaged "));
  CHECK(good.find("\nsmallest budgets with an overhead of at most 1.500x\n") != std::string::npos);
  CHECK(good.find("\nonline (best)  ") != std::string::npos);
  CHECK(good.find("\nunmanaged      ") != std::string::npos);
  CHECK(good.find("no budget") == std::string::npos);
  CHECK(std::ranges::count(good, '\n') == 2 + 1 + 2 + 1 + 1 + 16);
  // The trace's own peak is 1.0; the paper's early start costs more than that everywhere.
  const std::string none = text({"paper"}, 1.0);
  CHECK(none.find("\npaper       none ") != std::string::npos);
  CHECK(none.find("\nno budget that was tried keeps to it\n") != std::string::npos);
}
