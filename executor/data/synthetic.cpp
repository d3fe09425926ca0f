#include "data/synthetic.hpp"

#include <array>

#include "data/counter_random.hpp"

namespace delta::executor {
namespace {

/// A grating's direction, 18 degrees from the next class's: (cosine, sine) times 1024.
struct direction_vector {
  int x, y;
};
constexpr std::array<direction_vector, 10> directions{{{1024, 0},
                                                       {974, 316},
                                                       {828, 602},
                                                       {602, 828},
                                                       {316, 974},
                                                       {0, 1024},
                                                       {-316, 974},
                                                       {-602, 828},
                                                       {-828, 602},
                                                       {-974, 316}}};

/// A wave of period 2^16 between -2^14 and 2^14: a triangle, as it needs nothing but integers.
constexpr int wave(std::uint32_t phase) noexcept {
  const int p = static_cast<int>(phase & 0xffffu);
  return p < 0x8000 ? p - 0x4000 : 0xc000 - p;
}

/// What an image is made of, drawn once.
struct recipe {
  int label;
  std::uint32_t phase;
  std::uint32_t waves;          ///< across the image, in 1/256
  std::array<int, 3> strength;  ///< of the grating per channel, in 1/256
  std::array<int, 3> shift;     ///< of the brightness per channel, on the wave's scale
  std::uint64_t noise;          ///< stream
};

recipe draw(std::uint64_t seed, std::uint64_t index) noexcept {
  const std::uint64_t stream = mix(mix(seed, index), 0x696d616765u);
  recipe r{};
  r.label = static_cast<int>(below(mix(stream, 0), 10));
  r.phase = static_cast<std::uint32_t>(mix(stream, 1) & 0xffffu);
  r.waves = static_cast<std::uint32_t>(4 * 256 + below(mix(stream, 2), 2 * 256));
  for (std::size_t c = 0; c < 3; ++c) {
    r.strength[c] = 96 + static_cast<int>(below(mix(stream, 3 + c), 128));
    r.shift[c] = static_cast<int>(below(mix(stream, 6 + c), 0x2000)) - 0x1000;
  }
  r.noise = mix(stream, 9);
  return r;
}

}  // namespace

void synthetic::fill(std::span<const std::uint32_t> indices, int image, float* images,
                     std::int32_t* labels) const {
  for (const std::uint32_t index : indices) {
    const recipe r = draw(seed_, index);
    *labels++ = r.label;
    // Phase per pixel, in 1/2^16 of a period: waves / 256 periods across `image` pixels, times the
    // direction in 1/1024.
    const auto [dx, dy] = directions[static_cast<std::size_t>(r.label)];
    const std::int64_t per_pixel = (std::int64_t{r.waves} << 16) / (256 * image);
    std::uint64_t counter = 0;
    for (int y = 0; y < image; ++y) {
      for (int x = 0; x < image; ++x) {
        const std::int64_t along = per_pixel * (std::int64_t{x} * dx + std::int64_t{y} * dy) / 1024;
        const int grating = wave(r.phase + static_cast<std::uint32_t>(along));
        const std::uint64_t noise = mix(r.noise + counter++);
        for (std::size_t c = 0; c < 3; ++c) {
          // Sixteen bits of noise per channel, uniform in +-2^14.
          const int grain = (static_cast<int>(noise >> (16 * c) & 0xffffu) - 0x8000) / 2;
          const int value = grating * r.strength[c] / 256 + r.shift[c] + grain;
          *images++ = static_cast<float>(value) * (1.0f / 8192.0f);  // exact: a power of two
        }
      }
    }
  }
}

}  // namespace delta::executor
