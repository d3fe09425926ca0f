// delta engine: the rehearsals that rehearsals.hpp declares.
#include "rehearsals.hpp"

namespace delta {

template double rehearse(const coming_step&, decltype(detail::learned_or_not::make(always{})),
                         std::uint32_t, double);
template double rehearse(const coming_step&, decltype(detail::ten_policies::make(always{})),
                         std::uint32_t, double);

}  // namespace delta
