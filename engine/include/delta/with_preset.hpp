// delta: calls a function with the preset of a name that is known at run time; compiles it for
// every preset that ships.
#pragma once

#include <string_view>

#include "delta/adaptive.hpp"
#include "delta/presets.hpp"

namespace delta {

/// Calls `f` with the preset of that name; false when there is none. `f` is generic, as each preset
/// is a type of its own. Throws what `f` throws.
template <class F>
bool with_preset(std::string_view name, F&& f) {
  if (name == "unmanaged") return f(unmanaged()), true;
  if (name == "paper") return f(paper()), true;
  if (name == "dtr") return f(recompute_only()), true;
  if (name == "online") return f(online()), true;
  if (name == "adaptive") return f(adaptive()), true;
  if (name == "swap_lru") return f(swap_lru()), true;
  return false;
}

}  // namespace delta
