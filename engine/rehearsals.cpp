// delta engine: the rehearsals that rehearsals.hpp declares.
#include "rehearsals.hpp"

namespace delta {

template std::array<double, 2> rehearse_both(const coming_step&,
                                             decltype(detail::learned_or_not::make(always{})),
                                             std::uint32_t, double, bool);

}  // namespace delta
