#include "cuda/cudnn_operators.hpp"

#if defined(DELTA_HAS_CUDNN)

#include "cuda/cudnn_descriptors.hpp"

namespace delta::executor {
namespace {

using gpu::bound_operator;
using gpu::in;
using gpu::out;
using gpu::update;

constexpr float one = 1.0f, zero = 0.0f;
constexpr cudnnBatchNormMode_t mode = CUDNN_BATCHNORM_SPATIAL;

struct plan {
  std::shared_ptr<cudnn_handle> handle;
  tensor_descriptor x;
  channel_descriptor channel;
  plan(std::shared_ptr<cudnn_handle> h, const std::vector<int>& image)
      : handle(std::move(h)), x(image[0], image[1], image[2], image[3]), channel(x, mode) {}
};

/// Asks, without running anything, whether cuDNN takes this shape and layout in the mode that keeps
/// nothing between the passes: the graph has no place for a reserve.
bool taken(const plan& p, bool backward) {
  const cudnnHandle_t h = p.handle->get();
  std::size_t workspace = 0, reserve = 0;
  const auto status =
      backward
          ? cudnnGetBatchNormalizationBackwardExWorkspaceSize(h, mode, CUDNN_BATCHNORM_OPS_BN, p.x,
                                                              nullptr, p.x, nullptr, p.x, p.channel,
                                                              nullptr, &workspace)
          : cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
                h, mode, CUDNN_BATCHNORM_OPS_BN, p.x, nullptr, p.x, p.channel, nullptr, &workspace);
  return status == CUDNN_STATUS_SUCCESS &&
         cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
             h, mode, CUDNN_BATCHNORM_OPS_BN, nullptr, p.x, &reserve) == CUDNN_STATUS_SUCCESS &&
         workspace == 0 && reserve == 0;
}

}  // namespace

std::optional<bound_operator> cudnn_batch_norm(const std::shared_ptr<cudnn_handle>& handle,
                                               operator_type type, const bn_shape& s,
                                               const std::vector<int>& image) {
  // One row has no unbiased variance: cuDNN divides by zero where we divide by one.
  if (image.size() != 4 || s.rows < 2 || double(s.epsilon) < CUDNN_BN_MIN_EPSILON) return {};
  const auto p = std::make_shared<plan>(handle, image);
  if (!taken(*p, type == operator_type::bn_backward)) return {};
  switch (type) {
    case operator_type::bn_forward:
      return bound_operator{
          0, [p, s](const kernel_args& a) {
            check(cudnnBatchNormalizationForwardTraining(
                      p->handle->get(), mode, &one, &zero, p->x, in(a, 0), p->x, out(a, 0),
                      p->channel, in(a, 1), in(a, 2), double(s.momentum), update(a, 0),
                      update(a, 1), double(s.epsilon), out(a, 1), out(a, 2)),
                  "cudnnBatchNormalizationForwardTraining");
          }};
    case operator_type::bn_inference:
      return bound_operator{
          0, [p, s](const kernel_args& a) {
            check(cudnnBatchNormalizationForwardInference(
                      p->handle->get(), mode, &one, &zero, p->x, in(a, 0), p->x, out(a, 0),
                      p->channel, in(a, 1), in(a, 2), in(a, 3), in(a, 4), double(s.epsilon)),
                  "cudnnBatchNormalizationForwardInference");
          }};
    default:
      return bound_operator{
          0, [p, s](const kernel_args& a) {
            check(cudnnBatchNormalizationBackward(p->handle->get(), mode, &one, &zero, &one, &zero,
                                                  p->x, in(a, 0), p->x, in(a, 1), p->x, out(a, 0),
                                                  p->channel, in(a, 2), out(a, 1), out(a, 2),
                                                  double(s.epsilon), in(a, 3), in(a, 4)),
                  "cudnnBatchNormalizationBackward");
          }};
  }
}

}  // namespace delta::executor

#else

namespace delta::executor {

std::optional<gpu::bound_operator> cudnn_batch_norm(const std::shared_ptr<cudnn_handle>&,
                                                    operator_type, const bn_shape&,
                                                    const std::vector<int>&) {
  return {};
}

}  // namespace delta::executor

#endif
