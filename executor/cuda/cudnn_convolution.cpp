#include "cuda/cudnn_operators.hpp"

#if defined(DELTA_HAS_CUDNN)

#include "cuda/cudnn_descriptors.hpp"

namespace delta::executor {
namespace {

using gpu::bound_operator;
using gpu::in;
using gpu::out;

constexpr float one = 1.0f, zero = 0.0f;

/// All that a convolution's call needs beside its pointers.
struct plan {
  std::shared_ptr<cudnn_handle> handle;
  tensor_descriptor x, y;
  filter_descriptor filter;
  convolution_descriptor convolution;

  plan(std::shared_ptr<cudnn_handle> h, const conv_shape& s)
      : handle(std::move(h)),
        x(s.n, s.h, s.w, s.c),
        y(s.n, s.oh(), s.ow(), s.k),
        filter(s.k, s.kh, s.kw, s.c / s.groups),
        convolution(s.pad, s.stride, s.groups) {}
};

template <class Algorithm>
struct choice {
  Algorithm algorithm;
  std::size_t workspace;
};

constexpr convolution_math kind_of(cudnnMathType_t math) noexcept {
  switch (math) {
    case CUDNN_TENSOR_OP_MATH:
      return convolution_math::tensor;
    case CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION:
      return convolution_math::converts;
    default:
      return convolution_math::plain;
  }
}

/// Whether cuDNN can. What it can't, it refuses in numbers of two kinds; anything else is no
/// answer.
bool answered(cudnnStatus_t status, const char* call) {
  return int(status) / 1000 * 1000 != int(CUDNN_STATUS_BAD_PARAM) && supported(status, call);
}

/// `query(count, returned, results)` lists algorithms, best first; `size(algorithm, bytes)` asks
/// once more whether cuDNN takes this one, and for its workspace.
template <class Performance, class Query, class Size>
auto choose(plan& p, const cudnn_options& options, const Query& query, const Size& size)
    -> std::optional<choice<decltype(Performance::algo)>> {
  // The default math would round inputs to TF32 on newer GPUs without being asked to.
  const cudnnMathType_t math = options.tf32 ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH;
  p.convolution.set_math(math);
  std::array<Performance, 16> results{};
  int returned = 0;
  if (!answered(query(int(results.size()), &returned, results.data()),
                "asking cuDNN for an algorithm"))
    return {};
  for (int i = 0; i < returned; ++i) {
    const Performance& r = results[std::size_t(i)];
    if (r.status != CUDNN_STATUS_SUCCESS || r.determinism != CUDNN_DETERMINISTIC) continue;
    if (!allowed(kind_of(r.mathType), options.tf32)) continue;
    p.convolution.set_math(options.tf32 ? r.mathType : math);
    std::size_t workspace = 0;
    if (!answered(size(r.algo, &workspace), "asking cuDNN for a workspace's size")) continue;
    if (workspace > options.workspace_cap.count) continue;
    return choice<decltype(Performance::algo)>{r.algo, workspace};
  }
  return {};
}

template <class Choice>
std::string name_of(const Choice& c) {
  return "cuDNN algorithm " + std::to_string(int(c.algorithm));
}

std::optional<bound_operator> forward(const std::shared_ptr<plan>& p, const cudnn_options& o) {
  const cudnnHandle_t h = p->handle->get();
  const auto chosen = choose<cudnnConvolutionFwdAlgoPerf_t>(
      *p, o,
      [&](int n, int* returned, cudnnConvolutionFwdAlgoPerf_t* to) {
        return cudnnGetConvolutionForwardAlgorithm_v7(h, p->x, p->filter, p->convolution, p->y, n,
                                                      returned, to);
      },
      [&](cudnnConvolutionFwdAlgo_t a, std::size_t* bytes) {
        return cudnnGetConvolutionForwardWorkspaceSize(h, p->x, p->filter, p->convolution, p->y, a,
                                                       bytes);
      });
  if (!chosen) return {};
  return bound_operator{
      chosen->workspace,
      [p, c = *chosen](const kernel_args& a) {
        check(cudnnConvolutionForward(p->handle->get(), &one, p->x, in(a, 0), p->filter, in(a, 1),
                                      p->convolution, c.algorithm, a.workspace, c.workspace, &zero,
                                      p->y, out(a, 0)),
              "cudnnConvolutionForward");
      },
      name_of(*chosen)};
}

std::optional<bound_operator> backward_data(const std::shared_ptr<plan>& p,
                                            const cudnn_options& o) {
  const cudnnHandle_t h = p->handle->get();
  const auto chosen = choose<cudnnConvolutionBwdDataAlgoPerf_t>(
      *p, o,
      [&](int n, int* returned, cudnnConvolutionBwdDataAlgoPerf_t* to) {
        return cudnnGetConvolutionBackwardDataAlgorithm_v7(h, p->filter, p->y, p->convolution, p->x,
                                                           n, returned, to);
      },
      [&](cudnnConvolutionBwdDataAlgo_t a, std::size_t* bytes) {
        return cudnnGetConvolutionBackwardDataWorkspaceSize(h, p->filter, p->y, p->convolution,
                                                            p->x, a, bytes);
      });
  if (!chosen) return {};
  return bound_operator{
      chosen->workspace,
      [p, c = *chosen](const kernel_args& a) {
        check(cudnnConvolutionBackwardData(p->handle->get(), &one, p->filter, in(a, 1), p->y,
                                           in(a, 0), p->convolution, c.algorithm, a.workspace,
                                           c.workspace, &zero, p->x, out(a, 0)),
              "cudnnConvolutionBackwardData");
      },
      name_of(*chosen)};
}

std::optional<bound_operator> backward_filter(const std::shared_ptr<plan>& p,
                                              const cudnn_options& o) {
  const cudnnHandle_t h = p->handle->get();
  const auto chosen = choose<cudnnConvolutionBwdFilterAlgoPerf_t>(
      *p, o,
      [&](int n, int* returned, cudnnConvolutionBwdFilterAlgoPerf_t* to) {
        return cudnnGetConvolutionBackwardFilterAlgorithm_v7(h, p->x, p->y, p->convolution,
                                                             p->filter, n, returned, to);
      },
      [&](cudnnConvolutionBwdFilterAlgo_t a, std::size_t* bytes) {
        return cudnnGetConvolutionBackwardFilterWorkspaceSize(h, p->x, p->y, p->convolution,
                                                              p->filter, a, bytes);
      });
  if (!chosen) return {};
  return bound_operator{
      chosen->workspace,
      [p, c = *chosen](const kernel_args& a) {
        check(cudnnConvolutionBackwardFilter(p->handle->get(), &one, p->x, in(a, 0), p->y, in(a, 1),
                                             p->convolution, c.algorithm, a.workspace, c.workspace,
                                             &zero, p->filter, out(a, 0)),
              "cudnnConvolutionBackwardFilter");
      },
      name_of(*chosen)};
}

}  // namespace

std::string cudnn_version() {
  const auto version = cudnnGetVersion();  // 91900
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100);
}

std::shared_ptr<cudnn_handle> make_cudnn(cuda_stream stream) {
  return std::make_shared<cudnn_handle>(stream);
}

std::optional<bound_operator> cudnn_convolution(const std::shared_ptr<cudnn_handle>& handle,
                                                const cudnn_options& options, operator_type type,
                                                const conv_shape& s) {
  const auto p = std::make_shared<plan>(handle, s);
  switch (type) {
    case operator_type::conv_forward:
      return forward(p, options);
    case operator_type::conv_backward_data:
      return backward_data(p, options);
    default:
      return backward_filter(p, options);
  }
}

}  // namespace delta::executor

#else

namespace delta::executor {

class cudnn_handle {};

std::string cudnn_version() {
  return {};
}
std::shared_ptr<cudnn_handle> make_cudnn(cuda_stream) {
  return nullptr;
}
std::optional<gpu::bound_operator> cudnn_convolution(const std::shared_ptr<cudnn_handle>&,
                                                     const cudnn_options&, operator_type,
                                                     const conv_shape&) {
  return {};
}

}  // namespace delta::executor

#endif
