// delta executor: what a step of Adam does to every element. Internal to the kernels.
#pragma once

#include <cmath>

#include "kernels/kernels.hpp"

namespace delta::executor {

/// What is the same for all elements, in the precision in which it is used.
struct adam_factors {
  float decay, take1, keep2, take2;  ///< take1 = 1 - beta1; keep2 = beta2, take2 = 1 - beta2
  float root_correction;             ///< sqrt(1 - beta2^step)
  float epsilon, size;               ///< size = lr / (1 - beta1^step)

  explicit adam_factors(const adam_step& s)
      : decay(s.decay),
        take1(float(1.0 - double(s.beta1))),
        keep2(s.beta2),
        take2(float(1.0 - double(s.beta2))),
        root_correction(float(std::sqrt(1.0 - std::pow(double(s.beta2), double(s.step))))),
        epsilon(s.epsilon),
        size(float(double(s.lr) / (1.0 - std::pow(double(s.beta1), double(s.step))))) {}
};

}  // namespace delta::executor
