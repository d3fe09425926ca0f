// delta engine: the rehearsals that compiled_apart.hpp declares.
#include "compiled_apart.hpp"

namespace delta::detail {

template std::array<double, 2> rehearse_both(const next_step&, adaptive, double, int, step_course*);

}  // namespace delta::detail
