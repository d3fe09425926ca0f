// delta_torch: one operator of PyTorch as an operator of delta: its storages come back and are
// named, PyTorch's kernel runs, and what it has made is recorded.
#include "managed_operator.hpp"

#include <ATen/Context.h>
#include <ATen/NestedTensorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/AutogradState.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "addresses.hpp"
#include "allocator.hpp"
#include "arguments.hpp"
#include "errors.hpp"
#include "operators.hpp"
#include "output_sizes.hpp"
#include "replay.hpp"
#include "session.hpp"
#include "threads.hpp"
#include "versions.hpp"

namespace delta_torch {

namespace {

using torch::jit::Stack;

// A storage that the operator at hand touches.
struct touched {
  entry* known = nullptr;  // null: without bytes
  c10::StorageImpl* storage = nullptr;
  bool written = false, statistics = false;
  bool held = false;     // the program has its address
  bool renewed = false;  // written, and its old value could be recomputed: it gets a new version
  storage_role role;
};

// Lists of the operator at hand, one at a time: their memory is used again. Under `operators`.
struct workplace {
  operator_table table;
  std::vector<touched> storages;
  std::vector<argument> arguments;
  std::vector<std::int64_t> numbers;
  std::vector<delta::tensor_id> inputs, updates, replaced, made;
  std::vector<output> outputs;
  std::vector<entry*> renewed;
  struct fresh_output {
    c10::intrusive_ptr<c10::StorageImpl> storage;
    header* bytes;
  };
  std::vector<fresh_output> fresh;
  // What an operator of somebody else's does not declare as written, and the version that it has.
  std::vector<std::pair<at::Tensor, std::uint32_t>> undeclared;
  std::uint64_t operations = 0;

  void clear() {
    storages.clear(), arguments.clear(), numbers.clear();
    inputs.clear(), updates.clear(), replaced.clear(), made.clear();
    outputs.clear(), renewed.clear(), fresh.clear(), undeclared.clear();
  }
};
workplace& place() {
  static workplace& one = *new workplace;
  return one;
}

// A run of one operator, from its arguments to its record.
class operator_run {
 public:
  operator_run(session& s, thread_state& t, const c10::OperatorHandle& op, Stack& stack)
      : session_(s), thread_(t), op_(op), stack_(stack), w_(place()), info_(w_.table.of(op)) {
    w_.clear();
    thread_.within_operator = true;
  }
  ~operator_run() {
    if (number_ != 0 && session_.taken.operation == number_) give_up();  // it was never opened
    w_.undeclared.clear();
    thread_.within_operator = false;
  }
  operator_run(const operator_run&) = delete;
  operator_run& operator=(const operator_run&) = delete;

  // Everything that the kernel touches is on the device.
  void open();
  // The kernel has run.
  void close();
  // The kernel has thrown.
  void give_up();

 private:
  void look_at_arguments();
  void look_at(const at::Tensor&, std::size_t position, std::int16_t element, bool written);
  std::uint16_t touch(c10::StorageImpl*, const at::Tensor&, bool written);
  bool remember_value(const at::Tensor&);
  void sign();
  void name_roles();
  void remember_state();
  void refuse_undeclared_writes() const;
  void find_outputs();
  void find_output(const at::Tensor&, std::int32_t returned);
  void name_outputs();
  void end();
  void settle();
  void watch_again();
  void disown() noexcept;

  session& session_;
  thread_state& thread_;
  const c10::OperatorHandle& op_;
  Stack& stack_;
  workplace& w_;
  operator_info& info_;
  std::uint64_t number_ = 0;
  bool replayable_ = true;
  signature which_;
  const char* label_ = "";
  std::unique_ptr<recorded_operator> recorded_;
  std::optional<delta::manager_interface::open_operator> open_;
};

void operator_run::open() {
  // They go on using their tensors after their operator has ended, on threads and streams that a
  // run does not know.
  TORCH_CHECK(!info_.collective, "delta: '", info_.name,
              "' can't run within delta_torch.budget: collectives of "
              "torch.distributed use their tensors behind its back; leave the run first");
  const session::inside lock(session_, thread_);
  translated(session_, [&] {
    session_.drain();
    label_ = operator_table::label(info_, thread_.module.module,
                                   session_.past().name_of(thread_.module.module));
    number_ = session_.taken.operation = ++w_.operations;
    session_.taken.now = session_.taken.most = 0;
    session_.taken.hidden = false;
    session_.taken.watched.clear();
    session_.taken.unwatched.clear();
    replayable_ = !info_.resizes && !info_.opaque;
    // Where nobody tells who writes what it makes, by its address, it may be anything.
    if constexpr (!tells_addresses<c10::StorageImpl>) replayable_ = replayable_ && !info_.factory;
    look_at_arguments();
    if (session_.device().remembers()) sign();
    name_roles();
    remember_state();
    const auto traits = !replayable_         ? delta::trait::never_replay
                        : w_.updates.empty() ? delta::trait::pure
                                             : delta::trait::effect_once;
    output_sizes later(op_, info_, stack_, w_.arguments, w_.numbers);
    open_.emplace(session_.manager().begin(delta::operation_span{.inputs = w_.inputs,
                                                                 .updates = w_.updates,
                                                                 .traits = traits,
                                                                 .name = label_,
                                                                 .later = &later}));
    // So that nothing has to leave while the kernel is being queued.
    if (const auto most = session_.device().taken_by(which_); most > 0) try {
        open_->make_room(delta::bytes{most});
      } catch (const delta::budget_exceeded&) {  // NOLINT(bugprone-empty-catch)
        // It may do with less this time, as kernels do that try what there is memory for.
      }
    session_.device().expect(which_);
    // Its kernel may take the addresses of what it writes. Others are seen, and watched again.
    for (const touched& t : w_.storages)
      if (t.known != nullptr && t.written) ignore_addresses(*t.storage);
  });
  // A replay's allocations come in the same order.
  thread_.allocations = 0;
}

void operator_run::look_at_arguments() {
  const std::size_t first = stack_.size() - info_.arguments.size();
  const bool trains = info_.training < 0 ||
                      !stack_[first + static_cast<std::size_t>(info_.training)].isBool() ||
                      stack_[first + static_cast<std::size_t>(info_.training)].toBool();
  for (std::size_t i = 0; i < info_.arguments.size(); ++i) {
    const c10::IValue& value = stack_[first + i];
    const bool written = info_.written[i] && (trains || !info_.running[i]);
    const auto look = [&](const at::Tensor& t, std::int16_t element) {
      if (!t.defined()) return;
      look_at(t, i, element, written);
      if (info_.foreign && !written && !t.is_inference())
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
  w_.numbers.insert(w_.numbers.end(), impl->sizes().begin(), impl->sizes().end());
  w_.numbers.insert(w_.numbers.end(), impl->strides().begin(), impl->strides().end());
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
  entry* const known =
      session_.adopt(storage, t.requires_grad() && t.is_leaf() ? "parameter" : "data");
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
      if (std::exchange(known->untouched, false) && known->lent) session_.let_go(*known);
    }
  }
  const std::size_t at = known != nullptr ? known->place : w_.storages.size() - 1;
  w_.storages[at].written = w_.storages[at].written || written;
  TORCH_CHECK(w_.storages.size() < 65536, "delta: ", info_.name, " has too many tensors");
  return static_cast<std::uint16_t>(at);
}

void operator_run::name_roles() {
  const auto recomputable = [&](const touched& s) {
    return !s.known->pinned && session_.manager().recomputable(s.known->id);
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
  r.grad_mode = c10::AutogradState::get_tls_state().get_grad_mode();
  r.inference_mode = c10::AutogradState::get_tls_state().get_inference_mode();
  r.undefined = info_.undefined;
  r.cleared = session_.checks_replays();
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
  r.arguments.assign(w_.arguments.begin(), w_.arguments.end());
  r.numbers.assign(w_.numbers.begin(), w_.numbers.end());
  for (const touched& t : w_.storages) r.storages.push_back(t.role);
  if (!info_.random) return;
  const auto block = r.random.take(session_.device().generator(), session_);
  if (block == delta::tensor_id::none) return;
  r.random_input = static_cast<std::int32_t>(w_.inputs.size());
  w_.inputs.push_back(block);
}

void operator_run::close() {
  const session::inside lock(session_, thread_);
  translated(session_, [&] {
    std::int64_t most = session_.taken.most;
    session_.device().took(which_, static_cast<std::uint64_t>(most));
    replayable_ = replayable_ && !session_.taken.hidden;
    try {
      refuse_undeclared_writes();
      find_outputs();
      name_outputs();
      std::int64_t kept = 0;
      for (const output& o : w_.outputs)
        if (o.overwritten == output::none)
          kept += static_cast<std::int64_t>(session_.memory().rounded(delta::bytes{o.size}).count);
      // Nor do copies of what it updates count among its outputs; a replay makes them.
      for (const touched& t : w_.storages)
        if (t.role.update != storage_role::none)
          most +=
              static_cast<std::int64_t>(session_.memory().rounded(delta::bytes{t.role.size}).count);
      if (replayable_ && !w_.outputs.empty() && most > kept)
        open_->replay_workspace(delta::bytes{static_cast<std::uint64_t>(most - kept)});
      end();
    } catch (...) {
      disown();
      open_.reset();
      throw;
    }
    settle();
    session_.past().look(session_.memory(), session_.manager().counts(), true);
  });
}

// They can't be undone, and what was computed from the old bytes may be gone.
void operator_run::refuse_undeclared_writes() const {
  const auto undeclared = [&](const entry* e) {
    return std::ranges::any_of(w_.storages,
                               [&](const touched& t) { return t.known == e && !t.written; });
  };
  bool any = false;
  for (const auto& [t, version] : w_.undeclared) any = any || t._version() != version;
  for (const auto& w : session_.taken.watched) any = any || (undeclared(w.of) && was_written(w));
  TORCH_CHECK(!any, "delta: '", info_.name,
              "' has written an argument that it does not declare: name ",
              "it in mutates_args of torch.library.custom_op; its old bytes are lost");
}

void operator_run::find_outputs() {
  for (std::size_t i = 0; i < w_.storages.size(); ++i) {
    touched& s = w_.storages[i];
    if (s.known == nullptr || !s.written) continue;
    // Resized meanwhile, or given up: there is nothing to be the new version of.
    if (s.known->dead || s.known->at == nullptr) {
      replayable_ = false;
      continue;
    }
    if (!s.renewed) continue;
    w_.renewed.push_back(s.known);
    w_.replaced.push_back(s.known->id);
    w_.outputs.push_back({.size = s.known->size, .overwritten = static_cast<std::int32_t>(i)});
  }
  std::int32_t returned = 0;
  for (std::size_t i = stack_.size() - info_.returns; i < stack_.size(); ++i)
    each_tensor(stack_[i], [&](const at::Tensor& t, std::int16_t) { find_output(t, returned++); });
}

void operator_run::find_output(const at::Tensor& t, std::int32_t returned) {
  if (!t.defined()) return;
  const auto take = [&](c10::StorageImpl* storage, std::int32_t place) {
    if (storage == nullptr) return;
    header* const bytes = session_.device().header_of_data(storage->_mutable_data_ptr_no_checks());
    if (bytes == nullptr || !bytes->block) return;  // an argument's, or not from our allocator
    for (const auto& f : w_.fresh)
      if (f.bytes == bytes) return;
    // Of an argument that a kernel has given other bytes: its old ones can't be told from these.
    w_.fresh.push_back({c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage), bytes});
    w_.outputs.push_back({.size = bytes->size, .allocation = bytes->place, .returned = place});
    if (bytes->operation != number_) replayable_ = false;  // it was there before
  };
  auto* const storage = storage_of(t);
  take(storage, returned);
  if (storage != nullptr && !t.is_nested()) return;
  replayable_ = false;
  for (const at::Tensor& part : parts_of(t))
    if (part.defined()) take(storage_of(part), output::none);
}

void operator_run::name_outputs() {
  if (!w_.replaced.empty()) {
    // The old versions: from now on nobody is told where they are.
    for (entry* e : w_.renewed) session_.tensors().name(*e, delta::tensor_id::none);
    open_->replace(std::span<const delta::tensor_id>(w_.replaced));
    session_.past().own.in_place += w_.replaced.size();
  }
  for (auto& f : w_.fresh) {
    const delta::bytes size{f.bytes->size};
    session_.device().keep(f.bytes->memory, true);  // until the manager says that it is a tensor
    delta::block block = session_.leave(*f.bytes);
    open_->allocate(size, std::move(block));
  }
}

void operator_run::end() {
  w_.made.resize(w_.outputs.size());
  if (recorded_ != nullptr && replayable_) {
    recorded_->outputs.assign(w_.outputs.begin(), w_.outputs.end());
    open_->end(w_.made, replay_kernel(std::move(recorded_)));
  } else {
    open_->end(w_.made);
    if (recorded_ != nullptr) replay_kernel(std::move(recorded_));
  }
  open_.reset();
}

// The manager has the outputs: their storages get entries, or their next version.
void operator_run::settle() {
  auto& manager = session_.manager();
  auto& past = session_.past();
  const module_scope in = thread_.module;
  for (std::size_t i = 0; i < w_.made.size(); ++i) {
    const bool anew = i < w_.renewed.size();
    entry* e = nullptr;
    if (anew) {
      e = w_.renewed[i];
      past.forgotten(*e);
    } else {
      auto& f = w_.fresh[i - w_.renewed.size()];
      session_.device().keep(f.bytes->memory, false);
      e = &session_.tensors().add(f.storage.get(), f.bytes->size);
      tensor_table::show(*e, *f.storage, static_cast<std::byte*>(f.bytes->memory));
      session_.device().retire(*f.bytes);
      past.made(in.module, e->size);
    }
    e->label = label_;
    e->module = in.module;
    e->untouched = !anew;
    session_.tensors().name(*e, w_.made[i]);
    past.moved(*e, true);
    if (anew) manager.drop(w_.replaced[i]);
    if (in.keep) {
      manager.forbid(w_.made[i], delta::pin::both);
      e->pinned = true;
    }
  }
  w_.fresh.clear();
  session_.taken.operation = 0;
  watch_again();
}

// The operator is over: who takes addresses of its arguments from now on is seen, and what was read
// by its address stays held.
void operator_run::watch_again() {
  const auto watch = [](const entry& e) {
    if (e.dead) return;
    if (const auto storage = e.storage.lock()) tensor_table::watch(e, *storage);
  };
  for (const touched& s : w_.storages) {
    if (s.known == nullptr || !s.written) continue;
    if (s.held && !s.known->dead) session_.hold(*s.known);
    watch(*s.known);
  }
  for (const entry* e : session_.taken.unwatched) watch(*e);
}

// The operator can't be ended: what its kernel has made or overwritten is PyTorch's alone from now
// on. Called before the operator is given up, which frees the blocks.
void operator_run::disown() noexcept {
  for (std::size_t i = 0; i < w_.renewed.size(); ++i) {
    entry* const e = w_.renewed[i];
    if (e->id != delta::tensor_id::none) continue;  // it is still what it was
    session_.forsake(*e);
    session_.manager().drop(w_.replaced[i]);
  }
  for (auto& f : w_.fresh)
    if (f.bytes->block) session_.device().keep(f.bytes->memory, false);
  w_.fresh.clear();
  session_.taken.operation = 0;
}

void operator_run::give_up() {
  const session::inside lock(session_, thread_);
  session_.device().expect({});
  open_.reset();
  session_.taken.operation = 0;
  if (recorded_ != nullptr) replay_kernel(std::move(recorded_));
  try {
    watch_again();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the operator's error counts
  }
}

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
  if (storage != nullptr) {
    const c10::Stream stream = stack.back().toStream();
    const at::DataPtr& data = storage->_mutable_data_ptr_no_checks();
    if (entry* const e = tensor_table::find(storage); e != nullptr) {
      if (e->outside != nullptr)
        s.device().used_by(*e->outside, stream);
      else if (e->at != nullptr)
        s.device().used_by(e->at, stream);
    } else if (header* const h = s.device().header_of_data(data); h != nullptr && h->block) {
      s.device().used_by(h->memory, stream);
    } else {
      return false;  // PyTorch's own
    }
  }
  torch::jit::drop(stack, 2);
  return true;
}

void managed_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const auto key = dispatch_key();
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key);
  session& s = session::get();
  // Python calls operators again, which come here one by one.
  if (python_handles(*stack, op.schema().arguments().size()))
    return op.redispatchBoxed(below, stack);
  const c10::impl::ExcludeDispatchKeyGuard not_again(key);
  thread_state& thread = this_thread();
  if (!s.on() || thread.within_operator || thread.replay != nullptr ||
      !concerns_run(*stack, op.schema().arguments().size()))
    return op.redispatchBoxed(below, stack);
  const session::locked one_at_a_time(s.operators);
  if (!s.on()) return op.redispatchBoxed(below, stack);
  if (records_stream(s, op, *stack)) return;
  follow_run(thread, s.number());
  operator_run run(s, thread, op, *stack);
  run.open();
  try {
    s.device().before_kernel();
    op.redispatchBoxed(below, stack);
    s.device().after_kernel();
  } catch (...) {
    s.device().after_kernel();
    run.give_up();
    throw;
  }
  run.close();
}

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

bool sees_reading = false;

// At a key of their own, unless that is taken by another extension.
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
  sees_reading = true;
}

}  // namespace

bool manage_thread(bool on) {
  const bool before = c10::impl::tls_is_dispatch_key_included(dispatch_key());
  c10::impl::tls_set_dispatch_key_included(dispatch_key(), on);
  if (sees_reading) c10::impl::tls_set_dispatch_key_included(reading_key, on);
  return before;
}

std::array<at::Tensor, 3> parts_of(const at::Tensor& t) {
  if (t.is_nested() && !is_pythons(t)) {
    const auto* const nested = at::native::get_nested_tensor_impl(t);
    return {nested->get_nested_sizes(), nested->get_nested_strides(),
            nested->get_storage_offsets()};
  }
  const at::AutoDispatchBelowADInplaceOrView plain;
  switch (t.layout()) {
    case c10::kSparse:
      return {t._indices(), t._values(), {}};
    case c10::kSparseCsr:
    case c10::kSparseBsr:
      return {t.crow_indices(), t.col_indices(), t.values()};
    case c10::kSparseCsc:
    case c10::kSparseBsc:
      return {t.ccol_indices(), t.row_indices(), t.values()};
    default:
      return {};
  }
}

void register_fallback() {
  static auto& registered = *new std::vector<c10::RegistrationHandleRAII>;
  if (!registered.empty()) return;
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto key = dispatch_key();
  register_reading(registered);
  registered.push_back(dispatcher.registerFallback(
      key, c10::KernelFunction::makeFromBoxedFunction<&managed_operator>(), "delta_torch"));
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op.has_value() || !passes_through(*op) || op->hasKernelForDispatchKey(key)) continue;
    registered.push_back(dispatcher.registerImpl(name, key, c10::KernelFunction::makeFallthrough(),
                                                 std::nullopt, nullptr, "delta_torch"));
  }
}

}  // namespace delta_torch
