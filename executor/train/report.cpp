#include "train/report.hpp"

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>
#include <stdexcept>

#include "cli/format.hpp"
#include "cli/output_file.hpp"
#include "cli/text_table.hpp"
#include "delta/observer.hpp"

namespace delta::executor {
namespace {

/// Calls visit(key, member) for every member, in the order in which the JSON lists them: the one
/// place where a member gets its key.
void each_field(auto& r, auto&& visit)
  requires requires { r.optimizer_state; }
{
  visit("total", r.total);
  visit("parameters", r.parameters);
  visit("gradients", r.gradients);
  visit("optimizer_state", r.optimizer_state);
  visit("activations", r.activations);
  visit("workspace", r.workspace);
}

void each_field(auto& r, auto&& visit)
  requires requires { r.predicted; }
{
  visit("predicted", r.predicted);
  visit("measured", r.measured);
}

void each_field(auto& r, auto&& visit)
  requires requires { r.workspace_bytes; }
{
  visit("operation", r.operation);
  visit("algorithm", r.algorithm);
  visit("workspace_bytes", r.workspace_bytes);
}

void each_field(auto& r, auto&& visit)
  requires requires { r.divergences; }
{
  visit("steps", r.steps);
  visit("kinds", r.kinds);
  visit("divergences", r.divergences);
  visit("operators", r.operators);
  visit("peak_bytes", r.peak_bytes);
  visit("measured_overhead", r.measured_overhead);
  visit("expected_overhead", r.expected_overhead);
  visit("memory_bytes", r.memory_bytes);
  visit("outcomes", r.outcomes);
}

void each_field(auto& r, auto&& visit)
  requires requires { r.losses_digest; }
{
  visit("model", r.model);
  visit("device", r.device);
  visit("device_name", r.device_name);
  visit("data", r.data);
  visit("batch", r.batch);
  visit("image", r.image);
  visit("seed", r.seed);
  visit("threads", r.threads);
  visit("steps", r.steps);
  visit("policy", r.policy);
  visit("budget_bytes", r.budget_bytes);
  visit("peak_bytes", r.peak_bytes);
  visit("unmanaged_peak_bytes", r.unmanaged_peak_bytes);
  visit("host_budget_bytes", r.host_budget_bytes);
  visit("host_peak_bytes", r.host_peak_bytes);
  visit("step_seconds", r.step_seconds);
  visit("seconds_by_step", r.seconds_by_step);
  visit("unmanaged_step_seconds", r.unmanaged_step_seconds);
  visit("stall_seconds", r.stall_seconds);
  visit("manager_seconds", r.manager_seconds);
  visit("host_wait_seconds", r.host_wait_seconds);
  visit("losses", r.losses);
  visit("losses_digest", r.losses_digest);
  visit("parameters_digest", r.parameters_digest);
  visit("state_digest", r.state_digest);
  visit("bit_identical", r.bit_identical);
  visit("evaluation_accuracy", r.evaluation_accuracy);
  visit("evictions", r.evictions);
  visit("offloads", r.offloads);
  visit("reloads", r.reloads);
  visit("recomputes", r.recomputes);
  visit("prefetches", r.prefetches);
  visit("replays_checked", r.replays_checked);
  visit("replays_unchecked", r.replays_unchecked);
  visit("tensors_compared", r.tensors_compared);
  visit("guessed_costs", r.guessed_costs);
  visit("host_waits", r.host_waits);
  visit("moves", r.moves);
  visit("moved_bytes", r.moved_bytes);
  visit("algorithms", r.algorithms);
  visit("learned", r.learned);
  visit("virtual_clock", r.virtual_clock);
  visit("fused", r.fused);
  visit("copy_rate", r.copy_rate);
  visit("copy_threads", r.copy_threads);
  visit("max_overhead", r.max_overhead);
  visit("predicted_overhead", r.predicted_overhead);
  visit("measured_overhead", r.measured_overhead);
  visit("budget_confirmed", r.budget_confirmed);
  visit("error", r.error);
  visit("smallest_budget_bytes", r.smallest_budget_bytes);
}

using json = nlohmann::ordered_json;

template <class T>
json to_value(const T& value) {
  return value;
}
template <class T>
json to_value(const std::optional<T>& value);
/// A part of a report that is an object of its own.
template <class T>
json to_object(const T& part) {
  json object = json::object();
  each_field(part, [&](const char* key, const auto& member) { object[key] = to_value(member); });
  return object;
}
json to_value(const bytes_by_class& value) {
  return to_object(value);
}
json to_value(const learned_report& value) {
  return to_object(value);
}
json to_value(const std::vector<step_report>& value) {
  json list = json::array();
  for (const step_report& step : value) list.push_back(to_object(step));
  return list;
}
json to_value(const std::vector<algorithm_report>& value) {
  json list = json::array();
  for (const algorithm_report& part : value) list.push_back(to_object(part));
  return list;
}
template <class T>
json to_value(const std::optional<T>& value) {
  return value ? to_value(*value) : json(nullptr);
}

template <class T>
void from_value(const json& value, T& member) {
  value.get_to(member);
}
/// JSON has no NaN: a loss that diverged is null.
void from_value(const json& value, std::vector<float>& member) {
  for (const json& item : value) {
    member.push_back(item.is_null() ? std::numeric_limits<float>::quiet_NaN() : item.get<float>());
  }
}
template <class T>
void from_value(const json& value, std::optional<T>& member);
template <class T>
void read_member(const json& object, const char* key, T& member);
template <class T>
void read_member(const json& object, const char* key, std::optional<T>& member);
/// A part of a report that is an object of its own.
template <class T>
void from_object(const json& value, T& part) {
  each_field(part, [&](const char* key, auto& member) { read_member(value, key, member); });
}
void from_value(const json& value, bytes_by_class& member) {
  from_object(value, member);
}
void from_value(const json& value, learned_report& member) {
  from_object(value, member);
}
void from_value(const json& value, std::vector<step_report>& member) {
  for (const json& item : value) from_object(item, member.emplace_back());
}
void from_value(const json& value, std::vector<algorithm_report>& member) {
  for (const json& item : value) from_object(item, member.emplace_back());
}
template <class T>
void from_value(const json& value, std::optional<T>& member) {
  if (value.is_null()) {
    member.reset();
  } else {
    from_value(value, member.emplace());
  }
}

/// A report from before there was such a member has none, and is none the worse for it.
template <class T>
void read_member(const json& object, const char* key, T& member) {
  from_value(object.at(key), member);
}
template <class T>
void read_member(const json& object, const char* key, std::optional<T>& member) {
  if (object.contains(key)) from_value(object.at(key), member);
}

}  // namespace

void write_json(const train_report& report, const std::filesystem::path& path) {
  json object = json::object();
  each_field(report, [&](const char* key, const auto& member) { object[key] = to_value(member); });
  output_file file(path);
  file.commit(object.dump(2) + "\n");
}

train_report read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file)
    throw std::runtime_error(path.string() +
                             ": can't be opened; allowed: a file that --json wrote");
  try {
    const json object = json::parse(file);
    train_report report;
    from_object(object, report);
    return report;
  } catch (const json::exception&) {
    throw std::runtime_error(path.string() + ": is no report; allowed: a file that --json wrote");
  }
}

namespace {

text_row cells(const train_report& r) {
  const std::string unknown = "-";
  const double whole = r.unmanaged_peak_bytes ? double(r.unmanaged_peak_bytes->total) : 0;
  const bool timed = r.unmanaged_step_seconds && *r.unmanaged_step_seconds > 0;
  return {r.model,
          r.policy,
          r.budget_bytes == 0 ? unknown : format_bytes(bytes{r.budget_bytes}),
          format_bytes(bytes{r.peak_bytes}),
          whole > 0 ? format_fixed(100 * (1 - double(r.peak_bytes) / whole), 1) + " %" : unknown,
          timed ? format_fixed(r.step_seconds / *r.unmanaged_step_seconds, 2) + "x" : unknown,
          std::to_string(r.evictions),
          std::to_string(r.offloads),
          std::to_string(r.reloads),
          std::to_string(r.recomputes),
          r.bit_identical ? (*r.bit_identical ? "yes" : "NO") : unknown};
}

std::string counted(std::uint64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}
std::string times(double overhead) {
  return format_fixed(overhead, 2) + "x";
}

/// For somebody who knows the budget and nothing of how the policy works.
std::string sentence(const train_report& r, const learned_report& l) {
  std::string text = r.model + " " + r.policy + ": learned from " + counted(l.steps, "step");
  if (l.kinds > 1) text += " of " + counted(l.kinds, "kind");
  if (l.kinds == 1 && l.steps > 1) text += ", all alike";
  text += "; the last, of " + counted(l.operators, "operator") + ", needs " +
          format_bytes(bytes{l.peak_bytes}) + " unmanaged (the budget is " +
          format_bytes(bytes{r.budget_bytes}) + ") and took " + times(l.measured_overhead) +
          " its operators' time";
  if (l.expected_overhead)
    text += "; the next one follows a plan that should take " + times(*l.expected_overhead);
  return text;
}

/// Of the last steps, in a line that stays readable; "-" of those that had no plan.
std::string outcomes_line(const train_report& r, const std::vector<step_report>& all) {
  constexpr std::size_t most = 8;
  const std::size_t first = all.size() > most ? all.size() - most : 0;
  std::string text = r.model + " " + r.policy + ": predicted / measured";
  if (first > 0) text += ", of the last " + std::to_string(most) + " steps";
  const auto figure = [](double x) { return x > 0 ? format_fixed(x, 2) : std::string("-"); };
  for (std::size_t i = first; i < all.size(); ++i)
    text += (i == first ? ": " : ", ") + figure(all[i].predicted) + " / " + figure(all[i].measured);
  return text;
}

}  // namespace

void print_table(std::ostream& out, std::span<const train_report> reports) {
  std::vector<text_row> rows{{"model", "policy", "budget", "peak", "saving", "step time",
                              "evictions", "offloads", "reloads", "recomputes", "bit-identical"}};
  for (const train_report& report : reports) rows.push_back(cells(report));
  print_aligned(out, rows, 2);
  for (const train_report& r : reports)
    if (r.device != "cpu")
      out << r.model << ' ' << r.policy << ": on " << r.device_name.value_or(r.device) << '\n';
  for (const train_report& r : reports)
    if (r.replays_checked)
      out << r.model << ' ' << r.policy << ": " << *r.replays_checked
          << " operators gave the same bits when they ran again at once; "
          << r.replays_unchecked.value_or(0) << " had no room to run again\n";
  for (const train_report& r : reports)
    if (r.tensors_compared)
      out << r.model << ' ' << r.policy << ": " << *r.tensors_compared
          << " times a tensor had the bits that it had before\n";
  for (const train_report& r : reports)
    if (r.guessed_costs)
      out << r.model << ' ' << r.policy << ": " << *r.guessed_costs << ' ' << costs_unknown_warning
          << '\n';
  for (const train_report& r : reports) {
    if (!r.learned) continue;
    out << sentence(r, *r.learned) << '\n';
    if (r.learned->outcomes && !r.learned->outcomes->empty())
      out << outcomes_line(r, *r.learned->outcomes) << '\n';
  }
}

}  // namespace delta::executor
