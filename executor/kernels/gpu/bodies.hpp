// delta executor: what the threads of a block do in the kernels that have shared memory: column
// reductions and Engine::blocks. Internal to the kernels.
//
// They are written over `Threads`, which says who the thread is and waits for the others of its
// block: cuda_engine.cuh has CUDA's. A test runs the same code by threads of the host, under the
// thread sanitizer, and leaves out each barrier in turn, for which each has a name. Threads offers
//   x(), y()               its place in the block
//   block_x(), block_y()   the block's in the grid
//   wait<barrier>()        all threads of the block come here before any goes on, and see what the
//                          others wrote
#pragma once

#include <cstddef>
#include <utility>

#include "kernels/gpu/engine.hpp"

namespace delta::executor::gpu {

/// What a barrier keeps apart.
enum class barrier {
  half_written,   ///< a column's upper lanes have written, before the lower ones read
  half_read,      ///< and these have read, before the next upper lanes write
  lanes_written,  ///< a block's lanes have written, before they are joined
  level_joined,   ///< a level of the tree, before the next, or before all read its root
  root_read       ///< all have read it, before the next reduction writes
};

/// Lanes that have handed their state on to a lane of the lower half.
template <class R>
struct column_scratch {
  using team = typename R::team;
  using state = decltype(std::declval<const R&>().collect(0, 0, 1, 1));
  state at[team::lanes / 2][team::width];
};

/// Engine::columns: the columns of one block, in one part.
template <class Threads, class R>
DELTA_GPU void column_body(const Threads& t, column_scratch<R>& scratch, const column_cut& cut,
                           std::size_t columns, const R& r) {
  using team = typename R::team;
  const std::size_t lane = t.y(), x = t.x(), part = t.block_y();
  const std::size_t column = t.block_x() * team::width + x;
  const bool mine = column < columns;
  typename column_scratch<R>::state state{};
  if (mine) {
    const std::size_t first = part * cut.rows_per_part;
    const std::size_t left = cut.rows - first;
    const std::size_t end = first + (left < cut.rows_per_part ? left : cut.rows_per_part);
    state = r.collect(column, first + lane, team::lanes, end);
  }
  for (std::size_t half = team::lanes / 2; half > 0; half /= 2) {
    if (half < team::lanes / 2) t.template wait<barrier::half_read>();
    if (mine && lane >= half && lane < 2 * half) scratch.at[lane - half][x] = state;
    t.template wait<barrier::half_written>();
    if (mine && lane < half) state = r.join(state, scratch.at[lane][x]);
  }
  if (mine && lane == 0) r.finish(part, column, state);
}

/// A value of each lane, of any type up to a double: one reduction after the other.
struct block_scratch {
  alignas(double) std::byte bytes[block_lanes * sizeof(double)];
};

/// The team of Engine::blocks; all of its threads make every call.
template <class Threads>
struct block_team {
  const Threads& t;
  block_scratch& scratch;

  /// join over value(j), j < n: each lane its own j's in order, then the lanes in a tree.
  template <class T, class F, class Join>
  DELTA_GPU T reduce(std::size_t n, T identity, const F& value, const Join& join) {
    static_assert(sizeof(T) <= sizeof(double) && alignof(T) <= alignof(double));
    auto* lanes = reinterpret_cast<T*>(scratch.bytes);
    const std::size_t lane = t.x();
    T mine = identity;
    for (std::size_t j = lane; j < n; j += block_lanes) mine = join(mine, value(j));
    lanes[lane] = mine;
    t.template wait<barrier::lanes_written>();
    for (std::size_t half = block_lanes / 2; half > 0; half /= 2) {
      if (lane < half) lanes[lane] = join(lanes[lane], lanes[lane + half]);
      t.template wait<barrier::level_joined>();
    }
    const T root = lanes[0];
    t.template wait<barrier::root_read>();
    return root;
  }
  template <class F>
  DELTA_GPU void each(std::size_t n, const F& f) {
    for (std::size_t j = t.x(); j < n; j += block_lanes) f(j);
  }
};

/// Engine::blocks: one block.
template <class Threads, class F>
DELTA_GPU void block_body(const Threads& t, block_scratch& scratch, const F& f) {
  block_team<Threads> team{t, scratch};
  f(team, t.block_x());
}

}  // namespace delta::executor::gpu
