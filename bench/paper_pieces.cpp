// What each piece of the paper's algorithm costs: the preset `paper` with one piece exchanged at a
// time, on DTR's traces, in virtual time. Prints a table in Markdown.
//
//   paper_pieces FOLDER           FOLDER/NAME.log.gz are the traces, as in DELTA_DATA/traces
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "delta/presets.hpp"
#include "delta/trace.hpp"
#include "replay/replay_options.hpp"
#include "replay/replay_policy.hpp"
#include "replay/replay_runs.hpp"
#include "trace/file.hpp"

namespace {

using namespace delta;
using namespace delta::executor;

/// The paper's ratio decides how a tensor leaves; it comes back by the cheaper way.
struct back_the_cheaper_way {
  action decide(const context& c, tensor_id t) const { return paper_ratio{}.decide(c, t); }
};
/// The cheaper way out, queue included; it comes back as the paper says.
struct out_the_cheaper_way {
  action decide(const context& c, tensor_id t) const { return cheaper{}.decide(c, t); }
  restoration restore(const context& c, tensor_id t) const noexcept {
    return paper_ratio{}.restore(c, t);
  }
};

/// Its reloads, but no release before it is needed.
fifo_prefetch nothing_early() {
  fifo_prefetch p;
  p.watermark = 1.0;
  return p;
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
template <class Policy>
sums of(const std::vector<trace>& traces, Policy policy) {
  sums s;
  replay_options usual;
  usual.iterations = 1;
  usual.places = true;
  for (const trace& t : traces) {
    const unmanaged_cost cost = unmanaged(t);
    replay_machine machine = machine_for(t, cost.peak, usual);
    for (const double ratio : ratios) {
      machine.budget = replay_budget{ratio, {}}.resolve(cost.peak);
      const replay_result r = replay(t, policy, machine);
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

template <class Policy>
void print(const char* what, const std::vector<trace>& traces, Policy p) {
  const sums s = of(traces, std::move(p));
  std::printf("| %s | %.3f | %zu of %zu |\n", what, s.excess / static_cast<double>(s.cells),
              s.failures, s.cells);
  std::fflush(stdout);
}

void print_all(const std::vector<trace>& traces) {
  std::puts("| policy | mean excess | failures |\n|---|---|---|");
  print("`paper`", traces, paper());
  print("released in forward only (`strict`)", traces, paper(true));
  print("comes back by the cheaper way", traces,
        policy<base, back_the_cheaper_way, fifo_prefetch>{});
  print("leaves by the cheaper way, queues included", traces,
        policy<base, out_the_cheaper_way, fifo_prefetch>{});
  print("no release before it is needed", traces,
        policy<base, paper_ratio, fifo_prefetch>{{}, {}, nothing_early()});
  print("a filter with costs (`joint`)", traces, policy<joint, paper_ratio, fifo_prefetch>{});
  print("last in, first out", traces, policy<base, paper_ratio, lifo_prefetch>{});
  print("no reload before it is needed", traces, policy<base, paper_ratio, no_prefetch>{});
  print("the cheaper ways out and back, nothing released early", traces,
        policy<base, cheaper, fifo_prefetch>{{}, {}, nothing_early()});
  print("`online`: the cheaper ways, a filter with costs, nothing early", traces, online());
  print("`dtr`", traces, recompute_only());
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
  } catch (const bad_trace& error) {
    std::fprintf(stderr, "paper_pieces: %s\n", error.what());
    return 2;
  }
}
