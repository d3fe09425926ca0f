// delta_torch: operators that read by themselves.
#include "reading_operator.hpp"

#include <torch/library.h>

#include <optional>

#include "arguments.hpp"
#include "errors.hpp"
#include "operators.hpp"
#include "replaying.hpp"
#include "session.hpp"
#include "threads.hpp"
#include "versions.hpp"

namespace delta_torch {

namespace {

using torch::jit::Stack;

// What such an operator reads by itself comes back first, and stays until it ends; the addresses
// that it takes are gone then.
class reading_itself {
 public:
  reading_itself(session& s, const torch::jit::Stack& stack, const c10::OperatorHandle& op)
      : session_(s) {
    const auto& arguments = op.schema().arguments();
    const reading_operator* const reads = reads_by_itself(op.operator_name());
    if (!s.on() || this_thread().within_operator || replaying::here() != nullptr) return;
    locked([&] {
      const std::size_t first = stack.size() - arguments.size();
      for (std::size_t i = 0; i < arguments.size(); ++i) {
        if (reads == nullptr && !arguments[i].is_out()) continue;
        each_tensor(stack[first + i], [&](const at::Tensor& t, std::int16_t) {
          if (!t.defined() || (reads != nullptr && reads->whole_numbers_only &&
                               !c10::isIntegralType(t.scalar_type(), true)))
            return;
          auto* const storage = storage_of(t);
          entry* const e = storage != nullptr ? s.adopt(storage, "data") : nullptr;
          if (e == nullptr || e->held) return;
          s.hold(*e);
          ignore_addresses(*storage);
          held_.push_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
        });
      }
    });
  }
  ~reading_itself() {
    if (held_.empty()) return;
    locked([&] {
      for (const auto& storage : held_)
        if (entry* const e = tensor_table::find(storage.get()); e != nullptr && !e->lent) {
          session_.let_go(*e);
          tensor_table::watch(*e, *storage);
        }
    });
  }
  reading_itself(const reading_itself&) = delete;
  reading_itself& operator=(const reading_itself&) = delete;

 private:
  template <class F>
  void locked(const F& f) {
    const session::locked one_at_a_time(session_.operators);
    const session::inside lock(session_);
    if (session_.on()) translated(session_, f);
  }
  session& session_;
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> held_;
};

void run_reading_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const reading_itself held(session::get(), *stack, op);
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, reading_key),
                     stack);
}

bool seen = false;

}  // namespace

void register_reading(std::vector<c10::RegistrationHandleRAII>& registered) {
  auto& dispatcher = c10::Dispatcher::singleton();
  if (dispatch_key() != reading_key) {
    try {
      registered.push_back(dispatcher.registerFallback(
          reading_key, c10::KernelFunction::makeFallthrough(), "delta_torch"));
    } catch (const c10::Error&) {
      return;
    }
  }
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op.has_value() || (reads_by_itself(name) == nullptr && !resizes_by_itself(*op))) continue;
    registered.push_back(dispatcher.registerImpl(
        name, reading_key, c10::KernelFunction::makeFromBoxedFunction<&run_reading_operator>(),
        std::nullopt, nullptr, "delta_torch"));
  }
  seen = true;
}

bool sees_reading() noexcept {
  return seen;
}

}  // namespace delta_torch
