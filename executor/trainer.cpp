#include "trainer.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <ostream>
#include <stdexcept>
#include <string>

#include "data/cifar.hpp"
#include "data/idx.hpp"
#include "data/synthetic.hpp"
#include "decision_log.hpp"
#include "delta/presets.hpp"
#include "delta/storage/arena.hpp"
#include "delta/timeline.hpp"
#include "device/cpu.hpp"
#include "digest.hpp"
#include "feasibility.hpp"
#include "format.hpp"
#include "replay/trace_file.hpp"
#include "replay/trace_recorder.hpp"
#include "runner.hpp"

namespace delta::executor {
namespace {

std::unique_ptr<dataset> open_data(const train_options& o) {
  switch (o.data.what) {
    case data_choice::kind::mnist:
      return std::make_unique<mnist>(o.data.directory);
    case data_choice::kind::cifar10:
      return std::make_unique<cifar10>(o.data.directory);
    case data_choice::kind::synthetic:
      break;
  }
  return std::make_unique<synthetic>(o.seed);
}

graph build(const train_options& o, const dataset& data, purpose what, int batch) {
  model_options m = model_of(o, data.channels(), data.classes());
  m.what = what;
  m.batch = batch;
  return make_model(o.model, m);
}

/// A list of images as one batch.
class listed_batch final : public batch_source {
 public:
  listed_batch(const dataset& data, int image) : data_(&data), image_(image) {}
  void set(std::span<const std::uint32_t> indices) { indices_ = indices; }
  void fill(float* images, std::int32_t* labels) override {
    data_->fill(indices_, image_, images, labels);
  }

 private:
  const dataset* data_;
  int image_;
  std::span<const std::uint32_t> indices_;
};

/// What one run leaves behind.
struct outcome {
  std::vector<float> losses;
  std::vector<std::vector<std::byte>> parameters, state;  ///< in the graph's order
  std::vector<double> accuracies;
  double step_seconds = 0, stall_seconds = 0, manager_seconds = 0;
  counters counts;
  bytes peak{}, host_peak{};
  bytes_by_class by_class;
  std::uint64_t moves = 0, moved_bytes = 0;
  std::optional<trace> recorded;
};

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  const auto middle = v.begin() + std::ptrdiff_t(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}
double mean(const std::vector<double>& v) {
  return v.empty() ? 0 : std::accumulate(v.begin(), v.end(), 0.0) / double(v.size());
}

/// Everything that the two runs share.
struct setting {
  const train_options& options;
  const dataset& data;
  const graph& training;
  const std::vector<graph>& inference;  ///< whole batches, and the last one's size
  thread_pool& pool;
  std::ostream& progress;
};

double evaluate(const setting& s, session& trainee, listed_batch& batch) {
  const image_range range = s.data.evaluation();
  std::vector<std::uint32_t> indices(range.count);
  std::iota(indices.begin(), indices.end(), std::uint32_t(range.first));
  const auto classes = std::size_t(s.data.classes());
  std::vector<float> probabilities,
      ignored(std::size_t(s.options.image) * std::size_t(s.options.image) *
              std::size_t(s.data.channels()));
  std::size_t right = 0;
  for (std::size_t first = 0; first < indices.size();) {
    const graph* g = &s.inference.front();
    const std::size_t left = indices.size() - first;
    if (std::size_t(g->batch) > left) g = &s.inference.back();
    const auto n = std::size_t(g->batch);
    const auto now = std::span(indices).subspan(first, n);
    probabilities.resize(n * classes);
    batch.set(now);
    trainee.infer(*g, &batch, probabilities);
    for (std::size_t i = 0; i < n; ++i) {
      const auto row = probabilities.begin() + std::ptrdiff_t(i * classes);
      const auto best = std::max_element(row, row + std::ptrdiff_t(classes)) - row;
      std::int32_t label = -1;
      s.data.fill(now.subspan(i, 1), s.options.image, ignored.data(), &label);
      right += std::size_t(label == std::int32_t(best));
    }
    first += n;
  }
  return double(right) / double(indices.size());
}

/// A file that is written while the run goes on; no name: none.
class live_file {
 public:
  live_file(const char* flag, const std::filesystem::path& name) : flag_(flag), name_(name) {
    if (!name.empty()) stream_.open(name, std::ios::binary);
  }
  /// Null: there is none.
  [[nodiscard]] std::ostream* stream() { return name_.empty() ? nullptr : &stream_; }
  /// Throws std::runtime_error where not all of it could be written.
  void finish() {
    stream_.flush();
    if (!name_.empty() && !stream_)
      throw std::runtime_error(std::string(flag_) + ": '" + name_.string() +
                               "' could not be written");
  }

 private:
  const char* flag_;
  std::filesystem::path name_;
  std::ofstream stream_;
};

/// What is wanted of a run besides its outcome.
struct wishes {
  std::ostream* timeline = nullptr;   ///< null: none
  std::ostream* decisions = nullptr;  ///< null: none
  bool recording = false;
};

/// The observers of one run.
struct watchers {
  std::optional<timeline> lanes;
  std::optional<decision_log> log;

  explicit watchers(const wishes& w) {
    if (w.timeline != nullptr) lanes.emplace(*w.timeline);
    if (w.decisions != nullptr) log.emplace(*w.decisions);
  }
  void on(const event& e) {
    if (lanes) lanes->on(e);
    if (log) log->on(e);
  }
};

/// What a recording says of where it was made.
trace::origin origin_of(const arena<cpu_device>& storage, const train_options& o) {
  const auto whole = [](double rate) { return static_cast<std::uint64_t>(rate); };
  return {.device = (o.virtual_clock ? "virtual clock" : cpu_name()) + ", " +
                    std::to_string(o.threads) + (o.threads == 1 ? " thread" : " threads"),
          .rate_out = whole(storage.rate(direction::out)),
          .rate_in = whole(storage.rate(direction::in)),
          .rate_move = whole(storage.move_rate()),
          .latency = std::max(storage.latency(direction::out), storage.latency(direction::in)),
          .granularity = granularity};
}

/// Trains `steps` steps in an arena of `budget` bytes.
outcome train_once(const setting& s, std::string_view policy, bytes budget, bytes host_budget,
                   std::uint64_t steps, std::string_view title, const wishes& wanted) {
  const train_options& o = s.options;
  cpu_device device({.copy_rate = o.copy_rate});
  arena_options memory{
      .capacity = budget, .host_capacity = host_budget, .granularity = granularity};
  if (o.virtual_clock) {
    const double rate = o.copy_rate > 0 ? o.copy_rate : default_copy_rate;
    memory.virtual_clock = copy_rates{.out = rate, .in = rate, .move = default_copy_rate};
  }
  arena<cpu_device> storage(device, memory);
  watchers told(wanted);
  trace_recorder recorder(o.virtual_clock ? trace_recorder::costs::stated
                                          : trace_recorder::costs::measured);
  trace_recorder* const recording = wanted.recording ? &recorder : nullptr;
  std::unique_ptr<session> trainee;
  with_preset(
      policy,
      [&](auto p) {
        trainee = told.lanes || told.log ? make_session(s.training, std::move(p), storage, &s.pool,
                                                        observed_by{&told}, recording)
                                         : make_session(s.training, std::move(p), storage, &s.pool,
                                                        no_observer{}, recording);
      },
      o.strict);
  trainee->create(o.seed);

  outcome out;
  out.losses.reserve(steps);
  std::vector<double> walls, stalls, own;
  for (auto* v : {&walls, &stalls, &own}) v->reserve(steps);
  epoch_order order(s.data.training(), o.seed);
  listed_batch batch(s.data, o.image);
  const std::uint64_t per_epoch = order.whole_batches(std::size_t(o.batch));
  const std::uint64_t report_every = std::max<std::uint64_t>(1, steps / 8);
  for (std::uint64_t i = 0; i < steps; ++i) {
    const std::uint64_t epoch = i / per_epoch;
    if (i % per_epoch == 0) {
      order.shuffle(epoch);
      s.training.hyper->learning_rate = float(learning_rate(o, epoch));
    }
    batch.set(order.batch(i % per_epoch, std::size_t(o.batch)));
    const nanoseconds waited = device.waited();
    out.losses.push_back(trainee->train(&batch));
    const auto seconds = [](nanoseconds t) { return double(t.count()) * 1e-9; };
    const nanoseconds stalled = device.waited() - waited;
    const step_times t = trainee->times();
    walls.push_back(seconds(t.wall));
    stalls.push_back(seconds(stalled));
    own.push_back(seconds(t.wall - t.kernels - stalled));
    if (i == 0 || (i + 1) % report_every == 0 || i + 1 == steps)
      s.progress << title << ": step " << i + 1 << "/" << steps << ", loss " << out.losses.back()
                 << ", " << walls.back() << " s" << std::endl;
    if (o.evaluate && ((i + 1) % per_epoch == 0 || i + 1 == steps)) {
      out.accuracies.push_back(evaluate(s, *trainee, batch));
      s.progress << title << ": accuracy " << out.accuracies.back() << " after step " << i + 1
                 << std::endl;
    }
  }
  out.step_seconds = median(walls);
  out.stall_seconds = mean(stalls);
  out.manager_seconds = mean(own);
  out.counts = trainee->counts();
  out.peak = storage.peak();
  out.host_peak = storage.host_peak();
  out.by_class = trainee->peak_by_class();
  out.moves = storage.moves();
  out.moved_bytes = storage.moved_bytes().count;
  // What is read from here on is for the report: no part of the program, nor of its decisions.
  told.log.reset();
  if (wanted.recording) out.recorded = recorder.take(origin_of(storage, o));
  const graph& g = s.training;
  const auto keep = [&](const std::vector<value_id>& values, auto& to) {
    for (const value_id v : values) trainee->read(v, to.emplace_back(g[v].bytes));
  };
  keep(g.parameters, out.parameters);
  keep(g.optimizer_states, out.state);
  keep(g.running_statistics, out.state);
  return out;
}

std::string digest_of(const std::vector<std::vector<std::byte>>& values) {
  digest d;
  for (const auto& v : values) d.add(std::span<const std::byte>(v));
  return d.hex();
}

bool same_bits(const outcome& a, const outcome& b) {
  return a.losses.size() == b.losses.size() &&
         std::memcmp(a.losses.data(), b.losses.data(), a.losses.size() * sizeof(float)) == 0 &&
         a.parameters == b.parameters && a.state == b.state;
}

/// A memory that fits only just, on the device and on the host, may last for some steps and no
/// more: the state that a step leaves behind is not the one that it found. So many are tried.
constexpr std::uint64_t rehearsed_steps = 64;

/// The same error with the smallest budget that a trial in virtual time found to work.
[[noreturn]] void rethrow_with_budget(const budget_exceeded& e, const graph& g, trial t,
                                      std::ostream& progress) {
  progress << "looking for the smallest budget that works" << std::endl;
  memory_report r = e.report;
  if (const auto found = smallest_budget(g, t)) r.smallest_budget = *found;
  if (const auto* thrashed = dynamic_cast<const thrash*>(&e))
    throw thrash(r, thrashed->replays, thrashed->cap);
  throw budget_exceeded(r);
}

}  // namespace

std::span<const policy_choice> known_policies() noexcept {
  static const auto list = [] {
    std::array<policy_choice, presets.size()> choices;
    for (std::size_t i = 0; i < presets.size(); ++i)
      choices[i] = {presets[i].name, presets[i].explanation};
    return choices;
  }();
  return list;
}

model_options model_of(const train_options& o, int channels, int classes) {
  const bool adam = o.optimizer == "adam";
  return {.batch = o.batch,
          .image = o.image,
          .channels = channels,
          .classes = classes,
          .threads = o.threads,
          .dropout = o.dropout,
          .hyper = {.learning_rate = float(o.lr),
                    .momentum = float(o.momentum),
                    .decay = float(o.weight_decay),
                    .optimizer = adam ? optimizer_kind::adam : optimizer_kind::sgd,
                    .beta1 = float(o.beta1),
                    .beta2 = float(o.beta2),
                    .epsilon = float(o.epsilon),
                    .seed = o.seed}};
}

train_report describe(const train_options& o) {
  train_report r;
  r.model = o.model;
  r.data = to_string(o.data.what);
  r.batch = o.batch;
  r.image = o.image;
  r.seed = o.seed;
  r.threads = o.threads;
  r.steps = o.steps;
  r.policy = o.policy;
  r.virtual_clock = o.virtual_clock;
  if (o.copy_rate > 0) r.copy_rate = o.copy_rate;
  return r;
}

train_report train(const train_options& o, std::ostream& progress) {
  const auto data = open_data(o);
  check_against_data(o, data->training().count);
  const std::uint64_t steps = total_steps(o, data->training().count);
  progress << "building " << o.model << ": batch " << o.batch << ", " << o.image << "x" << o.image
           << ", " << o.threads << " threads" << std::endl;
  const graph training = build(o, *data, purpose::training, o.batch);
  std::vector<graph> inference;
  if (o.evaluate) {
    const int images = int(data->evaluation().count);
    const int whole = std::min(o.batch, images);
    inference.push_back(build(o, *data, purpose::inference, whole));
    if (images % whole != 0)
      inference.push_back(build(o, *data, purpose::inference, images % whole));
  }
  const bytes_by_class expected = unmanaged_peak(training);
  const bytes expected_peak{expected.total};
  const bytes host_budget = o.host_budget.value_or(expected_peak);
  thread_pool pool(o.threads);
  const setting s{o, *data, training, inference, pool, progress};

  train_report r = describe(o);
  r.steps = steps;
  r.unmanaged_peak_bytes = expected;

  // The twin: whole where it is compared, a few steps where only its peak and its time are.
  std::optional<outcome> twin;
  const bool managed = o.policy != "unmanaged" || o.budget.what != budget_choice::kind::none;
  if (managed && (o.verify || o.budget.what == budget_choice::kind::percent)) {
    twin = train_once(s, "unmanaged", expected_peak + expected_peak, bytes{},
                      o.verify ? steps : std::min<std::uint64_t>(steps, 5), "unmanaged twin", {});
    r.unmanaged_step_seconds = twin->step_seconds;
    r.unmanaged_peak_bytes = twin->by_class;
    r.unmanaged_peak_bytes->total = twin->peak.count;
  }
  const bytes peak{r.unmanaged_peak_bytes->total};
  const bytes budget = managed ? o.budget.resolve(peak) : expected_peak + expected_peak;
  const trial rehearsal{.policy = o.policy,
                        .strict = o.strict,
                        .budget = budget,
                        .host_budget = host_budget,
                        .copy_rate = o.copy_rate,
                        .steps = int(std::clamp<std::uint64_t>(steps, 3, rehearsed_steps))};
  if (const bytes least = largest_footprint(training); managed && budget < least) {
    // Where even that is too little for the policy, what the line allows must be enough.
    check_against_operator(budget, smallest_budget(training, rehearsal).value_or(least));
  }

  live_file lanes("--timeline", o.timeline), decisions("--decisions", o.decisions);
  const wishes wanted{lanes.stream(), decisions.stream(), !o.record.empty()};
  outcome run;
  try {
    const std::string title =
        managed ? o.policy + " in " + format_bytes(budget) : std::string("unmanaged");
    run = train_once(s, o.policy, budget, o.policy == "unmanaged" ? bytes{} : host_budget, steps,
                     title, wanted);
  } catch (const budget_exceeded& e) {
    rethrow_with_budget(e, training, rehearsal, progress);
  }
  lanes.finish();
  decisions.finish();
  if (run.recorded) write_trace(*run.recorded, o.record);
  if (!managed) r.unmanaged_step_seconds = run.step_seconds;
  r.budget_bytes = managed ? budget.count : run.peak.count;
  r.peak_bytes = run.peak.count;
  if (o.policy != "unmanaged") r.host_budget_bytes = host_budget.count;
  r.host_peak_bytes = run.host_peak.count;
  r.step_seconds = run.step_seconds;
  r.stall_seconds = run.stall_seconds;
  r.manager_seconds = run.manager_seconds;
  r.losses_digest = digest().add(std::span<const float>(run.losses)).hex();
  r.parameters_digest = digest_of(run.parameters);
  r.state_digest = digest_of(run.state);
  if (o.verify) r.bit_identical = !twin || same_bits(*twin, run);
  r.losses = std::move(run.losses);
  r.evaluation_accuracy = std::move(run.accuracies);
  r.evictions = run.counts.evictions;
  r.offloads = run.counts.offloads;
  r.reloads = run.counts.reloads;
  r.recomputes = run.counts.recomputes;
  r.prefetches = run.counts.prefetches;
  r.moves = run.moves;
  r.moved_bytes = run.moved_bytes;
  return r;
}

}  // namespace delta::executor
