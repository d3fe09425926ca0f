// delta_torch: the fallback: which operators are a run's, and what of them comes to it.
#include "managed_operator.hpp"

#include <torch/library.h>

#include <optional>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "flights.hpp"
#include "operator_run.hpp"
#include "operators.hpp"
#include "pieces.hpp"
#include "reading_check.hpp"
#include "reading_operator.hpp"
#include "session.hpp"
#include "threads.hpp"
#include "versions.hpp"

namespace delta_torch {

namespace {

using torch::jit::Stack;

bool python_handles(const Stack& stack, std::size_t arguments) {
  bool found = false;
  for (std::size_t i = stack.size() - arguments; i < stack.size(); ++i)
    each_tensor(stack[i], [&](const at::Tensor& t, std::int16_t) {
      found = found || (t.defined() && is_pythons(t));
    });
  return found;
}

// Is it any of this run's? On a CPU everything is; elsewhere what has tensors there, or makes some.
bool concerns_run(const Stack& stack, std::size_t arguments) {
  const c10::Device device = managed_device();
  if (device.is_cpu()) return true;
  bool found = false;
  for (std::size_t i = stack.size() - arguments; i < stack.size() && !found; ++i) {
    const c10::IValue& value = stack[i];
    if (value.isDevice()) {
      const c10::Device asked = value.toDevice();
      found = asked.type() == device.type() &&
              (asked.has_index() ? asked == device : session::get().device().is_current());
    }
    each_tensor(value, [&](const at::Tensor& t, std::int16_t) {
      found = found || (t.defined() && t.device() == device);
    });
  }
  return found;
}

// `tensor.record_stream(s)`: operators are ordered behind each other on whatever streams they run;
// what the program does on `s` by itself is not.
bool records_stream(session& s, const c10::OperatorHandle& op, Stack& stack) {
  if (managed_device().is_cpu() || op.schema().name() != "aten::record_stream") return false;
  auto* const storage = storage_of(stack[stack.size() - 2].toTensor());
  const session::inside lock(s);
  if (storage != nullptr &&
      !s.used_by(storage->_mutable_data_ptr_no_checks(), stack.back().toStream()))
    return false;  // PyTorch's own
  torch::jit::drop(stack, 2);
  return true;
}

// Below our key, and of this run.
void run_operator(session& s, const c10::OperatorHandle& op, c10::DispatchKeySet below,
                  Stack& stack, operator_run::cutting how) {
  thread_state& thread = this_thread();
  std::optional<session::locked> one_at_a_time;
  std::optional<operator_run> opened;
  for (bool may_wait = true; !opened;) {
    one_at_a_time.emplace(s.operators);
    if (!s.on()) return op.redispatchBoxed(below, &stack);
    if (records_stream(s, op, stack)) return;
    follow_run(thread, s.number());
    opened.emplace(s, thread, op, stack);
    auto [done, awaited, pieces] = opened->open(may_wait && !thread.within_callback, how);
    if (done) break;
    // The threads that run it, and callbacks before it, may need the lock.
    opened.reset();
    one_at_a_time.reset();
    if (!pieces.empty()) {
      Stack results;
      for (Stack& piece : pieces) {
        run_operator(s, op, below, piece, operator_run::cutting::if_it_must);
        join(results, std::move(piece));
      }
      torch::jit::drop(stack, op.schema().arguments().size());
      for (c10::IValue& value : results) stack.push_back(std::move(value));
      return;
    }
    if (awaited) may_wait = wait_for(*awaited);
  }
  operator_run& run = *opened;
  try {
    s.device().before_kernel();
    op.redispatchBoxed(below, &stack);
    s.device().after_kernel();
  } catch (c10::Error& e) {
    s.device().after_kernel();
    run.give_up();
    name_reader(e, op);
    throw;
  } catch (...) {
    s.device().after_kernel();
    run.give_up();
    throw;
  }
  run.close();
}

void managed_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const auto key = dispatch_key();
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key);
  session& s = session::get();
  // Python calls operators again, which come here one by one.
  if (python_handles(*stack, op.schema().arguments().size()))
    return op.redispatchBoxed(below, stack);
  const c10::impl::ExcludeDispatchKeyGuard not_again(key);
  const thread_state& thread = this_thread();
  if (!s.on() || thread.within_operator || thread.replay != nullptr ||
      !concerns_run(*stack, op.schema().arguments().size()))
    return op.redispatchBoxed(below, stack);
  run_operator(s, op, below, *stack, operator_run::cutting::as_fits);
}

}  // namespace

// What waits for collectives, or for other processes. Operators that run within its `wait` are
// managed.
static void waiting_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                             torch::jit::Stack* stack) {
  const auto key = dispatch_key();
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key);
  session& s = session::get();
  const thread_state& thread = this_thread();
  const std::size_t count = op.schema().arguments().size();
  if (python_handles(*stack, count) || !s.on() || thread.within_operator ||
      thread.replay != nullptr)
    return op.redispatchBoxed(below, stack);
  storage_list waited;
  for (std::size_t i = stack->size() - count; i < stack->size(); ++i)
    each_tensor((*stack)[i], [&](const at::Tensor& t, std::int16_t) {
      if (auto* const storage = t.defined() ? storage_of(t) : nullptr; storage != nullptr)
        waited.push_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
    });
  const auto landed = [&] {
    const session::inside lock(s);
    if (s.on()) s.flights().waited_for(waited);
  };
  const auto time = [&] {
    const session::inside lock(s);
    return s.flights().time();
  }();
  const struct under_way {
    explicit under_way(time_under_way& t) : time(t) { time.begin(); }
    ~under_way() { time.end(); }
    under_way(const under_way&) = delete;
    under_way& operator=(const under_way&) = delete;
    time_under_way& time;
  } counted(*time);
  try {
    op.redispatchBoxed(below, stack);
  } catch (...) {
    landed();  // it has failed, and is over all the same
    throw;
  }
  landed();
}

bool manage_thread(bool on) {
  const bool before = c10::impl::tls_is_dispatch_key_included(dispatch_key());
  c10::impl::tls_set_dispatch_key_included(dispatch_key(), on);
  if (sees_reading()) c10::impl::tls_set_dispatch_key_included(reading_key, on);
  return before;
}

thread_mode enter_callback() {
  thread_state& thread = this_thread();
  thread_mode before;
  before.excluded = c10::impl::tls_is_dispatch_key_excluded(dispatch_key());
  c10::impl::tls_set_dispatch_key_excluded(dispatch_key(), false);
  before.included = manage_thread(session::get().on());
  before.within_callback = std::exchange(thread.within_callback, true);
  return before;
}

void leave_callback(const thread_mode& before) {
  this_thread().within_callback = before.within_callback;
  manage_thread(before.included);
  c10::impl::tls_set_dispatch_key_excluded(dispatch_key(), before.excluded);
}

void register_fallback() {
  static auto& registered = *new std::vector<c10::RegistrationHandleRAII>;
  if (!registered.empty()) return;
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto key = dispatch_key();
  register_reading(registered);
  registered.push_back(dispatcher.registerFallback(
      key, c10::KernelFunction::makeFromBoxedFunction<&managed_operator>(), "delta_torch"));
  for (const char* const name : waiting_operators)
    if (dispatcher.findSchema({name, ""}).has_value())
      registered.push_back(dispatcher.registerImpl(
          {name, ""}, key, c10::KernelFunction::makeFromBoxedFunction<&waiting_operator>(),
          std::nullopt, nullptr, "delta_torch"));
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op.has_value() || !passes_through(*op) || op->hasKernelForDispatchKey(key)) continue;
    registered.push_back(dispatcher.registerImpl(name, key, c10::KernelFunction::makeFallthrough(),
                                                 std::nullopt, nullptr, "delta_torch"));
  }
}

}  // namespace delta_torch
