// delta_torch: what differs between the versions of PyTorch in the interface of its CUDA allocator.
// Functions have been added to it in most of them. Each template here is a link of a chain, and
// overrides one function where its base has it. Whether it does is asked of the base, not of a
// version's number, so that versions in between and nightly ones do, too.
#pragma once

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace delta_torch {

using c10::cuda::CUDACachingAllocator::CUDAAllocator;

namespace before_2_15 {
/// For who has no such function: its place is taken by the one that is no template.
template <class... None>
bool isCUDABlasWorkspaceCachingEnabled(None...) {
  return true;
}
}  // namespace before_2_15

/// Does PyTorch keep the workspaces of cuBLAS and cuBLASLt, once made, for a thread and stream? Up
/// to 2.14 always.
inline bool keeps_workspaces() {
  using namespace before_2_15;
  using namespace at::cuda;
  return isCUDABlasWorkspaceCachingEnabled();
}

namespace newer {

template <class F>
struct argument_of;
template <class R, class C, class A>
struct argument_of<R (C::*)(A)> {
  using type = A;
};

// Their bases' member `native()` is the allocator that is asked.

template <class B>
struct snapshots : B {
  c10::cuda::CUDACachingAllocator::SnapshotInfo snapshot(c10::MempoolId_t pool) override {
    return this->native().snapshot(pool);
  }
};
template <class B>
  requires requires(B& b) { b.snapshot(c10::MempoolId_t{}, true); }
struct snapshots<B> : B {
  c10::cuda::CUDACachingAllocator::SnapshotInfo snapshot(c10::MempoolId_t pool,
                                                         bool traces) override {
    return this->native().snapshot(pool, traces);
  }
};

template <class B>
struct rejections : B {};
template <class B>
  requires requires { &B::attachOomRejectionObserver; }
struct rejections<B> : B {
  using observer = typename argument_of<decltype(&B::attachOomRejectionObserver)>::type;
  void attachOomRejectionObserver(observer o) override {
    this->native().attachOomRejectionObserver(std::move(o));
  }
};

template <class B>
struct contexts : B {};
template <class B>
  requires requires(B& b, const void* p) { b.getContextForPointer(p); }
struct contexts<B> : B {
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* p) override {
    return this->native().getContextForPointer(p);
  }
};

template <class B>
struct captures : B {};
template <class B>
  requires requires(B& b, c10::DeviceIndex d) { b.markCaptureBegin(d), b.markCaptureEnd(d); }
struct captures<B> : B {
  void markCaptureBegin(c10::DeviceIndex d) override { this->native().markCaptureBegin(d); }
  void markCaptureEnd(c10::DeviceIndex d) override { this->native().markCaptureEnd(d); }
};

template <class B>
struct metadata : B {};
template <class B>
  requires requires(B& b) { b.supportsUserMetadata(); }
struct metadata<B> : B {
  bool supportsUserMetadata() override { return this->native().supportsUserMetadata(); }
};

template <class B>
struct annotations : B {};
template <class B>
  requires requires(B& b, const void* p, const std::string& text) { b.annotateMemory(p, text); }
struct annotations<B> : B {
  void annotateMemory(const void* p, const std::string& text) override {
    this->native().annotateMemory(p, text);
  }
};

template <class B>
struct addresses : B {};
template <class B>
  requires requires(B& b, std::size_t size, void* at) { b.allocateWithAddress(size, at); }
struct addresses<B> : B {
  c10::DataPtr allocateWithAddress(std::size_t size, void* at) override {
    return this->native().allocateWithAddress(size, at);
  }
};

}  // namespace newer

/// Over a class that forwards what all versions have.
template <class B>
using in_every_version = newer::addresses<newer::annotations<
    newer::metadata<newer::captures<newer::contexts<newer::rejections<newer::snapshots<B>>>>>>>;

}  // namespace delta_torch
