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
/// The mode that has kernels for NHWC: with SPATIAL cuDNN walks by strides, a block per channel.
constexpr cudnnBatchNormMode_t mode = CUDNN_BATCHNORM_SPATIAL_PERSISTENT;
constexpr cudnnBatchNormOps_t ops = CUDNN_BATCHNORM_OPS_BN;

struct plan {
  std::shared_ptr<cudnn_handle> handle;
  tensor_descriptor x;
  channel_descriptor channel;
  plan(std::shared_ptr<cudnn_handle> h, const std::vector<int>& image)
      : handle(std::move(h)), x(image[0], image[1], image[2], image[3]), channel(x, mode) {}
};

/// The workspace, asked for without running anything; nothing where cuDNN does not take this shape
/// and layout, or would keep something between the passes: the graph has no place for a reserve.
std::optional<std::size_t> workspace_of(const plan& p, bool backward) {
  const cudnnHandle_t h = p.handle->get();
  std::size_t workspace = 0, reserve = 0;
  const auto status =
      backward ? cudnnGetBatchNormalizationBackwardExWorkspaceSize(
                     h, mode, ops, p.x, nullptr, p.x, nullptr, p.x, p.channel, nullptr, &workspace)
               : cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
                     h, mode, ops, p.x, nullptr, p.x, p.channel, nullptr, &workspace);
  if (status != CUDNN_STATUS_SUCCESS ||
      cudnnGetBatchNormalizationTrainingExReserveSpaceSize(h, mode, ops, nullptr, p.x, &reserve) !=
          CUDNN_STATUS_SUCCESS ||
      reserve != 0) {
    return {};
  }
  return workspace;
}

}  // namespace

std::optional<bound_operator> cudnn_batch_norm(const std::shared_ptr<cudnn_handle>& handle,
                                               operator_type type, const bn_shape& s,
                                               const std::vector<int>& image) {
  // One row has no unbiased variance: cuDNN divides by zero where we divide by one.
  if (image.size() != 4 || s.rows < 2 || double(s.epsilon) < CUDNN_BN_MIN_EPSILON) return {};
  if (type != operator_type::bn_forward && type != operator_type::bn_backward) return {};
  const auto p = std::make_shared<plan>(handle, image);
  const auto workspace = workspace_of(*p, type == operator_type::bn_backward);
  if (!workspace) return {};
  if (type == operator_type::bn_forward) {
    return bound_operator{
        *workspace, [p, s, bytes = *workspace](const kernel_args& a) {
          check(cudnnBatchNormalizationForwardTrainingEx(
                    p->handle->get(), mode, ops, &one, &zero, p->x, in(a, 0), nullptr, nullptr,
                    p->x, out(a, 0), p->channel, in(a, 1), in(a, 2), double(s.momentum),
                    update(a, 0), update(a, 1), double(s.epsilon), out(a, 1), out(a, 2), nullptr,
                    a.workspace, bytes, nullptr, 0),
                "cudnnBatchNormalizationForwardTrainingEx");
        }};
  }
  return bound_operator{
      *workspace, [p, s, bytes = *workspace](const kernel_args& a) {
        check(cudnnBatchNormalizationBackwardEx(
                  p->handle->get(), mode, ops, &one, &zero, &one, &zero, p->x, in(a, 0), nullptr,
                  nullptr, p->x, in(a, 1), nullptr, nullptr, p->x, out(a, 0), p->channel, in(a, 2),
                  nullptr, out(a, 1), out(a, 2), double(s.epsilon), in(a, 3), in(a, 4), nullptr,
                  a.workspace, bytes, nullptr, 0),
              "cudnnBatchNormalizationBackwardEx");
      }};
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
