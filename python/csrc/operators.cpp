// delta_torch: schemas, read.
#include "operators.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <string_view>

namespace delta_torch {

namespace {

// What an operator's schema does not say.
struct operator_rule {
  enum trait : unsigned {
    resizes = 1u << 0u,     // gives its argument another storage
    undefined = 1u << 1u,   // makes tensors without writing them
    statistics = 1u << 2u,  // its outputs do not depend on what it writes where `when` holds
    advances = 1u << 3u,    // they do, and it goes on from there at its next call
    any_order = 1u << 4u    // an accelerator adds by atomics, or as its blocks happen to end
  };
  std::string_view name;
  unsigned traits = 0;
  std::array<std::string_view, 2> writes{};  // arguments, wherever it runs
  // Arguments that it writes where all of `when` are true, or above 0.
  std::array<std::string_view, 2> writes_when{};
  std::array<std::string_view, 2> when{};
};

// By PyTorch's sources. cuDNN's recurrent networks draw their dropout from a state that each call
// advances, and use up the reserve space in their backward pass, as derivatives.yaml knows, which
// clones it for a graph that is kept. Of sums in any order those are here whose order PyTorch's
// deterministic algorithms fix or complain of, with the scans that share cumsum's kernels, and that
// are part of a forward pass: of backward ones no two runs of a program are the same bits.
constexpr std::array statistics{std::string_view("running_mean"), std::string_view("running_var")};
constexpr auto in_statistics = [](std::string_view name, std::string_view when) {
  return operator_rule{name, operator_rule::statistics, {}, statistics, {when}};
};
constexpr auto in_a_state = [](std::string_view name) {
  return operator_rule{name, operator_rule::advances, {}, {"dropout_state"}, {"train", "dropout"}};
};
constexpr auto in_a_state_and_reserve = [](std::string_view name) {
  auto rule = in_a_state(name);
  rule.writes[0] = "reserve";
  return rule;
};
constexpr std::array rules{operator_rule{"aten::resize_", operator_rule::resizes},
                           operator_rule{"aten::resize_as_", operator_rule::resizes},
                           operator_rule{"aten::set_", operator_rule::resizes},
                           operator_rule{"aten::resize_output_", operator_rule::resizes},
                           operator_rule{"aten::_resize_output_", operator_rule::resizes},
                           operator_rule{"aten::swap_", operator_rule::resizes},
                           operator_rule{"aten::_cudnn_rnn_flatten_weight", operator_rule::resizes},
                           operator_rule{"aten::empty", operator_rule::undefined},
                           operator_rule{"aten::empty_like", operator_rule::undefined},
                           operator_rule{"aten::empty_strided", operator_rule::undefined},
                           operator_rule{"aten::new_empty", operator_rule::undefined},
                           operator_rule{"aten::new_empty_strided", operator_rule::undefined},
                           operator_rule{"aten::empty_permuted", operator_rule::undefined},
                           in_statistics("aten::native_batch_norm", "training"),
                           in_statistics("aten::cudnn_batch_norm", "training"),
                           in_statistics("aten::miopen_batch_norm", "training"),
                           in_statistics("aten::_native_batch_norm_legit", "training"),
                           in_statistics("aten::_batch_norm_with_update", ""),
                           in_statistics("aten::batch_norm_update_stats", ""),
                           in_statistics("aten::batch_norm_gather_stats", ""),
                           in_statistics("aten::batch_norm_gather_stats_with_counts", ""),
                           in_a_state("aten::_cudnn_rnn"),
                           in_a_state_and_reserve("aten::_cudnn_rnn_backward"),
                           in_a_state("aten::miopen_rnn"),
                           in_a_state_and_reserve("aten::miopen_rnn_backward"),
                           operator_rule{"aten::bincount", operator_rule::any_order},
                           operator_rule{"aten::_logcumsumexp", operator_rule::any_order},
                           operator_rule{"aten::cumprod", operator_rule::any_order},
                           operator_rule{"aten::cumprod_", operator_rule::any_order},
                           operator_rule{"aten::cumsum", operator_rule::any_order},
                           operator_rule{"aten::cumsum_", operator_rule::any_order},
                           operator_rule{"aten::histc", operator_rule::any_order},
                           operator_rule{"aten::index_add", operator_rule::any_order},
                           operator_rule{"aten::index_add_", operator_rule::any_order},
                           operator_rule{"aten::index_reduce", operator_rule::any_order},
                           operator_rule{"aten::index_reduce_", operator_rule::any_order},
                           operator_rule{"aten::kthvalue", operator_rule::any_order},
                           operator_rule{"aten::median", operator_rule::any_order},
                           operator_rule{"aten::nanmedian", operator_rule::any_order},
                           operator_rule{"aten::nll_loss2d_forward", operator_rule::any_order},
                           operator_rule{"aten::put", operator_rule::any_order},
                           operator_rule{"aten::put_", operator_rule::any_order},
                           operator_rule{"aten::scatter", operator_rule::any_order},
                           operator_rule{"aten::scatter_", operator_rule::any_order},
                           operator_rule{"aten::scatter_add", operator_rule::any_order},
                           operator_rule{"aten::scatter_add_", operator_rule::any_order},
                           operator_rule{"aten::scatter_reduce", operator_rule::any_order},
                           operator_rule{"aten::scatter_reduce_", operator_rule::any_order}};

const operator_rule& rule_of(std::string_view name) {
  static constexpr operator_rule none{};
  const auto found = std::ranges::find(rules, name, &operator_rule::name);
  return found != rules.end() ? *found : none;
}

template <std::size_t N>
bool among(std::string_view name, const std::array<std::string_view, N>& names) {
  return !name.empty() && std::ranges::find(names, name) != names.end();
}

argument_kind kind_of(const c10::TypePtr& type) {
  using c10::TypeKind;
  switch (type->kind()) {
    case TypeKind::TensorType:
      return argument_kind::tensor;
    case TypeKind::OptionalType: {
      const auto inner = kind_of(type->castRaw<c10::OptionalType>()->getElementType());
      return inner == argument_kind::tensors ? argument_kind::anything : inner;
    }
    case TypeKind::ListType: {
      const auto element = type->castRaw<c10::ListType>()->getElementType();
      if (element->kind() == TypeKind::TensorType) return argument_kind::tensors;
      if (element->kind() == TypeKind::OptionalType && kind_of(element) == argument_kind::tensor)
        return argument_kind::optional_tensors;
      return kind_of(element) == argument_kind::none ? argument_kind::none
                                                     : argument_kind::anything;
    }
    case TypeKind::IntType:
    case TypeKind::SymIntType:
    case TypeKind::SymFloatType:
    case TypeKind::SymBoolType:
    case TypeKind::FloatType:
    case TypeKind::BoolType:
    case TypeKind::NumberType:
    case TypeKind::ComplexType:
    case TypeKind::StringType:
    case TypeKind::DeviceObjType:
    case TypeKind::GeneratorType:
    case TypeKind::LayoutType:
    case TypeKind::MemoryFormatType:
    case TypeKind::ScalarTypeType:
    case TypeKind::QSchemeType:
    case TypeKind::StreamObjType:
      return argument_kind::none;
    default:
      return argument_kind::anything;
  }
}

// As optimizers call them. What GradScaler's write beside their lists, found_inf, is only ever set.
std::vector<std::size_t> per_tensor_of(const c10::FunctionSchema& schema) {
  constexpr std::array<std::string_view, 3> families{"aten::_foreach_", "aten::_fused_",
                                                     "aten::_amp_foreach_"};
  const std::string_view name = schema.name();
  if (std::ranges::none_of(families, [&](auto f) { return name.starts_with(f); })) return {};
  // One tensor for all of them would have to be put together from the pieces'.
  for (const auto& r : schema.returns())
    if (kind_of(r.type()) != argument_kind::tensors) return {};
  bool any = false;
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto& a = schema.arguments()[i];
    any = any || kind_of(a.type()) == argument_kind::tensors;
    if (a.type()->kind() == c10::TypeKind::ListType || a.name() == "scalars") found.push_back(i);
  }
  return any ? found : std::vector<std::size_t>();
}

bool is_view(const c10::FunctionSchema& schema) {
  if (schema.returns().empty()) return false;
  for (const auto& a : schema.arguments())
    if (a.alias_info() != nullptr && a.alias_info()->isWrite()) return false;
  return std::ranges::all_of(schema.returns(), [](const auto& r) {
    return r.alias_info() != nullptr && !r.alias_info()->isWrite();
  });
}

}  // namespace

bool passes_through(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  if (name.starts_with("profiler::")) return true;
  return is_view(op.schema()) || is_made_of_others(op);
}

bool is_made_of_others(const c10::OperatorHandle& op) {
  // What has a kernel of its own beside the composite one, as silu_backward has, runs that.
  using c10::DispatchKey;
  constexpr std::array backends{DispatchKey::CPU, DispatchKey::CUDA, DispatchKey::XPU,
                                DispatchKey::MPS, DispatchKey::PrivateUse1};
  return op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
         std::ranges::none_of(backends,
                              [&](DispatchKey k) { return op.hasKernelForDispatchKey(k); });
}

const reading_operator* reads_by_itself(const c10::OperatorName& name) {
  const auto found = std::ranges::find_if(reading_operators, [&](const reading_operator& known) {
    return name.name == known.name && name.overload_name == known.overload;
  });
  return found != reading_operators.end() ? &*found : nullptr;
}

bool resizes_by_itself(const c10::OperatorHandle& op) {
  return passes_through(op) &&
         std::ranges::any_of(op.schema().arguments(), [](const auto& a) { return a.is_out(); });
}

operator_info& operator_table::of(const c10::OperatorHandle& op) {
  const void* key = &op.schema();
  place& at = latest_[reinterpret_cast<std::uintptr_t>(key) / 64 % latest_.size()];
  if (at.key == key) return *at.info;
  auto known = infos_.find(key);
  if (known == infos_.end()) known = infos_.emplace(key, info_of(op)).first;
  at = {key, &known->second};
  return *at.info;
}

operator_info info_of(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  operator_info info;
  info.name = schema.name();
  const operator_rule& rule = rule_of(info.name);
  const auto is = [&](operator_rule::trait t) { return (rule.traits & t) != 0; };
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto& a = schema.arguments()[i];
    info.arguments.push_back(kind_of(a.type()));
    info.running.push_back(among(a.name(), rule.writes_when));
    info.written.push_back(info.running[i] || among(a.name(), rule.writes) ||
                           (a.alias_info() != nullptr && a.alias_info()->isWrite()));
    if (among(a.name(), rule.when)) info.conditions.push_back(i);
    info.opaque = info.opaque || info.arguments.back() == argument_kind::anything;
  }
  info.returns = schema.returns().size();
  // One of somebody else's may draw, or write, without saying so.
  info.foreign = !info.name.starts_with("aten::");
  info.random = op.hasTag(at::Tag::nondeterministic_seeded) || info.foreign;
  info.resizes = is(operator_rule::resizes);
  info.undefined = is(operator_rule::undefined);
  info.statistics = is(operator_rule::statistics);
  info.advances = is(operator_rule::advances);
  info.any_order = is(operator_rule::any_order);
  const auto none = [](argument_kind k) { return k == argument_kind::none; };
  info.factory = info.undefined || info.name.ends_with("_like") ||
                 info.name.starts_with("aten::new_") || std::ranges::all_of(info.arguments, none);
  info.per_tensor = per_tensor_of(schema);
  describe_collective(info, schema);
  return info;
}

const char* operator_table::label(operator_info& info, std::uint32_t module,
                                  const std::string& module_name) {
  // Errors and timelines may name an operator long after its module is gone.
  static std::deque<std::string>& texts = *new std::deque<std::string>;
  if (module >= info.labels.size()) info.labels.resize(module + 1u);
  const char*& text = info.labels[module];
  if (text == nullptr)
    text =
        texts.emplace_back(module_name.empty() ? info.name : module_name + " " + info.name).c_str();
  return text;
}

}  // namespace delta_torch
