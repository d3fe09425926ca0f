// delta: the manager, the one stateful coordinator (Algorithm 1, repairs P-6), which alone knows
// the policy's roles and the storage. The work is done in detail/ (docs/architecture.md).
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "delta/detail/runtime/operator_run.hpp"
#include "delta/detail/runtime/reclaimer.hpp"
#include "delta/detail/tensors/residency_table.hpp"
#include "delta/error.hpp"
#include "delta/handles.hpp"
#include "delta/kernel.hpp"
#include "delta/observer.hpp"
#include "delta/policy.hpp"
#include "delta/storage/storage.hpp"

namespace delta {

namespace detail {
template <class P>
class manager_of;  // a manager behind virtual functions: engine/manager_of.hpp
// Only who calls `stage` includes detail/tensors/staging.hpp.
struct residency_snapshot;
template <class Table>
class stage;
}  // namespace detail

/// Keeps tensors within a storage's byte budget: releases what a Heuristic picks the way a Decider
/// says, and brings it back when an operator needs it. One manager per device, one thread at a
/// time. The storage must outlive it.
///
///   delta::simulated storage{{.capacity = 64_MiB, .host_capacity = 256_MiB}};
///   delta::manager manager{delta::online(), storage};
///   const delta::tensor_id w = manager.variable(1_MiB, "weights");
///
/// A member that needs room throws budget_exceeded or thrash when there is none; the manager stays
/// usable, also after a kernel throws (no output is created; updates in place are as the kernel
/// left them). Any other exception, from the storage or a policy, poisons it: every later call that
/// changes something throws `poisoned`, but for `backward` and the destructors. An id that names
/// nothing, or what was dropped, throws unknown_tensor before anything is done. A call that changes
/// something, from within a kernel or its destructor, a policy, an observer or the storage, throws
/// misuse, but for share, drop and give_back; so does one that needs the manager to itself while an
/// operator is open.
///
/// A wrong role, storage or observer is a compile error in sentences, however the types are given.
/// As a class member: `delta::manager<decltype(delta::online()), delta::simulated>`.
template <class P, class S, class O = no_observer>
class manager {
  // The types themselves, first: sentences about a wrong one (concepts.hpp) come before all else.
  using policy_type = detail::checked_policy<P>;
  using observer_type = detail::checked_observer<O>;
  using reclaimer = detail::reclaimer<policy_type, detail::checked_storage<S>, observer_type>;

 public:
  /// A preset, or a policy of one's own, moved in; the storage by reference. O(1), no heap.
  manager(P p, S& storage, O observer = {})
      : table_(storage),
        reclaimer_(table_, std::move(p), std::move(observer)),
        run_(table_, reclaimer_) {
    table_.now.recompute_cap = recompute_cap;
  }
  /// The same of three roles, one by one.
  template <class H = detail::heuristic_of_type<P>, class D = detail::decider_of_type<P>,
            class R = detail::prefetcher_of_type<P>>
    requires std::same_as<P, delta::policy<H, D, R>>
  manager(H heuristic, D decider, R prefetcher, S& storage, O observer = {})
      : manager(P{std::move(heuristic), std::move(decider), std::move(prefetcher)}, storage,
                std::move(observer)) {}
  /// Views and open operators point to it: it stays where it is.
  manager(const manager&) = delete;
  manager& operator=(const manager&) = delete;
  /// Gives every block and slab back to the storage, copies under way included; does not wait for
  /// them. Views and open operators must be gone.
  ~manager() {
    // What kernels and the storage drop as they go is gone with it.
    inside_ = true;
    run_.opened().let_go();
    run_.taken().let_go();
    table_.release_all();
    table_.tensors.forget_kernels();
  }

  /// Replays of one operator in a step, after which its outputs are not evicted while held (P-26).
  static constexpr std::uint32_t recompute_cap = 256;

  // --- tensors ----------------------------------------------------------------------------------

  /// A tensor that no operator made and that may not leave: it takes from the budget until it is
  /// dropped. Contents are whatever the memory held; write them through acquire. `label` is for
  /// errors and timelines, and outlives the tensor. Throws budget_exceeded.
  [[nodiscard]] tensor_id constant(bytes size, const char* label = "constant") {
    return source(size, pin::both, label);
  }
  /// A tensor that no operator made: it may be offloaded, never evicted (the paper's uncomputable,
  /// repairs P-3). Weights, inputs, optimizer state. Otherwise as constant.
  [[nodiscard]] tensor_id variable(bytes size, const char* label = "variable") {
    return source(size, pin::none, label);
  }
  /// The same of bytes that exist: `b`, a block of rounded(size) bytes of this storage that no
  /// tensor has, from `take_block` or the storage itself. They keep their contents, and their
  /// address until something is allocated. Needs no room. O(1). Throws misuse where `b` names
  /// nothing, a tensor's block, or as far as the storage can tell one of another storage or size.
  /// After an exception `b` is the caller's still, unless it names nothing by then.
  [[nodiscard]] tensor_id constant(bytes size, const char* label, block&& b) {
    return adopt(size, pin::both, label, b);
  }
  [[nodiscard]] tensor_id variable(bytes size, const char* label, block&& b) {
    return adopt(size, pin::none, label, b);
  }
  /// One more reference to the same storage: a view, an alias (repairs P-19). Each needs its own
  /// `drop`. Gives `t` again. Can be called from anywhere. O(1).
  tensor_id share(tensor_id t) {
    check_held(t);
    const auto share_it = [&] { ++table_.tensors[t].references; };
    inside_ ? share_it() : guarded(open::allowed, share_it);
    return t;
  }
  /// One reference less. At none the bytes go, unless something can only be recomputed from them,
  /// and the record when nothing that lives can be recomputed through it. The id is not to be used
  /// again. Never waits. O(1), and the edges of what goes. From within a kernel, its destructor, or
  /// a call of the storage it takes effect when the call of the manager that is under way is over:
  /// O(1) then, and it does not fail. So what a stored kernel captures may drop.
  void drop(tensor_id t) {
    check_held(t);
    if (inside_) return table_.drop_later(t);
    guarded(open::allowed, [&] { table_.drop(t, reclaimer_.keeps_dropped(t)); });
  }
  /// True if a record exists from which it can be made again. Then it outlives an operator that
  /// `replace`s it, as what it was. O(1).
  [[nodiscard]] bool recomputable(tensor_id t) const {
    return table_.tensors.checked(t).recomputable();
  }
  /// Forbids ways out, for good (a constant has both forbidden): `pin::evict` keeps a tensor from
  /// being recomputed, `pin::offload` from leaving for the host. What is there already comes back
  /// when it is needed. The more is pinned, the less can be had free (repairs P-2). O(1).
  void forbid(tensor_id t, pin ways) {
    (void)table_.tensors.checked(t);
    guarded(open::allowed, [&] {
      table_.forbid(t, ways);
      if (table_.tensors[t].pinned == pin::offload) reclaimer_.bounds().note_stay();
    });
  }

  /// A tensor's bytes while they are held (handles.hpp).
  using view = tensor_view<manager>;
  /// Brings a tensor in and holds it, and waits until what uses it on the device is done, so that
  /// the host may touch it. Writing makes a new version, as an update does, so only variables and
  /// constants can be written (else misuse): what was computed from the old one comes back first,
  /// and can't be computed again (repairs P-19). Takes no tick, and counts as a use.
  ///   const auto w = manager.acquire(weights, delta::access::write);
  ///   std::memcpy(w.data(), initial, w.size().count);
  [[nodiscard]] view acquire(tensor_id t, access how = access::read) {
    return view(*this, t, hold(t, how), size(t));
  }

  // --- operators --------------------------------------------------------------------------------

  /// Runs an operator with one output:
  ///   y = manager.run({.inputs = {x, w}, .outputs = {64_KiB}, .name = "multiply"}, kernel);
  template <class F>
  tensor_id run(const operation& op, F&& body) {
    return run<1>(op, std::forward<F>(body))[0];
  }
  /// Runs an operator with N outputs: `const auto [y, mask] = manager.run<2>({...}, kernel);`.
  template <std::size_t N, class F>
  std::array<tensor_id, N> run(const operation& op, F&& body) {
    std::array<tensor_id, N> ids{};
    run(static_cast<operation_span>(op), ids, std::forward<F>(body));
    return ids;
  }
  /// Runs an operator (Algorithm 1): brings inputs and updates together, makes room, calls the
  /// kernel, and keeps it if it may have to run again. `ids` receives the outputs, in order, each
  /// with one reference. `body(call&)` is called now and, if the outputs are recomputed, again:
  /// what it captures by reference must live that long. Takes one tick. If it throws
  /// (budget_exceeded, thrash, misuse where `ids` and `outputs` differ in length, or whatever a
  /// kernel throws, this one's or a replayed one's) no output exists, the tick is given back, and
  /// the call may be tried again; what was released stays so. O(candidates) per tensor released.
  template <class F>
  void run(const operation_span& op, std::span<tensor_id> ids, F&& body) {
    if (ids.size() != op.outputs.size()) throw misuse("run: one id per output is needed");
    check(op);
    guarded(open::refused, [&] { run_.run(op, ids, std::forward<F>(body)); });
  }

  // --- operators that the program runs itself, learning sizes on the way -------------------------

  /// An operator between begin and end (handles.hpp). While it lives the manager runs nothing else:
  /// run, begin, acquire, variable, constant and end_of_step throw misuse; drop, share, forbid,
  /// make_room and take_block can be called.
  using open_operator = delta::open_operator<manager>;
  /// Begins an operator: brings its inputs and updates together and takes a tick. Outputs and
  /// workspace that are known already may be named. Throws as `run` does; then nothing is open.
  [[nodiscard]] open_operator begin(const operation& op) {
    return begin(static_cast<operation_span>(op));
  }
  // A template, so that a braced list can only mean an `operation`.
  template <std::same_as<operation_span> Op>
  [[nodiscard]] open_operator begin(const Op& op) {
    open_one(op);
    return open_operator(*this);
  }
  /// Releases tensors until `need` bytes are free, in however many pieces and not reserved: what an
  /// allocator calls that has run out. Throws as `run` does. From within a kernel it is misuse: say
  /// beforehand what a replay takes, as workspace or replay_workspace. `operation` names who asks,
  /// in errors, where no operator is open; it outlives the call.
  void make_room(bytes need, const char* operation = "make_room") {
    (void)plus({}, need);
    guarded(open::allowed, [&] { run_.opened().make_room(need, operation); });
  }
  /// A block for the program's own use, which no tensor has: counts in the budget, can't leave, and
  /// stays where it is until it becomes a tensor (`variable`, `allocate`) or is given back. Makes
  /// room, also while an operator is open, which then counts as its writer. Throws as make_room
  /// does. Where free bytes do, and the peak stays within the program's own, O(log holes).
  [[nodiscard]] block take_block(bytes size, lifetime expected = lifetime::transient) {
    (void)plus({}, size);
    return guarded(open::allowed, [&] { return run_.take_block(size, expected); });
  }
  /// Takes a block back that `take_block` gave; anything else is left alone. Also from within a
  /// kernel. Whoever gets its bytes next comes behind all work launched so far. One taken before
  /// the open operator's last allocation is free with the next, or at its end. O(log holes).
  void give_back(block&& b) noexcept { run_.taken().give_back(std::move(b)); }

  // --- marks ------------------------------------------------------------------------------------

  /// The backward pass begins, until end_of_step. Only the paper's policy and traces need it. O(1).
  void backward() noexcept { table_.now.backward = true; }
  /// The step ends: what is still referenced becomes a variable, every record of the step goes.
  /// What was evicted and is still referenced comes back first; if there is no room for that it
  /// throws as `run` does, and the step goes on: drop something, and call it again. O(tensors +
  /// edges). Without it the records of all steps are kept.
  void end_of_step() {
    guarded(open::refused, [&] { run_.end_of_step(); });
  }

  /// The steps that were seen so far; empty where no role of the policy declares `learns`.
  [[nodiscard]] const history& past() const noexcept { return table_.steps.past(); }
  /// The policy that was moved in.
  [[nodiscard]] const policy_type& policy() const noexcept { return reclaimer_.policy().policy(); }
  /// What the policy sees now. Between steps.
  [[nodiscard]] context seen() const { return reclaimer_.view(); }
  /// A step that was seen elsewhere, as if it had just ended here: the next one may follow it. Its
  /// operators are told apart by what they touch, not by name. `here`: by the record's storages,
  /// those from outside the step that are here, and expected in it; `next`: the step behind it, if
  /// another. Nothing is done where no role learns. Between steps only. O(step).
  void preload(const step_record& step, std::span<const tensor_id> here = {},
               const step_record* next = nullptr) {
    guarded(open::refused, [&] { table_.steps.preload(step, here, next); });
  }
  /// Takes over where another manager's tensors are between two steps, with the same ids. Of a
  /// manager without tensors, over a storage in virtual time, whose clock goes on. Throws
  /// budget_exceeded. O(tensors).
  void stage(const detail::residency_snapshot& s) {
    guarded(open::refused, [&] { detail::stage<typename reclaimer::table_type>(table_).set(s); });
  }

  // --- what happened ----------------------------------------------------------------------------

  /// What was done since the manager was made (observer.hpp). Always up to date.
  [[nodiscard]] const counters& counts() const noexcept { return table_.counts; }
  /// Answers of the Heuristic asked for by the Filter since then: a count that repeats exactly.
  [[nodiscard]] std::uint64_t evaluations() const noexcept {
    return reclaimer_.policy().victims.evaluations();
  }
  /// Likewise, records visited for the costs of closures, whoever asked.
  [[nodiscard]] std::uint64_t walked() const noexcept { return table_.tensors.walked(); }
  /// Tensors that are kept, also dropped ones that something hangs on: constant over ended steps.
  [[nodiscard]] std::size_t live_tensors() const noexcept { return table_.tensors.live_tensors(); }
  /// Records that are kept, likewise.
  [[nodiscard]] std::size_t live_records() const noexcept { return table_.tensors.live_records(); }
  /// How many bytes a tensor has: as the program asked, not rounded. Throws unknown_tensor.
  [[nodiscard]] bytes size(tensor_id t) const { return table_.tensors.checked(t).size; }
  /// Where a tensor's bytes are now. Throws unknown_tensor.
  [[nodiscard]] residency where(tensor_id t) const { return table_.tensors.checked(t).where; }
  /// The observer that was moved in.
  [[nodiscard]] observer_type& observer() noexcept { return reclaimer_.events().observer(); }

 private:
  friend view;
  friend open_operator;
  template <class>
  friend class detail::manager_of;
  /// Whether an entry point may be called between begin and end.
  enum class open : std::uint8_t { refused, allowed };

  // --- what views and the open operator call: their members say what each does (handles.hpp) -----

  std::byte* hold(tensor_id t, access how) {
    const bool writes = how == access::write;
    check_usable(t);
    if (table_.tensors[t].producer != operator_id::none && writes)
      throw misuse("acquire for writing: only a variable or a constant can be written");
    guarded(open::refused, [&] { run_.acquire(t, writes); });
    return run_.kernels().address(table_.tensors[t].device);
  }
  void release(tensor_id t) noexcept {
    const bool within = std::exchange(inside_, true);
    try {
      run_.unlock(t);
    } catch (...) {  // what it was the last to hold is half gone
      poisoned_ = true;
    }
    if (!within) leave();
  }
  void open_one(const operation_span& op) {
    check(op);
    guarded(open::refused, [&] { run_.opened().open(op); });
  }
  std::size_t allocate(bytes size) {
    (void)plus(run_.opened().asked_for(), size);
    return guarded(open::allowed, [&] { return run_.opened().add_output(size); });
  }
  std::size_t allocate(std::span<const bytes> sizes) {
    bytes all = run_.opened().asked_for();
    for (const bytes size : sizes) all = plus(all, size);
    return guarded(open::allowed, [&] { return run_.opened().add_outputs(sizes); });
  }
  std::size_t allocate(bytes size, block&& b) {
    (void)plus(run_.opened().asked_for(), size);
    return guarded(open::allowed, [&] {
      check_foreign(size, b);
      return run_.opened().adopt_output(size, b);
    });
  }
  std::size_t replace(std::span<const tensor_id> inputs) {
    for (const tensor_id t : inputs) (void)table_.tensors.checked(t);
    return guarded(open::allowed, [&] {
      auto& opened = run_.opened();
      for (const tensor_id t : inputs)
        if (const char* why = opened.cannot_replace(t)) throw misuse(why);
      std::vector<tensor_id> sorted(inputs.begin(), inputs.end());
      std::ranges::sort(sorted);
      if (std::ranges::adjacent_find(sorted) != sorted.end())
        throw misuse("replace: it is in the list twice");
      return opened.replace(inputs);
    });
  }
  std::size_t workspace(bytes size) {
    (void)plus(run_.opened().asked_for(), size);
    return guarded(open::allowed, [&] { return run_.opened().add_workspace(size); });
  }
  std::size_t replay_workspace(bytes size) {
    (void)plus(run_.opened().asked_for(), size);
    return guarded(open::allowed, [&] { return run_.opened().add_replay_workspace(size); });
  }
  call arguments() { return run_.opened().view(); }
  template <class F>
  void end(std::span<tensor_id> ids, F&& replay) {
    if (ids.size() != run_.opened().outputs()) throw misuse("end: one id per output is needed");
    if constexpr (std::is_same_v<std::decay_t<F>, kernel>)
      if (!replay) run_.opened().forbid_replay();
    guarded(open::allowed, [&] { run_.opened().close(ids, std::forward<F>(replay)); });
  }
  void abort() noexcept {
    try {
      guarded(open::allowed, [&] { run_.opened().abort(); });
    } catch (...) {  // NOLINT(bugprone-empty-catch): the manager is poisoned, and says so later
    }
  }

  // --- checks -----------------------------------------------------------------------------------

  // Also not dropped from within the call under way.
  void check_held(tensor_id t) const {
    (void)table_.tensors.checked(t);
    if (table_.is_dropped_later(t)) throw unknown_tensor(t);
  }
  void check_usable(tensor_id t) const {
    if (table_.tensors.checked(t).where == residency::dead)
      throw misuse("a tensor that was replaced and can't be recomputed can only be dropped");
  }
  // Before the tick and the locks: an unknown id must not leave half an operator.
  void check(const operation_span& op) const {
    for (const tensor_id t : op.inputs) check_usable(t);
    for (const tensor_id t : op.updates) check_usable(t);
    bytes all;
    for (const bytes size : op.outputs) all = plus(all, size);
    (void)plus(all, op.workspace);
  }
  // Sizes of one call, added up.
  [[nodiscard]] static bytes plus(bytes all, bytes size) {
    if (size > detail::saturating_sub(detail::largest_request, all))
      throw misuse("a size, or those of one operator together, of more than 2^62 bytes");
    return all + size;
  }
  tensor_id source(bytes size, pin pinned, const char* label) {
    (void)plus({}, size);
    return guarded(open::refused, [&] {
      const bytes rounded = table_.storage().rounded(size);
      reclaimer_.expect({.need = rounded, .largest = rounded});
      reclaimer_.make(rounded, label);
      return table_.admit(size, reclaimer_.obtain(size, lifetime::persistent), true, pinned, label);
    });
  }

  tensor_id adopt(bytes size, pin pinned, const char* label, block& b) {
    (void)plus({}, size);
    return guarded(open::refused, [&] {
      check_foreign(size, b);
      reclaimer_.expect({.largest_again = table_.storage().rounded(size)});
      // The program may have launched work on it: whoever copies or writes it next comes behind.
      run_.kernels().order_behind_launches(b);
      const std::uint32_t row = b.index();
      struct gone {  // a tensor's, also where something fails afterwards
        manager& m;
        const block& b;
        std::uint32_t row;
        ~gone() {
          if (!b) m.run_.taken().hand_over(row);
        }
      } last{*this, b, row};
      return table_.admit(size, std::move(b), true, pinned, label);
    });
  }
  // Of a block that the program hands over.
  void check_foreign(bytes size, const block& b) const {
    if (!b) throw misuse("a block that names nothing can't become a tensor's");
    if (table_.has(b) || run_.opened().has(b))
      throw misuse("a block that is a tensor's can't become another's");
    if constexpr (detail::has_knows<S>)
      if (!table_.storage().knows(b, size))
        throw misuse("a block of another storage, or of another size, can't become a tensor's");
  }

  // Every entry point: refuses when poisoned, called from a kernel, or between begin and end. An
  // exception that is neither typed nor a kernel's leaves records and memory in disagreement, and
  // poisons. After a typed one nothing more is rolled back: released tensors come back when used.
  template <class F>
  auto guarded(open while_open, F&& body) {
    if (poisoned_) throw poisoned();
    if (inside_) throw misuse("the manager was called from within a kernel or a policy");
    if (while_open == open::refused && run_.opened().is_open())
      throw misuse(
          "an operator is open: only its own members, make_room, take_block, drop, share and "
          "forbid");
    inside_ = true;
    struct leaving {
      manager& m;
      ~leaving() { m.leave(); }
    } last{*this};
    run_.kernels().forget_failure();
    try {
      return body();
    } catch (const error&) {
      throw;
    } catch (...) {
      poisoned_ = !run_.kernels().kernel_failed();
      throw;
    }
  }

  // A call is over: what was dropped meanwhile goes.
  void leave() noexcept {
    if (table_.any_dropped_later() && !poisoned_) try {
        table_.drop_late();
      } catch (...) {
        poisoned_ = true;
      }
    inside_ = false;
  }

  typename reclaimer::table_type table_;
  reclaimer reclaimer_;
  detail::operator_run<reclaimer> run_;
  bool inside_ = false, poisoned_ = false;
};

template <class H, class D, class P, class S, class... O>
manager(H, D, P, S&, O...) -> manager<policy<H, D, P>, S, O...>;
// A storage that would not live, told in a sentence. The rest is deduced from the constructors.
template <class H, class D, class P, class S, class... O>
  requires(!std::is_lvalue_reference_v<S>)
manager(H, D, P, S&&, O...) -> manager<policy<H, D, P>, detail::no_temporary<S>, O...>;
template <class P, class S>
  requires(!std::is_lvalue_reference_v<S>)
manager(P, S&&) -> manager<P, detail::no_temporary<S>>;
template <class P, class S, class O>
  requires(!std::is_lvalue_reference_v<S>)
manager(P, S&&, O) -> manager<P, detail::no_temporary<S>, O>;

}  // namespace delta
