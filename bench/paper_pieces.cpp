// What each piece of the paper's algorithm costs: the preset `paper` with one piece exchanged at a
// time, on DTR's traces, in virtual time. Prints a table in Markdown.
//
//   paper_pieces FOLDER           FOLDER/NAME.log.gz are the traces, as in DELTA_DATA/traces
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "delta/presets.hpp"
#include "lifo_prefetch.hpp"
#include "replay/replay_named.hpp"
#include "replay/replay_options.hpp"
#include "replay/replay_policy.hpp"
#include "replay/replay_runs.hpp"
#include "trace/file.hpp"
#include "traces/trace.hpp"

namespace {

using namespace delta;
using namespace delta::executor;

// Each piece is chosen at run time, so that one manager is compiled for all of them.

/// The paper's filter, or one with costs.
struct filters {
  static constexpr bool later_if_dearer = true;
  static constexpr quantity depends_on = base::depends_on | cheapest_way_root::depends_on;
  bool costs = false;
  double weight(const context& c, tensor_id t) const {
    return costs ? c.bytes(t) / std::max(c.release_cost(t), 1.0) : base{}.weight(c, t);
  }
};

/// Whose rule is taken: the paper's, or the cheaper way.
enum class rule : std::uint8_t { paper, cheaper };
/// How a tensor leaves, and how it comes back.
struct ways {
  rule out = rule::paper;  ///< queues are counted where it is the cheaper way
  rule back = rule::paper;

  action decide(const context& c, tensor_id t) const {
    return out == rule::paper ? paper_director{}.decide(c, t) : cheaper{}.decide(c, t);
  }
  restoration restore(const context& c, tensor_id t) const {
    if (back == rule::paper) return paper_director{}.restore(c, t);
    cheaper by_default;
    return delta::detail::restoration_of(by_default, c, t);
  }
};

enum class reloads : std::uint8_t { first_in_first_out, last_in_first_out, on_demand };
/// What comes back early, and from which share of the budget on tensors leave early.
class idle_copies {
 public:
  explicit idle_copies(reloads r, double watermark = fifo_prefetch{}.watermark) : reloads_(r) {
    fifo_.watermark = lifo_.watermark = watermark;
  }
  tensor_id next(const context& c) {
    switch (reloads_) {
      case reloads::first_in_first_out:
        return fifo_.next(c);
      case reloads::last_in_first_out:
        return lifo_.next(c);
      default:
        return tensor_id::none;
    }
  }
  double early_release_bytes(const context& c) const {
    return reloads_ == reloads::on_demand ? 0.0 : fifo_.early_release_bytes(c);
  }
  void wasted(const context& c, tensor_id t) { fifo_.wasted(c, t), lifo_.wasted(c, t); }
  void end_of_operator(const context& c) { fifo_.end_of_operator(c), lifo_.end_of_operator(c); }

 private:
  reloads reloads_;
  fifo_prefetch fifo_;
  lifo_prefetch lifo_;
};
/// Its reloads, but no release before it is needed.
const idle_copies fifo{reloads::first_in_first_out},
    nothing_early{reloads::first_in_first_out, 1.0};

using replays = std::function<replay_result(const trace&, const replay_machine&)>;
replays named(const char* policy) {
  return [=](const trace& t, const replay_machine& on) { return replay_named(policy, t, on); };
}
replays with(filters filter, ways out_and_back, idle_copies idle) {
  return [=](const trace& t, const replay_machine& on) {
    return replay(t, policy<filters, ways, idle_copies>{filter, out_and_back, idle}, on);
  };
}

/// What became of the grid of traces and ratios.
struct sums {
  double excess = 0;
  std::size_t failures = 0;
  std::size_t cells = 0;
};

constexpr std::array names{"resnet32", "unet", "densenet121", "transformer", "lstm"};
constexpr std::array ratios{0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8};

/// time / unmanaged time - 1, and 1 for a failure, where replays end at twice the unmanaged time.
sums of(const std::vector<trace>& traces, const replays& replay_it) {
  sums s;
  replay_options usual;
  usual.iterations = 1;
  usual.places = true;
  for (const trace& t : traces) {
    const unmanaged_cost cost = unmanaged(t);
    replay_machine machine = machine_for(t, cost.peak, usual);
    for (const double ratio : ratios) {
      machine.budget = replay_budget{ratio, {}}.resolve(cost.peak);
      const replay_result r = replay_it(t, machine);
      const bool pass = r.result == replay_result::verdict::pass;
      s.excess +=
          pass ? static_cast<double>(r.time.count()) / static_cast<double>(cost.time.count()) - 1
               : 1;
      s.failures += !pass;
      ++s.cells;
    }
  }
  return s;
}

void print(const char* what, const std::vector<trace>& traces, const replays& replay_it) {
  const sums s = of(traces, replay_it);
  std::printf("| %s | %.3f | %zu of %zu |\n", what, s.excess / static_cast<double>(s.cells),
              s.failures, s.cells);
  std::fflush(stdout);
}

void print_all(const std::vector<trace>& traces) {
  std::puts("| policy | mean excess | failures |\n|---|---|---|");
  print("`paper`", traces, named("paper"));
  print("released in forward only (`paper-strict`)", traces, named("paper-strict"));
  print("comes back by the cheaper way", traces, with({}, {.back = rule::cheaper}, fifo));
  print("leaves by the cheaper way, queues included", traces,
        with({}, {.out = rule::cheaper}, fifo));
  print("no release before it is needed", traces, with({}, {}, nothing_early));
  print("a filter with costs", traces, with({.costs = true}, {}, fifo));
  print("last in, first out", traces, with({}, {}, idle_copies(reloads::last_in_first_out)));
  print("no reload before it is needed", traces, with({}, {}, idle_copies(reloads::on_demand)));
  print("the cheaper ways out and back, nothing released early", traces,
        with({}, {rule::cheaper, rule::cheaper}, nothing_early));
  print("`online`: the cheaper ways, a filter with costs, nothing early", traces, named("online"));
  print("`dtr`", traces, named("dtr"));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("paper_pieces: no folder; expected: the one with DTR's traces\n", stderr);
    return 2;
  }
  try {
    std::vector<trace> traces;
    traces.reserve(names.size());
    for (const char* name : names)
      traces.push_back(
          read_trace(std::filesystem::path(argv[1]) / (std::string(name) + ".log.gz")));
    print_all(traces);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "paper_pieces: %s\n", error.what());
    return 2;
  }
}
