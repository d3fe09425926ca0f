// delta benchmark: a recorded step, its name and its unmanaged peak.
#pragma once

#include <string>

#include "delta/units.hpp"
#include "traces/trace.hpp"

namespace delta::bench {

struct subject {
  std::string name;
  trace step;
  bytes peak{};
};

}  // namespace delta::bench
