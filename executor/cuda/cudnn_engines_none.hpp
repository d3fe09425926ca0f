// delta executor: what there is of cudnn_engines.hpp in a build without cuDNN's graph API. Included
// once.
#pragma once

#include "cuda/cudnn_engines.hpp"
#include "device/cuda_error.hpp"

namespace delta::executor {

class cudnn_gpu {};

std::string cudnn_engines_version() {
  return {};
}
std::shared_ptr<const cudnn_gpu> described_gpu(const std::string&) {
  raise(cuda_failure::kind::absent, "describing a GPU to cuDNN",
        {0, "none", "there is no cuDNN 9.8 or newer in this build"});
}
std::vector<engine_candidate> convolution_engines(const cudnn_gpu&, operator_type,
                                                  const conv_shape&) {
  return {};
}
std::optional<engine_candidate> convolution_engine(const cudnn_gpu&, const engine_rule&,
                                                   operator_type, const conv_shape&) {
  return std::nullopt;
}
std::optional<gpu::bound_operator> graph_convolution(const std::shared_ptr<cudnn_handle>&,
                                                     const engine_rule&, operator_type,
                                                     const conv_shape&) {
  return std::nullopt;
}

}  // namespace delta::executor
