// delta_torch: expandable segments of PyTorch's allocator of CUDA, while a run is on.
#pragma once

#include <c10/core/AllocatorConfig.h>

#include <cstdlib>
#include <exception>
#include <string>

#include "versions.hpp"

namespace delta_torch {

/// Tensors that leave and come back have odd sizes: in segments of a fixed size they leave holes
/// that nobody else fits into. What the user has set is left alone.
class expandable_segments {
 public:
  void turn_on(CUDAAllocator& own) {
    // Not by CUDAAllocatorConfig, which says in PyTorch 2.11 to all but itself that there are none.
    using c10::CachingAllocator::AcceleratorAllocatorConfig;
    if (AcceleratorAllocatorConfig::use_expandable_segments()) return;
    for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"})
      if (const char* set = std::getenv(name); set != nullptr && *set != '\0') return;
    if (c10::CachingAllocator::getAllocatorSettings() != set_) return;  // by another, while it ran
    std::string why;
    if (own.name() != "native") {
      why = "its allocator is '" + own.name() + "'";
    } else {
      try {
        set("expandable_segments:True");
        if (AcceleratorAllocatorConfig::use_expandable_segments()) return;
        why = "this platform has none";
      } catch (const std::exception& e) {
        why = e.what();
      }
    }
    TORCH_WARN("delta: PyTorch's expandable segments could not be turned on, as ", why,
               ". Memory may fall into pieces");
  }
  /// As before: a MemPool over an allocator of the program's own can't begin beside them.
  void turn_off(CUDAAllocator& own) {
    if (set_ != "expandable_segments:True" || c10::CachingAllocator::getAllocatorSettings() != set_)
      return;
    set("expandable_segments:False");
    own.emptyCache({0, 0});  // of theirs: nobody would be given it
  }

 private:
  void set(const char* what) { c10::CachingAllocator::setAllocatorSettings(set_ = what); }
  std::string set_;  // last, by this
};

}  // namespace delta_torch
