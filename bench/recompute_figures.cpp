// delta benchmark: computes the cells of figures.hpp, by the same replays as the programs that make
// the pages.
#include "figures.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adaptive_rows.hpp"
#include "cli/format.hpp"
#include "data/byte_source.hpp"
#include "delta/engine/engine.hpp"
#include "delta/policy_names.hpp"
#include "delta/storage/simulated.hpp"
#include "dense_machine.hpp"
#include "dense_program.hpp"
#include "gpu_roofline.hpp"
#include "placed_steps.hpp"
#include "replay/replay_named.hpp"
#include "replay/replay_runs.hpp"
#include "residual_network.hpp"
#include "temporary_folder.hpp"
#include "trace/file.hpp"
#include "trace/repeat.hpp"

namespace delta::bench {
namespace {

using namespace delta::executor;

void add(digest& d, std::initializer_list<std::uint64_t> values) {
  d.add(std::span(values.begin(), values.size()));
}
void add(digest& d, const std::string& text) {
  d.add(std::as_bytes(std::span(text)));
}
std::uint64_t count_of(nanoseconds t) {
  return static_cast<std::uint64_t>(t.count());
}

/// The number as a row of JSON has it: with six digits. Tables are made from those.
double six_digits(double x) {
  std::ostringstream out;
  out << x;
  return std::stod(out.str());
}
std::string three_decimals(double x) {
  return format_fixed(x, 3);
}
std::string ratio_text(double ratio) {
  return format_fixed(ratio, 1);
}
/// "20.0" of 20 %.
std::string percent(auto part, auto whole) {
  return format_fixed(100 * static_cast<double>(part) / static_cast<double>(whole), 1);
}
std::string in_backticks(const std::string& text) {
  return "`" + text + "`";
}

// --- replay.md: whole replays, as delta-replay does them ----------------------------

using row_key = std::pair<std::string, std::string>;  // policy, ratio
using rows_of_trace = std::map<row_key, replay_row>;

/// The last iteration of each.
rows_of_trace replays(const subject& s, std::vector<std::string> policies,
                      std::span<const double> ratios, digest& exact, replay_options o) {
  o.policies = std::move(policies);
  o.budgets.clear();
  for (const double r : ratios) o.budgets.push_back({r, {}});
  const named_trace t{s.name, s.step};
  rows_of_trace found;
  const auto by_trace = replay_all(std::span(&t, 1), o);
  for (const replay_row& r : by_trace.front()) {
    exact.add(std::as_bytes(std::span(r.result)));
    add(exact, {static_cast<std::uint64_t>(r.time_ns), static_cast<std::uint64_t>(r.recompute_ns),
                static_cast<std::uint64_t>(r.stall_ns), r.peak_bytes, r.host_peak_bytes,
                r.evictions, r.offloads, r.clean_drops, r.reloads, r.prefetches, r.recomputes,
                r.bytes_out, r.bytes_in});
    found[{r.policy, ratio_text(*r.ratio)}] = r;
  }
  return found;
}

std::string verdict(const replay_row& r) {
  return r.result == "pass" ? three_decimals(*r.overhead) : r.result;
}

/// As replay.md has them.
rows_of_trace replays(const subject& s, std::vector<std::string> policies,
                      std::span<const double> ratios, digest& exact) {
  replay_options o;
  o.rate_out = o.rate_in = 12 * gigabyte;
  o.iterations = 1;
  o.places = true;
  return replays(s, std::move(policies), ratios, exact, o);
}

void add_overheads(std::vector<cell>& cells, const std::string& trace, const rows_of_trace& rows) {
  const auto cell_of = [&](const std::string& policy, const std::string& ratio, std::string text) {
    cells.push_back({.table = "| trace | policy | 0.2 |",
                     .row = {trace, policy},
                     .column = ratio,
                     .printed = std::move(text)});
  };
  for (const auto& [key, r] : rows) {
    const auto& [policy, ratio] = key;
    if (ratio == "1.0") continue;  // not in this table
    cell_of(in_backticks(policy), ratio, verdict(r));
    if (policy == "dtr")
      cell_of("bound", ratio, r.bound_overhead ? three_decimals(*r.bound_overhead) : "-");
  }
}

void add_causes(std::vector<cell>& cells, const std::string& trace, const rows_of_trace& rows) {
  for (const std::string ratio : {"0.3", "0.5", "1.0"}) {
    const auto dtr = rows.find({"dtr", ratio}), paper = rows.find({"paper", ratio});
    if (dtr == rows.end()) continue;
    const auto cell_of = [&](const char* column, std::size_t right, std::string text) {
      cells.push_back({.table = "| trace | ratio | `dtr` |",
                       .row = {trace, ratio},
                       .column = column,
                       .right = right,
                       .printed = std::move(text)});
    };
    const replay_row &d = dtr->second, &p = paper->second;
    cell_of("`dtr`", 0, d.result);
    cell_of("`dtr`", 1, percent(d.recompute_ns, d.unmanaged_time_ns));
    cell_of("`paper`", 0, p.result);
    cell_of("`paper`", 1, percent(p.recompute_ns, p.unmanaged_time_ns));
    cell_of("`paper`", 2, percent(p.stall_ns, p.unmanaged_time_ns));
    cell_of("`paper`", 3, percent(p.bytes_out, p.unmanaged_peak_bytes));
    cell_of("`paper`", 4, std::to_string(p.offloads));
    cell_of("`paper`", 5, std::to_string(p.reloads));
    cell_of("`paper`", 6, std::to_string(p.prefetches));
  }
}

// The small traces take less than a millisecond a replay: all of their budgets. Of the others one.
constexpr std::array small{"resnet32", "unet"};
constexpr std::array large{"densenet121", "transformer", "lstm"};
constexpr std::array half{0.5};

recomputed replay_page(trace_folder& traces) {
  constexpr std::array ratios{0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0};
  recomputed r;
  const auto add_trace = [&](const char* name, std::span<const double> of) {
    const auto rows = replays(traces[name], {"dtr", "online", "paper", "simrd:dtr"}, of, r.exact);
    add_overheads(r.cells, name, rows);
    add_causes(r.cells, name, rows);
  };
  for (const char* name : small) add_trace(name, ratios);
  for (const char* name : large) add_trace(name, half);
  return r;
}

// --- adaptive.md: step by step -------------------------------------------------------------------

const setting& setting_named(std::string_view name) {
  return *std::ranges::find(settings, name, &setting::name);
}

void add(digest& d, const replay_result& r) {
  add(d, {static_cast<std::uint64_t>(r.result)});
  for (const step_figures& s : r.steps)
    add(d, {count_of(s.time), count_of(s.recompute), count_of(s.stall), s.peak.count,
            s.host_peak.count, s.counts.evictions, s.counts.offloads, s.counts.clean_drops,
            s.counts.reloads, s.counts.prefetches, s.counts.recomputes, s.counts.bytes_out,
            s.counts.bytes_in, s.live_tensors, s.live_records, s.host_after.count});
}

/// The worst overhead from the second step on.
std::string later(const replay_result& r) {
  if (r.result != replay_result::verdict::pass) return "fails";
  double worst = 0;
  for (const step_figures& s : std::span(r.steps).subspan(1))
    worst = std::max(worst, six_digits(static_cast<double>(s.time.count()) /
                                       static_cast<double>(s.unmanaged.count())));
  return three_decimals(worst);
}

/// Makes the parts of adaptive.md that are asked for.
class adaptive_cells {
 public:
  explicit adaptive_cells(trace_folder& traces) : traces_(&traces) {}

  /// A row of the grid.
  std::string grid(const std::string& trace, std::string_view machine, double ratio,
                   std::string_view policy) {
    const subject& s = (*traces_)[trace];
    const setting& on = setting_named(machine);
    return row({"grid", trace, machine, ratio, policy}, s, program_for(s, on), on);
  }
  /// A cell of the targets: `adaptive` and the bound.
  void target(const std::string& trace, std::string_view machine, double ratio) {
    const bool fast = machine.starts_with("fast");
    const auto cell_of = [&](std::size_t word, std::string text) {
      found_.cells.push_back(
          {fast ? "| trace | machine | 0.3 | 0.4 |" : "| trace | machine | 0.3 | 0.5 |",
           {trace, std::string(machine)},
           ratio_text(ratio),
           0,
           word,
           std::move(text)});
    };
    cell_of(0, grid(trace, machine, ratio, "adaptive"));
    const subject& s = (*traces_)[trace];
    const reference r = reference_of(s, setting_named(machine), ratio);
    cell_of(2,
            std::isfinite(r.bound) ? three_decimals(std::stod(std::to_string(r.bound))) : "fails");
    add(found_.exact, row_of({"reference", trace, machine, ratio, ""}, r));
  }
  /// Steps of two traces in turns.
  void in_turns(const std::string& a, const std::string& b, double ratio, std::string_view policy) {
    const subject &first = (*traces_)[a], &second = (*traces_)[b];
    const subject both{a + "+" + b, {}, std::max(first.peak, second.peak)};
    row({"in turns", both.name, settings[0].name, ratio, policy}, both,
        alternate(first.step, second.step, 4), settings[0]);
  }
  recomputed take() { return std::move(found_); }

 private:
  std::string row(const row_name& name, const subject& s, const trace& program, const setting& on) {
    const replay_result r = replay_named(name.policy, program, machine_for(s, on, name.ratio));
    add(found_.exact, row_of(name, s, r));
    add(found_.exact, r);
    return later(r);
  }

  trace_folder* traces_;
  recomputed found_;
};

recomputed adaptive_page(trace_folder& traces) {
  adaptive_cells cells(traces);
  for (const char* trace : small) {
    for (const double ratio : {0.3, 0.5, 0.7}) cells.target(trace, "12 GB/s", ratio);
    cells.target(trace, "25 GB/s", 0.5);
    cells.target(trace, "fast, 25 GB/s", 0.5);
    cells.grid(trace, "robust, 12 GB/s", 0.5, "adaptive");
    cells.grid(trace, "ten steps, 12 GB/s", 0.5, "adaptive");
    for (const preset& p : named_policies)
      if (p.name != "unmanaged" && p.name != "adaptive") cells.grid(trace, "12 GB/s", 0.5, p.name);
    for (const std::string_view peer : compared_peers) cells.grid(trace, "12 GB/s", 0.5, peer);
  }
  cells.in_turns("resnet32", "unet", 0.5, "adaptive");
  cells.target("transformer", "12 GB/s", 0.5);
  // Where little fits, there is most to decide: small changes show here first.
  for (const char* trace : large) cells.grid(trace, "12 GB/s", 0.2, "adaptive");
  for (const char* trace : small) cells.grid(trace, "25 GB/s", 0.2, "adaptive");
  return cells.take();
}

// --- placement.md: places beside pages -----------------------------------------------------------

/// The line of a trace and a policy.
void add_placed(recomputed& found, const subject& s, const char* policy) {
  constexpr double failed = 2.5;      // what a replay that fails counts for
  constexpr std::size_t learned = 2;  // steps that are left out
  const trace program = repeat_trace(s.step, placed_steps);
  double pages = 0, places = 0, moved = 0;
  std::size_t cells = 0, failures = 0, moving = 0;
  const auto replay_one = [&](double rate, double part, bool in_places) {
    auto steps = replay_placed(program, {s.peak, rate, part, in_places}, policy);
    for (const placed_step& p : steps) add(found.exact, {count_of(p.took), p.moves, p.moved.count});
    if (steps.size() != placed_steps) steps.clear();
    return steps;
  };
  const auto worst = [](std::span<const placed_step> steps) {
    double most = 0;
    for (const placed_step& p : steps.subspan(learned))
      most = std::max(most, six_digits(p.overhead()));
    return most;
  };
  for (const double rate : {6e9, 12e9, 25e9}) {
    for (const double part : {0.7, 0.6, 0.5, 0.4, 0.3}) {
      const auto in_pages = replay_one(rate, part, false), in_places = replay_one(rate, part, true);
      if (in_pages.empty()) continue;  // nothing to compare with
      ++cells;
      pages += worst(in_pages);
      places += in_places.empty() ? failed : worst(in_places);
      failures += in_places.empty();
      if (part != 0.4 || in_places.empty()) continue;
      double sum = 0;
      for (const placed_step& p : std::span(in_places).subspan(learned))
        sum += six_digits(p.moved_mb());
      moved += sum / static_cast<double>(placed_steps - learned);
      ++moving;
    }
  }
  const auto cell_of = [&](const char* column, std::string text) {
    found.cells.push_back({.table = "| trace | policy | pages |",
                           .row = {s.name, policy},
                           .column = column,
                           .printed = std::move(text)});
  };
  const auto mean = [](double sum, std::size_t of) { return sum / static_cast<double>(of); };
  cell_of("pages", three_decimals(mean(pages, cells)));
  cell_of("places", three_decimals(mean(places, cells)));
  cell_of("MB moved at 0.4", moving > 0 ? format_fixed(mean(moved, moving), 0) : "-");
  cell_of("failed", std::to_string(failures));
}

recomputed placement_page(trace_folder& traces) {
  recomputed r;
  for (const char* policy : {"online", "adaptive"})
    for (const char* trace : small) add_placed(r, traces[trace], policy);
  return r;
}

// --- replay_scale.md: steps of a densely connected network, and networks that are made up --------

/// One budget of a policy.
void add_dense(recomputed& found, bytes peak, const char* policy, int part) {
  simulated storage(dense_machine(peak, part));
  const auto m = make_manager(policy, over(storage));
  test::dense_program program(*m, dense_slowness);
  for (int i = 0; i < dense_first_steps; ++i) (void)program.step();
  const std::uint64_t answers_before = m->evaluations(), walked_before = m->walked();
  const counters counts = m->counts();
  const nanoseconds began = storage.now();
  std::size_t operators = 0;
  for (int i = 0; i < dense_steps; ++i) operators += program.step();
  const std::uint64_t answers = m->evaluations() - answers_before;
  const std::uint64_t walked = m->walked() - walked_before;
  const nanoseconds took = storage.now() - began;
  const auto per = [](auto sum, auto of) {
    return static_cast<double>(sum) / static_cast<double>(of);
  };
  const auto cell_of = [&](const char* table, const char* column, std::size_t right, double value,
                           int decimals) {
    found.cells.push_back({.table = table,
                           .row = {in_backticks(policy)},
                           .column = column,
                           .right = right,
                           .printed = format_fixed(value, decimals)});
  };
  constexpr const char* answered = "| policy | all fits |";
  // The page has two digits of it.
  const double asked = per(answers, operators);
  if (part == 45) cell_of(answered, "answers an operator", 0, asked, asked < 1 ? 2 : 1);
  cell_of(answered, part == 45 ? "45 % of the memory" : "12 %", part == 45 ? 2 : 1,
          per(walked, answers), 1);
  cell_of("| virtual us an operator |", part == 45 ? "45 %" : "12 %", 0,
          per(took.count(), operators) / 1000, 2);
  const counters now = difference(m->counts(), counts);
  add(found.exact, {answers, walked, count_of(took), now.evictions, now.offloads, now.reloads,
                    now.recomputes, now.bytes_out, now.bytes_in});
}

recomputed scale_page(trace_folder&) {
  struct scale_row {
    const char* shape;
    std::uint32_t operators;
    const char* policy;
    std::uint32_t percent;
  };
  recomputed r;
  const bytes peak = test::dense_peak();
  for (const char* policy : {"dtr", "online"})
    for (const int part : {45, 12}) add_dense(r, peak, policy, part);
  add_dense(r, peak, "adaptive", 45);
  for (const scale_row& row : {scale_row{"steps", 10'000, "online", 60},
                               {"steps", 10'000, "dtr", 60},
                               {"one step", 10'000, "online", 100},
                               {"16 weights", 10'000, "online", 100},
                               {"one step", 2'500, "online", 60},
                               {"one step", 2'500, "dtr", 60}}) {
    const trace t = residual_trace(row.shape, row.operators);
    replay_machine machine = scale_machine(t, row.percent);
    machine.thrash_limit = std::numeric_limits<double>::infinity();  // as replay_scale
    const replay_result found = replay_named(row.policy, t, machine);
    const auto total = static_cast<double>(total_cost(t).count());
    const auto cell_of = [&](const char* column, std::string text) {
      r.cells.push_back({.table = "| shape | operators |",
                         .row = {row.shape, std::to_string(row.operators), row.policy,
                                 std::to_string(row.percent) + " %"},
                         .column = column,
                         .printed = std::move(text)});
    };
    const bool passed = found.result == replay_result::verdict::pass;
    cell_of("result", passed ? "pass" : "fails");
    cell_of("overhead", three_decimals(static_cast<double>(found.time.count()) / total));
    cell_of("scores per operator", format_fixed(static_cast<double>(found.evaluations) /
                                                    static_cast<double>(t.operations.size()),
                                                1));
    add(r.exact, {static_cast<std::uint64_t>(found.result), count_of(found.time), found.evaluations,
                  found.peak.count, found.host_peak.count, found.counts.evictions,
                  found.counts.recomputes, found.counts.bytes_out, found.counts.bytes_in});
  }
  return r;
}

// --- gpu_predicted.md: ResNet-50 at a GPU's roofline
// -----------------------------------------------

recomputed gpu_predicted_page(trace_folder&) {
  recomputed r;
  constexpr int batch = 128;
  const trace steps = roofline_steps(roofline_model(batch, roofline_graph::usual), digested_gpu,
                                     true, roofline_step_count);
  for (const std::string_view policy : roofline_policies) {
    const std::vector<std::string> cells = roofline_row(steps, policy, r.exact);
    for (std::size_t i = 0; i < cells.size(); ++i)
      r.cells.push_back({.table = "| GPU | policy | 60 % |",
                         .row = {std::string(digested_gpu.name), in_backticks(std::string(policy))},
                         .column = std::to_string(roofline_percents[i]) + " %",
                         .printed = cells[i]});
  }
  return r;
}

// --- paper.md: steps of PyTorch's models at the paper's sizes
// -------------------------------------

recomputed paper_page(trace_folder&) {
  // As bench/paper/workbench.py replays them. The rates are the traces' own.
  replay_options o;
  o.iterations = 4;
  o.thrash_limit = 10;
  constexpr std::array parts{0.6, 0.4, 0.3};
  const auto folder =
      std::filesystem::path(DELTA_SOURCE_DIR) / "test" / "reference" / "paper_traces";
  trace_folder traces(folder, ".jsonl.gz");
  const test::temporary_folder unpacked;
  recomputed r;
  for (const char* model : {"ResNet-50", "ResNeXt-50", "EfficientNet-B0", "BERT-base"}) {
    const auto rows =
        replays(traces[model], {"vdnn", "dtr", "paper", "online", "adaptive"}, parts, r.exact, o);
    for (const auto& [key, row] : rows) {
      const std::size_t nth = key.second == "0.6" ? 0 : key.second == "0.4" ? 1 : 2;
      r.cells.push_back({.table = "| row | policy | rule |",
                         .row = {"simulated", in_backticks(key.first)},
                         .column = model,
                         .word = 2 * nth,  // between them there are strokes
                         .printed = verdict(row)});
    }
    // Plans that solvers made, packed beside the traces.
    for (const char* planner : {"checkmate", "beaumont", "torchtitan"}) {
      constexpr std::array planned_for{0.4};
      replay_options planned = o;
      const std::string name = std::string(model) + "_" + planner + ".jsonl";
      planned.plan = unpacked / name;
      std::ofstream(planned.plan) << executor::read_all(folder / (name + ".gz"));
      for (const auto& [key, row] :
           replays(traces[model], {std::string(plan_policy)}, planned_for, r.exact, planned))
        r.cells.push_back({.table = "| row | plan | of |",
                           .row = {"simulated", in_backticks(planner)},
                           .column = model,
                           .word = 2,
                           .printed = verdict(row)});
    }
  }
  return r;
}

}  // namespace

const subject& trace_folder::operator[](const std::string& name) {
  const auto found = read_.find(name);
  if (found != read_.end()) return found->second;
  trace t = read_trace(folder_ / (name + ending_));
  const bytes peak = unmanaged_peak(t);
  return read_[name] = {name, std::move(t), peak};
}

std::span<const page> pages() noexcept {
  static constexpr std::array replay_files{std::string_view{"replay.png"}};
  static constexpr std::array adaptive_files{std::string_view{"adaptive.png"}};
  static constexpr std::array all{
      page{"replay", "python3 bench/replay_results.py", replay_files, true, false, replay_page},
      page{"adaptive", "python3 bench/adaptive.py build/release", adaptive_files, true, false,
           adaptive_page},
      page{"placement",
           "python3 bench/placement.py, with the flags that the page names,",
           {},
           true,
           false,
           placement_page},
      page{"replay_scale",
           "replay_scale and dense_bench, with `figures` for the digest,",
           {},
           false,
           false,
           scale_page},
      page{"gpu_predicted",
           "build/release/bin/gpu_predicted > docs/results/gpu_predicted.md",
           {},
           false,
           true,
           gpu_predicted_page},
      page{"paper", "./run.sh paper --device simulated", {}, false, false, paper_page}};
  return all;
}

std::string digest_line(const digest& d) {
  return "<!-- recomputed cells: digest " + d.hex() + " -->";
}

}  // namespace delta::bench
