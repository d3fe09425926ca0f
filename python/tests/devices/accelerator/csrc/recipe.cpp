#include "recipe.hpp"

#include <ATen/core/List.h>

#include <algorithm>

namespace simulated {

Recipe::Recipe(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const auto& arguments = schema.arguments();
  const std::size_t first = stack.size() - arguments.size();
  slots_.resize(arguments.size());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = stack[first + i];
    Slot& slot = slots_[i];
    if (value.isTensor()) {
      slot.kind = Kind::tensor;
      slot.entries = {entry_of(value.toTensor(), arguments[i])};
    } else if (value.isTensorList()) {
      slot.kind = Kind::tensors;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        slot.entries.push_back(entry_of(tensor, arguments[i]));
      }
    } else if (value.isOptionalTensorList()) {
      slot.kind = Kind::optional_tensors;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        slot.entries.push_back(entry_of(tensor.value_or(at::Tensor()), arguments[i]));
      }
    } else if (value.isDevice()) {
      slot.kind = Kind::device;
    } else if (value.isGenerator()) {
      slot.kind = Kind::generator;
      takes_generator_ = true;
      generator_ = value.toGenerator();
    } else {
      slot.constant = value;
      if (value.isNone() && arguments[i].name() == "generator") {
        slot.kind = Kind::generator;
        takes_generator_ = true;
      }
    }
  }
}

int Recipe::entry_of(const at::Tensor& tensor, const c10::Argument& argument) {
  if (!tensor.defined()) {
    return -1;
  }
  const auto known = std::ranges::find_if(
      tensors_, [&tensor](const at::Tensor& other) { return other.is_same(tensor); });
  const auto entry = static_cast<std::size_t>(known - tensors_.begin());
  if (known == tensors_.end()) {
    tensors_.push_back(tensor);
    out_.push_back(false);
    written_.push_back(false);
  }
  const c10::AliasInfo* const alias = argument.alias_info();
  if (alias != nullptr && alias->isWrite()) {
    written_[entry] = true;
    out_[entry] = out_[entry] || argument.is_out();
  }
  return static_cast<int>(entry);
}

void Recipe::forget() {
  tensors_.clear();
  generator_.reset();
}

torch::jit::Stack Recipe::arguments(const std::vector<at::Tensor>& table, c10::Device device,
                                    const std::optional<at::Generator>& generator) const {
  const auto tensor = [&table](int entry) {
    return entry < 0 ? at::Tensor() : table[static_cast<std::size_t>(entry)];
  };
  torch::jit::Stack stack;
  stack.reserve(slots_.size());
  for (const Slot& slot : slots_) {
    switch (slot.kind) {
      case Kind::constant:
        stack.push_back(slot.constant);
        break;
      case Kind::tensor:
        stack.emplace_back(tensor(slot.entries[0]));
        break;
      case Kind::tensors: {
        c10::List<at::Tensor> list;
        for (const int entry : slot.entries) {
          list.push_back(tensor(entry));
        }
        stack.emplace_back(std::move(list));
        break;
      }
      case Kind::optional_tensors: {
        c10::List<std::optional<at::Tensor>> list;
        for (const int entry : slot.entries) {
          list.push_back(entry < 0 ? std::nullopt : std::optional(tensor(entry)));
        }
        stack.emplace_back(std::move(list));
        break;
      }
      case Kind::device:
        stack.emplace_back(device);
        break;
      case Kind::generator:
        stack.push_back(generator ? c10::IValue(*generator) : c10::IValue());
        break;
    }
  }
  return stack;
}

}  // namespace simulated
