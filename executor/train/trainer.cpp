#include "train/trainer.hpp"

#include <algorithm>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "backend/choose_backend.hpp"
#include "cli/format.hpp"
#include "cli/output_file.hpp"
#include "trace/file.hpp"
#include "train/feasibility.hpp"
#include "train/training_run.hpp"

namespace delta::executor {
namespace {

/// A memory that fits only just, on the device and on the host, may last for some steps and no
/// more: the state that a step leaves behind is not the one that it found. So many are tried.
constexpr std::uint64_t rehearsed_steps = 64;

/// Parameters that a GPU updates in one operator. ResNet-50's 102 MB go in seven launches in place
/// of 161, and each lasts long enough on any GPU to make a launch's cost small; what is held longer
/// is small beside a batch's activations.
constexpr bytes gpu_update_group = 16_MiB;

/// The same error with the smallest budget that a trial in virtual time found to work.
[[noreturn]] void rethrow_with_budget(const budget_exceeded& e, const graph& g, trial t,
                                      std::ostream& progress) {
  progress << "looking for the smallest budget that works" << std::endl;
  memory_report r = e.report;
  if (const auto found = smallest_budget(g, t))
    r.smallest_budget = *found, r.basis = budget_basis::trial;
  if (const auto* thrashed = dynamic_cast<const thrash*>(&e))
    throw thrash(r, thrashed->replays, thrashed->cap);
  throw budget_exceeded(r);
}

}  // namespace

model_options model_of(const train_options& o, int channels, int classes) {
  const bool adam = o.optimizer == "adam";
  return {.batch = o.batch,
          .image = o.image,
          .channels = channels,
          .classes = classes,
          .dropout = o.dropout,
          .hyper = {.learning_rate = float(o.lr),
                    .momentum = float(o.momentum),
                    .decay = float(o.weight_decay),
                    .optimizer = adam ? optimizer_kind::adam : optimizer_kind::sgd,
                    .beta1 = float(o.beta1),
                    .beta2 = float(o.beta2),
                    .epsilon = float(o.epsilon),
                    .seed = o.seed,
                    .update_group =
                        o.update_group.value_or(on_gpu(o) ? gpu_update_group : bytes{}).count},
          .fuse = o.fuse.value_or(on_gpu(o)) ? fusion::batch_norm : fusion::none};
}

train_report describe(const train_options& o) {
  train_report r;
  r.device = on_gpu(o) ? "cuda" : "cpu";
  r.model = o.model;
  r.data = to_string(o.data.what);
  r.batch = o.batch;
  r.image = o.image;
  r.seed = o.seed;
  r.threads = o.threads;
  r.steps = o.steps;
  r.policy = o.policy;
  r.virtual_clock = o.virtual_clock;
  r.fused = o.fuse.value_or(on_gpu(o));
  if (o.copy_rate > 0) r.copy_rate = o.copy_rate;
  return r;
}

train_report train(const train_options& o, std::ostream& progress) {
  training_bench bench(o, progress);
  const std::uint64_t steps = bench.steps;
  const bytes host_budget = bench.host_budget;

  train_report r = describe(o);
  r.steps = steps;
  r.device_name = bench.on->description();
  report_algorithms(r, bench.training);
  r.unmanaged_peak_bytes = bench.expected;

  // The twin: whole where it is compared, a few steps where only its peak and its time are.
  std::optional<run_outcome> twin;
  const bool managed = o.policy != "unmanaged" || o.budget.what != budget_choice::kind::none;
  // A model that the device has no memory for without a budget has no such run: a percentage is
  // then of the peak as counted, which is the same.
  const bytes free = bench.on->free_memory();
  const bool fits = free == bytes{} || bytes{bench.expected.total} <= free;
  if (managed && !fits && !o.verify)
    progress << "unmanaged it would need " << format_bytes(bytes{bench.expected.total}) << " of "
             << format_bytes(free) << " that are free: not run" << std::endl;
  if (managed && (o.verify || (fits && o.budget.what == budget_choice::kind::percent))) {
    const std::uint64_t some = std::min<std::uint64_t>(steps, bench.first() + 5);
    twin = train_once(bench, unmanaged_run(bench, o.verify ? steps : some, "unmanaged twin"));
    // Without a step its peak is that of the parameters alone: what was counted stands.
    if (bench.first() < steps) report_twin(r, *twin);
  }
  const bytes peak{r.unmanaged_peak_bytes->total};
  const std::string title =
      managed ? o.policy + " in " + format_bytes(o.budget.resolve(peak)) : std::string("unmanaged");
  run_request wanted = unmanaged_run(bench, steps, title);
  wanted.policy = o.policy;
  if (managed) wanted.budget = o.budget.resolve(peak);
  if (o.policy != "unmanaged") wanted.host_budget = host_budget;
  const trial rehearsal{.policy = o.policy,
                        .budget = wanted.budget,
                        .host_budget = host_budget,
                        .copy_rate = o.copy_rate,
                        .steps = int(std::clamp<std::uint64_t>(steps, 3, rehearsed_steps)),
                        .granularity = bench.on->granularity()};
  if (const bytes least = largest_footprint(bench.training, bench.on->granularity());
      managed && wanted.budget < least) {
    // Where even that is too little for the policy, what the line allows must be enough.
    check_against_operator(wanted.budget,
                           smallest_budget(bench.training, rehearsal).value_or(least));
  }

  live_file lanes("--timeline", o.timeline), decisions("--decisions", o.decisions);
  wanted.timeline = lanes.stream();
  wanted.decisions = decisions.stream();
  wanted.recording = !o.record.empty();
  wanted.hashed = o.verify_tensors;
  wanted.saving = true;
  run_outcome run;
  try {
    run = train_once(bench, wanted);
  } catch (const budget_exceeded& e) {
    rethrow_with_budget(e, bench.training, rehearsal, progress);
  }
  lanes.finish();
  decisions.finish();
  if (run.recorded) write_trace(*run.recorded, o.record);
  if (!managed) r.unmanaged_step_seconds = run.step_seconds;
  r.budget_bytes = managed ? wanted.budget.count : run.peak.count;
  if (o.policy != "unmanaged") r.host_budget_bytes = host_budget.count;
  if (o.verify) r.bit_identical = !twin || same_bits(*twin, run);
  report_run(r, std::move(run));
  return r;
}

}  // namespace delta::executor
