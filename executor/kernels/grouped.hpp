// delta executor: convolutions with groups. Internal to the kernels.
//
// Forward and backward data are the same walk: every pixel of the destination is a sum over taps of
// source pixels. For backward data with a stride the destination's pixels fall into phases (their
// position modulo the stride), each with taps of its own; forward is one phase.
//
// Depthwise convolutions (one channel in, one out) run over channels and are in depthwise.cpp. The
// others are taken in blocks of channels, as wide as a vector: groups narrower than that are put
// side by side and become one dense block, with zeros in the filter between them. The zeros are
// multiplied with: for groups of 4 that is four times the work, and still several times faster than
// products of matrices that small.
#pragma once

#include "kernels/convolution_blocks.hpp"

namespace delta::executor::convolution {

/// Floats in the rows of channels below, whatever the processor's vectors are.
inline constexpr index vector_floats = 16;

/// Tasks a pass is cut into at least, where the shape allows.
inline constexpr index wanted_grouped_tasks = 16;

constexpr bool is_depthwise(const conv_shape& s) noexcept {
  return s.groups > 1 && s.groups == s.c && s.groups == s.k;
}

/// Throws std::invalid_argument unless groups divides c and k.
void check_groups(const conv_shape&);

/// One axis of one phase. Destination pixel i of the phase is at pixel0 + i * pixel_step; under tap
/// t it sees source pixel in0 + i * in_step + t, through the filter's tap tap0 + t * tap_step.
struct walk_axis {
  index taps, tap0, tap_step;
  index pixels, pixel0, pixel_step;
  index in0, in_step;

  static walk_axis forward(int pixels, int kernel, int stride, int pad) {
    return {kernel, 0, 1, pixels, 0, 1, -pad, stride};
  }
  static walk_axis backward(int phase, int size, int kernel, int stride, int pad) {
    const index first = (phase + pad) % stride;
    const index taps = first < kernel ? divide_up(kernel - first, stride) : 0;
    return {taps,
            first + (taps - 1) * stride,
            -stride,
            divide_up(size - phase, stride),
            phase,
            stride,
            (phase + pad) / stride - (taps - 1),
            1};
  }
  /// Source pixels under `count` destination pixels.
  [[nodiscard]] index under(index count) const { return (count - 1) * in_step + taps; }
};

struct walk_phase {
  walk_axis v, u;  ///< vertical and horizontal
};

/// One of the two passes: the source and destination, and channels per group on either side.
struct walk {
  bool is_forward;
  index n, groups, in, out;
  index in_h, in_w, out_h, out_w;

  explicit walk(const conv_shape& s, bool forward) : is_forward(forward), n(s.n), groups(s.groups) {
    const index c = s.c / s.groups, k = s.k / s.groups;
    in = forward ? c : k;
    out = forward ? k : c;
    in_h = forward ? s.h : s.oh();
    in_w = forward ? s.w : s.ow();
    out_h = forward ? s.oh() : s.h;
    out_w = forward ? s.ow() : s.w;
  }
  [[nodiscard]] index in_channels() const { return groups * in; }
  [[nodiscard]] index out_channels() const { return groups * out; }
};

/// Calls body(phase) for every phase of a pass.
template <class F>
void each_walk_phase(const conv_shape& s, bool forward, const F& body) {
  if (forward) {
    body(walk_phase{walk_axis::forward(s.oh(), s.kh, s.stride, s.pad),
                    walk_axis::forward(s.ow(), s.kw, s.stride, s.pad)});
    return;
  }
  for (int p = 0; p < std::min(s.stride, s.h); ++p) {
    for (int q = 0; q < std::min(s.stride, s.w); ++q) {
      body(walk_phase{walk_axis::backward(p, s.h, s.kh, s.stride, s.pad),
                      walk_axis::backward(q, s.w, s.kw, s.stride, s.pad)});
    }
  }
}

// Both passes of a grouped convolution that is not depthwise; and of a depthwise one.
std::size_t grouped_walk_workspace(const conv_shape&, bool forward, int threads);
void grouped_walk(thread_pool&, const conv_shape&, bool forward, const float* from,
                  const float* filter, float* to, std::byte* workspace);
std::size_t depthwise_walk_workspace(const conv_shape&);
void depthwise_walk(thread_pool&, const conv_shape&, bool forward, const float* from,
                    const float* filter, float* to, std::byte* workspace);

std::size_t grouped_filter_workspace(const conv_shape&, int threads);
void grouped_filter(thread_pool&, const conv_shape&, const float* x, const float* dy,
                    float* dfilter, std::byte* workspace);
std::size_t depthwise_filter_workspace(const conv_shape&);
void depthwise_filter(thread_pool&, const conv_shape&, const float* x, const float* dy,
                      float* dfilter, std::byte* workspace);

}  // namespace delta::executor::convolution
