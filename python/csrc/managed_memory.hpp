// delta_torch: the memory of a run: a Storage of delta, and what is done beside its manager. One
// interface, whether work on the device is over when a call returns or runs behind the host.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "delta/engine/any_storage.hpp"
#include "delta/storage/storage.hpp"
#include "delta/units.hpp"

namespace delta_torch {

/// What a run's memory is opened with.
struct memory_options {
  delta::bytes capacity, host_capacity;
  /// Is told where a tensor's bytes are from now on, and by null that they go.
  std::function<void(delta::tensor_id, std::byte*)> on_owner_changed;
};

/// Members are those of delta::heap_storage and delta::device_heap of the same names.
class managed_memory {
 public:
  using release_function = void (*)(void* self, void* memory, std::size_t size);

  managed_memory() = default;
  managed_memory(const managed_memory&) = delete;
  managed_memory& operator=(const managed_memory&) = delete;
  virtual ~managed_memory() = default;

  /// For the manager, which must not outlive this.
  [[nodiscard]] virtual std::unique_ptr<delta::any_storage> storage() = 0;
  [[nodiscard]] virtual std::optional<delta::block> adopt(std::byte* at, delta::bytes size,
                                                          release_function given_back,
                                                          void* self) = 0;
  virtual void set_capacity(delta::bytes) = 0;
  virtual void reset_peak() = 0;
  [[nodiscard]] virtual std::byte* data(const delta::block&) = 0;
  [[nodiscard]] virtual delta::bytes rounded(delta::bytes) const = 0;
  [[nodiscard]] virtual delta::bytes capacity() const = 0;
  [[nodiscard]] virtual delta::bytes used() const = 0;
  [[nodiscard]] virtual delta::bytes peak() const = 0;
  [[nodiscard]] virtual delta::bytes host_capacity() const = 0;
  [[nodiscard]] virtual delta::bytes host_used() const = 0;
  [[nodiscard]] virtual delta::bytes host_peak() const = 0;
  [[nodiscard]] virtual delta::nanoseconds now() const = 0;
  /// What the program queues next on the device's compute stream comes behind the copies that still
  /// use the block's bytes.
  virtual void settle(const delta::block&) = 0;
  /// The bytes at this address, a block's, go to PyTorch's allocator already, though they count
  /// until the block is freed: for the scratch of a replay, which takes it from there.
  virtual void lend(std::byte* at) = 0;
};

/// The interface over a storage, which it owns.
template <class S>
class memory_of final : public managed_memory {
 public:
  template <class... A>
  explicit memory_of(A&&... a) : storage_(std::forward<A>(a)...) {}

  [[nodiscard]] std::unique_ptr<delta::any_storage> storage() override {
    return delta::over(storage_);
  }
  [[nodiscard]] std::optional<delta::block> adopt(std::byte* at, delta::bytes size,
                                                  release_function given_back,
                                                  void* self) override {
    return storage_.adopt(at, size, given_back, self);
  }
  void set_capacity(delta::bytes n) override { storage_.set_capacity(n); }
  void reset_peak() override { storage_.reset_peak(); }
  [[nodiscard]] std::byte* data(const delta::block& b) override { return storage_.data(b); }
  [[nodiscard]] delta::bytes rounded(delta::bytes n) const override { return storage_.rounded(n); }
  [[nodiscard]] delta::bytes capacity() const override { return storage_.capacity(); }
  [[nodiscard]] delta::bytes used() const override { return storage_.used(); }
  [[nodiscard]] delta::bytes peak() const override { return storage_.peak(); }
  [[nodiscard]] delta::bytes host_capacity() const override { return storage_.host_capacity(); }
  [[nodiscard]] delta::bytes host_used() const override { return storage_.host_used(); }
  [[nodiscard]] delta::bytes host_peak() const override { return storage_.host_peak(); }
  [[nodiscard]] delta::nanoseconds now() const override { return storage_.now(); }
  // Where nothing runs behind the host there is nothing to be ordered; and its scratch is not
  // touched, so it takes no memory.
  void settle(const delta::block& b) override {
    if constexpr (requires { storage_.settle(b); }) storage_.settle(b);
  }
  void lend(std::byte* at) override {
    if constexpr (requires { storage_.lend(at); }) storage_.lend(at);
  }

 private:
  S storage_;
};

}  // namespace delta_torch
