// What looking for victims is in real programs: a trace is replayed once in a budget, and what its
// manager tells the Filter is written down, so that any finder can be driven with it afterwards,
// and nothing else be timed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "delta/decider.hpp"
#include "delta/heuristic.hpp"
#include "delta/manager.hpp"
#include "delta/prefetcher.hpp"
#include "delta/storage/simulated.hpp"
#include "finders.hpp"
#include "replay/replay.hpp"

namespace delta::bench {

/// One thing that a finder is told, or asked.
struct log_entry {
  enum class kind : std::uint8_t {
    made,    ///< an operator made it, of that size: what was known of its id is void, and it is
             ///< listed
    enlist,  ///< it is a candidate from now on, of that size
    delist,
    touch,     ///< a candidate is locked, used and unlocked
    operated,  ///< an operator has run, or run again
    select     ///< `tensor` is the victim
  };
  kind what;
  tensor_id tensor = tensor_id::none;
  nanoseconds at{};  ///< last use; of a choice the time
  bytes size{};
};

/// A whole replay. Nothing is listed before it nor behind it.
struct trace_log {
  std::vector<log_entry> entries;
  std::size_t rows = 0;                    ///< ids are below
  std::size_t operators = 0, selects = 0;  ///< replays are among the operators
  std::size_t candidates = 0;              ///< at all choices together
  nanoseconds length{};
};

/// Writes a log. Operators say what they have touched; a choice says who was listed at that moment,
/// so that each is made among the very candidates that the manager had, whatever came of locks,
/// drops and restores since the one before.
class log_writer {
 public:
  log_writer(trace_log& log, const simulated& storage) : log_(&log), storage_(&storage) {}

  /// An operator has used these and made those.
  void operated(std::span<const tensor_id> inputs, std::span<const tensor_id> outputs,
                std::span<const bytes> sizes) {
    for (const tensor_id t : inputs)
      if (row(t).listed) touch(t, storage_->now());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      leave(outputs[i]);  // an id may come again with another tensor
      enter(log_entry::kind::made, outputs[i], sizes[i], storage_->now());
    }
    add({.what = log_entry::kind::operated});
    ++log_->operators;
  }
  /// The heuristic was asked about it: it is a candidate.
  void asked(const context& c, tensor_id t) {
    asked_.push_back({t, bytes{static_cast<std::uint64_t>(c.bytes(t))}, c.staleness(t)});
  }
  /// It leaves; chosen among those who were asked about, if any were.
  void leaves(tensor_id victim) {
    if (!asked_.empty()) chosen(victim);
    leave(victim);
  }
  /// The end.
  void finish() {
    for (std::uint32_t i = 0; i < rows_.size(); ++i) leave(static_cast<tensor_id>(i));
    log_->rows = rows_.size();
    log_->length = storage_->now();
  }

 private:
  struct entry {
    bool listed = false;
    bytes size{};
    nanoseconds last_use{};
    std::size_t seen = 0;  // the last choice that it was a candidate of
  };
  struct candidate {
    tensor_id tensor;
    bytes size;
    double staleness;
  };

  void chosen(tensor_id victim) {
    const nanoseconds now = storage_->now();
    ++log_->selects;
    log_->candidates += asked_.size();
    for (const auto& [t, size, staleness] : asked_) {
      entry& r = row(t);
      r.seen = log_->selects;
      const nanoseconds last_use = now - nanoseconds{static_cast<std::int64_t>(staleness)};
      if (r.listed && r.size != size) leave(t);
      if (!r.listed) enter(log_entry::kind::enlist, t, size, last_use);
      // At least 1 ns: what was used later than that says so too.
      const auto known = static_cast<double>((now - r.last_use).count());
      if (std::max(known, 1.0) != staleness) touch(t, last_use);
    }
    for (std::uint32_t i = 0; i < rows_.size(); ++i)
      if (rows_[i].seen != log_->selects) leave(static_cast<tensor_id>(i));
    add({.what = log_entry::kind::select, .tensor = victim, .at = now});
    asked_.clear();
  }
  void enter(log_entry::kind how, tensor_id t, bytes size, nanoseconds at) {
    row(t) = {.listed = true, .size = size, .last_use = at, .seen = log_->selects};
    add({.what = how, .tensor = t, .at = at, .size = size});
  }
  void leave(tensor_id t) {
    if (std::exchange(row(t).listed, false)) add({.what = log_entry::kind::delist, .tensor = t});
  }
  void touch(tensor_id t, nanoseconds at) {
    row(t).last_use = at;
    add({.what = log_entry::kind::touch, .tensor = t, .at = at});
  }
  void add(const log_entry& e) { log_->entries.push_back(e); }
  entry& row(tensor_id t) {
    if (index(t) >= rows_.size()) rows_.resize(index(t) + std::size_t{1});
    return rows_[index(t)];
  }

  trace_log* log_;
  const simulated* storage_;
  std::vector<entry> rows_;  // by id
  std::vector<candidate> asked_;
};

/// Equation (1), which tells who it was asked about: as it does not say what it depends on, that is
/// everybody, each time.
struct written_base {
  log_writer* log;
  double score(const context& c, tensor_id t) const {
    log->asked(c, t);
    return detail::score_of(base{}, c, t);
  }
};
/// Eviction, which tells who leaves.
struct written_eviction {
  static constexpr bool offloads = false;
  log_writer* log;
  action decide(const context&, tensor_id t) const {
    log->leaves(t);
    return action::evict;
  }
};

/// In a manager's place: hands everything on, and tells which operators ran.
template <class Manager>
class written_manager {
 public:
  written_manager(Manager& m, log_writer& log) : manager_(&m), log_(&log) {}

  tensor_id constant(bytes n, const char* label) { return manager_->constant(n, label); }
  tensor_id variable(bytes n, const char* label) { return manager_->variable(n, label); }
  tensor_id share(tensor_id t) { return manager_->share(t); }
  void drop(tensor_id t) { manager_->drop(t); }
  auto acquire(tensor_id t, access how = access::read) { return manager_->acquire(t, how); }
  void backward() { manager_->backward(); }
  void end_of_step() { manager_->end_of_step(); }
  [[nodiscard]] bool recomputable(tensor_id t) const { return manager_->recomputable(t); }
  [[nodiscard]] auto begin(const operation_span& op) { return manager_->begin(op); }

  template <class F>
  void run(const operation_span& op, std::span<tensor_id> ids, const F& body) {
    const std::size_t number = runs_.size();
    runs_.emplace_back();
    // Outputs have ids when the manager has returned; so a replay is what comes after.
    manager_->run(op, ids, [this, number, body](call& c) {
      body(c);
      if (runs_[number].done) tell(number);
    });
    runs_[number] = {{op.inputs.begin(), op.inputs.end()},
                     {ids.begin(), ids.end()},
                     {op.outputs.begin(), op.outputs.end()},
                     true};
    tell(number);
  }

 private:
  struct operator_run {
    std::vector<tensor_id> inputs, outputs;
    std::vector<bytes> sizes;
    bool done = false;
  };
  void tell(std::size_t number) {
    const operator_run& r = runs_[number];
    log_->operated(r.inputs, r.outputs, r.sizes);
  }

  Manager* manager_;
  log_writer* log_;
  std::vector<operator_run> runs_;
};

/// The log of a replay with `base` and `evict_only`. Where the budget is too small it ends with the
/// operator that does not fit, or at twice the time that the trace takes without a budget.
inline trace_log log_of(const trace& t, bytes budget) {
  trace_log log;
  simulated storage(executor::storage_for(t, {.budget = budget, .places = true}));
  log_writer writer(log, storage);
  manager m{policy<written_base, written_eviction, no_prefetch>{{&writer}, {&writer}, {}}, storage};
  written_manager written(m, writer);
  struct too_late {};
  trace_replayer play(written, t, [&, limit = 2 * total_cost(t)] {
    if (storage.now() > limit) throw too_late{};
  });
  try {
    play.run();
  } catch (const too_late&) {
  } catch (const thrash&) {
  } catch (const budget_exceeded&) {
  }
  writer.finish();
  return log;
}

/// Drives a finder of `base` with a log, again and again; the time goes on from one to the next.
template <class Finder>
class log_program {
 public:
  explicit log_program(const trace_log& log) : log_(&log), finder_(table_, base{}) {
    for (std::size_t i = 0; i < log.rows; ++i) table_.add(bytes{});
    finder_.cover(log.rows);
  }
  /// The whole log. The first choice that is another than the manager's, or `entries.size()`.
  std::size_t run() {
    std::size_t wrong = log_->entries.size();
    for (const log_entry& e : log_->entries) {
      switch (e.what) {
        case log_entry::kind::made:
          table_.tensors[e.tensor].has_score = false;
          [[fallthrough]];
        case log_entry::kind::enlist:
          resize(e.tensor, e.size);
          table_.tensors.set_last_use(e.tensor, began_ + e.at);
          finder_.enlist(e.tensor);
          break;
        case log_entry::kind::delist:
          finder_.delist(e.tensor);
          break;
        case log_entry::kind::touch:
          // Staler than before, as what was restored for an operator is, it is filed anew.
          if (static_cast<double>((began_ + e.at).count()) < table_.tensors.last_use(e.tensor)) {
            finder_.delist(e.tensor);
            table_.tensors.set_last_use(e.tensor, began_ + e.at);
            finder_.enlist(e.tensor);
          } else {
            table_.tensors.set_last_use(e.tensor, began_ + e.at);
          }
          break;
        case log_entry::kind::operated:
          ++table_.now.now;
          break;
        case log_entry::kind::select:
          table_.now.clock = began_ + e.at;
          if (finder_.select() != e.tensor)
            wrong = std::min(wrong, static_cast<std::size_t>(&e - log_->entries.data()));
          break;
      }
    }
    began_ += log_->length;
    return wrong;
  }
  [[nodiscard]] const Finder& finder() const { return finder_; }

 private:
  // What was only locked is what it was.
  void resize(tensor_id t, bytes size) {
    detail::tensor_record& r = table_.tensors[t];
    if (r.footprint != size) r.footprint = size, r.has_score = false;
  }

  const trace_log* log_;
  tensor_table table_;
  Finder finder_;
  nanoseconds began_{};
};

}  // namespace delta::bench
