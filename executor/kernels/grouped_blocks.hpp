// delta executor: blocks of channels and tiles of pixels, for grouped.hpp. Internal to the kernels.
#pragma once

#include <cstring>

#include "kernels/grouped.hpp"

namespace delta::executor::convolution {

/// How groups of `in` by `out` channels are put into blocks.
struct channel_blocks {
  index groups, in, out;
  index merged;  ///< groups in a block; the last may have fewer
  channel_blocks(index all_groups, index in_each, index out_each)
      : groups(all_groups),
        in(in_each),
        out(out_each),
        merged(std::clamp<index>(vector_floats / std::max(in, out), 1, groups)) {}
  [[nodiscard]] index count() const { return divide_up(groups, merged); }
  [[nodiscard]] index groups_in(index block) const {
    return std::min(merged, groups - block * merged);
  }
  /// Vectors that the channels of a full block take on either side.
  [[nodiscard]] index in_vectors() const { return divide_up(merged * in, vector_floats); }
  [[nodiscard]] index out_vectors() const { return divide_up(merged * out, vector_floats); }
};

/// A tile: some channels of some rows of pixels, copied with the zeros around the image, as
/// [vector of channels][row][position modulo step][position / step][lane]. So pixels that are
/// `step` apart are neighbours, at a distance the compiler knows.
struct tile_shape {
  index rows, width, step;
  [[nodiscard]] index phase_floats() const { return divide_up(width, step) * vector_floats; }
  [[nodiscard]] index row_floats() const { return step * phase_floats(); }
  [[nodiscard]] index vector_stride() const { return rows * row_floats(); }
};

/// Rows of pixels handled at a time, so that a tile stays near a first-level cache: at most
/// `all_rows`, with `row_floats` in each row of the tile and `step` of them per row of pixels.
constexpr index band_rows(index all_rows, index row_floats, index step) {
  constexpr index tile_floats = 12 * 1024;
  const index fitting = tile_floats / std::max<index>(row_floats * step, 1);
  return even_part(all_rows, std::clamp<index>(fitting, 1, all_rows), 1);
}

/// Copies `channels` channels from `from` (an image of h x w pixels, `stride` floats apart) into a
/// tile whose upper left corner is pixel (y0, x0). Lanes beyond the channels are left as they are.
inline void fill_tile(const tile_shape& t, const float* from, index h, index w, index stride,
                      index channels, index y0, index x0, float* tile) {
  for (index first = 0; first < channels; first += vector_floats) {
    const index count = std::min(vector_floats, channels - first);
    for (index r = 0; r < t.rows; ++r, tile += t.row_floats()) {
      const index y = y0 + r;
      const bool inside = y >= 0 && y < h;
      for (index f = 0; f < t.step; ++f) {
        float* to = tile + f * t.phase_floats();
        for (index j = f; j < t.width; j += t.step, to += vector_floats) {
          const index x = x0 + j;
          if (!inside || x < 0 || x >= w) {
            std::memset(to, 0, sizeof(float) * vector_floats);
          } else if (count == vector_floats) {  // a size the compiler knows
            std::memcpy(to, from + (y * w + x) * stride + first, sizeof(float) * vector_floats);
          } else {
            std::memcpy(to, from + (y * w + x) * stride + first,
                        sizeof(float) * std::size_t(count));
          }
        }
      }
    }
  }
}

}  // namespace delta::executor::convolution
