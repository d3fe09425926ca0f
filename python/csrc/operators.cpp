// delta_torch: schemas, read.
#include "operators.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <string_view>

namespace delta_torch {

namespace {

template <std::size_t N>
bool among(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::ranges::find(names, name) != names.end();
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
  constexpr std::array<std::string_view, 5> with_statistics{
      "aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm",
      "aten::_native_batch_norm_legit", "aten::_batch_norm_with_update"};
  constexpr std::array<std::string_view, 6> that_resize{
      "aten::resize_",        "aten::resize_as_",      "aten::set_",
      "aten::resize_output_", "aten::_resize_output_", "aten::swap_"};
  constexpr std::array<std::string_view, 6> without_contents{
      "aten::empty",     "aten::empty_like",        "aten::empty_strided",
      "aten::new_empty", "aten::new_empty_strided", "aten::empty_permuted"};
  const c10::FunctionSchema& schema = op.schema();
  operator_info info;
  info.name = schema.name();
  for (const auto& a : schema.arguments()) {
    info.arguments.push_back(kind_of(a.type()));
    info.written.push_back(a.alias_info() != nullptr && a.alias_info()->isWrite());
    info.opaque = info.opaque || info.arguments.back() == argument_kind::anything;
  }
  info.returns = schema.returns().size();
  // One of somebody else's may draw, or write, without saying so.
  info.foreign = !info.name.starts_with("aten::");
  info.random = op.hasTag(at::Tag::nondeterministic_seeded) || info.foreign;
  info.resizes = among(info.name, that_resize);
  info.undefined = among(info.name, without_contents);
  const auto none = [](argument_kind k) { return k == argument_kind::none; };
  info.factory = info.undefined || info.name.ends_with("_like") ||
                 info.name.starts_with("aten::new_") || std::ranges::all_of(info.arguments, none);
  info.statistics = among(info.name, with_statistics);
  info.running.resize(info.written.size());
  for (std::size_t i = 0; info.statistics && i < schema.arguments().size(); ++i) {
    const std::string& argument = schema.arguments()[i].name();
    // native_batch_norm's schema does not say that it writes them.
    if (argument == "running_mean" || argument == "running_var")
      info.written[i] = info.running[i] = true;
    if (argument == "training" || argument == "train") info.training = static_cast<int>(i);
  }
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
