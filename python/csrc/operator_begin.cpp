// delta_torch: an operator begins: its storages come back and are named, and what a replay needs is
// remembered.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "errors.hpp"
#include "operator_run.hpp"
#include "output_sizes.hpp"
#include "pieces.hpp"
#include "reading_check.hpp"
#include "versions.hpp"

namespace delta_torch {
namespace {

// True if it is a leaf that requires its gradient. For few arguments: a virtual call tells.
bool is_parameter(const at::Tensor& t) {
  return t.requires_grad() && t.is_leaf();
}

}  // namespace

operator_run::opening operator_run::open(bool may_wait, cutting how) {
  if (info_.collective != collective_kind::none) refuse_untested();
  c10::intrusive_ptr<c10::ivalue::Future> awaited;
  std::vector<std::size_t> ends;
  bool again = false;
  {
    const session::inside lock(session_, thread_);
    translated(session_, [&] {
      if (how == cutting::as_fits && !info_.per_tensor.empty())
        ends = piece_ends(session_, info_, stack_, ++w_.operations);
      if (ends.size() > 1) return;
      try {
        begin();
      } catch (const delta::budget_exceeded& e) {
        // What a collective uses can't leave now, but will be able to.
        awaited = session_.landing_to_await(may_wait);
        again = awaited || cut_in_two(ends) || session_.lift_limit(e);
        if (!again) throw;
      }
    });
    if (again) retreat();
  }
  // A replay's allocations come in the same order.
  thread_.allocations = 0;
  if (ends.size() > 1) return {false, {}, pieces_of(info_, stack_, ends)};
  return {!again, std::move(awaited), {}};
}

bool operator_run::cut_in_two(std::vector<std::size_t>& ends) const {
  const std::size_t length = tensors_one_by_one(info_, stack_);
  if (length < 2) return false;
  ends = {length / 2, length};
  return true;
}

void operator_run::begin() {
  session_.drain();
  label_ = operator_table::label(info_, thread_.module.module,
                                 session_.past().name_of(thread_.module.module));
  number_ = session_.taken.operation = ++w_.operations;
  session_.taken.label = label_;
  session_.taken.now = session_.taken.most = 0;
  session_.taken.hidden = session_.taken.refused = false;
  session_.taken.watched.clear();
  session_.taken.unwatched.clear();
  replayable_ = !info_.resizes && !info_.opaque;
  // Where nobody tells who writes what it makes, by its address, it may be anything.
  if constexpr (!tells_addresses<c10::StorageImpl>) replayable_ = replayable_ && !info_.factory;
  if (info_.any_order && !managed_device().is_cpu() &&
      (!at::globalContext().deterministicAlgorithms() ||
       at::globalContext().deterministicAlgorithmsWarnOnly()))
    replayable_ = false;
  look_at_arguments();
  if (session_.device().remembers()) sign();
  name_roles();
  remember_state();
  const auto traits = !replayable_         ? delta::trait::never_replay
                      : w_.updates.empty() ? delta::trait::pure
                                           : delta::trait::effect_once;
  // A collective uses its tensors until it has landed.
  const auto lasting =
      info_.collective != collective_kind::none ? delta::trait::asynchronous : delta::trait::pure;
  if (auto* const hashes = session_.hashes(); hashes != nullptr) {
    std::vector<delta::tensor_id> renewed;
    for (const touched& s : w_.storages)
      if (s.renewed) renewed.push_back(s.known->id);
    hashes->begins(label_, renewed);
  }
  output_sizes later(op_, info_, stack_, w_.arguments, w_.numbers);
  open_.emplace(session_.manager().begin(delta::operation_span{.inputs = w_.inputs,
                                                               .updates = w_.updates,
                                                               .traits = traits | lasting,
                                                               .name = label_,
                                                               .later = &later}));
  if (session_.hashes() != nullptr) session_.hashes()->check();
  // So that nothing has to leave while the kernel is being queued.
  if (const auto most = session_.device().taken_by(which_); most > 0) try {
      open_->make_room(delta::bytes{most});
    } catch (const delta::budget_exceeded&) {  // NOLINT(bugprone-empty-catch)
      // It may do with less this time, as kernels do that try what there is memory for.
    }
  session_.device().expect(which_);
  // Its kernel may take the addresses of what it writes. Others are seen, and watched again.
  for (const touched& t : w_.storages) {
    if (t.known == nullptr) continue;
    // A collective's threads take those of all its tensors, when its operator is long over.
    if (t.written || info_.collective != collective_kind::none) ignore_addresses(*t.storage);
    if (!session_.guarded.empty()) allow_reading(*t.storage);
  }
}

// What runs behind its operator's return is known of Gloo on the CPU alone.
void operator_run::refuse_untested() const {
  if (info_.collective == collective_kind::unknown) return;
  const char* const why = info_.collective == collective_kind::refused ? "it was not tested there"
                          : !tells_addresses<c10::StorageImpl> && info_.name != "c10d::barrier"
                              ? "collectives were tested with PyTorch 2.15 alone"
                          : !managed_device().is_cpu() ? "delta orders collectives on the CPU alone"
                                                       : refused_group(info_, op_, stack_);
  TORCH_CHECK(why == nullptr, "delta: ", rank_of(session_), "'", info_.name,
              "' can't run within delta_torch.budget: ", why,
              "; leave the run first (docs/distributed.md)");
}

// A collective's threads may be writing it, beside the operator.
bool operator_run::written_by_others(const at::Tensor& t) const {
  auto* const storage = storage_of(t);
  const entry* const e = storage != nullptr ? tensor_table::find(storage) : nullptr;
  return e != nullptr && session_.flights().uses(e->id);
}

void operator_run::look_at_arguments() {
  const std::size_t first = stack_.size() - info_.arguments.size();
  const bool trains = std::ranges::all_of(info_.conditions, [&](std::size_t i) {
    const c10::IValue& v = stack_[first + i];
    return v.isDouble() ? v.toDouble() > 0 : !v.isBool() || v.toBool();
  });
  if (info_.advances && trains) replayable_ = false;
  for (std::size_t i = 0; i < info_.arguments.size(); ++i) {
    const c10::IValue& value = stack_[first + i];
    const bool written = info_.written[i] && (trains || !info_.running[i]);
    const auto look = [&](const at::Tensor& t, std::int16_t element) {
      if (!t.defined()) return;
      look_at(t, i, element, written);
      if (info_.foreign && !written && !t.is_inference() && !written_by_others(t))
        w_.undeclared.emplace_back(t, t._version());
    };
    if (info_.arguments[i] == argument_kind::anything)
      each_hidden_tensor(value, look);
    else if (info_.arguments[i] != argument_kind::none)
      each_tensor(value, look);
    else if (value.isGenerator())
      replayable_ = false;  // its state is the program's
  }
}

void operator_run::look_at(const at::Tensor& t, std::size_t position, std::int16_t element,
                           bool written) {
  c10::StorageImpl* const storage = storage_of(t);
  const bool number = !written && remember_value(t);
  if (!number && (storage == nullptr || t.is_quantized() || t.is_nested())) {
    replayable_ = false;
    for (const at::Tensor& part : parts_of(t))
      if (part.defined())
        if (auto* s = storage_of(part)) touch(s, part, written);
    if (storage != nullptr) touch(storage, t, written);
    return;
  }
  if (written && storage->nbytes() == 0) replayable_ = false;  // it will be resized
  const auto* impl = t.unsafeGetTensorImpl();
  argument& a = w_.arguments.emplace_back();
  a.storage =
      number ? static_cast<std::uint16_t>(w_.storages.size() - 1) : touch(storage, t, written);
  a.position = static_cast<std::uint16_t>(position);
  a.element = element;
  a.dimensions = static_cast<std::uint16_t>(impl->dim());
  a.requires_grad = impl->requires_grad();
  a.wrapped_number = impl->is_wrapped_number();
  a.type = impl->dtype();
  a.offset = impl->storage_offset();
  a.keys = impl->key_set();
  // They are few: one by one takes less than to make room for all.
  for (const std::int64_t n : impl->sizes()) w_.numbers.push_back(n);
  for (const std::int64_t n : impl->strides()) w_.numbers.push_back(n);
}

// The number of `x + 1`, which PyTorch has made a tensor of the CPU for this call: a copy costs
// less than another tensor of the manager. So does a number of the CPU among tensors of another
// device. It is the last of the operator's storages then.
bool operator_run::remember_value(const at::Tensor& t) {
  const auto* impl = t.unsafeGetTensorImpl();
  if (!impl->is_wrapped_number() && (managed_device().is_cpu() || impl->numel() != 1)) return false;
  if (!impl->device().is_cpu() || !impl->has_storage() || impl->layout() != c10::kStrided ||
      is_pythons(t) || t.is_quantized())
    return false;
  const auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (storage->nbytes() == 0 || storage->nbytes() > storage_role::largest_value ||
      (managed_device().is_cpu() &&
       tensor_table::find(impl->unsafe_storage().unsafeGetStorageImpl()) != nullptr))
    return false;
  // A stream may have yet to write pinned memory, and then copy it: its value is not known now.
  if (!impl->is_wrapped_number() &&
      at::globalContext().isPinnedPtr(storage->data(), managed_device().type()))
    return false;
  touched& s = w_.storages.emplace_back();
  s.role.size = storage->nbytes();
  s.role.is_value = true;
  std::memcpy(s.role.value.data(), storage->data(), storage->nbytes());
  return true;
}

// What an operator costs depends on it, its tensors' sizes, types and places, and its numbers.
void operator_run::sign() {
  std::uint64_t hash = reinterpret_cast<std::uintptr_t>(&info_);
  const auto mix = [&](std::uint64_t v) {
    hash = (hash ^ v) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29u;
  };
  for (const std::int64_t n : w_.numbers) mix(static_cast<std::uint64_t>(n));
  for (const argument& a : w_.arguments) mix(a.type.itemsize() + 256u * a.position);
  for (std::size_t i = stack_.size() - info_.arguments.size(); i < stack_.size(); ++i) {
    const c10::IValue& value = stack_[i];
    if (value.isInt() || value.isBool())
      mix(static_cast<std::uint64_t>(value.isInt() ? value.toInt() : value.toBool()));
    else if (value.isIntList())
      for (const std::int64_t n : value.toIntVector()) mix(static_cast<std::uint64_t>(n));
  }
  which_.hash = hash | 1u;
}

// Its place among the operator's storages.
std::uint16_t operator_run::touch(c10::StorageImpl* storage, const at::Tensor& t, bool written) {
  entry* known = tensor_table::find(storage);
  if (known == nullptr) known = session_.adopt(storage, is_parameter(t) ? "parameter" : "data");
  if (known == nullptr || known->seen != number_) {
    if (known != nullptr) {
      known->seen = number_;
      known->place = static_cast<std::uint32_t>(w_.storages.size());
    }
    touched& s = w_.storages.emplace_back();
    s.known = known;
    s.storage = storage;
    if (known != nullptr) {
      s.role.size = known->size;
      if (known->untouched || written) known->parameter = known->parameter || is_parameter(t);
      if (std::exchange(known->untouched, false) && known->lent) session_.let_go(*known);
    }
  }
  const std::size_t at = known != nullptr ? known->place : w_.storages.size() - 1;
  w_.storages[at].written = w_.storages[at].written || written;
  TORCH_CHECK(w_.storages.size() < 65536, "delta: ", info_.name, " has too many tensors");
  return static_cast<std::uint16_t>(at);
}

void operator_run::name_roles() {
  // Parameters are kept once they are written: to compute one again would take all steps that led
  // to it, and all that these were computed from.
  const auto recomputable = [&](const touched& s) {
    return !s.known->pinned && session_.manager().recomputable(s.known->id) &&
           !(s.written && (s.known->parameter || session_.flights().uses(s.known->id)));
  };
  // A new version pays where it can be recomputed. Beside something that is updated for good, as
  // weights are, it can't; and what was computed from those is severed from its past then.
  bool versions = replayable_ && !info_.statistics;
  for (const touched& s : w_.storages) {
    if (s.known == nullptr) continue;
    replayable_ = replayable_ && !s.known->exposed && !s.known->lent;
    if (s.written && !info_.statistics && !recomputable(s)) replayable_ = false;
  }
  versions = versions && replayable_;
  for (touched& s : w_.storages) {
    if (s.known == nullptr) continue;
    s.renewed = s.written && versions;
    s.held = s.renewed && s.known->held;
    if (s.held) session_.let_go(*s.known);  // the next version is held again
    auto& list = s.written && !versions ? w_.updates : w_.inputs;
    (s.written && !versions ? s.role.update : s.role.input) =
        static_cast<std::int32_t>(list.size());
    list.push_back(s.known->id);
  }
  session_.past().own.updates += w_.updates.size();
}

// What a replay needs, before the kernel takes the arguments from the stack.
void operator_run::remember_state() {
  if (!replayable_) return void(++session_.past().own.not_replayable);
  recorded_ = replay_kernel::fresh(op_);
  recorded_operator& r = *recorded_;
  r.module = thread_.module.module;
  r.info = &info_;
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  r.included = keys.included_;
  r.excluded = keys.excluded_;
  const c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
  r.grad_mode = autograd.get_grad_mode();
  r.inference_mode = autograd.get_inference_mode();
  r.undefined = info_.undefined;
  r.label = label_;
  r.cleared = session_.clears();
  r.threads = at::get_num_threads();
  r.which = which_;
  for (std::size_t i = stack_.size() - info_.arguments.size(); i < stack_.size(); ++i) {
    const c10::IValue& value = stack_[i];
    if (value.isTensor())
      r.stack.emplace_back();
    else if (value.isTensorList())
      r.stack.emplace_back(static_cast<std::int64_t>(value.toTensorList().size()));
    else if (value.isOptionalTensorList())
      r.stack.emplace_back(static_cast<std::int64_t>(value.toOptionalTensorList().size()));
    else
      r.stack.push_back(value);
  }
  if (!info_.random) return;
  const auto block = r.random.take(session_.device().generator(), session_);
  if (block == delta::tensor_id::none) return;
  r.random_input = static_cast<std::int32_t>(w_.inputs.size());
  w_.inputs.push_back(block);
}

}  // namespace delta_torch
