// delta tests: attacks: a program in one setting, with faults, with members of its storage that are
// declined, with calls from within its kernels and writes between its operators. All that is
// promised is checked; a program that fails is made short, and printed as a test.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "adversary.hpp"
#include "delta/adaptive.hpp"
#include "delta/engine/engine.hpp"
#include "delta/engine/manager_of.hpp"
#include "delta/learning_report.hpp"
#include "delta/presets.hpp"
#include "delta/storage/heap_storage.hpp"
#include "dice.hpp"
#include "faulty.hpp"
#include "hashes/forwarding_storage.hpp"
#include "nesting.hpp"
#include "program_variants.hpp"
#include "storage_check.hpp"

namespace delta::test {

/// What fails. The first two are answers that a storage may give at any time, and the program goes
/// on, or is told so by a typed error and may try again; so does a kernel that throws. What else
/// throws poisons.
enum class failing : std::uint8_t {
  no_block,  ///< allocate: no room
  no_slab,   ///< copy_out: the host is full
  kernel,
  allocate,
  copy_out,
  copy_in,
  end,  ///< of an operator
  observer,
  bits,  ///< of a copy in, where copies are over at once: wrong, and nobody is told
  nothing
};
constexpr std::size_t failing_kinds = static_cast<std::size_t>(failing::bits);  ///< that are told
/// A fault at the n-th of these calls, from 1 on.
struct planned_fault {
  failing what = failing::nothing;
  std::uint64_t at = 0;
};

/// What is left out, as bits.
enum class declined : unsigned {
  nothing = 0,
  early_reloads = 1,    ///< of the policies adaptive and paper
  copies_ahead = 2,     ///< of adaptive
  early_release = 4,    ///< of adaptive and paper
  open_brackets = 8,    ///< may_allocate_in_operator
  holes = 16,           ///< what tells where blocks are
  lifetimes = 32,       ///< all blocks are transient
  measured_times = 64,  ///< and what copies cost kernels
  learning = 128        ///< of adaptive: it is told of no step
};
constexpr unsigned declined_sets = 256;
constexpr bool has(unsigned set, declined d) {
  return (set & static_cast<unsigned>(d)) != 0;
}

enum class memory_kind : std::uint8_t { arena, fixed, late, heap, simulated };
inline constexpr std::array memory_kinds{memory_kind::arena, memory_kind::fixed, memory_kind::late,
                                         memory_kind::heap, memory_kind::simulated};

struct setting {
  const char* policy = "online";
  std::uint64_t budget = 0, host = 0;  ///< bytes
  memory_kind memory = memory_kind::arena;
  manner how = manner::whole;
  unsigned without = 0;  ///< of `declined`
  std::array<planned_fault, 2> faults{};
  bool passes = false;     ///< memory suffices for the policy, whatever happens
  bool nests = false;      ///< kernels and open operators call the manager
  bool rewrites = false;   ///< the host writes variables and constants between operators
  std::uint64_t seed = 0;  ///< of what is late
};

/// What attacks have made a manager do: one that never had to act tests nothing.
struct attack_tally {
  std::uint64_t faults = 0, evictions = 0, reloads = 0, recomputes = 0, prefetches = 0;
  std::uint64_t planned = 0;  ///< steps that followed a plan
  std::uint64_t clean_drops = 0, copies_ahead = 0;
  std::uint64_t nested = 0, rewritten = 0;  ///< kernels that called back; writes of other bytes
};

/// Faults, as they come.
class fault_plan {
 public:
  explicit fault_plan(const std::array<planned_fault, 2>& f) : faults_(f) {}
  /// True where this call is to fail.
  bool fails(failing what) {
    const std::uint64_t call = ++calls_[static_cast<std::size_t>(what)];
    for (const planned_fault& f : faults_)
      if (f.what == what && f.at == call) return ++come_, true;
    return false;
  }
  void throws(failing what) {
    if (fails(what)) throw fault();
  }
  [[nodiscard]] std::uint64_t come() const { return come_; }

 private:
  std::array<planned_fault, 2> faults_;
  std::array<std::uint64_t, failing_kinds + 1> calls_{};
  std::uint64_t come_ = 0;
};

/// The first thing that is not as it should be.
struct wrong : std::exception {
  explicit wrong(std::string s) : text(std::move(s)) {}
  std::string text;
};
inline void demand(bool holds, const char* what) {
  if (!holds) throw wrong(what);
}

/// Fails as planned before anything is done, at the end of an operator after it; and declines. Sees
/// where bytes are copied out that have a copy already: those may go without one.
class meddling_storage final : public forwarding_storage {
 public:
  meddling_storage(std::unique_ptr<any_storage> s, fault_plan& plan, unsigned without)
      : forwarding_storage(std::move(s)), plan_(&plan), without_(without) {}
  std::optional<block> allocate(bytes n, lifetime l) override {
    plan_->throws(failing::allocate);
    if (plan_->fails(failing::no_block)) return std::nullopt;
    return over().allocate(n, has(without_, declined::lifetimes) ? lifetime::transient : l);
  }
  std::optional<transfer> copy_out(block& b) override {
    plan_->throws(failing::copy_out);
    demand(!copies_.contains(b.index()), "what has a copy on the host is copied out again");
    if (plan_->fails(failing::no_slab)) return std::nullopt;
    return over().copy_out(b);
  }
  std::pair<block, slab> land(transfer&& t) override {
    auto both = over().land(std::move(t));
    copies_[both.first.index()] = both.second.index();
    return both;
  }
  void free(block&& b) override {
    copies_.erase(b.index());
    over().free(std::move(b));
  }
  void free(slab&& h) override {
    forget_copy(h);
    over().free(std::move(h));
  }
  transfer copy_in(slab&& h, block&& b) override {
    plan_->throws(failing::copy_in);
    forget_copy(h);
    std::byte* const at = over().data(b);
    transfer moving = over().copy_in(std::move(h), std::move(b));
    if (plan_->fails(failing::bits)) *at ^= std::byte{1};
    return moving;
  }
  stamp end_operator(nanoseconds cost) override {
    const stamp done = over().end_operator(cost);
    plan_->throws(failing::end);
    return done;
  }
  [[nodiscard]] bool may_allocate_in_operator() const override {
    return !has(without_, declined::open_brackets) && over().may_allocate_in_operator();
  }
  bytes largest_hole() override {
    return shows_holes() ? over().largest_hole() : detail::saturating_sub(capacity(), used());
  }
  std::optional<bytes> bytes_to_move(bytes n) override {
    return shows_holes() ? over().bytes_to_move(n) : std::nullopt;
  }
  double move_rate() override { return shows_holes() ? over().move_rate() : 0; }
  std::optional<nanoseconds> elapsed(stamp s) override {
    return measures() ? over().elapsed(s) : std::nullopt;
  }
  std::optional<nanoseconds> alone(stamp s) override {
    return measures() ? over().alone(s) : std::nullopt;
  }
  [[nodiscard]] double burden(direction d) const override {
    return measures() ? over().burden(d) : 0;
  }

 private:
  [[nodiscard]] bool shows_holes() const { return !has(without_, declined::holes); }
  [[nodiscard]] bool measures() const { return !has(without_, declined::measured_times); }
  void walk(void (*f)(void*, std::uint32_t, bytes, bool), void* to) override {
    if (shows_holes())
      over().walk_blocks([&](std::uint32_t row, bytes n, bool used) { f(to, row, n, used); });
  }
  void forget_copy(const slab& h) {
    std::erase_if(copies_, [&](const auto& copy) { return copy.second == h.index(); });
  }
  fault_plan* plan_;
  unsigned without_;
  std::map<std::uint32_t, std::uint32_t> copies_;  // of a block that is there: its slab
};

/// An observer that throws as planned, which it must not.
struct angry_observer final : any_observer {
  explicit angry_observer(fault_plan& p) : plan(&p) {}
  void on(const event&) override { plan->throws(failing::observer); }
  fault_plan* plan;
};

/// The paper's prefetcher, of which a part can be left out.
struct partial_fifo : fifo_prefetch {
  unsigned without = 0;
  tensor_id next(const context& c) {
    return has(without, declined::early_reloads) ? tensor_id::none : fifo_prefetch::next(c);
  }
  double early_release_bytes(const context& c) {
    return has(without, declined::early_release) ? 0 : fifo_prefetch::early_release_bytes(c);
  }
};

/// Likewise of `adaptive`, whose plans are those of the whole.
struct partial_plan : adaptive {
  unsigned without = 0;
  tensor_id next(const context& c) {
    return has(without, declined::early_reloads) ? tensor_id::none : adaptive::next(c);
  }
  tensor_id copy_ahead(const context& c) {
    return has(without, declined::copies_ahead) ? tensor_id::none : adaptive::copy_ahead(c);
  }
  double early_release_bytes(const context& c) {
    return has(without, declined::early_release) ? 0 : adaptive::early_release_bytes(c);
  }
};

/// The same, which has no history to learn from.
struct unlearned_plan : partial_plan {
  static constexpr bool learns = false;
};

/// Copies ahead, releases early and brings back whatever chance names, right or wrong: tensors have
/// clean copies, and come and go by them.
struct copies_at_random {
  dice roll{1};
  tensor_id next(const context& c) {
    const auto away = c.offloaded();
    return away.empty() || roll.one_in(2) ? tensor_id::none : roll.any(away);
  }
  tensor_id copy_ahead(const context& c) {
    auto t = tensor_id::none;
    if (roll.one_in(3)) return t;
    for (const tensor_id x : c.candidates())
      if (t == tensor_id::none || roll.one_in(3)) t = x;
    return t;
  }
  double early_release_bytes(const context& c) {
    return c.used() * static_cast<double>(roll.below(4)) / 4;
  }
};

inline std::unique_ptr<manager_interface> attacked_manager(const setting& s,
                                                           std::unique_ptr<any_storage> storage,
                                                           const manager_options& options) {
  const std::string name = s.policy;
  constexpr unsigned policys = 7;
  const auto partial = [&](auto p) {
    p.without = s.without;
    // Small programs lose so little that they are hardly ever planned: in every other case they
    // are.
    if (s.seed % 2 != 0) p.worth = 1e9, p.least = 1e7;
    return make_manager(p, std::move(storage), options);
  };
  if (name == "adaptive" && has(s.without, declined::learning)) return partial(unlearned_plan());
  if (name == "adaptive" && (s.seed % 2 != 0 || (s.without & policys) != 0))
    return partial(partial_plan());
  if (name == "clean")
    return make_manager(policy<lru, cheaper, copies_at_random>{{}, {}, {dice(s.seed)}},
                        std::move(storage), options);
  if (name == "paper" && (s.without & policys) != 0) {
    policy<base, paper_director, partial_fifo> p;
    p.prefetcher.without = s.without;
    return make_manager(p, std::move(storage), options);
  }
  return make_manager(name, std::move(storage), options);
}

/// A manager whose program tries an operator again that has failed by a fault; whose kernels call
/// it; whose host writes between operators.
struct patient {
  manager_interface* m;
  fault_plan* plan;
  nesting* nested = nullptr;  ///< null: nothing calls it from within
  bool rewrites = false;
  std::uint64_t tries = 0, rewritten = 0;
  std::vector<tensor_id> sources{};
  std::size_t operators = 0;  ///< in this step

  /// As often as there are faults.
  template <class F>
  decltype(auto) again(const F& f) {
    for (;; ++tries) {
      const std::uint64_t before = plan->come();
      try {
        return f();
      } catch (const budget_exceeded&) {
        if (plan->come() == before) throw;
      } catch (const fault&) {
        if (!usable()) throw;
      }
    }
  }
  [[nodiscard]] auto constant(bytes n) {
    return note(again([&] { return m->constant(n, "constant"); }));
  }
  [[nodiscard]] auto variable(bytes n) {
    return note(again([&] { return m->variable(n, "variable"); }));
  }
  [[nodiscard]] auto acquire(tensor_id t, access how = access::read) {
    return again([&] { return m->acquire(t, how); });
  }
  void drop(tensor_id t) { nested != nullptr ? nested->drop(t) : m->drop(t); }
  tensor_id share(tensor_id t) { return m->share(t); }
  void backward() { m->backward(); }
  void end_of_step() {
    if (nested != nullptr) nested->end_of_step();
    again([&] { m->end_of_step(); });
    operators = 0;
  }
  /// Before every third operator: other bytes in a variable or constant, which has to leave with
  /// them and come back; then the old ones. A copy of the old version, or anything that is made
  /// from the new one, shows. Not behind one: what is asynchronous is the program's to hold first.
  void before_operator() {
    if (!rewrites || sources.empty() || ++operators % 3 != 0) return;
    const tensor_id t = sources[operators / 3 % sources.size()];
    const auto old = invert(t);
    try {
      m->make_room(bytes{m->storage().capacity().count / (1 + operators % 4)});
    } catch (const budget_exceeded&) {  // NOLINT(bugprone-empty-catch): as much as can leave has
    }
    auto written = invert(t);
    for (std::byte& b : written) b = ~b;
    demand(written == old, "what the host has written is gone");
    ++rewritten;
  }
  /// False: poisoned.
  [[nodiscard]] bool usable() const {
    try {
      m->make_room(bytes{}, "after a fault");
      return true;
    } catch (const poisoned&) {
      return false;
    }
  }

 private:
  tensor_id note(tensor_id t) { return sources.push_back(t), t; }
  // Inverts all of its bytes, and gives them as they were; none where the storage keeps none.
  std::vector<std::byte> invert(tensor_id t) {
    const auto view = acquire(t, access::write);
    if (view.data() == nullptr) return {};
    const std::span bytes_of_it(view.data(), view.size().count);
    const std::vector<std::byte> old(bytes_of_it.begin(), bytes_of_it.end());
    for (std::byte& b : bytes_of_it) b = ~b;
    return old;
  }
};
template <class Kernel>
void run_operator(patient& p, const operation_span& op, std::span<tensor_id> ids,
                  const Kernel& kernel, manner how) {
  p.before_operator();
  p.again([&] {
    if (p.nested == nullptr) return run_operator(*p.m, op, ids, kernel, how);
    run_operator(*p.m, op, ids, p.nested->around(op, kernel, how), how);
  });
}

namespace attack_detail {

template <class S>
void demand_right(S& storage) {
  demand(storage.used() <= storage.capacity(), "the budget is exceeded");
  demand(storage.host_used() <= storage.host_capacity(), "the host budget is exceeded");
  const std::string broken(check_invariants(storage));
  if (!broken.empty()) throw wrong("the storage: " + broken);
}

/// A manager that is noted in the tally, however it ends.
struct noted {
  noted(attack_tally& to, const fault_plan& p) : sum(&to), plan(&p) {}
  noted(const noted&) = delete;
  noted& operator=(const noted&) = delete;
  ~noted() {
    sum->faults += plan->come();
    if (!m) return;
    const counters& c = m->counts();
    sum->evictions += c.evictions, sum->reloads += c.reloads;
    sum->recomputes += c.recomputes, sum->prefetches += c.prefetches;
    sum->clean_drops += c.clean_drops, sum->copies_ahead += c.copies_ahead;
    for (const learning_report::outcome& o : m->learned().outcomes)
      sum->planned += o.predicted > 0 ? 1 : 0;
  }
  attack_tally* sum;
  const fault_plan* plan;
  std::unique_ptr<manager_interface> m;
};

inline void demand_poisoned(manager_interface& m, const fault_plan& plan, const patient& program) {
  demand(plan.come() > 0 && !program.usable(), "a fault comes out, and nobody is poisoned");
  try {
    m.end_of_step();
  } catch (const poisoned&) {
    return;
  }
  throw wrong("a poisoned manager goes on");
}

// Once through the program, on a storage that is empty, and is so afterwards.
template <class S, class Launch, class Settle>
void run_once(const program& p, const setting& s, S& storage, const Launch& launch,
              const Settle& settle, attack_tally& sum) {
  const auto expected = evaluate(p);
  fault_plan plan(s.faults);
  {
    angry_observer told(plan);
    const bool observed =
        s.faults[0].what == failing::observer || s.faults[1].what == failing::observer;
    std::optional<nesting> nested;  // outlives the manager, whose kernels call it
    noted note(sum, plan);
    note.m = attacked_manager(s, std::make_unique<meddling_storage>(over(storage), plan, s.without),
                              {.observer = observed ? &told : nullptr});
    manager_interface* const m = note.m.get();
    const auto check = [&] { demand_right(storage); };
    if (s.nests) nested.emplace(*m, demand, check);
    patient program_of{
        .m = m, .plan = &plan, .nested = nested ? &*nested : nullptr, .rewrites = s.rewrites};
    const auto give_back = [](nesting* n) { n->give_blocks_back(); };
    const std::unique_ptr<nesting, decltype(give_back)> at_the_end(program_of.nested, give_back);
    try {
      const auto burning = [launch, &plan](auto reads, auto writes, auto&& body) {
        plan.throws(failing::kernel);
        launch(reads, writes, std::forward<decltype(body)>(body));
      };
      const auto left = run_program(program_of, p, burning, check, s.how);
      settle();
      demand(s.memory == memory_kind::simulated || left == expected, "the bits differ");
      // What is locked for good, or dropped later than ever, would still be there.
      program_of.end_of_step();
      demand(m->live_tensors() == expected.size(), "a tensor that was dropped is kept");
    } catch (const budget_exceeded& e) {
      if (s.passes) throw wrong(std::string("memory suffices, and yet: ") + e.what());
    } catch (const fault&) {
      demand_poisoned(*m, plan, program_of);
    } catch (const poisoned&) {  // it has come where nothing may throw: as an operator is given up
      demand_poisoned(*m, plan, program_of);
    }
    sum.nested += nested ? nested->calls() : 0, sum.rewritten += program_of.rewritten;
  }
  settle();
  demand(storage.used() == bytes{}, "bytes leak");
  demand(storage.host_used() == bytes{}, "bytes of the host leak");
  demand_right(storage);
}

template <class S, class Launch, class Settle>
void run_all(const program& p, const setting& s, S& storage, const Launch& launch,
             const Settle& settle, attack_tally& sum) {
  run_once(p, s, storage, launch, settle, sum);
  if (s.faults[0].what == failing::nothing) return;
  setting calm = s;  // whoever comes next finds everything in order
  calm.faults = {};
  run_once(p, calm, storage, launch, settle, sum);
}

}  // namespace attack_detail

/// Runs the program in the setting; what is wrong with that, in words; "": nothing. Adds
/// to the tally.
inline std::string attacked(const program& p, const setting& s, attack_tally* tally = nullptr) {
  using namespace attack_detail;
  attack_tally own;
  attack_tally& sum = tally != nullptr ? *tally : own;
  const auto nothing = [] {};
  try {
    const bytes budget{s.budget}, host{s.host};
    switch (s.memory) {
      case memory_kind::arena:
      case memory_kind::fixed: {
        immediate device;
        arena<immediate> storage(
            device,
            {.capacity = budget, .host_capacity = host, .moving = s.memory == memory_kind::arena});
        run_all(p, s, storage, run_now{}, nothing, sum);
        break;
      }
      case memory_kind::late: {
        adversary device(s.seed);
        arena<adversary> storage(device, {.capacity = budget, .host_capacity = host});
        run_all(
            p, s, storage, launch_late{&device}, [&] { device.drain(); }, sum);
        if (!device.violations().empty()) return "a race: " + device.violations().front();
        break;
      }
      case memory_kind::heap: {
        heap_storage storage({.capacity = budget, .host_capacity = host});
        run_all(p, s, storage, run_now{}, nothing, sum);
        break;
      }
      case memory_kind::simulated: {
        simulated storage({.capacity = budget,
                           .host_capacity = host,
                           .rate_out = 2e9,
                           .rate_in = 2e9,
                           .granularity = 64});
        run_all(p, s, storage, run_now{}, nothing, sum);
        break;
      }
    }
  } catch (const wrong& w) {
    return w.text;
  } catch (const std::exception& e) {
    return std::string("an error that is none of its own: ") + e.what();
  }
  return {};
}

/// The program in the setting as a test, to be pasted behind attack.hpp.
inline std::string as_test(const program& p, const setting& s, const std::string& what) {
  const auto list = [](const auto& values) {
    std::string t;
    for (const auto v : values) t += (t.empty() ? "" : ", ") + std::to_string(v);
    return "{" + t + "}";
  };
  std::string t = "TEST_CASE(\"attack: " + what + "\") {\n  const program p{" + list(p.constants) +
                  ", " + list(p.variables) + ", {\n";
  for (const program::op& o : p.ops) {
    t += "      {.inputs = " + list(o.inputs) + ", .updates = " + list(o.updates) +
         ", .outputs = " + list(o.outputs) + ", .workspace = " + std::to_string(o.workspace) +
         ", .traits = trait(" + std::to_string(unsigned(o.traits)) +
         "), .cost = " + std::to_string(o.cost) + ", .drops = " + list(o.drops) +
         (o.backward ? ", .backward = true" : "") + (o.step ? ", .step = true" : "") + "},\n";
  }
  t += "  }};\n  CHECK(attacked(p, {.policy = \"" + std::string(s.policy) +
       "\", .budget = " + std::to_string(s.budget) + ", .host = " + std::to_string(s.host) +
       ", .memory = memory_kind(" + std::to_string(int(s.memory)) + "), .how = manner(" +
       std::to_string(int(s.how)) + "), .without = " + std::to_string(s.without) + ", .faults = {{";
  for (const planned_fault& f : s.faults)
    t += "{failing(" + std::to_string(int(f.what)) + "), " + std::to_string(f.at) + "}, ";
  const auto word = [](bool b) { return std::string(b ? "true" : "false"); };
  t += "}}, .passes = " + word(s.passes) + ", .nests = " + word(s.nests) +
       ", .rewrites = " + word(s.rewrites) + ", .seed = " + std::to_string(s.seed) +
       "}) == \"\");\n}\n";
  return t;
}

}  // namespace delta::test
