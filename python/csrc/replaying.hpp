// delta_torch: the operator that this thread replays: its allocations are not PyTorch's to count,
// as delta has given it memory for all of them.
#pragma once

#include <c10/util/Exception.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "delta/kernel.hpp"
#include "target.hpp"
#include "threads.hpp"

namespace delta_torch {

/// An output of a recorded operator.
struct output {
  static constexpr std::int32_t none = -1;
  std::size_t size = 0;             ///< bytes
  std::uint32_t allocation = 0;     ///< the operator's allocation that it came from
  std::int32_t returned = none;     ///< which of the returned tensors, counted flat
  std::int32_t overwritten = none;  ///< or the storage that it is the new version of
};

/// A replay finds no memory. It is no c10::OutOfMemoryError, as kernels catch that and go on by
/// other bits, for want of a workspace.
class no_scratch final : public c10::Error {
 public:
  explicit no_scratch(std::string sentence)
      : Error({__func__, __FILE__, __LINE__}, std::move(sentence)) {}
};

/// While it lives, this thread's allocations are a replay's: the one that became an output gets the
/// output's block, so that nothing has to be copied, the others plain memory.
class replaying {
 public:
  /// `cleared`: each holds zeros at first.
  replaying(target& device, delta::call& c, std::span<const output> outputs,
            bool cleared = false) noexcept
      : device_(&device),
        call_(&c),
        outputs_(outputs),
        cleared_(cleared),
        before_(this_thread().replay) {
    this_thread().replay = this;
    ++anywhere_;
  }
  ~replaying() {
    --anywhere_;
    this_thread().replay = before_;
  }
  replaying(const replaying&) = delete;
  replaying& operator=(const replaying&) = delete;

  [[nodiscard]] static replaying* here() noexcept { return this_thread().replay; }
  /// Does any thread replay? Then a worker of a parallel kernel allocates for it.
  [[nodiscard]] static bool anywhere() noexcept { return anywhere_.load() > 0; }
  /// Are these the bytes of an output of it?
  [[nodiscard]] static bool owns(const void* memory) noexcept {
    const replaying* const replay = here();
    if (replay == nullptr) return false;
    for (std::size_t i = 0; i < replay->outputs_.size(); ++i)
      if (replay->call_->out(i) == memory) return true;
    return false;
  }
  /// The next allocation; null data: there is no memory.
  [[nodiscard]] at::DataPtr allocate(std::size_t size) {
    at::DataPtr made = next(size);
    if (cleared_ && made.get() != nullptr) device_->clear(made.get(), size);
    return made;
  }

 private:
  [[nodiscard]] at::DataPtr next(std::size_t size) {
    const std::uint32_t place = allocations_++;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const output& o = outputs_[i];
      if (o.overwritten == output::none && o.allocation == place && o.size == size)
        return device_->replayed(call_->out(i));
    }
    return device_->scratch(size);
  }

  target* device_;
  delta::call* call_;
  std::span<const output> outputs_;
  bool cleared_;
  std::uint32_t allocations_ = 0;
  replaying* before_;
  static inline std::atomic<int> anywhere_{0};
};

}  // namespace delta_torch
