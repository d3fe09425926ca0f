// delta executor: convolutions on the GPU without cuDNN: blocks of pixels are gathered into a
// matrix and multiplied, all groups in one batch. Contracts in kernels/kernels.hpp.
//
// Backward data gathers dy as forward gathers x, so no two threads add to one sum; with a stride,
// part of what it gathers is zeros. That costs time where cuDNN is absent, and keeps the workspace
// bounded for any shape.
#pragma once

#include <algorithm>
#include <stdexcept>

#include "kernels/gpu/depthwise.hpp"
#include "kernels/gpu/engine.hpp"
#include "kernels/gpu/gather.hpp"
#include "kernels/kernels.hpp"

namespace delta::executor::gpu {

/// One of the three convolutions: its window, its blocks and its workspace.
struct conv_memory {
  window over;
  std::size_t channels, depth, taps;  ///< gathered channels, those of one group, taps
  std::size_t rows, rows_per_block;
  bool gathers;     ///< false: the tensor is the matrix
  float* filter;    ///< turned, for backward data; null: as it is
  float* gathered;  ///< rows_per_block x taps * channels
  std::byte* product;
  std::size_t bytes;

  template <class Engine>
  conv_memory(const Engine& engine, const conv_shape& s, bool backward_data, std::byte* at)
      : over(backward_data ? backward_window(s) : forward_window(s)) {
    if (s.groups < 1 || s.c % s.groups != 0 || s.k % s.groups != 0) {
      throw std::invalid_argument("convolution: groups must divide both numbers of channels");
    }
    channels = std::size_t(backward_data ? s.k : s.c);
    depth = channels / std::size_t(s.groups);
    taps = over.taps();
    rows = product_of(s.n, over.to_h, over.to_w);
    gathers = !(taps == 1 && s.stride == 1 && s.pad == 0);
    const std::size_t row_bytes = taps * channels * sizeof(float);
    rows_per_block =
        gathers ? std::clamp<std::size_t>(engine.gathered_bytes() / row_bytes, 1, rows) : rows;
    carver carve(at);
    filter = backward_data && taps > 1 ? carve.take<float>(s.filter_size()) : nullptr;
    gathered = gathers ? carve.take<float>(rows_per_block * taps * channels) : nullptr;
    product = carve.take<std::byte>(engine.product_workspace());
    bytes = carve.used();
  }

  /// Floats of a gathered row.
  [[nodiscard]] std::size_t line() const { return taps * channels; }

  /// Calls f(first row, rows, their matrix) for every block, gathered from `source`.
  template <class Engine, class F>
  void each_block(const Engine& engine, const float* source, const F& f) const {
    for (std::size_t first = 0; first < rows; first += rows_per_block) {
      const std::size_t count = std::min(rows_per_block, rows - first);
      if (gathers) {
        each_by_fours(engine, count * line(), depth % 4 == 0 && aligned(source),
                      gather_functor{over, first, taps, depth, channels, source, gathered});
      }
      f(first, count, gathers ? gathered : source + first * line());
    }
  }
};

template <class Engine>
std::size_t conv_workspace(const Engine& engine, const conv_shape& s, bool backward_data) {
  return conv_memory(engine, s, backward_data, nullptr).bytes;
}

template <class Engine>
void conv_forward(const Engine& engine, const conv_shape& s, const float* x, const float* filter,
                  float* y, std::byte* workspace) {
  const conv_memory memory(engine, s, false, workspace);
  const auto k = std::size_t(s.k), groups = std::size_t(s.groups), outs = k / groups;
  const std::size_t contracted = memory.taps * memory.depth;
  memory.each_block(engine, x, [&](std::size_t first, std::size_t rows, const float* block) {
    engine.multiply({.m = rows,
                     .n = outs,
                     .k = contracted,
                     .a = {block, memory.line(), contracted},
                     .b = {filter, contracted, outs * contracted, true},
                     .c = {y + first * k, k, outs},
                     .batch = groups},
                    memory.product);
  });
}

template <class Engine>
void conv_backward_data(const Engine& engine, const conv_shape& s, const float* dy,
                        const float* filter, float* dx, std::byte* workspace) {
  const conv_memory memory(engine, s, true, workspace);
  const auto c = std::size_t(s.c), groups = std::size_t(s.groups), depth = c / groups;
  const std::size_t contracted = memory.taps * memory.depth;
  if (memory.filter) {
    each_by_fours(engine, s.filter_size(), depth % 4 == 0 && aligned(filter),
                  turn_filter_functor{memory.depth, memory.taps, depth, filter, memory.filter});
    filter = memory.filter;
  }
  memory.each_block(engine, dy, [&](std::size_t first, std::size_t rows, const float* block) {
    engine.multiply({.m = rows,
                     .n = depth,
                     .k = contracted,
                     .a = {block, memory.line(), contracted},
                     .b = {filter, depth, contracted * depth},
                     .c = {dx + first * c, c, depth},
                     .batch = groups},
                    memory.product);
  });
}

template <class Engine>
void conv_backward_filter(const Engine& engine, const conv_shape& s, const float* x,
                          const float* dy, float* dfilter, std::byte* workspace) {
  const conv_memory memory(engine, s, false, workspace);
  const auto k = std::size_t(s.k), groups = std::size_t(s.groups), outs = k / groups;
  const std::size_t window_size = memory.taps * memory.depth;
  // One block after the other is added, in order.
  memory.each_block(engine, x, [&](std::size_t first, std::size_t rows, const float* block) {
    engine.multiply({.m = outs,
                     .n = window_size,
                     .k = rows,
                     .a = {dy + first * k, k, outs, true},
                     .b = {block, memory.line(), window_size},
                     .c = {dfilter, window_size, outs * window_size},
                     .beta = first == 0 ? 0.0f : 1.0f,
                     .batch = groups},
                    memory.product);
  });
}

}  // namespace delta::executor::gpu
