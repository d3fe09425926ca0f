// delta: floored division, for positions and times of a step that repeats for ever.
#pragma once

namespace delta::detail {

/// Which repetition `x` lies in: 0 is [0, period), -1 the one before it. `period` is above 0.
template <class T>
[[nodiscard]] constexpr T period_of(T x, T period) noexcept {
  return x >= 0 ? x / period : -((period - 1 - x) / period);
}

}  // namespace delta::detail
