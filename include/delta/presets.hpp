// delta: named compositions of the three roles of a policy. Values, to be handed to a manager:
//
//   delta::manager manager{delta::online(), storage};
//
//   delta::manager other{my_heuristic{}, delta::cheaper{}, delta::no_prefetch{}, storage};
//
// The second is a composition of one's own, without a name. docs/paper.md has a table of the
// presets: what leaves, and how it comes back.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "delta/adaptive.hpp"
#include "delta/decider.hpp"
#include "delta/heuristic.hpp"
#include "delta/learned.hpp"
#include "delta/manager.hpp"
#include "delta/prefetcher.hpp"

namespace delta {

/// A preset's name and what it is, in one line: for help texts. The names are with_preset's.
struct preset {
  std::string_view name;
  std::string_view explanation;
};

/// All of them, the baseline first.
inline constexpr std::array<preset, 7> presets{{
    {"unmanaged", "nothing leaves the device; tensors go at their last use (the baseline)"},
    {"paper",
     "as published: 1/(m s); evicts when c_r <= c_s; starts at 3/4 of the budget; FIFO prefetch"},
    {"dtr", "recomputation only, as DTR: cost of the evicted neighbourhood / (m s)"},
    {"online", "per tensor the cheaper of recomputing and swapping, by measured costs and queues"},
    {"learned",
     "by what the step before showed: next uses, what copies hide; copies ahead of time"},
    {"adaptive",
     "the fastest of online, learned and dtr: rehearsed on the last step, then measured"},
    {"auto", "as adaptive, of ten policies"},
}};

/// Nothing leaves. The program runs as without a manager, within the budget or not at all.
inline policy<base, never_release, no_prefetch> unmanaged() {
  return {};
}
/// The paper's composition, for comparison; it needs manager::backward. `strict` keeps its
/// Assumption 2: nothing is released in backward (repairs P-7), so more runs end in
/// budget_exceeded. What it keeps and what not: docs/paper.md.
inline policy<base, paper_ratio, fifo_prefetch> paper(bool strict = false) {
  return {{}, {strict}, {}};
}
/// DTR's composition: its h, evictions only. Named for what it does; "dtr" for with_preset.
inline policy<dtr, evict_only, no_prefetch> recompute_only() {
  return {};
}
/// The default until something has been learned: joint cost, the cheaper way out and back.
inline policy<joint_root, cheaper, no_prefetch> online() {
  return {};
}

/// From the second step on by what the steps before showed; until then as `online`.
inline policy<exposed_cost, least_exposed, timely> learned() {
  return {};
}

/// Calls `f` with the preset of that name; false when there is none. `f` is generic, as each preset
/// is a type of its own; `strict` is for "paper" alone. Throws what `f` throws.
template <class F>
bool with_preset(std::string_view name, F&& f, bool strict = false) {
  if (name == "unmanaged") return std::forward<F>(f)(unmanaged()), true;
  if (name == "paper") return std::forward<F>(f)(paper(strict)), true;
  if (name == "dtr") return std::forward<F>(f)(recompute_only()), true;
  if (name == "online") return std::forward<F>(f)(online()), true;
  if (name == "learned") return std::forward<F>(f)(learned()), true;
  if (name == "adaptive") return std::forward<F>(f)(adaptive()), true;
  if (name == "auto") return std::forward<F>(f)(automatic()), true;
  return false;
}

}  // namespace delta
