// delta executor: cuDNN's engines for convolutions, through its graph API: which there are for a
// shape on a GPU, at hand or only described, and plans that run them. No header of cuDNN is needed
// to read this one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/engine_choice.hpp"
#include "cuda/bind.hpp"
#include "cuda/cudnn_operators.hpp"
#include "kernels/kernels.hpp"

namespace delta::executor {

/// A GPU that engines are asked for.
class cudnn_gpu;

/// cuDNN's version where it answers for GPUs that are only described (9.8 and newer), as "9.19.0",
/// of the library that runs; empty: this build, or the library, can't.
[[nodiscard]] std::string cudnn_engines_version();

/// A GPU that need not be there, by its properties in cuDNN's JSON. Throws cuda_error where cuDNN
/// can't read it, or answers for no such GPU.
std::shared_ptr<const cudnn_gpu> described_gpu(const std::string& json);

/// The engines of a convolution (forward, backward data or filter; NHWC, float32), best first by
/// cuDNN's estimate, and behind them those that it falls back to. What is compiled at run time is
/// only listed where the GPU is. Throws cuda_error.
[[nodiscard]] std::vector<engine_candidate> convolution_engines(const cudnn_gpu&, operator_type,
                                                                const conv_shape&);

/// The lane of the rule (choose_engine) for the convolution. On a described GPU, too, plans are
/// built. Throws cuda_error.
[[nodiscard]] std::optional<engine_candidate> convolution_engine(const cudnn_gpu&,
                                                                 const engine_rule&, operator_type,
                                                                 const conv_shape&);

/// The same, with its plan, to run on the handle's stream; the plan is built here, once. Nothing
/// where the rule allows no engine. Throws cuda_error.
std::optional<gpu::bound_operator> graph_convolution(const std::shared_ptr<cudnn_handle>&,
                                                     const engine_rule&, operator_type,
                                                     const conv_shape&);

}  // namespace delta::executor
