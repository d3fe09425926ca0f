// delta executor: the operators that cuDNN runs, where it was found at build time and takes the
// shape. No header of cuDNN is needed to read this one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/bind.hpp"
#include "delta/units.hpp"
#include "device/cuda_api.hpp"

namespace delta::executor {

/// cuDNN on one stream. Lives as long as any operator that was bound with it. For one thread.
class cudnn_handle;

/// "9.19", of the library that runs; empty in a build without cuDNN.
[[nodiscard]] std::string cudnn_version();
/// On the current device; the stream outlives it. Null in a build without cuDNN. Throws cuda_error.
std::shared_ptr<cudnn_handle> make_cudnn(cuda_stream);

/// What an algorithm of cuDNN does with float32 inputs before it multiplies them.
enum class convolution_math : std::uint8_t {
  plain,    ///< nothing
  tensor,   ///< rounds them to TF32
  converts  ///< may round them to half precision
};
/// Whether the options' promise of precision allows it; half precision is never promised.
[[nodiscard]] constexpr bool allowed(convolution_math m, bool tf32) noexcept {
  return m == convolution_math::plain || (m == convolution_math::tensor && tf32);
}

struct cudnn_options {
  bool tf32 = false;    ///< tensor cores, which round inputs to 10 bits
  bytes workspace_cap;  ///< for one operator
};

/// The first deterministic algorithm, by cuDNN's own guess of their speed, whose workspace is
/// within the cap: asked for, not measured, so that the choice and with it the bits depend on the
/// shape, the GPU and the version alone. Nothing where there is none.
std::optional<gpu::bound_operator> cudnn_convolution(const std::shared_ptr<cudnn_handle>&,
                                                     const cudnn_options&, operator_type,
                                                     const conv_shape&);
/// Training alone: cuDNN's kernels for NHWC, which want a workspace. `image`: what x is, NHWC.
/// Nothing where cuDNN's contract is not ours.
std::optional<gpu::bound_operator> cudnn_batch_norm(const std::shared_ptr<cudnn_handle>&,
                                                    operator_type, const bn_shape&,
                                                    const std::vector<int>& image);

}  // namespace delta::executor
