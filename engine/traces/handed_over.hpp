// delta: what one step of a recorded program leaves to the next one, as PyTorch's gradients are
// left, which the next step drops.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "traces/trace.hpp"

namespace delta {

/// By tensor of a trace of one step that is repeated: the source that it is in the next step;
/// trace::none: it is none. A source that is there before the first operation, and that the step
/// does nothing with but drop it, was left by the step before: of what operations have made and
/// one reference is left to, the first of the same size stands for it. O(tensors + events + sources
/// x tensors left).
[[nodiscard]] inline std::vector<std::uint32_t> handed_over(const trace& t) {
  std::vector<bool> touched(t.tensors.size());
  for (const std::uint32_t x : t.lists) touched[x] = true;  // outputs, too
  for (const trace::event& e : t.events)
    if (e.what == trace::kind::read || e.what == trace::kind::write) touched[e.index] = true;
  const std::vector<std::uint32_t> references = references_after(t, t.events);
  std::vector<std::uint32_t> becomes(t.tensors.size(), trace::none), left;
  for (std::uint32_t x = 0; x < t.tensors.size(); ++x)
    if (references[x] == 1 && t.tensors[x].producer != trace::none &&
        t.tensors[x].view_of == trace::none)
      left.push_back(x);
  for (const trace::event& e : t.events) {
    if (e.what == trace::kind::run) break;
    const std::uint32_t s = e.index;
    if (!is_source(e.what) || references[s] > 0 || touched[s]) continue;
    const auto at = std::ranges::find_if(
        left, [&](std::uint32_t x) { return t.tensors[x].size == t.tensors[s].size; });
    if (at == left.end()) continue;
    becomes[*at] = s;
    left.erase(at);
  }
  return becomes;
}

}  // namespace delta
