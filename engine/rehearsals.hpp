// delta engine: the rehearsals of the adaptive policies, each a manager of its own in virtual time,
// are compiled in rehearsals.cpp and nowhere else.
#pragma once

#include <array>
#include <cstdint>

#include "delta/adaptive.hpp"
#include "delta/rehearsal.hpp"
#include "delta/switching.hpp"

namespace delta {

extern template std::array<double, 2> rehearse_both(
    const coming_step&, decltype(detail::learned_or_not::make(always{})), std::uint32_t, double,
    bool);

}  // namespace delta
