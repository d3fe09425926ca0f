// Dropout. Elements 4b .. 4b+3 take the four words that Philox gives for counter (b, sequence).
#include <algorithm>

#include "kernels/dropout_plan.hpp"
#include "kernels/kernels.hpp"
#include "kernels/philox.hpp"
#include "kernels/vectorise.hpp"

namespace delta::executor {
namespace {

constexpr std::size_t words = 4;            ///< per counter
constexpr std::size_t drawn_at_once = 256;  ///< counters drawn at a time
static_assert(element_chunk % (words * drawn_at_once) == 0,
              "a chunk begins with a counter of its own");

/// The words of counters [first, first + drawn_at_once), word j of every counter at drawn[j].
DELTA_VECTORISE void draw(std::uint64_t first, std::uint64_t seed, std::uint64_t sequence,
                          std::uint32_t (*__restrict drawn)[drawn_at_once]) {
  const philox_key key{std::uint32_t(seed), std::uint32_t(seed >> 32)};
  const auto low = std::uint32_t(sequence), high = std::uint32_t(sequence >> 32);
  for (std::size_t i = 0; i < drawn_at_once; ++i) {
    const std::uint64_t at = first + i;
    const auto word = philox({std::uint32_t(at), std::uint32_t(at >> 32), low, high}, key);
    drawn[0][i] = word[0];
    drawn[1][i] = word[1];
    drawn[2][i] = word[2];
    drawn[3][i] = word[3];
  }
}

/// threshold - 1 is passed, as it fits a word; zero and 2^32 are the caller's.
DELTA_VECTORISE void compare(std::uint32_t last_dropped,
                             const std::uint32_t (*__restrict drawn)[drawn_at_once],
                             std::uint8_t* __restrict mask) {
  for (std::size_t i = 0; i < drawn_at_once; ++i) {
    for (std::size_t j = 0; j < words; ++j) mask[words * i + j] = drawn[j][i] > last_dropped;
  }
}

DELTA_VECTORISE void scale_kept(std::size_t n, float scale, const float* __restrict x,
                                const std::uint8_t* __restrict mask, float* __restrict y) {
  for (std::size_t i = 0; i < n; ++i) y[i] = mask[i] != 0 ? x[i] * scale : 0.0f;
}

void draw_mask(const dropout_plan& plan, std::uint64_t seed, std::uint64_t sequence,
               std::size_t first, std::size_t n, std::uint8_t* mask) {
  if (plan.threshold == 0 || plan.threshold >> 32 != 0) {
    std::fill_n(mask, n, std::uint8_t(plan.threshold == 0));
    return;
  }
  alignas(64) std::uint32_t drawn[words][drawn_at_once];
  alignas(64) std::uint8_t last[words * drawn_at_once];
  for (std::size_t i = 0; i < n; i += words * drawn_at_once) {
    draw((first + i) / words, seed, sequence, drawn);
    const bool whole = n - i >= words * drawn_at_once;
    compare(std::uint32_t(plan.threshold - 1), drawn, whole ? mask + i : last);
    if (!whole) std::copy_n(last, n - i, mask + i);
  }
}

}  // namespace

void dropout_forward(thread_pool& pool, std::size_t n, float probability, std::uint64_t seed,
                     std::uint64_t sequence, const float* x, float* y, std::uint8_t* mask) {
  const dropout_plan plan(probability);
  pool.parallel_for(ceil_div(n, element_chunk), [=](std::size_t task) {
    const auto i = task * element_chunk, count = std::min(element_chunk, n - i);
    draw_mask(plan, seed, sequence, i, count, mask + i);
    scale_kept(count, plan.scale, x + i, mask + i, y + i);
  });
}

void dropout_backward(thread_pool& pool, std::size_t n, float probability, const float* dy,
                      const std::uint8_t* mask, float* dx) {
  const dropout_plan plan(probability);
  pool.parallel_for(ceil_div(n, element_chunk), [=](std::size_t task) {
    const auto i = task * element_chunk;
    scale_kept(std::min(element_chunk, n - i), plan.scale, dy + i, mask + i, dx + i);
  });
}

}  // namespace delta::executor
