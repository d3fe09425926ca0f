// delta_torch: finds operators made of others that read their tensors past the dispatcher.
#include "reading_check.hpp"

#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.hpp"
#include "away_reads.hpp"
#include "operators.hpp"
#include "replaying.hpp"
#include "threads.hpp"
#include "versions.hpp"

namespace delta_torch {

namespace {

// Of one operator that is made of others, while it is under way: its tensors that may leave can't
// be read by themselves.
class guard {
 public:
  guard(session& s, const torch::jit::Stack& stack, const c10::OperatorHandle& op)
      : session_(s),
        sentence_("delta: '" + op.schema().name() +
                  "' is made of other operators, and reads the bytes of a tensor by itself, which "
                  "may be away then: call delta_torch.pin(tensor) before, or make it a "
                  "torch.library.custom_op (docs/pytorch.md)") {
    const session::inside lock(s);
    if (!s.on()) return;
    for (std::size_t i = stack.size() - op.schema().arguments().size(); i < stack.size(); ++i)
      each_tensor(stack[i], [&](const at::Tensor& t, std::int16_t) {
        if (auto* const storage = t.defined() ? storage_of(t) : nullptr; storage != nullptr)
          add(*storage);
      });
  }
  ~guard() {
    const session::inside lock(session_);
    for (const auto& storage : storages_) {
      std::erase_if(session_.guarded, [&](const auto& g) { return g.storage == storage.get(); });
      if (const entry* const e = tensor_table::find(storage.get());
          e == nullptr || e->at != nullptr)
        allow_reading(*storage);
    }
  }
  guard(const guard&) = delete;
  guard& operator=(const guard&) = delete;

 private:
  void add(c10::StorageImpl& storage) {
    const entry* const e = tensor_table::find(&storage);
    if (e == nullptr || e->at == nullptr || e->pinned || e->held) return;
    // An operator around this one has it.
    for (const auto& g : session_.guarded)
      if (g.storage == &storage) return;
    storages_.push_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage));
    session_.guarded.push_back({&storage, sentence_.c_str()});
    forbid_reading(storage, sentence_.c_str());
  }
  session& session_;
  std::string sentence_;
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> storages_;
};

void run_checked(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                 torch::jit::Stack* stack) {
  session& s = session::get();
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, reading_key);
  if (!s.on() || this_thread().within_operator || replaying::here() != nullptr)
    return op.redispatchBoxed(below, stack);
  const guard guarded(s, *stack, op);
  try {
    op.redispatchBoxed(below, stack);
  } catch (c10::Error& e) {
    name_reader(e, op);
    throw;
  }
}

}  // namespace

void check_reading(bool on) {
  static auto& registered = *new std::vector<c10::RegistrationHandleRAII>;
  if (!on) return registered.clear();
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op.has_value() || !is_made_of_others(*op) || op->hasKernelForDispatchKey(reading_key))
      continue;
    registered.push_back(dispatcher.registerImpl(
        name, reading_key, c10::KernelFunction::makeFromBoxedFunction<&run_checked>(), std::nullopt,
        nullptr, "delta_torch"));
  }
}

void forbid_guarded(session& s, c10::StorageImpl* storage) {
  for (const auto& g : s.guarded)
    if (g.storage == storage) forbid_reading(*storage, g.sentence);
}

void name_reader(c10::Error& e, const c10::OperatorHandle& op) {
  if (std::string_view(e.what_without_backtrace()).find(bytes_are_away) != std::string_view::npos &&
      std::string_view(e.what_without_backtrace()).find("it was read by '") ==
          std::string_view::npos)
    e.add_context("it was read by '" + op.schema().name() + "'");
}

}  // namespace delta_torch
