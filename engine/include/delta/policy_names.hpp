// delta: the names of the policies that ship, and what each is in one line: for help texts and for
// whoever chooses one at run time. Which types they stand for: with_preset.hpp.
#pragma once

#include <array>
#include <string_view>

namespace delta {

/// A preset's name and what it is.
struct preset {
  std::string_view name;
  std::string_view explanation;
};

/// The baseline first, then the paper's; the names are with_preset's, and make_manager's of
/// delta::engine.
inline constexpr std::array<preset, 6> named_policies{{
    {"unmanaged", "nothing leaves the device; tensors go at their last use (the baseline)"},
    {"paper",
     "1/(m s), c_r <= c_s, FIFO as published, but may release in backward and replays by a plan"},
    {"dtr", "recomputation only, as DTR: cost of the evicted neighbourhood / (m s)"},
    {"online", "per tensor the cheaper of recomputing and swapping, by measured costs and queues"},
    {"adaptive",
     "the first step as online; then by a plan, searched for in the record of the step before"},
    {"swap_lru", "swapping only, the least recently used first, reloaded on demand"},
}};

}  // namespace delta
