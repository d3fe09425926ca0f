// delta engine: the functions of C, over a manager by name and an arena on the host or on a device
// that is a table of functions.
#include "delta/engine/c_interface.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "delta/engine/engine.hpp"
#include "delta/error.hpp"
#include "delta/observer.hpp"
#include "delta/storage/arena.hpp"
#include "delta/storage/host_device.hpp"
#include "delta/testing/replay_differs.hpp"
#include "delta/timeline.hpp"
#include "foreign_device.hpp"

namespace delta::detail {
namespace {

// A kernel of the program said that it has failed. Thrown through the manager, which takes it for
// any exception of a kernel.
struct kernel_failed {};

// An option that makes no sense, or names a file that can't be opened.
class bad_option : public std::exception {
 public:
  explicit bad_option(std::string what) : what_(std::move(what)) {}
  [[nodiscard]] const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

const delta_call* opaque(const call& c) noexcept {
  return reinterpret_cast<const delta_call*>(&c);
}
const call* as_call(const delta_call* c) noexcept {
  return reinterpret_cast<const call*>(c);
}
static_assert(tensor_id{DELTA_NO_TENSOR} == tensor_id::none);

// What a function can't do without.
void need(const void* given, const char* otherwise) {
  if (given == nullptr) throw misuse(otherwise);
}
template <class T>
std::span<T> list(T* items, std::size_t count) {
  if (count > 0) need(items, "a list with a count is NULL");
  return {items, count};
}

// Owns a kernel of the program.
class foreign_kernel {
 public:
  explicit foreign_kernel(const delta_kernel& k) noexcept : kernel_(k) {}
  void check() const {
    if (kernel_.run == nullptr) throw misuse("a kernel has no function: run is NULL");
  }
  foreign_kernel(foreign_kernel&& o) noexcept : kernel_(std::exchange(o.kernel_, {})) {}
  foreign_kernel& operator=(foreign_kernel&&) = delete;
  ~foreign_kernel() {
    if (kernel_.destroy != nullptr) kernel_.destroy(kernel_.state);
  }
  void operator()(const call& c) const {
    int failed = 1;
    try {
      failed = kernel_.run(kernel_.state, opaque(c));
    } catch (...) {  // NOLINT(bugprone-empty-catch): C has one way to fail
    }
    if (failed != 0) throw kernel_failed();
  }

 private:
  delta_kernel kernel_;
};

// An arena, and the figures that its Storage's interface does not have.
class memory {
 public:
  memory() = default;
  memory(const memory&) = delete;
  memory& operator=(const memory&) = delete;
  virtual ~memory() = default;
  virtual std::unique_ptr<any_storage> storage() = 0;
  virtual void figures(delta_counts& c) const = 0;
};

// An arena that tells the program whose its blocks are, if that asks.
template <Device D>
class telling_arena : public arena<D> {
 public:
  telling_arena(D& device, const arena_options& o, const delta_options& who)
      : arena<D>(device, o), tell_(who.on_owner_changed), owner_(who.owner) {}
  using arena<D>::free;
  void on_owner_changed(const block& b, tensor_id t) {
    if (tell_ == nullptr) return;
    lose(b.index());
    if (t == tensor_id::none) return;
    if (b.index() >= owners_.size()) owners_.resize(b.index() + 1u, tensor_id::none);
    owners_[b.index()] = t;
    tell_(owner_, index(t), this->data(b));
  }
  void free(block&& b) {
    lose(b.index());
    arena<D>::free(std::move(b));
  }

 private:
  void lose(std::uint32_t i) {
    if (i >= owners_.size() || owners_[i] == tensor_id::none) return;
    tell_(owner_, index(std::exchange(owners_[i], tensor_id::none)), nullptr);
  }
  void (*tell_)(void*, delta_tensor, void*);
  void* owner_;
  std::vector<tensor_id> owners_;  // by the token's row
};

template <Device D>
class memory_on final : public memory {
 public:
  template <class... From>
  memory_on(const arena_options& o, const delta_options& who, const From&... from)
      : device_(from...), arena_(device_, o, who) {}
  std::unique_ptr<any_storage> storage() override { return over(arena_); }
  void figures(delta_counts& c) const override {
    c.used = arena_.used().count, c.peak = arena_.peak().count;
    c.host_used = arena_.host_used().count, c.host_peak = arena_.host_peak().count;
  }

 private:
  D device_;
  telling_arena<D> arena_;
};

std::unique_ptr<memory> memory_for(const delta_options& o) {
  const std::uint64_t granularity = o.granularity == 0 ? 64 : o.granularity;
  if ((granularity & (granularity - 1)) != 0)
    throw bad_option("granularity " + std::to_string(granularity) + " is not a power of two");
  if (o.budget == 0) throw bad_option("the budget is 0 bytes");
  const arena_options options{.capacity = bytes{o.budget},
                              .host_capacity = bytes{o.host_budget},
                              .granularity = granularity,
                              .moving = o.keep_addresses == 0};
  if (o.device == nullptr) {
    if (granularity > host_device::alignment)
      throw bad_option("granularity " + std::to_string(granularity) + " is more than the host's " +
                       std::to_string(host_device::alignment));
    return std::make_unique<memory_on<host_device>>(options, o);
  }
  if (const char* missing = foreign_device::missing(*o.device))
    throw bad_option(std::string("the device has no function ") + missing);
  return std::make_unique<memory_on<foreign_device>>(options, o, *o.device);
}

// A timeline, and the file that it is written to.
class timeline_file final : public any_observer {
 public:
  explicit timeline_file(const std::string& name) : file_(name), lanes_(file_) {
    if (!file_) throw bad_option("the timeline '" + name + "' can't be written");
  }
  void on(const event& e) override { lanes_.on(e); }

 private:
  std::ofstream file_;
  timeline lanes_;
};

std::unique_ptr<timeline_file> observer_for(const char* observer) {
  const std::string_view name = observer == nullptr ? "" : observer;
  constexpr std::string_view timeline = "timeline:";
  if (name.empty()) return nullptr;
  if (name.substr(0, timeline.size()) != timeline || name.size() == timeline.size())
    throw bad_option("there is no observer '" + std::string(name) + "'; allowed: timeline:FILE");
  return std::make_unique<timeline_file>(std::string(name.substr(timeline.size())));
}

void fill(delta_error& e, delta_status status, const char* what) noexcept {
  e = {};
  e.status = status;
  std::strncpy(e.what, what, sizeof e.what - 1);
}
void fill(delta_error& e, delta_status status, const budget_exceeded& x) noexcept {
  fill(e, status, x.what());
  const memory_report& r = x.report;
  e.requested = r.requested.count, e.budget = r.capacity.count, e.used = r.used.count;
  e.largest_hole = r.largest_hole.count, e.immovable = r.immovable.count;
  e.host_budget = r.host_capacity.count, e.host_used = r.host_used.count;
  e.smallest_budget = r.smallest_budget.count, e.foreign = r.foreign.count;
}

// Runs `f`; an exception becomes a status, and `e` says more.
template <class F>
delta_status caught(delta_error& e, const F& f) noexcept {
  try {
    f();
    return DELTA_OK;
  } catch (const thrash& x) {
    fill(e, DELTA_THRASH, x);
  } catch (const budget_exceeded& x) {
    fill(e, DELTA_BUDGET_EXCEEDED, x);
  } catch (const replay_differs& x) {
    fill(e, DELTA_REPLAY_DIFFERS, x.what());
  } catch (const unknown_tensor& x) {
    fill(e, DELTA_UNKNOWN_TENSOR, x.what());
  } catch (const misuse& x) {
    fill(e, DELTA_MISUSE, x.what());
  } catch (const poisoned& x) {
    fill(e, DELTA_POISONED, x.what());
  } catch (const kernel_failed&) {
    fill(e, DELTA_KERNEL_FAILED, "a kernel has failed");
  } catch (const unknown_policy& x) {
    fill(e, DELTA_UNKNOWN_POLICY, x.what());
  } catch (const bad_option& x) {
    fill(e, DELTA_BAD_OPTION, x.what());
  } catch (const std::bad_alloc&) {
    fill(e, DELTA_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& x) {
    fill(e, DELTA_FAILED, x.what());
  } catch (...) {
    fill(e, DELTA_FAILED, "a device has failed");
  }
  return e.status;
}

}  // namespace
}  // namespace delta::detail

using namespace delta;          // NOLINT: the names below are C's
using namespace delta::detail;  // NOLINT

// In the order of destruction, backwards: views and the open operator, the manager, what it uses.
struct delta_manager {
  explicit delta_manager(const delta_options& o)
      : held(memory_for(o)),
        told(observer_for(o.observer)),
        manager(make_manager(o.policy == nullptr ? "adaptive" : o.policy, held->storage(),
                             {.observer = told.get(), .check_replays = o.check_replays != 0})),
        warn(o.warn),
        warn_self(o.warn_self) {}

  // That costs are guessed is said once, when something has to leave by them.
  void warn_of_costs() {
    const counters& c = manager->counts();
    if (c.guessed_costs == 0 || c.decisions == 0 || std::exchange(warned, true)) return;
    if (warn != nullptr)
      warn(warn_self, costs_unknown_warning);
    else
      std::fprintf(stderr, "delta: %s\n", costs_unknown_warning);
  }
  // Kernels and errors name operators for as long as they live; there are few names.
  const char* keep(const char* name, const char* otherwise) {
    return name == nullptr ? otherwise : names.emplace(name).first->c_str();
  }
  // The lists that one call hands to the manager. A kernel that calls the manager, which refuses
  // that, gets lists of its own: those of the operator that it belongs to are in use.
  struct lists {
    std::vector<tensor_id> reads, changes, made;
    std::vector<bytes> sizes;
  };
  class lent_lists {
   public:
    explicit lent_lists(delta_manager& m) : to_(&m), lists_(std::move(m.kept)) {}
    lent_lists(const lent_lists&) = delete;
    lent_lists& operator=(const lent_lists&) = delete;
    ~lent_lists() { to_->kept = std::move(lists_); }
    operation_span spans(const delta_operation& op) {
      lists& l = lists_;
      l.sizes.clear(), l.reads.clear(), l.changes.clear();
      for (const uint64_t size : list(op.outputs, op.output_count)) l.sizes.emplace_back(size);
      for (const delta_tensor t : list(op.inputs, op.input_count)) l.reads.push_back(tensor_id{t});
      for (const delta_tensor t : list(op.updates, op.update_count))
        l.changes.push_back(tensor_id{t});
      constexpr unsigned traits =
          DELTA_RANDOM | DELTA_EFFECT_ONCE | DELTA_NEVER_REPLAY | DELTA_ASYNCHRONOUS;
      if ((op.traits & ~traits) != 0) throw misuse("an operator has a trait that does not exist");
      return {.inputs = l.reads,
              .outputs = l.sizes,
              .updates = l.changes,
              .workspace = bytes{op.workspace},
              .traits = static_cast<trait>(op.traits),
              .cost = nanoseconds{op.cost_ns},
              .name = to_->keep(op.name, "operator")};
    }
    // The list that ids are received in, and from there given to the program.
    std::span<tensor_id> receive(const delta_tensor* to, std::size_t n) {
      list(to, n);
      lists_.made.assign(n, tensor_id::none);
      return lists_.made;
    }
    void give(delta_tensor* to) const {
      std::transform(lists_.made.begin(), lists_.made.end(), to,
                     [](tensor_id t) { return index(t); });
    }

   private:
    delta_manager* to_;
    lists lists_;
  };
  manager_interface::open_operator& opened() {
    if (!open) throw misuse("no operator is open");
    return *open;
  }

  std::unordered_set<std::string> names;
  lists kept;
  delta_error error{};
  std::unique_ptr<memory> held;
  std::unique_ptr<timeline_file> told;
  std::unique_ptr<manager_interface> manager;
  std::vector<std::optional<manager_interface::view>> views;
  std::optional<manager_interface::open_operator> open;
  std::optional<call> shown;
  void (*warn)(void*, const char*);
  void* warn_self;
  unsigned calls = 0;  // under way, one within the other
  bool warned = false;
};

namespace {

template <class F>
delta_status called(delta_manager* m, const F& f) noexcept {
  if (m == nullptr) return DELTA_MISUSE;
  ++m->calls;
  const delta_status status = caught(m->error, f);
  if (--m->calls > 0) return status;
  delta_error ignored;
  caught(ignored, [&] { m->warn_of_costs(); });
  return status;
}
// The same of a function that has a result, for which there is a place.
template <class T, class F>
delta_status called_for(T* result, delta_manager* m, const F& f) noexcept {
  return called(m, [&] {
    need(result, "there is no place for the result: NULL");
    *result = f();
  });
}
constexpr const char* no_operation = "the operation is NULL";
const delta_error no_manager = [] {
  delta_error e;
  fill(e, DELTA_MISUSE, "the manager is NULL");
  return e;
}();

}  // namespace

extern "C" {

delta_manager* delta_create(const delta_options* options, delta_error* error) {
  delta_error ignored;
  delta_manager* made = nullptr;
  caught(error == nullptr ? ignored : *error, [&] {
    need(options, "delta_create: options are NULL");
    made = new delta_manager(*options);
  });
  return made;
}
void delta_destroy(delta_manager* m) {
  if (m == nullptr) return;
  // What kernels drop as they go still finds the manager; nobody is warned any more.
  ++m->calls;
  m->shown.reset(), m->open.reset(), m->views.clear();
  delete m->manager.get();
  (void)m->manager.release();
  delete m;
}
const delta_error* delta_last_error(const delta_manager* m) {
  return m == nullptr ? &no_manager : &m->error;
}
const char* delta_policy_name(size_t i) {
  return i < named_policies.size() ? named_policies[i].name.data() : nullptr;
}

delta_status delta_constant(delta_manager* m, uint64_t size, const char* label,
                            delta_tensor* made) {
  return called_for(made, m, [&] {
    return index(m->manager->constant(bytes{size}, m->keep(label, "constant")));
  });
}
delta_status delta_variable(delta_manager* m, uint64_t size, const char* label,
                            delta_tensor* made) {
  return called_for(made, m, [&] {
    return index(m->manager->variable(bytes{size}, m->keep(label, "variable")));
  });
}
delta_status delta_share(delta_manager* m, delta_tensor t) {
  return called(m, [&] { m->manager->share(tensor_id{t}); });
}
delta_status delta_drop(delta_manager* m, delta_tensor t) {
  return called(m, [&] { m->manager->drop(tensor_id{t}); });
}
delta_status delta_forbid(delta_manager* m, delta_tensor t, unsigned ways) {
  return called(m, [&] {
    if ((ways & ~unsigned{DELTA_PIN_BOTH}) != 0) throw misuse("a pin that does not exist");
    m->manager->forbid(tensor_id{t}, static_cast<pin>(ways));
  });
}

delta_status delta_size(delta_manager* m, delta_tensor t, uint64_t* size) {
  return called_for(size, m, [&] { return m->manager->size(tensor_id{t}).count; });
}
int delta_recomputable(const delta_manager* m, delta_tensor t) {
  bool yes = false;
  delta_error ignored;
  if (m != nullptr) caught(ignored, [&] { yes = m->manager->recomputable(tensor_id{t}); });
  return yes ? 1 : 0;
}

delta_status delta_take_block(delta_manager* m, uint64_t size, delta_block* taken) {
  return called_for(taken, m, [&] {
    const block b = m->manager->take_block(bytes{size});
    return delta_block{b.index(), m->manager->storage().data(b), size};
  });
}
void delta_give_back(delta_manager* m, delta_block b) {
  if (m != nullptr) m->manager->give_back(block{b.block});
}
delta_status delta_constant_of(delta_manager* m, delta_block b, const char* label,
                               delta_tensor* made) {
  return called_for(made, m, [&] {
    return index(m->manager->constant(bytes{b.size}, m->keep(label, "constant"), block{b.block}));
  });
}
delta_status delta_variable_of(delta_manager* m, delta_block b, const char* label,
                               delta_tensor* made) {
  return called_for(made, m, [&] {
    return index(m->manager->variable(bytes{b.size}, m->keep(label, "variable"), block{b.block}));
  });
}

delta_status delta_acquire(delta_manager* m, delta_tensor t, int writes, delta_view* view) {
  return called_for(view, m, [&] {
    auto free = std::find_if(m->views.begin(), m->views.end(), [](const auto& v) { return !v; });
    if (free == m->views.end()) {
      m->views.emplace_back();
      free = std::prev(m->views.end());
    }
    const auto& v = free->emplace(
        m->manager->acquire(tensor_id{t}, writes != 0 ? access::write : access::read));
    return delta_view{static_cast<std::size_t>(free - m->views.begin()), v.data(), v.size().count};
  });
}
void delta_release(delta_manager* m, size_t slot) {
  called(m, [&] {
    if (slot >= m->views.size()) throw misuse("delta_release: there is no such view");
    m->views[slot].reset();
  });
}

void* delta_call_in(const delta_call* c, size_t i) {
  return c != nullptr && i < as_call(c)->inputs() ? as_call(c)->in(i) : nullptr;
}
void* delta_call_out(const delta_call* c, size_t i) {
  return c != nullptr && i < as_call(c)->outputs() ? as_call(c)->out(i) : nullptr;
}
void* delta_call_update(const delta_call* c, size_t i) {
  return c != nullptr && i < as_call(c)->updates() ? as_call(c)->update(i) : nullptr;
}
void* delta_call_workspace(const delta_call* c, size_t i) {
  return c != nullptr ? as_call(c)->workspace(i) : nullptr;
}
void* delta_call_stream(const delta_call* c) {
  return c != nullptr ? as_call(c)->stream() : nullptr;
}
uint64_t delta_call_sequence(const delta_call* c) {
  return c != nullptr ? as_call(c)->sequence() : 0;
}
int delta_call_replaying(const delta_call* c) {
  return c != nullptr && as_call(c)->replaying() ? 1 : 0;
}

delta_status delta_run(delta_manager* m, const delta_operation* op, delta_kernel body,
                       delta_tensor* made) {
  foreign_kernel owned(body);
  return called(m, [&] {
    need(op, no_operation);
    owned.check();
    delta_manager::lent_lists l(*m);
    const auto ids = l.receive(made, op->output_count);
    m->manager->run(l.spans(*op), ids, kernel(std::move(owned)));
    l.give(made);
  });
}
delta_status delta_begin(delta_manager* m, const delta_operation* op) {
  return called(m, [&] {
    need(op, no_operation);
    if (m->open) throw misuse("begin: an operator is open");
    delta_manager::lent_lists l(*m);
    m->open.emplace(m->manager->begin(l.spans(*op)));
  });
}
delta_status delta_allocate(delta_manager* m, uint64_t size, size_t* place) {
  return called_for(place, m, [&] { return m->opened().allocate(bytes{size}); });
}
delta_status delta_allocate_all(delta_manager* m, const uint64_t* sizes, size_t count,
                                size_t* first) {
  return called_for(first, m, [&] {
    std::vector<bytes> all;
    for (const uint64_t size : list(sizes, count)) all.emplace_back(size);
    return m->opened().allocate(all);
  });
}
delta_status delta_allocate_block(delta_manager* m, delta_block b, size_t* place) {
  return called_for(place, m, [&] { return m->opened().allocate(bytes{b.size}, block{b.block}); });
}
delta_status delta_replace(delta_manager* m, delta_tensor input, size_t* place) {
  return called_for(place, m, [&] { return m->opened().replace(tensor_id{input}); });
}
delta_status delta_replace_all(delta_manager* m, const delta_tensor* inputs, size_t count,
                               size_t* first) {
  return called_for(first, m, [&] {
    std::vector<tensor_id> all;
    for (const delta_tensor t : list(inputs, count)) all.push_back(tensor_id{t});
    return m->opened().replace(all);
  });
}
delta_status delta_replay_workspace(delta_manager* m, uint64_t size, size_t* place) {
  return called_for(place, m, [&] { return m->opened().replay_workspace(bytes{size}); });
}
delta_status delta_workspace(delta_manager* m, uint64_t size, size_t* place) {
  return called_for(place, m, [&] { return m->opened().workspace(bytes{size}); });
}
delta_status delta_arguments(delta_manager* m, const delta_call** call) {
  return called_for(call, m, [&] { return opaque(m->shown.emplace(m->opened().arguments())); });
}
delta_status delta_end(delta_manager* m, delta_kernel replay, delta_tensor* made, size_t count) {
  foreign_kernel owned(replay);
  return called(m, [&] {
    delta_manager::lent_lists l(*m);
    m->opened().end(l.receive(made, count),
                    replay.run != nullptr ? kernel(std::move(owned)) : kernel());
    m->open.reset();
    l.give(made);
  });
}
void delta_abort(delta_manager* m) {
  called(m, [&] { m->open.reset(); });
}
delta_status delta_make_room(delta_manager* m, uint64_t size) {
  return called(m, [&] { m->manager->make_room(bytes{size}); });
}

delta_status delta_backward(delta_manager* m) {
  return called(m, [&] { m->manager->backward(); });
}
delta_status delta_end_of_step(delta_manager* m) {
  return called(m, [&] { m->manager->end_of_step(); });
}
void delta_count(const delta_manager* m, delta_counts* counts) {
  if (counts == nullptr) return;
  *counts = {};
  if (m == nullptr) return;
  const counters& c = m->manager->counts();
  counts->operators = c.operators, counts->evictions = c.evictions;
  counts->offloads = c.offloads, counts->reloads = c.reloads, counts->recomputes = c.recomputes;
  counts->replays_checked = c.replays_checked, counts->replays_unchecked = c.replays_unchecked;
  counts->guessed_costs = c.guessed_costs;
  m->held->figures(*counts);
}

}  // extern "C"
