// Batch norm's kernels, alone and fused, for the compiler's report on them: bench/gpu/occupancy.sh.
#include "cuda/cuda_engine.cuh"
#include "kernels/gpu/batch_norm.hpp"

namespace delta::executor::gpu {

void batch_norms(const cuda_engine& e, const bn_shape& s, const float* in, float* out,
                 std::byte* workspace) {
  bn_forward(e, s, in, in, in, out, out, out, out, out, workspace);
  bn_relu_forward(e, s, in, in, in, out, out, out, out, out, workspace);
  bn_add_relu_forward(e, s, in, in, in, in, out, out, out, out, out, workspace);
  bn_backward(e, s, in, in, in, in, in, out, out, out, workspace);
  bn_relu_backward(e, s, in, in, in, in, in, in, out, out, out, workspace);
  bn_add_relu_backward(e, s, in, in, in, in, in, in, out, out, out, out, workspace);
}

}  // namespace delta::executor::gpu
