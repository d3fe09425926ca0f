#include "peers/offline_plan.hpp"

#include <cstddef>
#include <span>

#include "delta/detail/planning/residency_plan.hpp"
#include "delta/detail/planning/step_model.hpp"

namespace delta::executor {
namespace {

using position = offline_plan::position;
using detail::residency_script;
using detail::step_model;

/// By storage of the record: what it is called. `operation` is `none` of one that no operator has.
std::vector<offline_plan::name> names_of(const step_record& step) {
  std::vector<offline_plan::name> names(step.storages.size(), {.operation = step_record::none});
  const auto see = [&](std::span<const std::uint32_t> list, std::uint32_t operation, bool output) {
    for (std::uint32_t i = 0; i < list.size(); ++i)
      if (names[list[i]].operation == step_record::none) names[list[i]] = {operation, i, output};
  };
  for (std::uint32_t o = 0; o < step.length(); ++o) {
    see(step.outputs(step.operations[o]), o, true);
    see(step.touched(step.operations[o]), o, false);
  }
  return names;
}

/// The storage of that name; none.
std::uint32_t storage_of(const step_record& step, const offline_plan::name& n) {
  if (n.operation >= step.length()) return step_record::none;
  const step_record::operation& o = step.operations[n.operation];
  const auto list = n.output ? step.outputs(o) : step.touched(o);
  return n.index < list.size() ? list[n.index] : step_record::none;
}

/// Copies in of those absences begin so late that, one behind the other, all of them are in time.
void time_copies(const step_record& step, double rate, double latency,
                 std::span<residency_script::absence> all, std::vector<std::size_t> copied) {
  std::ranges::sort(copied, [&](std::size_t i, std::size_t k) {
    return all[i].to != all[k].to ? all[i].to > all[k].to : all[i].storage > all[k].storage;
  });
  double limit = step.time;
  for (const std::size_t i : copied) {
    residency_script::absence& a = all[i];
    if (a.to >= static_cast<position>(step.length())) continue;
    const double bytes = static_cast<double>(step.storages[a.storage].size.count);
    const double needed = a.to < 0 ? 0 : step.operations[static_cast<std::size_t>(a.to)].start;
    limit = std::min(limit, needed) - latency - 1e9 * bytes / rate;
    const auto behind =
        std::ranges::upper_bound(step.operations, limit, {}, &step_record::operation::start);
    const auto begun = static_cast<position>(behind - step.operations.begin());
    a.in_from = std::clamp(begun - 1, a.from + 1, a.to);
  }
}

/// What the step holds, less what is away.
std::vector<double> held_beside(const step_model& m, const auto& away) {
  const detail::residency_plan all(m, {});
  const position n = m.length();
  std::vector<double> held;
  held.reserve(static_cast<std::size_t>(n));
  for (position p = 0; p < n; ++p) held.push_back(all.memory().at(p));
  for (const residency_script::absence& a : away)
    for (position p = a.from + 1; p < a.in_from; ++p)
      held[static_cast<std::size_t>(p - detail::period_of(p, n) * n)] -= m[a.storage].size;
  return held;
}

}  // namespace

offline_plan plan_of(const residency_script& script, const step_record& step) {
  offline_plan plan{.operators = step.length()};
  const std::vector<offline_plan::name> names = names_of(step);
  using enum offline_plan::way;
  for (const residency_script::absence& a : script.absences()) {
    if (names[a.storage].operation == step_record::none) continue;
    auto& to = plan.absences.emplace_back(names[a.storage], a.from, a.to);
    if (!a.copied) continue;
    to.how = offload, to.in_from = a.in_from;
    if (a.copies_out && a.out_from < a.from) to.out_from = a.out_from;
  }
  for (const residency_script::stay& s : script.stays())
    if (names[s.storage].operation != step_record::none)
      plan.absences.emplace_back(names[s.storage], s.from, s.to, keep);
  for (position p = 0; p < script.length(); ++p)
    plan.held.push_back(static_cast<std::uint64_t>(script.held(p)));
  return plan;
}

residency_script script_of(const offline_plan& plan, const step_record& step, double rate,
                           double latency) {
  const step_model model(step);
  const position n = model.length();
  std::vector<residency_script::absence> away;
  std::vector<residency_script::stay> stays;
  std::vector<std::size_t> untimed;
  for (const offline_plan::absence& a : plan.absences) {
    const std::uint32_t named = storage_of(step, a.tensor);
    if (named == step_record::none) continue;
    const std::uint32_t s = model.owner(named);
    const bool is_near = -n <= a.from && a.from < a.to && a.to <= 2 * n;
    if (!model[s].movable || !is_near) continue;
    const position behind = named == s ? 0 : n;
    const position from = a.from + behind, to = a.to + behind;
    if (a.how == offline_plan::way::keep) {
      stays.push_back({s, from, to});
      continue;
    }
    const bool copied = a.how == offline_plan::way::offload;
    const auto uses = model.uses(s);
    if (copied && !a.in_from) untimed.push_back(away.size());
    away.push_back({.storage = s,
                    .from = from,
                    .to = to,
                    .out_from = a.out_from ? *a.out_from + behind : from,
                    .in_from = a.in_from ? *a.in_from + behind : to,
                    .copied = copied,
                    .copies_out = copied,
                    .for_good = !model[s].cyclic && (uses.empty() || uses.back() <= from)});
  }
  time_copies(step, rate, latency, away, std::move(untimed));
  std::vector<double> held(plan.held.begin(), plan.held.end());
  if (held.size() != step.length()) held = held_beside(model, away);
  return {model, std::move(away), std::move(stays), std::move(held)};
}

}  // namespace delta::executor
