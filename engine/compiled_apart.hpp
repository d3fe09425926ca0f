// delta engine: what is compiled in a unit of its own, as a manager takes seconds to compile:
// managers of `adaptive`, and its rehearsals, each a manager of its own in virtual time.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "delta/adaptive.hpp"
#include "delta/detail/planning/rehearsal.hpp"
#include "delta/engine/engine.hpp"

namespace delta::detail {

extern template std::array<double, 2> rehearse_both(const next_step&, adaptive, double, int,
                                                    step_course*);

/// As make_manager, for the policy `adaptive`.
std::unique_ptr<manager_interface> make_adaptive(std::unique_ptr<any_storage> storage,
                                                 const manager_options& options);

}  // namespace delta::detail
