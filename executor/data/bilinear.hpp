// delta executor: images scaled to the side that a model is fed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace delta::executor {

/// Where output pixel `i` of `to` lies between two of `from` input pixels, centres aligned.
struct tap {
  std::size_t low, high;
  float weight;  ///< of high
};
inline tap tap_of(int i, int to, std::size_t from) noexcept {
  const auto n = static_cast<std::int64_t>(from);
  const std::int64_t whole = 2 * std::int64_t{to};
  const std::int64_t position =
      std::clamp<std::int64_t>((2 * std::int64_t{i} + 1) * n - to, 0, (n - 1) * whole);
  const std::int64_t low = position / whole;
  return {static_cast<std::size_t>(low), static_cast<std::size_t>(std::min(low + 1, n - 1)),
          static_cast<float>(position % whole) / static_cast<float>(whole)};
}

/// One channel: rows x columns bytes, scaled bilinearly to side x side. Calls put(value) for every
/// pixel, row by row; where the sides agree the values are the bytes.
template <class Put>
void scale_channel(const std::uint8_t* pixels, std::size_t rows, std::size_t columns, int side,
                   Put put) {
  for (int y = 0; y < side; ++y) {
    const tap v = tap_of(y, side, rows);
    const std::uint8_t* upper = pixels + v.low * columns;
    const std::uint8_t* lower = pixels + v.high * columns;
    for (int x = 0; x < side; ++x) {
      const tap h = tap_of(x, side, columns);
      const auto across = [&](const std::uint8_t* row) {
        const auto left = static_cast<float>(row[h.low]);
        return left + h.weight * (static_cast<float>(row[h.high]) - left);
      };
      const float top = across(upper);
      put(top + v.weight * (across(lower) - top));
    }
  }
}

}  // namespace delta::executor
