#include "simrd/simrd.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "simrd/neighbours.hpp"

namespace delta::executor {
namespace {

using ids = std::vector<std::uint32_t>;
constexpr std::uint32_t none = trace::none;

class simulation {
 public:
  simulation(const trace& t, simrd_policy policy, bytes budget, double thrash_limit)
      : trace_(t),
        policy_(policy),
        budget_(budget),
        tensors_(t.tensors.size()),
        around_(policy, t.tensors.size()) {
    const auto work =
        std::accumulate(t.operations.begin(), t.operations.end(), nanoseconds{},
                        [](nanoseconds sum, const trace::operation& o) { return sum + o.cost; });
    limit_ = static_cast<double>(work.count()) * (thrash_limit - 1);
  }

  simrd_result run() {
    for (const trace::event& e : trace_.events)
      if (!replay(e)) return result_;
    keep_results();
    return result_;
  }

 private:
  struct tensor {
    std::uint32_t storage = none;
    std::uint64_t references = 0;
    bool defined = false;  // a view is undefined with its storage, and stays so when that is back
  };
  struct storage {
    bytes size{};
    nanoseconds last_use{};
    std::uint64_t locks = 0;
    std::uint64_t references = 0;  // to its tensor and its views
    bool pinned = false;           // one of the locks is never taken back
    ids tensors;
  };
  /// An operator that waits for what it reads.
  struct frame {
    const trace::operation* what;
    std::uint32_t wanted;  // which of its outputs is asked for; none, if it has no outputs
    bool again;
    ids missing;
    std::size_t next = 0;
  };

  /// False: that failed, and the result says how.
  bool replay(const trace::event& e) {
    switch (e.what) {
      case trace::kind::constant:
      case trace::kind::variable:
        enter(e.index);
        if (!materialise(open(source, e.index, false))) return false;
        pin(e.index);
        break;
      case trace::kind::run:
        return run(trace_.operations[e.index]);
      case trace::kind::share:
        ++tensors_[e.index].references, ++of(e.index).references;
        break;
      case trace::kind::drop:
        --tensors_[e.index].references;
        if (--of(e.index).references == 0 && !of(e.index).pinned &&
            around_.resident(id_of(e.index)))
          evict(id_of(e.index));
        break;
      case trace::kind::read:
        return touch(e.index);
      case trace::kind::write:
        if (!touch(e.index)) return false;
        pin(e.index);
        break;
      case trace::kind::backward:
      case trace::kind::end_of_step:
        break;
    }
    return true;
  }

  bool run(const trace::operation& o) {
    const auto outputs = trace_.outputs(o);
    for (const std::uint32_t t : outputs) enter(t);
    // Linked before its inputs are there: to them, the outputs are evicted neighbours until then.
    for (const std::uint32_t t : outputs)
      for_each_input(o, [&](std::uint32_t in) { around_.link(id_of(in), id_of(t)); });
    if (!materialise(open(o, outputs.empty() ? none : outputs.front(), false))) return false;
    for (const std::uint32_t t : outputs) of(t).last_use = result_.clock;
    for (const std::uint32_t t : trace_.updates(o)) pin(t);
    return true;
  }

  /// The program itself looks at a tensor.
  bool touch(std::uint32_t t) {
    if (!tensors_[t].defined && !materialise(replay_of(t))) return false;
    of(t).last_use = result_.clock;
    return true;
  }

  void keep_results() {
    if (!trace_.has_results()) return;
    for (std::uint32_t t = 0; t < tensors_.size(); ++t) {
      if (tensors_[t].references == 0) continue;
      if (!tensors_[t].defined && !materialise(replay_of(t))) return;
      pin(t);
    }
  }

  /// A new tensor, not computed yet.
  void enter(std::uint32_t t) {
    const auto& made = trace_.tensors[t];
    tensors_[t] = {made.view_of == none ? around_.add() : id_of(made.view_of), 1, false};
    if (made.view_of == none) storages_.emplace_back().size = trace_.rounded(made.size);
    storage& s = of(t);
    // An operator that makes two views of a storage costs it once. Its outputs come together.
    if (made.producer != none &&
        (s.tensors.empty() || trace_.tensors[s.tensors.back()].producer != made.producer))
      around_.add_cost(id_of(t), trace_.operations[made.producer].cost.count());
    s.tensors.push_back(t);
    ++s.references;
  }

  template <class Visit>
  void for_each_input(const trace::operation& o, const Visit& visit) const {
    for (const std::uint32_t in : trace_.inputs(o)) visit(in);
    for (const std::uint32_t in : trace_.updates(o)) visit(in);
  }

  /// Runs `last` after whatever it needs, depth first.
  bool materialise(frame last) {
    std::vector<frame> waiting;
    waiting.push_back(std::move(last));
    while (!waiting.empty()) {
      frame& f = waiting.back();
      if (f.next == f.missing.size()) {
        if (!compute(*f.what, f.wanted, f.again)) return false;
        waiting.pop_back();
      } else if (const std::uint32_t in = f.missing[f.next]; tensors_[in].defined) {
        lock(in);
        ++f.next;
      } else {
        waiting.push_back(replay_of(in));
      }
    }
    return true;
  }

  /// Locks the inputs that are there, and lists the others.
  frame open(const trace::operation& o, std::uint32_t wanted, bool again) {
    frame f{&o, wanted, again, {}};
    for_each_input(o, [&](std::uint32_t in) {
      of(in).last_use = result_.clock;
      if (tensors_[in].defined)
        lock(in);
      else
        f.missing.push_back(in);
    });
    return f;
  }
  frame replay_of(std::uint32_t t) {
    return open(trace_.operations[trace_.tensors[t].producer], t, true);
  }

  /// Runs an operator whose inputs are locked, and unlocks them.
  bool compute(const trace::operation& o, const std::uint32_t wanted, bool again) {
    const auto outputs = &o == &source ? std::span(&wanted, 1) : trace_.outputs(o);
    const bytes need =
        std::accumulate(outputs.begin(), outputs.end(), bytes{},
                        [&](bytes sum, std::uint32_t t) { return sum + size_of(t); });
    const bytes workspace = trace_.rounded(o.workspace);
    if (!make_room(need + workspace)) return false;

    result_.clock += o.cost;
    used_ += need;
    result_.peak = std::max(result_.peak, used_ + workspace);
    bring_in(outputs, wanted);
    for_each_input(o, [&](std::uint32_t in) {
      if (--of(in).locks == 0) pool_.push_back(id_of(in));
    });

    if (!again) return true;
    result_.recompute += o.cost;
    ++result_.recomputes;
    if (static_cast<double>(result_.recompute.count()) <= limit_) return true;
    result_.result = simrd_result::verdict::thrash;
    return false;
  }

  void bring_in(std::span<const std::uint32_t> outputs, std::uint32_t wanted) {
    fresh_.clear();
    const auto admit = [&](std::uint32_t t) {
      if (!around_.resident(id_of(t))) fresh_.push_back(id_of(t));
    };
    for (const std::uint32_t t : outputs)
      if (t != wanted) admit(t);
    if (wanted != none) admit(wanted);  // last: they enter the pool in this order
    for (const std::uint32_t t : outputs)
      if (std::exchange(tensors_[t].defined, true)) used_ -= size_of(t);  // a duplicate
    pool_.insert(pool_.end(), fresh_.begin(), fresh_.end());
    around_.computed(fresh_);
  }

  bool make_room(bytes need) {
    while (used_ + need > budget_) {
      if (pool_.empty()) {
        result_.result = simrd_result::verdict::oom;
        return false;
      }
      evict(choose());
      ++result_.evictions;
    }
    return true;
  }

  void evict(std::uint32_t id) {
    used_ -= storages_[id].size;
    leave_pool(id);
    for (const std::uint32_t t : storages_[id].tensors) tensors_[t].defined = false;
    around_.evicted(id);
  }

  /// The last of the lowest scores in the pool's order, or the first that is zero.
  std::uint32_t choose() {
    double lowest = std::numeric_limits<double>::infinity();
    std::uint32_t victim = none;
    for (const std::uint32_t id : pool_) {
      const double score = evaluate(id);
      if (score <= lowest) lowest = score, victim = id;
      if (score == 0) break;
    }
    return victim;
  }

  double evaluate(std::uint32_t id) {
    ++result_.evaluations;
    const storage& s = storages_[id];
    const auto size = static_cast<double>(s.size.count);
    const auto stale = static_cast<double>((result_.clock - s.last_use).count());
    const auto ratio = [](std::int64_t cost, double by) {
      return by > 0 ? static_cast<double>(cost) / by : std::numeric_limits<double>::infinity();
    };
    switch (policy_) {
      case simrd_policy::dtr:
      case simrd_policy::dtr_eq:
      case simrd_policy::dtr_local:
        return ratio(around_.cost(id), size * stale);
      case simrd_policy::msps:
        return ratio(around_.cost(id), size);
      case simrd_policy::lru:
        return static_cast<double>(s.last_use.count());
      case simrd_policy::size:
        return ratio(1, size);
    }
    return 0;
  }

  // A lock takes a storage out of the pool, and the last one given back puts it at the end: the
  // pool's order decides between equal scores.
  void lock(std::uint32_t t) {
    if (of(t).locks++ == 0) leave_pool(id_of(t));
  }
  void pin(std::uint32_t t) {
    if (!std::exchange(of(t).pinned, true)) lock(t);
  }
  void leave_pool(std::uint32_t id) { pool_.erase(std::find(pool_.begin(), pool_.end(), id)); }

  [[nodiscard]] bytes size_of(std::uint32_t t) const noexcept {
    return trace_.rounded(trace_.tensors[t].size);
  }
  [[nodiscard]] std::uint32_t id_of(std::uint32_t t) const noexcept { return tensors_[t].storage; }
  storage& of(std::uint32_t t) noexcept { return storages_[id_of(t)]; }

  static constexpr trace::operation source{};  // of constants: no cost, reads nothing
  const trace& trace_;
  simrd_policy policy_;
  bytes budget_;
  double limit_ = 0;  // of recomputing, in nanoseconds
  std::vector<tensor> tensors_;
  std::vector<storage> storages_;
  neighbours around_;
  ids pool_;   // resident and not locked
  ids fresh_;  // what the operator at hand brings
  bytes used_{};
  simrd_result result_;
};

}  // namespace

std::optional<simrd_policy> simrd_policy_named(std::string_view name) noexcept {
  constexpr std::array<std::string_view, 6> names{"simrd:dtr",  "simrd:dtr-eq", "simrd:dtr-local",
                                                  "simrd:msps", "simrd:lru",    "simrd:size"};
  const auto* const at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) return std::nullopt;
  return static_cast<simrd_policy>(at - names.begin());
}

simrd_result run_simrd(const trace& t, simrd_policy policy, bytes budget, double thrash_limit) {
  return simulation(t, policy, budget, thrash_limit).run();
}

}  // namespace delta::executor
