// delta executor: what dropout keeps, and what it makes of it. Internal to the kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>

namespace delta::executor {

/// Element i is kept where its word is at least `threshold`: p of all words are below p * 2^32.
struct dropout_plan {
  std::uint64_t threshold;
  float scale;  ///< of what is kept: 1 / (1 - p), so that the mean stays; none where nothing is

  explicit dropout_plan(float probability) {
    if (!(probability >= 0.0f && probability <= 1.0f)) {
      throw std::invalid_argument("dropout: the probability must be in [0, 1]");
    }
    threshold = std::uint64_t(std::llround(std::ldexp(double(probability), 32)));
    scale = probability < 1.0f ? float(1.0 / (1.0 - double(probability))) : 0.0f;
  }
};

}  // namespace delta::executor
