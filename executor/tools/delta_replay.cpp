// delta-replay: replays recorded training steps with policies and budgets, in virtual time.
// Results go to stdout and --json, errors to stderr, in one line each.
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "cli/output_file.hpp"
#include "cli/own_policy_file.hpp"
#include "peers/offline_plan.hpp"
#include "replay/budget_report.hpp"
#include "replay/find_budget.hpp"
#include "replay/replay_jobs.hpp"
#include "replay/replay_options.hpp"
#include "replay/replay_report.hpp"
#include "replay/replay_runs.hpp"
#include "trace/plan_file.hpp"
#include "traces/trace.hpp"

namespace {

using namespace delta::executor;

constexpr int exit_failure = 1;
constexpr int exit_usage = 2;

int complain(std::string_view line, int code) {
  std::cerr << "delta-replay: " << line << std::endl;
  return code;
}

void replay(std::span<const named_trace> traces, const replay_options& options) {
  live_file timeline("--timeline", options.timeline);
  live_file decisions("--decisions", options.decisions);
  const bool saves = !options.plan_out.empty();
  offline_plan plan;
  const auto by_trace = replay_all(traces, options,
                                   {.timeline = timeline.stream(),
                                    .decisions = decisions.stream(),
                                    .plan = saves ? &plan : nullptr});
  timeline.finish();
  decisions.finish();
  if (!options.json.empty()) {
    std::vector<replay_row> all;
    for (const auto& rows : by_trace) all.insert(all.end(), rows.begin(), rows.end());
    write_rows(all, options.json);
  }
  for (const auto& rows : by_trace) {
    if (&rows != &by_trace.front()) std::cout << '\n';
    print_rows(std::cout, rows, options.iterations);
  }
  if (!saves) return;
  if (plan.operators == 0)
    throw std::runtime_error(
        "--plan-out: the last step followed no plan: everything fits, or none takes less time than "
        "deciding for one tensor after another, as the policy online does; nothing is saved");
  output_file(options.plan_out).commit(text_of(plan));
}

void search(std::span<const named_trace> traces, const replay_options& options) {
  std::vector<std::vector<budget_answer>> found;
  std::vector<replay_row> rows;
  for (const named_trace& t : traces) {
    found.push_back(find_budgets(t, options));
    for (const budget_answer& a : found.back())
      rows.insert(rows.end(), a.curve.begin(), a.curve.end());
  }
  if (!options.json.empty()) write_rows(rows, options.json);
  for (const auto& answers : found) {
    if (&answers != &found.front()) std::cout << '\n';
    print_answers(std::cout, answers);
  }
}

int run(const replay_options& options) {
  const std::vector<named_trace> traces = read_traces(options.traces);
  for (const own_policy_file& policy : options.own) load(policy);
  options.find_budget ? search(traces, options) : replay(traces, options);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const replay_command wanted = parse_replay_options(argc, argv);
    if (wanted.text.empty()) return run(wanted.options);
    std::cout << wanted.text;
    return EXIT_SUCCESS;
  } catch (const usage_error& error) {
    return complain(error.what(), exit_usage);
  } catch (const delta::bad_trace& error) {
    return complain(error.what(), exit_usage);
  } catch (const std::bad_alloc&) {
    return complain("the machine has no memory left", exit_failure);
  } catch (const std::exception& error) {
    return complain(error.what(), exit_failure);
  }
}
