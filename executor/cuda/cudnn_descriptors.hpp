// delta executor: cuDNN's handle and descriptors as values, and its failures as cuda_error. Only
// for files that are compiled with cuDNN.
#pragma once

#include <cudnn.h>

#include <array>
#include <utility>

#include "cuda/cudnn_operators.hpp"
#include "device/cuda_error.hpp"

namespace delta::executor {

/// Where channels are: the one place that says so to cuDNN. The tensors are NHWC and the filters
/// OHWI throughout (kernels/kernels.hpp).
inline constexpr cudnnTensorFormat_t cudnn_layout = CUDNN_TENSOR_NHWC;

inline void check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  using kind = cuda_failure::kind;
  const int category = int(status) / 1000 * 1000;
  kind what = category == int(CUDNN_STATUS_NOT_SUPPORTED) ? kind::unsupported : kind::failed;
  if (status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) what = kind::out_of_memory;
  std::array<char, 256> text{};
  cudnnGetLastErrorString(text.data(), text.size());
  raise(what, call, {int(status), cudnnGetErrorString(status), text.data()});
}

/// Whether a question was answered with yes; cuDNN's "that is not supported" is no. Throws where it
/// failed for any other reason: on a context that is lost, say.
inline bool supported(cudnnStatus_t status, const char* call) {
  if (int(status) / 1000 * 1000 == int(CUDNN_STATUS_NOT_SUPPORTED)) return false;
  check(status, call);
  return true;
}

class cudnn_handle {
 public:
  explicit cudnn_handle(cuda_stream stream) {
    check(cudnnCreate(&handle_), "cudnnCreate");
    if (const auto s = cudnnSetStream(handle_, reinterpret_cast<cudaStream_t>(stream));
        s != CUDNN_STATUS_SUCCESS) {
      cudnnDestroy(handle_);
      check(s, "cudnnSetStream");
    }
  }
  ~cudnn_handle() { cudnnDestroy(handle_); }
  cudnn_handle(const cudnn_handle&) = delete;
  cudnn_handle& operator=(const cudnn_handle&) = delete;
  [[nodiscard]] cudnnHandle_t get() const noexcept { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
};

/// A descriptor that is destroyed with its owner.
template <class D, auto Create, auto Destroy>
class cudnn_descriptor {
 public:
  cudnn_descriptor() { check(Create(&descriptor_), "creating a descriptor of cuDNN"); }
  ~cudnn_descriptor() { Destroy(descriptor_); }
  cudnn_descriptor(const cudnn_descriptor&) = delete;
  cudnn_descriptor& operator=(const cudnn_descriptor&) = delete;
  operator D() const noexcept { return descriptor_; }

 private:
  D descriptor_ = nullptr;
};

class tensor_descriptor
    : public cudnn_descriptor<cudnnTensorDescriptor_t, &cudnnCreateTensorDescriptor,
                              &cudnnDestroyTensorDescriptor> {
 public:
  tensor_descriptor(int n, int h, int w, int c) {
    check(cudnnSetTensor4dDescriptor(*this, cudnn_layout, CUDNN_DATA_FLOAT, n, c, h, w),
          "cudnnSetTensor4dDescriptor");
  }
};

/// A value per channel of x, as batch norm has them: the shape and layout that cuDNN derives.
class channel_descriptor
    : public cudnn_descriptor<cudnnTensorDescriptor_t, &cudnnCreateTensorDescriptor,
                              &cudnnDestroyTensorDescriptor> {
 public:
  channel_descriptor(const tensor_descriptor& x, cudnnBatchNormMode_t mode) {
    check(cudnnDeriveBNTensorDescriptor(*this, x, mode), "cudnnDeriveBNTensorDescriptor");
  }
};

class filter_descriptor
    : public cudnn_descriptor<cudnnFilterDescriptor_t, &cudnnCreateFilterDescriptor,
                              &cudnnDestroyFilterDescriptor> {
 public:
  /// `in`: the channels of one group.
  filter_descriptor(int out, int h, int w, int in) {
    check(cudnnSetFilter4dDescriptor(*this, CUDNN_DATA_FLOAT, cudnn_layout, out, in, h, w),
          "cudnnSetFilter4dDescriptor");
  }
};

class convolution_descriptor
    : public cudnn_descriptor<cudnnConvolutionDescriptor_t, &cudnnCreateConvolutionDescriptor,
                              &cudnnDestroyConvolutionDescriptor> {
 public:
  convolution_descriptor(int pad, int stride, int groups) {
    check(cudnnSetConvolution2dDescriptor(*this, pad, pad, stride, stride, 1, 1,
                                          CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
          "cudnnSetConvolution2dDescriptor");
    check(cudnnSetConvolutionGroupCount(*this, groups), "cudnnSetConvolutionGroupCount");
  }
  void set_math(cudnnMathType_t math) {
    check(cudnnSetConvolutionMathType(*this, math), "cudnnSetConvolutionMathType");
  }
};

}  // namespace delta::executor
