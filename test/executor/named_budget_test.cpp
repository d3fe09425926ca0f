// The budget that an error names is enough: random programs that scatter memory are run anew with
// it, and come past what had failed. Where no budget is named the error says why.
// ctest-labels: long_sanitized
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "delta/manager.hpp"
#include "delta/storage/arena.hpp"
#include "delta/storage/simulated.hpp"
#include "machine.hpp"
#include "peers/make_manager.hpp"
#include "peers/peer_names.hpp"
#include "seeds.hpp"

using namespace delta;
using namespace delta::executor;
using namespace delta::test;

namespace {

/// One call of the manager. What a tensor is to the program is its number, in the order in which
/// the program makes them: so the same calls can be made under any budget.
struct action {
  enum class kind : std::uint8_t {
    variable,
    constant,
    run,
    begin,
    allocate,
    workspace,
    arguments,
    end,
    make_room,
    drop,
    acquire,
    let_go,
    forbid,
    backward,
    end_of_step
  } what;
  std::vector<std::size_t> inputs, updates;
  std::vector<bytes> outputs;
  bytes size{};  ///< of what is made, of a workspace, of room
  nanoseconds cost{};
  trait traits = trait::pure;
  pin ways = pin::none;
};
using program = std::vector<action>;

/// Makes programs up: operators whole and open, some with a look at addresses before the sizes are
/// known, views, updates, pins. Sizes are mixed, and every third tensor is dropped.
class author {
 public:
  explicit author(std::uint64_t seed) : rng_(seed) {
    // Of each program's own, so that some have little of one kind and much of another.
    looks_ = below(3), views_ = below(3), pins_ = below(4) == 0, ends_ = below(3) != 0;
    largest_ = 8 + below(120);
  }

  program write(int calls) {
    all_.clear(), held_.clear(), made_ = 0;
    for (std::uint64_t n = 1 + below(3); n > 0; --n) make(action::kind::variable);
    // Steps that repeat are learned; else all is one.
    const std::uint64_t steps = below(3) == 0 ? 3 : 1, seed = rng_();
    const std::vector<std::size_t> sources = held_;
    for (std::uint64_t step = 0; step < steps; ++step) {
      rng_.seed(seed);
      for (int i = 0; i < calls; ++i) add_any();
      if (steps > 1) end_step(sources);
    }
    return std::move(all_);
  }

 private:
  using kind = action::kind;
  std::uint64_t below(std::uint64_t n) { return rng_() % n; }
  bytes any_size() { return bytes{below(5) == 0 ? below(largest_) : below(largest_ / 4 + 1)}; }
  std::size_t any() {
    const auto near = std::min<std::size_t>(held_.size(), 6);
    return held_[below(2) == 0 ? held_.size() - 1 - below(near) : below(held_.size())];
  }
  action& add(kind k) {
    all_.push_back({});
    all_.back().what = k;
    return all_.back();
  }
  void make(kind k) {
    add(k).size = any_size();
    held_.push_back(made_++);
  }
  void fill(action& a) {
    for (std::uint64_t n = below(4); n > 0; --n) a.inputs.push_back(any());
    if (below(6) == 0) {
      a.updates.push_back(any());
      std::erase(a.inputs, a.updates.back());
      if (below(2) == 0) a.traits = trait::effect_once;
    }
    for (std::uint64_t n = below(3); n > 0; --n) a.outputs.push_back(any_size());
    if (below(3) == 0) a.size = any_size();
    a.cost = nanoseconds{static_cast<std::int64_t>(below(200))};
  }
  void drop_one() {
    if (held_.size() < 3) return;
    const std::size_t i = below(held_.size());
    add(kind::drop).inputs = {std::exchange(held_[i], held_.back())};
    held_.pop_back();
  }
  // Everything goes but for the sources, if they are still there.
  void end_step(const std::vector<std::size_t>& sources) {
    for (int i = 0; i < 8; ++i) add(kind::let_go);
    std::vector<std::size_t> kept;
    for (const std::size_t t : held_) {
      if (std::ranges::find(sources, t) != sources.end())
        kept.push_back(t);
      else
        add(kind::drop).inputs = {t};
    }
    add(kind::end_of_step);
    held_ = kept;
    while (held_.size() < sources.size()) make(kind::variable);
  }
  void open() {
    action known;
    known.what = kind::begin;
    fill(known);
    std::size_t outputs = known.outputs.size();
    all_.push_back(std::move(known));
    for (std::uint64_t n = below(6); n > 0; --n) {
      const std::uint64_t what = below(8);
      if (what < looks_ + 1) {
        add(kind::arguments);
      } else if (what < 5) {
        add(kind::allocate).size = any_size();
        ++outputs;
      } else if (what == 5) {
        add(kind::workspace).size = any_size();
      } else if (what == 6) {
        add(kind::make_room).size = any_size();
      } else {
        drop_one();
      }
    }
    add(kind::end).outputs.resize(outputs);
    while (outputs-- > 0) held_.push_back(made_++);
  }
  void add_any() {
    const std::uint64_t what = below(20);
    if (what < 7) {
      action a;
      a.what = kind::run;
      fill(a);
      for (std::size_t n = a.outputs.size(); n > 0; --n) held_.push_back(made_++);
      all_.push_back(std::move(a));
    } else if (what < 10) {
      open();
    } else if (what < 14) {
      drop_one();
    } else if (what == 14) {
      make(below(3) == 0 ? kind::constant : kind::variable);
    } else if (what == 15 && below(3) < views_) {
      action& a = add(kind::acquire);
      a.inputs = {any()};
    } else if (what == 16) {
      add(kind::let_go).size = bytes{below(4)};
    } else if (what == 17 && pins_) {
      action& a = add(kind::forbid);
      a.inputs = {any()};
      a.ways = static_cast<pin>(below(4));
    } else if (what == 18 && ends_) {
      add(below(2) == 0 ? kind::end_of_step : kind::backward);
    } else {
      add(kind::make_room).size = any_size();
    }
  }

  std::mt19937_64 rng_;
  program all_;
  std::vector<std::size_t> held_;  // numbers of tensors that the program has
  std::size_t made_ = 0;
  std::uint64_t looks_, views_, largest_;
  bool pins_, ends_;
};

/// Makes a program's calls of a manager, and stops at the first that has no room.
class performance {
 public:
  performance(manager_interface& m, const program& p) : m_(&m), program_(&p) {}

  /// The place of the call that failed, and why; nothing: it came to its end.
  struct failure {
    std::size_t at;
    memory_report report;
    std::string text;
  };
  std::optional<failure> play() {
    for (std::size_t at = 0; at < program_->size(); ++at) {
      try {
        call((*program_)[at]);
      } catch (const budget_exceeded& e) {
        return failure{at, e.report, e.what()};
      }
    }
    return std::nullopt;
  }

 private:
  void call(const action& a) {
    using kind = action::kind;
    switch (a.what) {
      case kind::variable:
        return ids_.push_back(m_->variable(a.size));
      case kind::constant:
        return ids_.push_back(m_->constant(a.size));
      case kind::run:
      case kind::begin:
        return operate(a);
      case kind::allocate:
        return void(open_->allocate(a.size));
      case kind::workspace:
        return void(open_->workspace(a.size));
      case kind::arguments:
        return void(open_->arguments());
      case kind::end:
        return end(a.outputs.size());
      case kind::make_room:
        return m_->make_room(a.size);
      case kind::drop:
        return m_->drop(ids_[a.inputs[0]]);
      case kind::acquire:
        return views_.push_back(
            std::make_unique<manager_interface::view>(m_->acquire(ids_[a.inputs[0]])));
      case kind::let_go:
        if (a.size.count < views_.size())
          views_.erase(views_.begin() + static_cast<std::ptrdiff_t>(a.size.count));
        return;
      case kind::forbid:
        return m_->forbid(ids_[a.inputs[0]], a.ways);
      case kind::backward:
        return m_->backward();
      case kind::end_of_step:
        return m_->end_of_step();
    }
  }
  void operate(const action& a) {
    std::vector<tensor_id> inputs, updates, made(a.outputs.size());
    for (const std::size_t t : a.inputs) inputs.push_back(ids_[t]);
    for (const std::size_t t : a.updates) updates.push_back(ids_[t]);
    const operation_span op{.inputs = inputs,
                            .outputs = a.outputs,
                            .updates = updates,
                            .workspace = a.size,
                            .traits = a.traits,
                            .cost = a.cost};
    if (a.what == action::kind::begin) return void(open_.emplace(m_->begin(op)));
    m_->run(op, made, kernel([](delta::call&) {}));
    ids_.insert(ids_.end(), made.begin(), made.end());
  }
  void end(std::size_t outputs) {
    std::vector<tensor_id> made(outputs);
    open_->end(made, kernel([](delta::call&) {}));
    open_.reset();
    ids_.insert(ids_.end(), made.begin(), made.end());
  }

  manager_interface* m_;
  const program* program_;
  std::vector<tensor_id> ids_;
  std::vector<std::unique_ptr<manager_interface::view>> views_;
  std::optional<manager_interface::open_operator> open_;
};

/// How often what was seen.
struct tally {
  std::uint64_t failures = 0, named = 0, hosted = 0;
  std::map<budget_basis, std::uint64_t> by_basis;
  std::map<shortage, std::uint64_t> by_shortage;
};

simulated_options any_machine(std::mt19937_64& rng) {
  const auto below = [&](std::uint64_t n) { return rng() % n; };
  simulated_options o;
  o.granularity = std::uint64_t{1} << (below(3) == 0 ? below(7) : 0);
  o.capacity = bytes{(40 + below(400)) * (o.granularity > 8 ? 4 : 1)};
  // None, too little, what looks enough, ample.
  o.host_capacity = std::array{0_B, bytes{below(300)}, bytes{300 + below(2000)}, 1_MiB}[below(4)];
  o.rate_out = o.rate_in = std::array{1e8, 1e9, 1e10}[below(3)];
  o.rate_move = std::array{0.0, 1e7, 1e10}[below(3)];
  o.latency = nanoseconds{static_cast<std::int64_t>(below(2) * 50)};
  o.moving = below(8) != 0;
  o.places = below(16) != 0;
  return o;
}

/// Runs the program in a budget, then in the one that the error names, and so on to its end. False:
/// a budget that was named was not enough.
bool follow(const program& p, const preset& policy, simulated_options machine, tally& seen) {
  std::optional<std::size_t> passed;  // what the budget at hand was named for
  for (std::size_t rounds = 0; rounds <= p.size(); ++rounds) {
    simulated storage(machine);
    const auto manager = make_any_manager(policy.name, over(storage));
    const auto failed = performance(*manager, p).play();
    if (!failed) return true;
    CAPTURE(failed->text);
    CHECK(failed->text.find("needs 0 bytes") == std::string::npos);
    const bool enough = !passed || failed->at > *passed;
    CHECK_MESSAGE(enough, "named for call " << passed.value_or(0) << ", failed at " << failed->at
                                            << " in " << machine.capacity.count);
    if (!enough) return false;
    const memory_report& r = failed->report;
    ++seen.failures;
    ++seen.by_basis[r.basis];
    ++seen.by_shortage[r.what];
    CHECK((r.smallest_budget.count == 0) ==
          (r.basis == budget_basis::nothing || r.basis == budget_basis::no_moving));
    // What was known of the storage's rules was kept: there is a reason where no budget is named.
    CHECK(r.basis != budget_basis::nothing);
    CHECK((r.basis != budget_basis::no_moving || !machine.moving));
    if (r.enough_host.count > 0) {
      ++seen.hosted;
      CHECK(r.budget_with_host < r.smallest_budget);
      simulated_options larger = machine;
      larger.capacity = r.budget_with_host, larger.host_capacity = r.enough_host;
      simulated other(larger);
      const auto copying = make_any_manager(r.copies ? policy.name : "online", over(other));
      const auto again = performance(*copying, p).play();
      CAPTURE(again ? again->text : "");
      CHECK_MESSAGE((!again || again->at > failed->at),
                    "with a host: named for call " << failed->at << " in " << larger.capacity.count
                                                   << " and " << larger.host_capacity.count);
    }
    if (r.smallest_budget.count == 0) return true;
    ++seen.named;
    CHECK(r.smallest_budget > machine.capacity);
    machine.capacity = r.smallest_budget;
    passed = failed->at;
  }
  FAIL_CHECK("no end");
  return false;
}

/// What the program takes without a budget, by itself.
bytes unmanaged_peak(const program& p, simulated_options machine) {
  machine.capacity = 1_GiB;
  simulated storage(machine);
  const auto manager = make_any_manager("unmanaged", over(storage));
  CHECK_FALSE(performance(*manager, p).play());
  return storage.peak();
}

}  // namespace

TEST_CASE("no budget is named that is above what the program takes without one") {
  const std::uint64_t programs = seeds(300);
  std::uint64_t named = 0;
  for (std::uint64_t seed = 1; seed <= programs; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 rng(seed);
    program p = author(seed).write(20 + static_cast<int>(seed % 60));
    // Who asks for room and does not use it needs more; so do blocks that are held, as they split
    // what is free; and constants that go in the first step stay to its end.
    for (auto& a : p) {
      using kind = decltype(a.what);
      if (a.what == kind::make_room) a.size = 0_B;
      if (a.what == kind::constant) a.what = kind::variable;
      if (a.what == kind::forbid) a.ways = pin::none;
      if (a.what == kind::acquire || a.what == kind::arguments) a.what = kind::let_go;
    }
    simulated_options machine = any_machine(rng);
    machine.places = false;
    const bytes peak = unmanaged_peak(p, machine);
    for (const preset& policy : all_policies) {
      CAPTURE(policy.name);
      // Of the others some let tensors leave though there is room: what these hang on has to stay.
      constexpr std::array<std::string_view, 4> late{"unmanaged", "dtr", "online", "adaptive"};
      if (std::ranges::find(late, policy.name) == late.end()) continue;
      for (const std::uint64_t percent : {90u, 70u, 50u}) {
        machine.capacity = bytes{peak.count * percent / 100};
        simulated storage(machine);
        const auto manager = make_any_manager(policy.name, over(storage));
        const auto failed = performance(*manager, p).play();
        if (!failed || failed->report.basis != budget_basis::everything) continue;
        CAPTURE(failed->text);
        CHECK(failed->report.smallest_budget <= peak);
        ++named;
      }
    }
  }
  CHECK(named > programs);
}

TEST_CASE("with the budget that an error names the program comes past what failed") {
  // So many failures; DELTA_TEST_FAILURES asks for more.
  const char* asked = environment("DELTA_TEST_FAILURES");
  const std::uint64_t wanted = asked != nullptr ? std::strtoull(asked, nullptr, 10) : seeds(10'000);
  tally seen;
  std::uint64_t wrong = 0;
  // Few programs give up a dropped constant in one budget that has to stay in the next: these do.
  std::vector<std::uint64_t> first{947, 4121, 4958};
  for (std::uint64_t next = 1; seen.failures < wanted && wrong < 5;) {
    const std::uint64_t seed = first.empty() ? next++ : first.back();
    if (!first.empty()) first.pop_back();
    CAPTURE(seed);
    std::mt19937_64 rng(seed);
    const program p = author(seed).write(20 + static_cast<int>(seed % 60));
    const simulated_options machine = any_machine(rng);
    for (const preset& policy : all_policies) {
      CAPTURE(policy.name);
      wrong += follow(p, policy, machine, seen) ? 0 : 1;
    }
  }
  const auto of = [](auto& counts, auto key) { return counts[key]; };
  MESSAGE(seen.failures << " failures: " << of(seen.by_shortage, shortage::room) << " room, "
                        << of(seen.by_shortage, shortage::one_piece) << " one piece, "
                        << of(seen.by_shortage, shortage::restoring) << " restoring");
  MESSAGE(seen.named << " named: " << of(seen.by_basis, budget_basis::largest_need)
                     << " by the largest need, " << of(seen.by_basis, budget_basis::everything)
                     << " by everything; not named: " << of(seen.by_basis, budget_basis::no_moving)
                     << " as nothing moves, " << of(seen.by_basis, budget_basis::nothing)
                     << " without a reason");
  CHECK(of(seen.by_basis, budget_basis::largest_need) > wanted / 20);
  CHECK(of(seen.by_basis, budget_basis::everything) > wanted / 20);
  CHECK(of(seen.by_shortage, shortage::one_piece) > wanted / 100);
  CHECK(seen.hosted > wanted / 20);
}
