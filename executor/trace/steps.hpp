// delta executor: one step of a recorded run as a program of its own.
#pragma once

#include <cstddef>

#include "traces/trace.hpp"

namespace delta::executor {

/// The last step of a recording, `times` times in a row, as a run would be recorded that takes no
/// other steps: first the constants and variables that were there when it began, each written once
/// where the program wrote it before, then the steps. They stay alive across; every other tensor is
/// a new one each time.
///
/// `recorded` keeps the rules of `check`. Throws std::invalid_argument where it does not end with
/// the end of a step, has no earlier one, or where the last step begins with an operation's output;
/// std::length_error beyond what a trace can hold. O(recorded + times * step).
[[nodiscard]] trace repeat_last_step(const trace& recorded, std::size_t times);

}  // namespace delta::executor
