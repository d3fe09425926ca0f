// delta executor: a descriptor of cuDNN's graph API as a value: attributes in and out, failures as
// cuda_error. Only for files that are compiled with cuDNN.
#pragma once

#include <cudnn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cuda/cudnn_descriptors.hpp"

namespace delta::executor {

class backend_descriptor {
 public:
  explicit backend_descriptor(cudnnBackendDescriptorType_t type) {
    check(cudnnBackendCreateDescriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
  }
  ~backend_descriptor() {
    if (descriptor_) cudnnBackendDestroyDescriptor(descriptor_);
  }
  backend_descriptor(backend_descriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  backend_descriptor& operator=(backend_descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  [[nodiscard]] cudnnBackendDescriptor_t get() const noexcept { return descriptor_; }

  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           std::span<const T> values) {
    check(cudnnBackendSetAttribute(descriptor_, name, type, std::int64_t(values.size()),
                                   values.data()),
          "cudnnBackendSetAttribute");
  }
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set(name, type, std::span<const T>(&value, 1));
  }
  void set(cudnnBackendAttributeName_t name, const backend_descriptor& other) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.get());
  }
  void set(cudnnBackendAttributeName_t name, std::span<const std::int64_t> values) {
    set(name, CUDNN_TYPE_INT64, values);
  }
  void finalize() { check(cudnnBackendFinalize(descriptor_), "cudnnBackendFinalize"); }
  /// Whether cuDNN can do what it describes; throws where it fails for another reason.
  [[nodiscard]] bool finalized_if_supported() {
    return supported(cudnnBackendFinalize(descriptor_), "cudnnBackendFinalize");
  }

  template <class T>
  [[nodiscard]] T value(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const {
    T out{};
    std::int64_t count = 0;
    check(cudnnBackendGetAttribute(descriptor_, name, type, 1, &count, &out),
          "cudnnBackendGetAttribute");
    return out;
  }
  /// Of at most `most` values those that there are.
  template <class T>
  [[nodiscard]] std::vector<T> values(cudnnBackendAttributeName_t name,
                                      cudnnBackendAttributeType_t type, std::size_t most) const {
    std::vector<T> out(most);
    std::int64_t count = 0;
    check(cudnnBackendGetAttribute(descriptor_, name, type, std::int64_t(most), &count, out.data()),
          "cudnnBackendGetAttribute");
    out.resize(std::min(most, std::size_t(count)));
    return out;
  }
  /// The same of descriptors, each of this type.
  [[nodiscard]] std::vector<backend_descriptor> parts(cudnnBackendAttributeName_t name,
                                                      cudnnBackendDescriptorType_t type,
                                                      std::size_t most) const {
    std::vector<backend_descriptor> out;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (std::size_t i = 0; i < most; ++i) raw.push_back(out.emplace_back(type).get());
    std::int64_t count = 0;
    check(cudnnBackendGetAttribute(descriptor_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                   std::int64_t(most), &count, raw.data()),
          "cudnnBackendGetAttribute");
    out.erase(out.begin() + std::ptrdiff_t(std::min(most, std::size_t(count))), out.end());
    return out;
  }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

}  // namespace delta::executor
