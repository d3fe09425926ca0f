// delta executor: the Engine of kernels/gpu/engine.hpp that launches on a GPU. For .cu files only.
//
// Thrust runs the element-wise work. It is never asked for a value, which would make the host
// wait, and its allocator refuses: whatever it would take from the device behind the manager's back
// is a cuda_error, not memory beside the budget.
#pragma once

#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/system/cuda/execution_policy.h>
#include <thrust/system_error.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "cuda/cuda_handles.hpp"
#include "cuda/launch_check.hpp"
#include "device/cuda_error.hpp"
#include "kernels/gpu/engine.hpp"

namespace delta::executor::gpu {

/// Hands out an operator's workspace to Thrust, and no more than that. Freed by being forgotten:
/// an operator's workspace is over with it.
class workspace_allocator {
 public:
  using value_type = char;
  workspace_allocator() = default;
  workspace_allocator(std::byte* at, std::size_t bytes) : at_(at), left_(bytes) {}

  /// Throws cuda_error where the workspace does not suffice.
  char* allocate(std::ptrdiff_t bytes) {
    const std::size_t wanted = divided_up(std::size_t(bytes), 256) * 256;
    if (wanted > left_) {
      raise(cuda_failure::kind::out_of_memory, "a Thrust algorithm",
            {2, "cudaErrorMemoryAllocation", "it asks for more than its operator's workspace"});
    }
    left_ -= wanted;
    return reinterpret_cast<char*>(std::exchange(at_, at_ + wanted));
  }
  void deallocate(char*, std::size_t) {}

 private:
  std::byte* at_ = nullptr;
  std::size_t left_ = 0;
};

/// A team of block_lanes threads; all of them make every call.
struct cuda_block {
  /// join over value(j), j < n: each lane its own j's in order, then the lanes in a tree.
  template <class T, class F, class Join>
  __device__ T reduce(std::size_t n, T identity, const F& value, const Join& join) {
    __shared__ T partial[block_lanes];
    T mine = identity;
    for (std::size_t j = threadIdx.x; j < n; j += block_lanes) mine = join(mine, value(j));
    partial[threadIdx.x] = mine;
    __syncthreads();
    for (unsigned half = block_lanes / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) {
        partial[threadIdx.x] = join(partial[threadIdx.x], partial[threadIdx.x + half]);
      }
      __syncthreads();
    }
    const T total = partial[0];
    __syncthreads();  // `partial` may be written again from here on
    return total;
  }
  template <class F>
  __device__ void each(std::size_t n, const F& f) {
    for (std::size_t j = threadIdx.x; j < n; j += block_lanes) f(j);
    __syncthreads();
  }
};

template <class F>
__global__ void __launch_bounds__(block_lanes) block_kernel(const __grid_constant__ F f) {
  cuda_block block;
  f(block, std::size_t(blockIdx.x));
}

template <class R>
__global__ void __launch_bounds__(column_width* column_lanes)
    column_kernel(column_cut cut, std::size_t columns, R r) {
  using state = decltype(r.collect(0, 0, 1, 1));
  __shared__ state states[column_lanes][column_width];
  const unsigned lane = threadIdx.y, x = threadIdx.x;
  const std::size_t column = std::size_t(blockIdx.x) * column_width + x, part = blockIdx.y;
  const bool mine = column < columns;
  if (mine) {
    const std::size_t first = part * cut.rows_per_part;
    const std::size_t left = cut.rows - first;
    const std::size_t end = first + (left < cut.rows_per_part ? left : cut.rows_per_part);
    states[lane][x] = r.collect(column, first + lane, column_lanes, end);
  }
  for (unsigned half = column_lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (mine && lane < half) states[lane][x] = r.join(states[lane][x], states[lane + half][x]);
  }
  if (mine && lane == 0) r.finish(part, column, states[0][x]);
}

class cuda_engine {
 public:
  explicit cuda_engine(std::shared_ptr<cuda_handles> handles) : handles_(std::move(handles)) {}

  template <class F>
  void each(std::size_t n, const F& f) const {
    workspace_allocator none;
    try {
      thrust::for_each_n(thrust::cuda::par_nosync(none).on(stream()),
                         thrust::counting_iterator<std::size_t>(0), n, f);
    } catch (const thrust::system_error& e) {
      raise("thrust::for_each_n", {e.code().value(), "thrust::system_error", e.what()});
    }
    check_launch("thrust::for_each_n");
  }

  template <class R>
  void columns(const column_cut& cut, std::size_t columns, const R& r) const {
    const dim3 grid(unsigned(divided_up(columns, column_width)), unsigned(cut.parts));
    column_kernel<<<grid, dim3(column_width, column_lanes), 0, stream()>>>(cut, columns, r);
    check_launch("column_kernel");
  }

  template <class F>
  void blocks(std::size_t n, const F& f) const {
    block_kernel<<<unsigned(n), block_lanes, 0, stream()>>>(f);
    check_launch("block_kernel");
  }

  void multiply(const matrix_product& product, std::byte* workspace) const {
    handles_->multiply(product, workspace);
  }
  [[nodiscard]] std::size_t product_workspace() const { return handles_->product_workspace(); }
  [[nodiscard]] std::size_t gathered_bytes() const { return handles_->gathered_bytes(); }

 private:
  [[nodiscard]] cudaStream_t stream() const {
    return reinterpret_cast<cudaStream_t>(handles_->stream());
  }
  std::shared_ptr<cuda_handles> handles_;
};

}  // namespace delta::executor::gpu
