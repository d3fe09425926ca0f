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
#include "kernels/gpu/bodies.hpp"
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

/// A CUDA thread block, as kernels/gpu/bodies.hpp takes it.
struct cuda_threads {
  __device__ static std::size_t x() { return threadIdx.x; }
  __device__ static std::size_t y() { return threadIdx.y; }
  __device__ static std::size_t block_x() { return blockIdx.x; }
  __device__ static std::size_t block_y() { return blockIdx.y; }
  template <barrier>
  __device__ static void wait() {
    __syncthreads();
  }
};

template <class F>
__global__ void __launch_bounds__(block_lanes) block_kernel(const __grid_constant__ F f) {
  __shared__ block_scratch scratch;
  block_body(cuda_threads{}, scratch, f);
}

/// How many blocks are to fit on a multiprocessor: a thousand threads of 64 registers, where a
/// thread loads packs and has as many sums, or half as many again.
template <class Team>
constexpr unsigned blocks_to_fit = unsigned((Team::threads > 256 ? 1536 : 1024) / Team::threads);

template <class R>
__global__ void __launch_bounds__(R::team::threads, blocks_to_fit<typename R::team>)
    column_kernel(column_cut cut, std::size_t columns, R r) {
  __shared__ column_scratch<R> scratch;
  column_body(cuda_threads{}, scratch, cut, columns, r);
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
    using team = typename R::team;
    const dim3 grid(unsigned(divided_up(columns, team::width)), unsigned(cut.parts));
    column_kernel<<<grid, dim3(team::width, team::lanes), 0, stream()>>>(cut, columns, r);
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
