#include "train/training_run.hpp"

#include <algorithm>
#include <cstring>
#include <iostream>
#include <numeric>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>

#include "backend/choose_backend.hpp"
#include "data/cifar.hpp"
#include "data/idx.hpp"
#include "data/synthetic.hpp"
#include "delta/learning_report.hpp"
#include "delta/testing/timed_arena.hpp"
#include "model/live_bytes.hpp"
#include "observe/watchers.hpp"
#include "peers/make_manager.hpp"
#include "trace/recorder.hpp"
#include "train/digest.hpp"
#include "train/feasibility.hpp"
#include "train/resume.hpp"
#include "train/session.hpp"
#include "train/trainer.hpp"

namespace delta::executor {
namespace {

std::unique_ptr<dataset> open_files(const train_options& o) {
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

std::unique_ptr<dataset> open_data(const train_options& o) {
  auto data = open_files(o);
  check_against_data(o, data->training().count);
  return data;
}

graph build(const train_options& o, const dataset& data, purpose what, int batch) {
  model_options m = model_of(o, data.channels(), data.classes());
  m.what = what;
  m.batch = batch;
  return make_model(o.model, m);
}

/// Bound to the backend, workspaces and all.
graph bound(graph g, backend& on) {
  on.bind(g);
  return g;
}

std::vector<graph> build_inference(const train_options& o, const dataset& data, backend& on,
                                   std::uint64_t memory) {
  std::vector<graph> graphs;
  if (!o.evaluate) return graphs;
  const int images = int(data.evaluation().count);
  const int whole = std::min(o.batch, images);
  const auto add = [&](int batch) {
    graph g = build(o, data, purpose::inference, batch);
    g.memory = memory;
    graphs.push_back(bound(std::move(g), on));
  };
  add(whole);
  if (images % whole != 0) add(images % whole);
  return graphs;
}

/// What workspaces are weighed against, in all runs of a command line alike, so that they give the
/// same bits: its budget, and no more than the values take without one. A budget that is yet to be
/// found is no budget.
std::uint64_t memory_of(const train_options& o, const graph& g, std::uint64_t granularity) {
  const bytes peak{peak_of_values(g, granularity)};
  return std::min(peak, o.budget.resolve(peak)).count;
}

/// Says what is being built before it is.
graph build_training(const train_options& o, const dataset& data, backend& on,
                     const std::optional<checkpoint>& resumed, std::ostream& progress) {
  progress << "building " << o.model << ": batch " << o.batch << ", " << o.image << "x" << o.image
           << ", on " << on.description() << std::endl;
  graph g = build(o, data, purpose::training, o.batch);
  g.memory = resumed ? resumed->head.memory : memory_of(o, g, on.granularity());
  g = bound(std::move(g), on);
  if (resumed) check_against_graph(*resumed, g, o.resume);
  return g;
}

std::optional<checkpoint> open_resumed(const train_options& o, const std::vector<fixed_flag>& flags,
                                       std::uint64_t steps) {
  if (o.resume.empty()) return std::nullopt;
  return open_checkpoint(o, flags, steps);
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

/// Without the first where there are more (run_outcome says why).
double usual(std::vector<double> v) {
  if (v.empty()) return 0;
  if (v.size() > 1) v.erase(v.begin());
  const auto middle = v.begin() + std::ptrdiff_t(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}
double mean(const std::vector<double>& v) {
  return v.empty() ? 0 : std::accumulate(v.begin(), v.end(), 0.0) / double(v.size());
}

double evaluate(const training_bench& s, session& trainee, listed_batch& batch) {
  const image_range range = s.data->evaluation();
  std::vector<std::uint32_t> indices(range.count);
  std::iota(indices.begin(), indices.end(), std::uint32_t(range.first));
  const auto classes = std::size_t(s.data->classes());
  std::vector<float> probabilities,
      ignored(std::size_t(s.options.image) * std::size_t(s.options.image) *
              std::size_t(s.data->channels()));
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
      s.data->fill(now.subspan(i, 1), s.options.image, ignored.data(), &label);
      right += std::size_t(label == std::int32_t(best));
    }
    first += n;
  }
  return double(right) / double(indices.size());
}

/// What a recording says of where it was made.
trace::origin origin_of(const timed_arena<machine>& storage, const training_bench& s) {
  const auto whole = [](double rate) { return static_cast<std::uint64_t>(rate); };
  return {.device = (s.options.virtual_clock ? "virtual clock, " : "") + s.on->description(),
          .rate_out = whole(storage.rate(direction::out)),
          .rate_in = whole(storage.rate(direction::in)),
          .rate_move = whole(storage.move_rate()),
          .latency = std::max(storage.latency(direction::out), storage.latency(direction::in)),
          .granularity = s.on->granularity()};
}

/// What the arena of a run is to be.
arena_options arena_options_of(const training_bench& s, const run_request& wanted) {
  return {.capacity = wanted.budget,
          .host_capacity = wanted.host_budget,
          .granularity = s.on->granularity()};
}
/// Its virtual clock, if it is to have one.
std::optional<copy_rates> clock_of(const train_options& o) {
  if (!o.virtual_clock) return std::nullopt;
  const double rate = o.copy_rate > 0 ? o.copy_rate : default_copy_rate;
  return copy_rates{.out = rate, .in = rate, .move = default_copy_rate};
}

/// Says that the next step waits, and waits for a line; goes on where there is no more input.
void await_turn(std::ostream& progress, std::string_view title) {
  progress << title << ": waits for its turn" << std::endl;
  std::string line;
  std::getline(std::cin, line);
}

/// What each step took, and what of that was waiting or the manager's own.
class step_times_taken {
 public:
  step_times_taken(machine& device, const timed_arena<machine>& storage, std::uint64_t steps)
      : device_(&device), storage_(&storage) {
    for (auto* v : {&walls_, &stalls_, &own_, &waits_}) v->reserve(steps);
  }
  /// Before a step, and after it.
  void begin() {
    waited_ = device_->waited(), held_ = device_->host_waited(), began_ = storage_->now();
  }
  void end(const step_times& t) {
    last_ = storage_->now() - began_;
    const nanoseconds host_waited = device_->host_waited() - held_;
    walls_.push_back(seconds(t.wall));
    stalls_.push_back(seconds(device_->waited() - waited_));
    waits_.push_back(seconds(host_waited));
    own_.push_back(seconds(t.wall - t.kernels - host_waited));
  }
  /// What was left to copy behind the last step is its time, too.
  void add_to_last(nanoseconds left) {
    if (walls_.empty()) return;
    walls_.back() += seconds(left), stalls_.back() += seconds(left);
  }
  [[nodiscard]] double last_wall() const { return walls_.back(); }
  void report(run_outcome& out) const {
    out.last_step = last_;
    out.step_seconds = usual(walls_);
    out.seconds_by_step = walls_;
    out.stall_seconds = mean(stalls_);
    out.manager_seconds = mean(own_);
    out.host_wait_seconds = mean(waits_);
  }

 private:
  static double seconds(nanoseconds t) { return double(t.count()) * 1e-9; }

  machine* device_;
  const timed_arena<machine>* storage_;
  std::vector<double> walls_, stalls_, own_, waits_;
  nanoseconds waited_{}, held_{}, began_{}, last_{};
};

/// Whether a checkpoint is due behind so many steps.
bool saves_behind(const train_options& o, const run_request& wanted, std::uint64_t steps) {
  if (!wanted.saving || o.save.empty()) return false;
  return steps == wanted.steps || (o.save_every > 0 && steps % o.save_every == 0);
}

void save_run(const training_bench& s, session& trainee, const run_outcome& so_far) {
  checkpoint_head head{.flags = s.flags, .losses = so_far.losses, .accuracies = so_far.accuracies};
  head.flags.push_back(algorithms_of(s.training));
  save(s.options.save, trainee, s.training, std::move(head));
}

void note_accuracy(training_bench& s, const run_request& wanted, session& trainee,
                   listed_batch& batch, std::uint64_t steps, run_outcome& out) {
  out.accuracies.push_back(evaluate(s, trainee, batch));
  s.progress << wanted.title << ": accuracy " << out.accuracies.back() << " after step " << steps
             << std::endl;
}

/// The steps of a run, with what is said on the way.
void take_steps(training_bench& s, const run_request& wanted, session& trainee, machine& device,
                step_times_taken& times, run_outcome& out) {
  const train_options& o = s.options;
  const std::uint64_t steps = wanted.steps;
  out.losses.reserve(steps);
  epoch_order order(s.data->training(), o.seed);
  listed_batch batch(*s.data, o.image), next(*s.data, o.image);
  const std::uint64_t per_epoch = order.whole_batches(std::size_t(o.batch));
  const std::uint64_t report_every = std::max<std::uint64_t>(1, steps / 8);
  const bool evaluates = o.evaluate && wanted.evaluations;
  for (std::uint64_t i = s.first(); i < steps; ++i) {
    const std::uint64_t epoch = i / per_epoch;
    if (i % per_epoch == 0 || i == s.first()) {
      order.shuffle(epoch);
      s.training.hyper->learning_rate = float(learning_rate(o, epoch));
    }
    batch.set(order.batch(i % per_epoch, std::size_t(o.batch)));
    // What a step leaves to copy is copied before others have their turns.
    if (o.turns)
      times.add_to_last(device.stand_still([&] { await_turn(s.progress, wanted.title); }));
    times.begin();
    const bool last = i + 1 == steps;
    // An epoch ends with another order, and perhaps with an evaluation.
    const bool ends_epoch = (i + 1) % per_epoch == 0, saves = saves_behind(o, wanted, i + 1);
    const bool goes_on = !last && !ends_epoch && !saves;
    if (goes_on) next.set(order.batch((i + 1) % per_epoch, std::size_t(o.batch)));
    out.losses.push_back(trainee.train(&batch, goes_on ? &next : nullptr));
    times.end(trainee.times());
    if (i == s.first() || (i + 1) % report_every == 0 || last)
      s.progress << wanted.title << ": step " << i + 1 << "/" << steps << ", loss "
                 << out.losses.back() << ", " << times.last_wall() << " s" << std::endl;
    if (last) out.learned = trainee.learned();  // evaluations are other steps
    if (evaluates && ends_epoch) note_accuracy(s, wanted, trainee, batch, i + 1, out);
    if (saves) save_run(s, trainee, out);
  }
  // Nothing was left to train, and the file may be another.
  if (s.first() == steps && saves_behind(o, wanted, steps)) save_run(s, trainee, out);
  // No longer run has this one there, so it is in no checkpoint.
  if (evaluates && steps % per_epoch != 0) note_accuracy(s, wanted, trainee, batch, steps, out);
}

/// The values that a run has come to.
void read_results(const graph& g, session& trainee, run_outcome& out) {
  const auto keep = [&](const std::vector<value_id>& values, auto& to) {
    for (const value_id v : values) trainee.read(v, to.emplace_back(g[v].bytes));
  };
  keep(g.parameters, out.parameters);
  keep(g.optimizer_states, out.state);
  keep(g.running_statistics, out.state);
}

std::string digest_of(const std::vector<std::vector<std::byte>>& values) {
  digest d;
  for (const auto& v : values) d.add(std::span<const std::byte>(v));
  return d.hex();
}

}  // namespace

training_bench::training_bench(const train_options& o, std::ostream& to)
    : options(o),
      progress(to),
      data(open_data(o)),
      steps(total_steps(o, data->training().count)),
      on(choose_backend(o, [&to](std::string_view line) { to << line << std::endl; })),
      flags(fixed_flags(o, *data, on->kind())),
      resumed(open_resumed(o, flags, steps)),
      training(build_training(o, *data, *on, resumed, to)),
      inference(build_inference(o, *data, *on, training.memory)),
      expected(unmanaged_peak(training, on->granularity())),
      host_budget(o.host_budget.value_or(bytes{expected.total})),
      pool(training.threads) {}

run_request unmanaged_run(const training_bench& s, std::uint64_t steps, std::string_view title) {
  // Twice the peak, so that blocks need not move together; less where the device has less free, of
  // which some is left to libraries.
  const bytes peak{s.expected.total}, free = s.on->free_memory();
  const bytes most{free.count - free.count / 16};
  const bytes wanted = free == bytes{} ? peak * 2 : std::max(peak, std::min(most, peak * 2));
  return {.budget = wanted, .steps = steps, .title = title};
}

run_outcome train_once(training_bench& s, const run_request& wanted) {
  const train_options& o = s.options;
  check_against_device(wanted.policy == "unmanaged" ? "an unmanaged run" : "--budget",
                       wanted.budget, *s.on);
  const std::unique_ptr<machine> device = s.on->open();
  device->lend(s.pool);
  timed_arena<machine> storage(*device, arena_options_of(s, wanted), clock_of(o));
  watchers told(wanted.timeline, wanted.decisions, device.get());
  trace_recorder recorder(o.virtual_clock ? trace_recorder::costs::stated
                                          : trace_recorder::costs::measured);
  std::unique_ptr<any_storage> memory = over(storage);
  hashes::hashed_storage* hashed = nullptr;
  if (wanted.hashed) {
    if (!device->computes_at_once())
      throw usage_error(
          "--verify-tensors: hashes on the host, and this device runs behind it; use "
          "--device cpu");
    auto checked = std::make_unique<hashes::hashed_storage>(
        std::move(memory), hashes::hash_options{.in_parallel = [&](std::size_t n, const auto& f) {
          s.pool.parallel_for(n, f);
        }});
    hashed = checked.get();
    memory = std::move(checked);
  }
  const auto trainee = std::make_unique<session>(
      s.training,
      make_any_manager(wanted.policy, std::move(memory),
                       {.observer = told.if_any(), .check_replays = o.check_replays}),
      session_tools{.device = device.get(),
                    .pool = &s.pool,
                    .recorder = wanted.recording ? &recorder : nullptr,
                    .hashed = hashed});
  run_outcome out;
  if (s.resumed) {
    restore(*trainee, *s.resumed);
    out.losses = s.resumed->head.losses;
    out.accuracies = s.resumed->head.accuracies;
  } else {
    trainee->create(o.seed);
  }
  out.timed_alone = !wanted.recording || device->computes_at_once();
  step_times_taken times(*device, storage, wanted.steps);
  take_steps(s, wanted, *trainee, *device, times, out);
  times.report(out);
  out.counts = trainee->counts();
  out.replays_were_checked = o.check_replays;
  if (hashed != nullptr) out.hashed = hashed->counts();
  out.peak = storage.peak();
  out.host_peak = storage.host_peak();
  out.by_class = trainee->peak_by_class();
  out.copy_threads = device->copy_threads();
  out.burden = {storage.burden(direction::out), storage.burden(direction::in)};
  out.moves = storage.moves();
  out.moved_bytes = storage.moved_bytes().count;
  // What is read from here on is for the report: no part of the program, nor of its decisions.
  told.log.reset();
  if (wanted.recording) out.recorded = recorder.take(origin_of(storage, s));
  read_results(s.training, *trainee, out);
  return out;
}

bool same_bits(const run_outcome& a, const run_outcome& b) {
  return a.losses.size() == b.losses.size() &&
         std::memcmp(a.losses.data(), b.losses.data(), a.losses.size() * sizeof(float)) == 0 &&
         a.parameters == b.parameters && a.state == b.state;
}

namespace {

std::optional<learned_report> report_of(const learning_report& l) {
  if (l.steps == 0) return std::nullopt;
  learned_report r{.steps = l.steps,
                   .kinds = l.kinds,
                   .divergences = l.divergences,
                   .operators = l.operators,
                   .peak_bytes = l.peak.count,
                   .measured_overhead = l.measured,
                   .expected_overhead = {},
                   .memory_bytes = l.memory};
  if (l.plans) {
    r.outcomes.emplace();
    for (const learning_report::outcome& o : l.outcomes)
      r.outcomes->push_back({o.predicted, o.measured});
  }
  if (l.expected > 0) r.expected_overhead = l.expected;
  return r;
}

}  // namespace

void report_algorithms(train_report& r, const graph& g) {
  std::vector<algorithm_report> all;
  for (const node& n : g.nodes)
    if (!n.algorithm.empty())
      all.push_back(
          {.operation = n.name, .algorithm = n.algorithm, .workspace_bytes = n.workspace});
  if (!all.empty()) r.algorithms = std::move(all);
}

void report_twin(train_report& r, const run_outcome& twin) {
  r.unmanaged_step_seconds = twin.step_seconds;
  r.unmanaged_peak_bytes = twin.by_class;
  r.unmanaged_peak_bytes->total = twin.peak.count;
}

void report_run(train_report& r, run_outcome&& run) {
  r.peak_bytes = run.peak.count;
  r.host_peak_bytes = run.host_peak.count;
  r.step_seconds = run.step_seconds;
  r.seconds_by_step = std::move(run.seconds_by_step);
  r.stall_seconds = run.stall_seconds;
  r.manager_seconds = run.manager_seconds;
  r.host_wait_seconds = run.host_wait_seconds;
  r.losses_digest = digest().add(std::span<const float>(run.losses)).hex();
  r.parameters_digest = digest_of(run.parameters);
  r.state_digest = digest_of(run.state);
  r.losses = std::move(run.losses);
  r.evaluation_accuracy = std::move(run.accuracies);
  r.evictions = run.counts.evictions;
  r.offloads = run.counts.offloads;
  r.reloads = run.counts.reloads;
  r.recomputes = run.counts.recomputes;
  r.prefetches = run.counts.prefetches;
  if (run.replays_were_checked) {
    r.replays_checked = run.counts.replays_checked;
    r.replays_unchecked = run.counts.replays_unchecked;
  }
  if (run.hashed) r.tensors_compared = run.hashed->compared();
  if (run.counts.guessed_costs > 0) r.guessed_costs = run.counts.guessed_costs;
  r.host_waits = run.counts.waits;
  r.copy_threads = run.copy_threads;
  r.moves = run.moves;
  r.moved_bytes = run.moved_bytes;
  r.learned = report_of(run.learned);
}

}  // namespace delta::executor
