#include "runner.hpp"

#include <cmath>

namespace delta::executor {

nanoseconds modelled_cost(const node& n) noexcept {
  constexpr double flops_per_ns = 150;
  constexpr double bytes_per_ns = 12;
  constexpr double fixed_ns = 3000;
  return nanoseconds{
      std::llround(fixed_ns + std::max(n.flops / flops_per_ns, n.moved_bytes / bytes_per_ns))};
}

}  // namespace delta::executor
