// delta_torch: cuts operators over lists of tensors.
#include "pieces.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

#include "arguments.hpp"
#include "tensors.hpp"

namespace delta_torch {

namespace {

// Of the room, at most, for a piece; and for the whole, if that may have to run again, on a copy of
// what it writes, all but a piece of the operator that needs it.
constexpr std::size_t parts = 4;
// What a kernel takes for numbers that it makes tensors, in bytes.
constexpr std::size_t scratch = 1024;

const c10::IValue& argument_of(const operator_info& info, const torch::jit::Stack& stack,
                               std::size_t i) {
  return stack[stack.size() - info.arguments.size() + i];
}

// Of a list, or of a tensor with a number for each of them.
std::size_t length_of(const c10::IValue& value) {
  if (value.isList()) return value.toListRef().size();
  const at::Tensor& t = value.toTensor();
  return t.defined() && t.dim() == 1 ? static_cast<std::size_t>(t.numel()) : 0;
}

c10::IValue slice(const c10::IValue& value, std::size_t from, std::size_t to) {
  if (value.isTensor()) {
    const at::AutoDispatchBelowADInplaceOrView plain;
    return value.toTensor().narrow(0, static_cast<std::int64_t>(from),
                                   static_cast<std::int64_t>(to - from));
  }
  const auto all = value.toListRef();
  c10::impl::GenericList made(value.toList().elementType());
  if (all.empty()) return made;
  for (const c10::IValue& v : all.slice(from, to - from)) made.push_back(v);
  return made;
}

std::size_t free_in(session& s) {
  return delta::detail::saturating_sub(s.memory().capacity(), s.memory().used()).count;
}

std::size_t all_but_a_piece(std::size_t room) {
  return room - room / parts;
}

// Whatever is on the device already, and shares its memory: in far less time than exactly.
std::size_t takes_at_most(session& s, const operator_info& info, const torch::jit::Stack& stack) {
  const std::size_t rounding = s.memory().rounded(delta::bytes{1}).count;
  std::size_t sum = scratch;
  bool first = true;
  for (const std::size_t i : info.per_tensor) {
    if (info.arguments[i] != argument_kind::tensors) continue;
    const std::size_t times = info.written[i] ? 2 : 1;
    const auto list = argument_of(info, stack, i).toListRef();
    for (const c10::IValue& value : list) {
      const at::Tensor& t = value.toTensor();
      const auto* const storage = t.defined() ? storage_of(t) : nullptr;
      if (storage == nullptr) continue;
      sum += times * (storage->nbytes() + rounding);
      if (first) sum += info.returns * (t.nbytes() + rounding);
    }
    first = first && list.empty();
  }
  return sum;
}

// What can leave whatever the operators do that come next. A gradient can be computed again only
// until its weight is updated; what operators over lists make is of the state.
struct leaving {
  explicit leaving(session& s)
      : manager(s.manager()),
        for_host(delta::detail::saturating_sub(s.memory().host_capacity(), s.memory().host_used())
                     .count) {}
  [[nodiscard]] bool computed_again(const entry& e) const {
    return !stays(e) && manager.recomputable(e.id);
  }
  [[nodiscard]] bool dropped(const entry& e) const { return e.of_lists && computed_again(e); }
  [[nodiscard]] bool copied(const entry& e) const { return !stays(e) && for_host >= e.size; }
  [[nodiscard]] static bool stays(const entry& e) { return e.pinned || e.held || e.lent || e.dead; }

  delta::manager_interface& manager;
  std::size_t for_host;
};

// What is free, and what would be if all had left that can.
std::size_t room(session& s, const leaving& can) {
  std::size_t dropped = 0, copied = 0;
  for (const entry* const e : s.tensors().by_id()) {
    if (e == nullptr || e->at == nullptr) continue;
    const std::size_t size = s.memory().rounded(delta::bytes{e->size}).count;
    if (can.dropped(*e))
      dropped += size;
    else if (can.copied(*e))
      copied += size;
  }
  return free_in(s) + dropped + std::min(copied, can.for_host);
}

}  // namespace

std::size_t tensors_one_by_one(const operator_info& info, const torch::jit::Stack& stack) {
  std::size_t length = 0;
  for (const std::size_t i : info.per_tensor) {
    const c10::IValue& value = argument_of(info, stack, i);
    const std::size_t n = length_of(value);
    if (n == 0 && value.isList()) continue;
    if (n == 0 || (length != 0 && n != length)) return 0;
    length = n;
  }
  return length;
}

std::vector<std::size_t> piece_ends(session& s, const operator_info& info,
                                    const torch::jit::Stack& stack, std::uint64_t mark) {
  const std::size_t length = tensors_one_by_one(info, stack);
  if (length < 2 || takes_at_most(s, info, stack) <= all_but_a_piece(free_in(s))) return {length};
  const auto rounded = [&](std::size_t n) { return s.memory().rounded(delta::bytes{n}).count; };
  std::vector<std::size_t> takes(length), copies(length);  // bytes of the room
  const leaving can(s);
  std::size_t anew = 0;
  bool first = true, again = true;
  for (const std::size_t i : info.per_tensor) {
    if (info.arguments[i] != argument_kind::tensors) continue;
    const auto list = argument_of(info, stack, i).toListRef();
    for (std::size_t n = 0; n < list.size(); ++n) {
      const at::Tensor& t = list[n].toTensor();
      auto* const storage = t.defined() ? storage_of(t) : nullptr;
      if (storage == nullptr) continue;
      const std::size_t size = rounded(storage->nbytes());
      std::size_t missing = first ? info.returns * rounded(t.nbytes()) : 0;
      entry* const e = tensor_table::find(storage);
      if (info.written[i]) {
        again = again && e != nullptr && can.computed_again(*e);
        copies[n] += size;
      }
      if (e == nullptr || e->seen != mark) {
        if (e != nullptr) e->seen = mark;
        if (e == nullptr || e->at == nullptr)
          missing += size;
        else if (can.dropped(*e) || can.copied(*e))
          takes[n] += size;
      }
      takes[n] += missing;
      anew += missing;
    }
    first = first && list.empty();
  }
  const bool fits = anew + scratch <= free_in(s);
  if (fits && !again) return {length};
  std::size_t all = 0;
  for (std::size_t n = 0; n < length; ++n) {
    if (again) takes[n] += copies[n];
    all += takes[n];
  }
  const std::size_t most = room(s, can), piece = most / parts;
  if (fits && all <= all_but_a_piece(most)) return {length};
  std::vector<std::size_t> ends;
  std::size_t taken = 0, from = 0;
  for (std::size_t n = 0; n < length; ++n) {
    // What shares its memory with one before it takes nothing.
    if (n > from && takes[n] > 0 && taken + takes[n] > piece) {
      ends.push_back(from = n);
      taken = 0;
    }
    taken += takes[n];
  }
  ends.push_back(length);
  return ends;
}

std::vector<torch::jit::Stack> pieces_of(const operator_info& info, const torch::jit::Stack& stack,
                                         const std::vector<std::size_t>& ends) {
  std::vector<torch::jit::Stack> pieces;
  std::size_t from = 0;
  for (const std::size_t to : ends) {
    auto& piece = pieces.emplace_back(
        stack.end() - static_cast<std::ptrdiff_t>(info.arguments.size()), stack.end());
    for (const std::size_t i : info.per_tensor) piece[i] = slice(piece[i], from, to);
    from = to;
  }
  return pieces;
}

void join(torch::jit::Stack& results, torch::jit::Stack&& piece) {
  if (results.empty()) {
    results = std::move(piece);
    return;
  }
  for (std::size_t i = 0; i < results.size(); ++i) results[i].toList().append(piece[i].toList());
}

}  // namespace delta_torch
