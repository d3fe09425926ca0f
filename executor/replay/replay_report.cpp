#include "replay/replay_report.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "cli/format.hpp"
#include "cli/output_file.hpp"
#include "cli/text_table.hpp"
#include "traces/collectives.hpp"

namespace delta::executor {
namespace {

using json = nlohmann::ordered_json;

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

json object_of(const replay_row& r) {
  return {{"trace", r.trace},
          {"policy", r.policy},
          {"ratio", or_null(r.ratio)},
          {"budget_bytes", r.budget_bytes},
          {"host_budget_bytes", r.host_budget_bytes},
          {"bandwidth", r.bandwidth},
          {"bandwidth_in", r.bandwidth_in},
          {"latency_ns", r.latency_ns},
          {"real_rate", r.real_rate},
          {"memory", r.memory},
          {"operators_faster", r.operators_faster},
          {"noise", r.noise},
          {"seed", r.seed},
          {"jitter", r.jitter},
          {"ranks", r.ranks},
          {"parallel", or_null(r.parallel)},
          {"collectives", or_null(r.collectives)},
          {"network", or_null(r.network)},
          {"network_latency_ns", or_null(r.network_latency_ns)},
          {"one_link", or_null(r.one_link)},
          {"thrash_limit", r.thrash_limit},
          {"result", r.result},
          {"error", or_null(r.error)},
          {"time_ns", r.time_ns},
          {"unmanaged_time_ns", r.unmanaged_time_ns},
          {"overhead", or_null(r.overhead)},
          {"bound_overhead", or_null(r.bound_overhead)},
          {"unmanaged_peak_bytes", r.unmanaged_peak_bytes},
          {"peak_bytes", r.peak_bytes},
          {"host_peak_bytes", r.host_peak_bytes},
          {"recompute_ns", r.recompute_ns},
          {"stall_ns", r.stall_ns},
          {"network_wait_ns", r.network_wait_ns},
          {"evictions", r.evictions},
          {"offloads", r.offloads},
          {"clean_drops", r.clean_drops},
          {"reloads", r.reloads},
          {"prefetches", r.prefetches},
          {"recomputes", r.recomputes},
          {"evaluations", r.evaluations},
          {"walked", r.walked},
          {"bytes_out", r.bytes_out},
          {"bytes_in", r.bytes_in},
          {"iteration", r.iteration},
          {"live_tensors", or_null(r.live_tensors)},
          {"live_records", or_null(r.live_records)},
          {"device_bytes_after", or_null(r.device_bytes_after)},
          {"host_bytes_after", or_null(r.host_bytes_after)},
          {"max_overhead", or_null(r.max_overhead)},
          {"keeps", or_null(r.keeps)}};
}

std::string time_text(std::int64_t ns) {
  return format_seconds(static_cast<double>(ns) * 1e-9);
}

/// A line about one replay. `first` is its first iteration, null where iterations are not told
/// apart; `r` is its last.
text_row cells(const replay_row* first, const replay_row& r) {
  text_row line{r.policy, r.ratio ? format_fixed(100 * *r.ratio, 1) + " %" : "-",
                format_bytes(bytes{r.budget_bytes}), r.result};
  if (first != nullptr) {
    if (r.result != "pass") line.back() += " in " + std::to_string(r.iteration);
    line.push_back(overhead_text(first->overhead));
  }
  const text_row times{overhead_text(r.overhead), overhead_text(r.bound_overhead),
                       time_text(r.recompute_ns), time_text(r.stall_ns)};
  line.insert(line.end(), times.begin(), times.end());
  if (r.ranks > 1) line.push_back(time_text(r.network_wait_ns));
  const text_row rest{format_bytes(bytes{r.bytes_out}), format_bytes(bytes{r.bytes_in}),
                      std::to_string(r.evictions),      std::to_string(r.offloads),
                      std::to_string(r.reloads),        std::to_string(r.recomputes),
                      std::to_string(r.evaluations)};
  line.insert(line.end(), rest.begin(), rest.end());
  return line;
}

}  // namespace

std::string overhead_text(std::optional<double> overhead) {
  return overhead ? format_fixed(*overhead, 3) + "x" : "-";
}

void write_rows(std::span<const replay_row> rows, const std::filesystem::path& path) {
  json list = json::array();
  for (const replay_row& r : rows) list.push_back(object_of(r));
  output_file file(path);
  // A file's name may be any bytes; JSON's text is UTF-8.
  file.commit(list.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

void print_trace_line(std::ostream& out, const replay_row& any) {
  out << any.trace << ": unmanaged " << time_text(any.unmanaged_time_ns) << " and "
      << format_bytes(bytes{any.unmanaged_peak_bytes}) << "; host budget "
      << format_bytes(bytes{any.host_budget_bytes}) << "; copies "
      << format_rate(static_cast<double>(any.bandwidth)) << " out, "
      << format_rate(static_cast<double>(any.bandwidth_in)) << " in, latency "
      << time_text(any.latency_ns) << "; memory of " << any.memory;
  if (any.ranks > 1) {
    out << "; " << any.ranks << " ranks, " << any.parallel.value_or("") << ", "
        << any.collectives.value_or("") << " at "
        << format_rate(static_cast<double>(any.network.value_or(0))) << ", latency "
        << time_text(any.network_latency_ns.value_or(0));
    if (any.one_link.value_or(false)) out << ", on the link of the copies";
    if (any.jitter > 0)
      out << ", the slowest " << overhead_text(expected_slowest(any.ranks, any.jitter))
          << " of the mean";
  }
  out << '\n';
}

void print_rows(std::ostream& out, std::span<const replay_row> rows, std::uint64_t iterations) {
  if (rows.empty()) return;
  const bool several = iterations > 1;
  print_trace_line(out, rows.front());
  text_row head{"policy", "of peak", "budget", "result"};
  if (several)
    head.insert(head.end(), {"first", "last"});
  else
    head.emplace_back("overhead");
  head.insert(head.end(), {"bound", "recompute", "stall"});
  if (rows.front().ranks > 1) head.emplace_back("network");
  head.insert(head.end(),
              {"out", "in", "evictions", "offloads", "reloads", "recomputes", "evaluations"});
  std::vector<text_row> lines{std::move(head)};
  const replay_row* first = nullptr;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].iteration == 1) first = &rows[i];
    const bool last = i + 1 == rows.size() || rows[i + 1].iteration == 1;
    if (last) lines.push_back(cells(several ? first : nullptr, rows[i]));
  }
  print_aligned(out, lines, 1);
}

}  // namespace delta::executor
