// Training runs as tests want them: options from a few words, refusals as values, and the bits of
// two runs compared.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>
#include <variant>

#include "backend/cpu_backend.hpp"
#include "cli/options.hpp"
#include "delta/error.hpp"
#include "model/models.hpp"
#include "train/report.hpp"
#include "train/trainer.hpp"

namespace delta::test {

/// A model and the images that it is fed; the rest of the options is the same in all tests.
struct workload {
  std::string_view model;
  int image = 32;
  int batch = 16;
  std::uint64_t steps = 3;
};

/// Unmanaged training on synthetic images, with a learning rate that does not diverge soon.
inline executor::train_options unmanaged(const workload& w, int threads = 2) {
  executor::train_options o;
  o.model = w.model;
  o.image = w.image;
  o.batch = w.batch;
  o.steps = w.steps;
  o.lr = 0.01;
  o.threads = threads;
  o.copy_threads = 2;  // to measure which way of copying is better takes a fifth of a second a run
  return o;
}

inline executor::train_options managed(executor::train_options o, std::string_view policy,
                                       executor::budget_choice budget) {
  o.policy = policy;
  o.budget = budget;
  return o;
}
inline executor::budget_choice percent(double part) {
  return {executor::budget_choice::kind::percent, {}, part};
}
inline executor::budget_choice absolute(std::uint64_t count) {
  return {executor::budget_choice::kind::absolute, bytes{count}, 0};
}

/// `train` without its progress lines.
inline executor::train_report train(const executor::train_options& o) {
  std::ostream nowhere(nullptr);
  return executor::train(o, nowhere);
}

/// Why a run did not reach its end, and the smallest budget that the error names.
struct refusal {
  std::string line;
  std::uint64_t smallest_budget = 0;
};

/// The report, or the two typed errors that a small budget may end in. Any other error passes
/// through.
inline std::variant<executor::train_report, refusal> try_to_train(
    const executor::train_options& o) {
  try {
    return train(o);
  } catch (const budget_exceeded& e) {
    return refusal{e.what(), e.report.smallest_budget.count};
  } catch (const executor::usage_error& e) {
    const std::string line = e.what();
    constexpr std::string_view before = "allowed: at least ";
    const auto at = line.find(before);
    if (!line.starts_with("--budget: ") || at == std::string::npos) throw;
    return refusal{line, std::strtoull(line.c_str() + at + before.size(), nullptr, 10)};
  }
}

/// Every loss, parameter, optimizer state and running statistic of two runs, by their digests.
inline bool same_bits(const executor::train_report& a, const executor::train_report& b) {
  return !a.losses.empty() && a.losses.size() == b.losses.size() &&
         a.losses_digest == b.losses_digest && a.parameters_digest == b.parameters_digest &&
         a.state_digest == b.state_digest;
}

/// The graph that `train` builds for these options, on synthetic images, on the CPU.
inline executor::graph graph_of(const executor::train_options& o) {
  return executor::bound_to_cpu(executor::make_model(o.model, executor::model_of(o, 3, 10)),
                                o.threads);
}

/// One line per row of a test's table, for `--success` and for whoever reads the log.
inline std::string row(const executor::train_report& r) {
  const auto field = [](const char* name, std::uint64_t n) {
    return std::string(", ") + name + " " + std::to_string(n);
  };
  return r.model + " " + r.policy + field("budget", r.budget_bytes) + field("peak", r.peak_bytes) +
         field("evictions", r.evictions) + field("offloads", r.offloads) +
         field("reloads", r.reloads) + field("recomputes", r.recomputes) + field("moves", r.moves);
}

/// What reports, rows and counters count of decisions is the same.
void check_same_decisions(const auto& a, const auto& b) {
  CHECK(a.evictions == b.evictions);
  CHECK(a.offloads == b.offloads);
  CHECK(a.reloads == b.reloads);
  CHECK(a.recomputes == b.recomputes);
  CHECK(a.prefetches == b.prefetches);
}

}  // namespace delta::test
