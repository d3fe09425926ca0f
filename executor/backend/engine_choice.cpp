#include "backend/engine_choice.hpp"

#include <algorithm>
#include <exception>

namespace delta::executor {

std::string to_string(const engine_candidate& c) {
  std::string text = "engine " + std::to_string(c.engine);
  for (std::size_t i = 0; i < c.knobs.size(); ++i)
    text += (i == 0 ? ", knobs " : " ") + std::to_string(c.knobs[i].first) + "=" +
            std::to_string(c.knobs[i].second);
  if (c.notes.tensor_core) text += ", tensor cores";
  return text;
}

engine_refusal refusal_of(const engine_candidate& c, const engine_rule& rule) noexcept {
  const engine_notes& n = c.notes;
  if (n.nondeterministic) return engine_refusal::nondeterministic;
  if (n.converts || n.sums_in_less || (n.tensor_core && !rule.tf32))
    return engine_refusal::precision;
  if (n.compiles) return engine_refusal::compiles;
  if (n.unknown) return engine_refusal::unknown;
  return c.workspace <= rule.room ? engine_refusal::none : engine_refusal::workspace;
}

std::optional<std::size_t> choose_engine(
    std::span<const engine_candidate> all, const engine_rule& rule,
    const std::function<bool(const engine_candidate&)>& builds) {
  std::exception_ptr failure;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (refusal_of(all[i], rule) != engine_refusal::none) continue;
    try {
      if (builds(all[i])) return i;
    } catch (...) {
      if (failure == nullptr) failure = std::current_exception();
    }
  }
  if (failure != nullptr) std::rethrow_exception(failure);
  return std::nullopt;
}

bytes workspace_room(bytes memory, bytes live) noexcept {
  if (memory == bytes{}) return most_workspace;
  const bytes least{memory.count / least_room_of};
  return std::min(most_workspace, std::max(least, delta::detail::saturating_sub(memory, live)));
}

}  // namespace delta::executor
