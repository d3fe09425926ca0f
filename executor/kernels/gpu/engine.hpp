// delta executor: what the GPU's operators are written over. Internal to the kernels.
//
// An operator is a function template over an Engine, which runs functors. cuda_engine.cuh launches
// them; the lane of the tests runs the same functors, with the same index arithmetic, on the
// host. An Engine is copied by value and offers, all in stream order and without host waits:
//   each(n, f)                   f(i) for every i < n, in any order
//   columns(cut, columns, r)     a reduction down the rows of every column; see column_cut
//   blocks(n, f)                 f(block, b) for every b < n; `block` is a team of block_lanes
//                                threads with block.reduce(n, identity, value, join), whose result
//                                all of them get, and block.each(n, f), after which none of them
//                                may read what another wrote
//   multiply(product, workspace)     a matrix_product
//   product_workspace()          bytes that multiply() takes from `workspace`
//   gathered_bytes()             what a convolution may gather at a time
//
// No functor uses atomics, and every reduction is a tree whose form depends on shapes alone, so
// results are the same bits whenever and however often an operator runs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/gpu_function.hpp"

namespace delta::executor::gpu {

/// `V` neighbours, loaded and stored at once.
template <class T, int V>
struct alignas(sizeof(T) * std::size_t(V)) pack {
  T at[V];
};
template <int V, class T>
DELTA_GPU pack<T, V> load(const T* from) {
  return *reinterpret_cast<const pack<T, V>*>(from);
}
template <class T, int V>
DELTA_GPU void store(T* to, const pack<T, V>& values) {
  *reinterpret_cast<pack<T, V>*>(to) = values;
}

/// Whether all of them may be loaded in packs of four floats.
template <class... T>
bool aligned(const T*... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % (4 * sizeof(T)) == 0) && ...);
}

/// a / b. A 64-bit division costs a GPU some forty instructions more; few numbers need it.
DELTA_GPU inline std::size_t divided(std::size_t a, std::size_t b) {
  if (((a | b) >> 32) == 0) return std::uint32_t(a) / std::uint32_t(b);
  return a / b;
}

constexpr std::size_t divided_up(std::size_t a, std::size_t b) {
  return (a + b - 1) / b;
}

/// Calls f.at<4>(i) on whole groups of four elements, one thread per group; f.at<1>(i) on single
/// ones where `whole` is false (the pointers or the channels do not allow packs) and at the end.
/// Consecutive threads touch consecutive memory either way.
template <class F>
struct by_fours {
  F f;
  std::size_t n;
  bool whole;

  DELTA_GPU void operator()(std::size_t quad) const {
    std::size_t i = 4 * quad;
    if (whole && i + 4 <= n) {
      f.template at<4>(i);
      return;
    }
    const std::size_t end = i + 4 < n ? i + 4 : n;
    for (; i < end; ++i) f.template at<1>(i);
  }
};

/// f on n elements, by fours where `whole`.
template <class Engine, class F>
void each_by_fours(const Engine& engine, std::size_t n, bool whole, const F& f) {
  engine.each(divided_up(n, 4), by_fours<F>{f, n, whole});
}

/// A thread block of a column reduction: `Width` neighbouring columns, so that loads are coalesced,
/// times `Lanes` threads each.
template <std::size_t Width, std::size_t Lanes>
struct column_team {
  static constexpr std::size_t width = Width, lanes = Lanes, threads = Width * Lanes;
};
/// For tall matrices of floats: 128 bytes of a row to a warp.
using float_team = column_team<32, 16>;
/// For tall matrices of packs of four floats: 128 bytes each of four rows to a warp.
using pack_team = column_team<8, 32>;
/// To join what the parts of another cut came to: few columns, of hundreds of parts each.
using join_team = column_team<4, 64>;

/// How the rows of a column reduction are cut. Part p takes rows [p * rows_per_part, ...); within
/// it lane l takes rows l, l + lanes, ... Engine::columns calls, on a reduction r whose thread
/// blocks are its type `team`,
///   r.collect(column, first, step, end) -> state   for each lane: rows first, first + step, ...;
///                                                  of no rows where first >= end
///   r.join(state, state) -> state                  in a tree: lane l with l + half
///   r.finish(part, column, state)                  once per part and column
struct column_cut {
  std::size_t rows, parts, rows_per_part;
};

/// The cut for a large tensor: half a million threads, some waves of blocks on any GPU of today, so
/// that a last wave that is not full costs little, with eight rows or more to a thread. Depends on
/// the shape alone, and so do the bits.
template <class Team>
constexpr column_cut cut_rows(std::size_t rows, std::size_t columns) {
  const std::size_t across = divided_up(columns, Team::width);
  const std::size_t wanted = divided_up((std::size_t(1) << 19) / Team::threads, across);
  const std::size_t fitting = divided_up(rows, Team::lanes * 8);
  const std::size_t per_part = divided_up(rows, wanted < fitting ? wanted : fitting);
  return {rows, divided_up(rows, per_part), per_part};
}

/// All rows in one part: to join what the parts of another cut came to.
constexpr column_cut one_part(std::size_t rows) {
  return {rows, 1, rows};
}

/// Threads of a block in Engine::blocks.
inline constexpr std::size_t block_lanes = 128;

/// A factor of a product, row-major: `line` floats from row to row, `step` from one product of a
/// batch to the next.
struct factor {
  const float* at;
  std::size_t line, step = 0;
  bool turned = false;  ///< its transpose is what is multiplied
};
/// As factor.
struct product_result {
  float* at;
  std::size_t line, step = 0;
};
/// c = a * b + beta * c, `batch` times: a is m x k, b k x n, c m x n, after turning. With beta = 0,
/// c is only written.
struct matrix_product {
  std::size_t m, n, k;
  factor a, b;
  product_result c;
  float beta = 0.0f;
  std::size_t batch = 1;
};

/// Bytes of workspace that cuBLAS's documentation recommends for a compute capability with that
/// first number: 32 MiB for Hopper and behind it, else 4.
constexpr std::size_t blas_workspace(int major) {
  return std::size_t(major >= 9 ? 32 : 4) << 20;
}

/// Takes a workspace apart; with null, only counts. Parts begin at multiples of 256 bytes, as
/// cuBLAS wants its workspace.
class carver {
 public:
  explicit carver(std::byte* at) : at_(at) {}
  template <class T>
  T* take(std::size_t n) {
    T* part = at_ ? reinterpret_cast<T*>(at_ + used_) : nullptr;
    used_ += divided_up(n * sizeof(T), 256) * 256;
    return part;
  }
  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  std::byte* at_;
  std::size_t used_ = 0;
};

}  // namespace delta::executor::gpu
