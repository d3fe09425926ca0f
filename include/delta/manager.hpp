// delta: the manager, the one stateful coordinator (Algorithm 1, repairs P-6). Knows the four
// roles; they don't know each other.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "delta/concepts.hpp"
#include "delta/error.hpp"
#include "delta/graph.hpp"
#include "delta/kernel.hpp"
#include "delta/ledger.hpp"
#include "delta/observer.hpp"
#include "delta/restore.hpp"
#include "delta/room.hpp"

namespace delta {

/// A composition of three roles by value: what a preset is.
template <Heuristic H, Decider D, Prefetcher P>
struct policy {
  [[no_unique_address]] H heuristic;
  [[no_unique_address]] D decider;
  [[no_unique_address]] P prefetcher;
};

/// What a view may do with the bytes that it holds.
enum class access : std::uint8_t { read, write };

/// Keeps tensors within a storage's byte budget: releases what a Heuristic picks the way a Decider
/// says, and brings it back when an operator needs it. One manager per device, one thread at a
/// time. The storage must outlive it.
///
/// Every member that may need room throws budget_exceeded or thrash when there is none; the manager
/// stays usable, and so it does after an exception from a kernel (outputs are not created; what the
/// kernel updated in place is as the kernel left it). An exception from the storage poisons it.
template <Heuristic H, Decider D, Prefetcher P, Storage S, Observer O = no_observer>
class manager {
 public:
  manager(H heuristic, D decider, P prefetcher, S& storage, O observer = {})
      : book_(storage),
        room_(book_, std::move(heuristic), std::move(decider), std::move(prefetcher),
              std::move(observer)),
        restorer_(book_, room_) {
    book_.now.recompute_cap = recompute_cap;
  }
  manager(policy<H, D, P> p, S& storage, O observer = {})
      : manager(std::move(p.heuristic), std::move(p.decider), std::move(p.prefetcher), storage,
                std::move(observer)) {}
  manager(const manager&) = delete;
  manager& operator=(const manager&) = delete;
  ~manager() { book_.release_all(); }

  /// Replays of one operator in one step, after which its outputs are offloaded or stay (P-26).
  static constexpr std::uint32_t recompute_cap = 256;

  // --- tensors ----------------------------------------------------------------------------------

  /// A tensor that no operator made and that may not leave. Contents are whatever the memory held.
  [[nodiscard]] tensor_id constant(bytes size) { return source(size, pin::both); }
  /// A tensor that no operator made: it may be offloaded, never evicted.
  [[nodiscard]] tensor_id variable(bytes size) { return source(size, pin::none); }
  /// One more reference to the same storage: a view, an alias. Each needs its own `drop`.
  tensor_id share(tensor_id t) {
    ++book_.tensors.checked(t).references;
    return t;
  }
  /// One reference less. At none the bytes go, and the record when nothing that lives can be
  /// recomputed through it.
  void drop(tensor_id t) {
    book_.tensors.checked(t);
    guarded([&] { book_.drop(t); });
  }
  /// Forbids ways out (a constant has both forbidden).
  void forbid(tensor_id t, pin ways) {
    book_.tensors.checked(t);
    book_.forbid(t, ways);
  }

  /// The bytes of a tensor, resident and in place while the view lives.
  class view {
   public:
    view(view&& o) noexcept : owner_(std::exchange(o.owner_, nullptr)), tensor_(o.tensor_) {}
    view& operator=(view&&) = delete;
    ~view() {
      if (owner_ != nullptr) owner_->give_back(tensor_);
    }
    [[nodiscard]] std::byte* data() const {
      return owner_->restorer_.address(owner_->book_.tensors[tensor_].device);
    }
    [[nodiscard]] bytes size() const { return owner_->book_.tensors[tensor_].size; }

   private:
    friend class manager;
    view(manager& m, tensor_id t) noexcept : owner_(&m), tensor_(t) {}
    manager* owner_;
    tensor_id tensor_;
  };
  /// Brings a tensor in and holds it. Writing makes a new version, as an update does, so only
  /// variables and constants can be written (else misuse).
  [[nodiscard]] view acquire(tensor_id t, access how = access::read) {
    if (how == access::write && book_.tensors.checked(t).producer != operator_id::none)
      throw misuse("acquire for writing: only a variable or a constant can be written");
    book_.tensors.checked(t);
    return guarded([&] {
      const std::array<tensor_id, 1> one{t};
      const std::span<const tensor_id> list(one);
      const bool writes = how == access::write;
      const protection dependents(*this, list.first(writes ? 1 : 0), "acquire");
      restorer_.bring(one, {}, "acquire");
      locks held(restorer_, one);
      if (writes) new_versions(one);
      const auto nothing = [](call&) {};
      book_.storage().wait(restorer_.launch(nothing, writes ? list.first(0) : list,
                                            writes ? list : list.first(0), {}, block{}, 0, false,
                                            nanoseconds{}));
      if constexpr (requires(S& s, const block& b) { s.hold(b); })
        book_.storage().hold(book_.tensors[t].device);
      book_.touch(t);
      held.keep();
      return view(*this, t);
    });
  }

  // --- operators --------------------------------------------------------------------------------

  /// Runs an operator with one output.
  template <class F>
  tensor_id run(const operation& op, F&& body) {
    return run<1>(op, std::forward<F>(body))[0];
  }
  /// Runs an operator with N outputs.
  template <std::size_t N, class F>
  std::array<tensor_id, N> run(const operation& op, F&& body) {
    std::array<tensor_id, N> ids{};
    run(static_cast<operation_span>(op), ids, std::forward<F>(body));
    return ids;
  }
  /// Runs an operator; `ids` receives the outputs. `body` is called as `body(call&)`: now and, if
  /// the outputs are recomputed, again. What it captures by reference must live that long.
  template <class F>
  void run(const operation_span& op, std::span<tensor_id> ids, F&& body) {
    if (ids.size() != op.outputs.size()) throw misuse("run: one id per output is needed");
    for (const tensor_id t : op.inputs) book_.tensors.checked(t);
    for (const tensor_id t : op.updates) book_.tensors.checked(t);
    guarded([&] {
      learn_costs();
      next_tick sequence(book_.now.now);
      const bytes need = reserve(op);
      const protection dependents(*this, op.updates, op.name);
      restorer_.bring(touched_, need, op.name);
      locks held(restorer_, touched_);
      new_versions(op.updates);
      room_.make(need, op.name);
      allocation fresh(*this, op);
      if (!worth_recording(op)) {
        restorer_.launch(body, op.inputs, op.updates, fresh.outputs, fresh.workspace, book_.now.now,
                         false, op.cost);
        admit(op, ids, fresh);
      } else {
        kernel stored(std::forward<F>(body));
        const stamp done = restorer_.launch(stored, op.inputs, op.updates, fresh.outputs,
                                            fresh.workspace, book_.now.now, false, op.cost);
        admit(op, ids, fresh);
        record(op, ids, std::move(stored), done);
      }
      sequence.keep();
      ++book_.counts.operators;
      room_.tell(happening::run, ids.empty() ? tensor_id::none : ids.front());
      for (const tensor_id t : touched_) book_.touch(t);
      held.release();
      fresh.give_back();
      room_.while_nobody_waits();
    });
  }

  // --- marks ------------------------------------------------------------------------------------

  /// The backward pass begins. Only the paper's policy and traces need it.
  void backward() noexcept { book_.now.backward = true; }
  /// The step ends: what is still referenced becomes a variable, every record of the step goes.
  /// What was evicted and is still referenced comes back first. O(tensors).
  void end_of_step() {
    guarded([&] {
      for (std::uint32_t i = 0; i < book_.tensors.tensor_slots(); ++i) {
        const auto t = static_cast<tensor_id>(i);
        tensor& r = book_.tensors[t];
        if (!r.in_use || r.references == 0) continue;
        const std::array<tensor_id, 1> one{t};
        const bool gone = r.where == residency::evicted;
        if (gone) restorer_.bring(one, {}, "end of step");
        book_.tensors[t].persistent = true;
        if (gone) restorer_.unlock(one);
      }
      book_.close_step();
      pending_.clear();
      book_.now.backward = false;
      room_.end_of_step();
    });
  }

  // --- what happened ----------------------------------------------------------------------------

  [[nodiscard]] const counters& counts() const noexcept { return book_.counts; }
  /// Scores computed by the Filter.
  [[nodiscard]] std::uint64_t evaluations() const noexcept { return room_.evaluations(); }
  [[nodiscard]] std::size_t live_tensors() const noexcept { return book_.tensors.live_tensors(); }
  [[nodiscard]] std::size_t live_records() const noexcept { return book_.tensors.live_records(); }
  /// Throws unknown_tensor.
  [[nodiscard]] residency where(tensor_id t) const { return book_.tensors.checked(t).where; }
  [[nodiscard]] O& observer() noexcept { return room_.observer(); }

 private:
  using restorer = delta::restorer<H, D, P, S, O>;

  /// An operator's number, given back unless it ran: a program that frees something and tries again
  /// draws the same random numbers.
  class next_tick {
   public:
    explicit next_tick(tick& now) noexcept : now_(now) { ++now_; }
    next_tick(const next_tick&) = delete;
    next_tick& operator=(const next_tick&) = delete;
    ~next_tick() {
      if (!kept_) --now_;
    }
    void keep() noexcept { kept_ = true; }

   private:
    tick& now_;
    bool kept_ = false;
  };

  /// Locks that `bring` took, given back unless kept.
  class locks {
   public:
    locks(restorer& r, std::span<const tensor_id> list) noexcept : owner_(&r), list_(list) {}
    locks(const locks&) = delete;
    locks& operator=(const locks&) = delete;
    ~locks() { release(); }
    void release() {
      if (owner_ != nullptr) std::exchange(owner_, nullptr)->unlock(list_);
    }
    void keep() noexcept { owner_ = nullptr; }

   private:
    restorer* owner_;
    std::span<const tensor_id> list_;
  };

  /// Outputs and workspace of the operator at hand; what is not taken goes back. Borrows the
  /// manager's lists, which keep their capacity.
  struct allocation {
    allocation(manager& m, const operation_span& op)
        : storage(m.book_.storage()), list(m.blocks_), outputs(m.outputs_) {
      list.clear(), outputs.clear();
      try {
        for (const bytes size : op.outputs)
          list.push_back(m.room_.obtain(size, lifetime::transient));
        if (op.workspace.count > 0) workspace = m.room_.obtain(op.workspace, lifetime::transient);
      } catch (...) {
        give_back();
        throw;
      }
      for (const block& b : list) outputs.push_back(&b);
    }
    allocation(const allocation&) = delete;
    allocation& operator=(const allocation&) = delete;
    ~allocation() { give_back(); }
    void give_back() {
      for (block& b : list)
        if (b) storage.free(std::move(b));
      if (workspace) storage.free(std::move(workspace));
    }
    S& storage;
    std::vector<block>& list;
    std::vector<const block*>& outputs;
    block workspace;
  };

  /// Every entry point: refuses when poisoned or called from a kernel; an exception that is neither
  /// typed nor a kernel's leaves records and memory in disagreement, and poisons.
  template <class F>
  auto guarded(F&& body) {
    if (poisoned_) throw poisoned();
    if (inside_) throw misuse("the manager was called from within a kernel or a policy");
    inside_ = true;
    struct leave {
      bool& inside;
      ~leave() { inside = false; }
    } leaving{inside_};
    restorer_.forget_failure();
    try {
      return body();
    } catch (const error&) {
      throw;
    } catch (...) {
      poisoned_ = !restorer_.kernel_failed();
      throw;
    }
  }

  tensor_id source(bytes size, pin pinned) {
    return guarded([&] {
      const bytes need = book_.storage().rounded(size);
      room_.make(need, "variable");
      return book_.admit(size, room_.obtain(size, lifetime::persistent), true, pinned);
    });
  }
  void give_back(tensor_id t) {
    if constexpr (requires(S& s, const block& b) { s.unhold(b); })
      book_.storage().unhold(book_.tensors[t].device);
    book_.unlock(t);
  }

  /// What the operator will allocate; also sets what it touches, and the floor of error reports.
  bytes reserve(const operation_span& op) {
    touched_.assign(op.inputs.begin(), op.inputs.end());
    touched_.insert(touched_.end(), op.updates.begin(), op.updates.end());
    bytes need = book_.storage().rounded(op.workspace);
    for (const bytes size : op.outputs) need += book_.storage().rounded(size);
    book_.now.coming_need = need;
    bytes all = need + book_.constants();
    for (std::size_t i = 0; i < touched_.size(); ++i)
      if (std::find(touched_.begin(), touched_.begin() + std::ptrdiff_t(i), touched_[i]) ==
              touched_.begin() + std::ptrdiff_t(i) &&
          book_.tensors[touched_[i]].pinned != pin::both)
        all += book_.tensors[touched_[i]].footprint;
    room_.raise_floor(all);
    return need;
  }

  /// In-place updates: what was computed from the old version can't be computed again (repairs
  /// P-19). Before: what is evicted and depends on it comes back, one after the other, and while
  /// this lives nothing that depends on it is evicted.
  class protection {
   public:
    protection(manager& m, std::span<const tensor_id> updates, const char* name) : owner_(m) {
      auto& list = m.dependents_;
      graph& g = m.book_.tensors;
      list.clear();
      for (const tensor_id t : updates)
        m.room_.for_each_dependent(t, [&](tensor_id d) {
          if (covers(g[d].pinned, pin::evict)) return;
          g[d].pinned = g[d].pinned | pin::evict;
          list.push_back(d);
        });
      try {
        for (const tensor_id d : list) {
          if (g[d].where != residency::evicted) continue;
          const std::array<tensor_id, 1> one{d};
          m.restorer_.bring(one, {}, name);
          m.restorer_.unlock(one);
        }
      } catch (...) {
        end();
        throw;
      }
    }
    protection(const protection&) = delete;
    protection& operator=(const protection&) = delete;
    ~protection() { end(); }

   private:
    void end() noexcept {
      for (const tensor_id d : owner_.dependents_) {
        pin& p = owner_.book_.tensors[d].pinned;
        p = p & pin::offload;
        owner_.book_.refile(d);
      }
      owner_.dependents_.clear();
    }
    manager& owner_;
  };
  /// The new version: nothing can be recomputed from the old one, nor can what made that one make
  /// this; host copies are stale.
  void new_versions(std::span<const tensor_id> updates) {
    for (const tensor_id t : updates) {
      book_.sever_around(t);
      book_.forget_host_copy(t);
    }
  }

  /// Could a replay make the same outputs? Not from an input that the operator itself has changed.
  [[nodiscard]] static bool worth_recording(const operation_span& op) noexcept {
    if (!evicts<D>() || op.outputs.empty() || has(op.traits, trait::never_replay)) return false;
    if (op.updates.empty()) return true;
    return has(op.traits, trait::effect_once) &&
           std::find_first_of(op.inputs.begin(), op.inputs.end(), op.updates.begin(),
                              op.updates.end()) == op.inputs.end();
  }
  void admit(const operation_span& op, std::span<tensor_id> ids, allocation& fresh) {
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = book_.admit(op.outputs[i], std::move(fresh.list[i]), false, pin::none);
  }
  void record(const operation_span& op, std::span<const tensor_id> ids, kernel&& body, stamp done) {
    const operator_id o = book_.tensors.add_record();
    operator_record& r = book_.tensors[o];
    // Not from `op`: the ids may have been written over its lists.
    const auto updates = touched_.begin() + std::ptrdiff_t(op.inputs.size());
    r.inputs.assign(touched_.begin(), updates);
    r.outputs.assign(ids.begin(), ids.end());
    r.updates.assign(updates, touched_.end());
    r.replay = std::move(body);
    r.workspace = op.workspace;
    r.sequence = book_.now.now;
    r.traits = op.traits;
    r.name = op.name;
    r.cost = op.cost;
    if (const auto took = book_.storage().elapsed(done))
      r.cost = *took;
    else
      pending_.push_back({o, r.sequence, done});
    book_.tensors.connect(o);
  }
  /// Takes note of operators whose time is known by now. Oldest first; a storage that never knows
  /// keeps the prior.
  void learn_costs() {
    std::size_t known = 0;
    for (; known < pending_.size(); ++known) {
      const auto took = book_.storage().elapsed(pending_[known].done);
      if (!took && pending_.size() - known < 64) break;
      operator_record& r = book_.tensors[pending_[known].op];
      if (took && r.in_use && r.sequence == pending_[known].sequence) r.cost = *took;
    }
    pending_.erase(pending_.begin(), pending_.begin() + std::ptrdiff_t(known));
  }

  struct unmeasured {
    operator_id op;
    std::uint64_t sequence;
    stamp done;
  };
  ledger<S> book_;
  room<H, D, P, S, O> room_;
  restorer restorer_;
  std::vector<tensor_id> touched_, dependents_;
  std::vector<block> blocks_;
  std::vector<const block*> outputs_;
  std::vector<unmeasured> pending_;
  bool inside_ = false, poisoned_ = false;
};

template <class H, class D, class P, class S>
manager(H, D, P, S&) -> manager<H, D, P, S>;
template <class H, class D, class P, class S, class O>
manager(H, D, P, S&, O) -> manager<H, D, P, S, O>;
template <class H, class D, class P, class S>
manager(policy<H, D, P>, S&) -> manager<H, D, P, S>;
template <class H, class D, class P, class S, class O>
manager(policy<H, D, P>, S&, O) -> manager<H, D, P, S, O>;

}  // namespace delta
