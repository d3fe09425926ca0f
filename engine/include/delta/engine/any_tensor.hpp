// delta: what any_manager.hpp gives: a value or an error, which is thrown where the includer has
// exceptions; an owning handle to a tensor, and the view of its bytes. C++17.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "delta/engine/c_interface.h"

#if defined(__cpp_exceptions)
#include <exception>
#endif

namespace delta {
// With and without exceptions these are different functions: one program may have both.
#if defined(__cpp_exceptions)
inline namespace with_exceptions {
#else
inline namespace without_exceptions {
#endif

/// Why a function failed. Cheap to copy.
class any_error {
 public:
  /// Takes a copy.
  explicit any_error(const delta_error& e) : details_(std::make_shared<const delta_error>(e)) {}
  [[nodiscard]] delta_status status() const noexcept { return details_->status; }
  /// One line of text.
  [[nodiscard]] const char* what() const noexcept { return details_->what; }
  /// The numbers behind it, in bytes; set for DELTA_BUDGET_EXCEEDED and DELTA_THRASH.
  [[nodiscard]] const delta_error& details() const noexcept { return *details_; }

#if defined(__cpp_exceptions)
  /// With DELTA_KERNEL_FAILED: what the kernel has thrown, if it threw.
  std::exception_ptr thrown;
#endif

 private:
  std::shared_ptr<const delta_error> details_;
};

#if defined(__cpp_exceptions)
/// An any_error as an exception.
class any_failure : public std::exception {
 public:
  explicit any_failure(any_error e) : error_(std::move(e)) {}
  [[nodiscard]] const char* what() const noexcept override { return error_.what(); }
  [[nodiscard]] const any_error& error() const noexcept { return error_; }

 private:
  any_error error_;
};
#endif

namespace any_detail {
/// Throws any_failure, or what a kernel has thrown. Without exceptions it prints the error's line
/// and ends the program.
[[noreturn]] inline void raise(const any_error& e) {
#if defined(__cpp_exceptions)
  if (e.thrown) std::rethrow_exception(e.thrown);
  throw any_failure(e);
#else
  std::fprintf(stderr, "delta: %s\n", e.what());
  std::abort();
#endif
}
}  // namespace any_detail

/// A value, or why there is none.
template <class T>
class [[nodiscard]] any_result {
 public:
  // Not explicit, so that a function may return either.
  any_result(T value) : value_(std::move(value)) {}          // NOLINT
  any_result(any_error error) : error_(std::move(error)) {}  // NOLINT
  /// True if there is a value.
  explicit operator bool() const noexcept { return value_.has_value(); }
  /// The value. Where there is none: throws any_failure, or what the kernel has thrown; without
  /// exceptions prints the error's line and ends the program.
  [[nodiscard]] T& value() & {
    if (!value_) any_detail::raise(*error_);
    return *value_;
  }
  [[nodiscard]] T value() && { return std::move(value()); }
  /// Only to be asked where there is no value.
  [[nodiscard]] const any_error& error() const noexcept { return *error_; }

 private:
  std::optional<T> value_;
  std::optional<any_error> error_;
};

/// The same of a function that has no value to give.
template <>
class [[nodiscard]] any_result<void> {
 public:
  any_result() = default;
  any_result(any_error error) : error_(std::move(error)) {}  // NOLINT
  explicit operator bool() const noexcept { return !error_; }
  void value() const {
    if (error_) any_detail::raise(*error_);
  }
  [[nodiscard]] const any_error& error() const noexcept { return *error_; }

 private:
  std::optional<any_error> error_;
};

namespace any_detail {

/// Errors as values: what any_manager gives.
struct errors_returned {
  template <class T>
  using result = any_result<T>;
  template <class T>
  static result<T> failed(any_error e) {
    return e;
  }
};

#if defined(__cpp_exceptions)
/// Errors as exceptions: what throwing_manager gives.
struct errors_thrown {
  template <class T>
  using result = T;
  template <class T>
  [[noreturn]] static T failed(const any_error& e) {
    any_detail::raise(e);
  }
};
#endif

}  // namespace any_detail

namespace any_detail {

// The manager itself. It lives as long as a handle to it or to one of its tensors does, so a tensor
// that outlives it is no error.
struct any_core {
  any_core() = default;
  any_core(const any_core&) = delete;
  any_core& operator=(const any_core&) = delete;
  ~any_core() { delta_destroy(manager); }
  [[nodiscard]] any_error error() {
    any_error e(*delta_last_error(manager));
#if defined(__cpp_exceptions)
    if (e.status() == DELTA_KERNEL_FAILED) e.thrown = std::exchange(thrown, nullptr);
#endif
    return e;
  }
  static void tell(void* self, delta_tensor t, void* data) {
    static_cast<any_core*>(self)->on_owner_changed(t, static_cast<std::byte*>(data));
  }
  delta_manager* manager = nullptr;
  std::function<void(delta_tensor, std::byte*)> on_owner_changed;
#if defined(__cpp_exceptions)
  std::exception_ptr thrown;  // by the kernel that has failed
#endif
};

}  // namespace any_detail

/// A tensor, with one reference to its bytes: a copy has one more, the destructor drops it. Copying
/// and destroying one are calls of its manager: from the same thread. It may outlive the
/// any_manager; what that has taken (both memories, the device, an unfinished timeline) then stays
/// until the last tensor and view are gone. Not to be captured by a kernel: the manager keeps the
/// kernel, and the kernel would keep the manager. A tensor of another manager is not told apart.
class any_tensor {
 public:
  any_tensor() = default;
  any_tensor(const any_tensor& o) : core_(o.core_), id_(o.id_) {
    if (core_) delta_share(core_->manager, id_);
  }
  any_tensor(any_tensor&& o) noexcept
      : core_(std::move(o.core_)), id_(std::exchange(o.id_, nobody)) {
    o.core_ = nullptr;
  }
  any_tensor& operator=(any_tensor o) noexcept {
    std::swap(core_, o.core_);
    std::swap(id_, o.id_);
    return *this;
  }
  ~any_tensor() {
    if (core_) delta_drop(core_->manager, id_);
  }
  /// True if it names a tensor.
  explicit operator bool() const noexcept { return core_ != nullptr; }
  /// The tensor's number, as errors and timelines say it; given out again after its last drop.
  [[nodiscard]] delta_tensor id() const noexcept { return id_; }

 private:
  template <class>
  friend class basic_any_manager;
  // Takes the reference over.
  any_tensor(std::shared_ptr<any_detail::any_core> core, delta_tensor id) noexcept
      : core_(std::move(core)), id_(id) {}
  std::shared_ptr<any_detail::any_core> core_;
  static constexpr delta_tensor nobody = 0xffffffffu;
  delta_tensor id_ = nobody;
};

namespace any_detail {
/// A tensor's number, for the lists of any_operation; made from a tensor, which stays as it is.
struct any_tensor_ref {
  any_tensor_ref(const any_tensor& t) noexcept : id(t.id()) {}  // NOLINT: lists are of tensors
  delta_tensor id;
};
}  // namespace any_detail

/// Bytes of the program's own: they count in the budget and stay where they are. Becomes a tensor
/// (`variable`, `constant`, `open_operator::allocate`), else its destructor gives it back, also
/// from within a kernel. Keeps its manager alive.
class any_block {
 public:
  any_block() = default;
  any_block(any_block&& o) noexcept
      : core_(std::move(o.core_)), block_(std::exchange(o.block_, nothing)) {
    o.core_ = nullptr;
  }
  any_block& operator=(any_block o) noexcept {
    std::swap(core_, o.core_);
    std::swap(block_, o.block_);
    return *this;
  }
  ~any_block() {
    if (core_) delta_give_back(core_->manager, block_);
  }
  /// True if it names bytes: not after it has become a tensor.
  explicit operator bool() const noexcept { return core_ != nullptr; }
  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(block_.data); }
  /// As it was asked for.
  [[nodiscard]] std::uint64_t size() const noexcept { return block_.size; }

 private:
  template <class>
  friend class basic_any_manager;
  any_block(std::shared_ptr<any_detail::any_core> core, delta_block b) noexcept
      : core_(std::move(core)), block_(b) {}
  // It has become a tensor's.
  void forget() noexcept { core_ = nullptr, block_ = nothing; }
  [[nodiscard]] const delta_block& raw() const noexcept { return block_; }
  std::shared_ptr<any_detail::any_core> core_;
  static constexpr delta_block nothing{0xffffffffu, nullptr, 0};
  delta_block block_ = nothing;
};

/// The bytes of a tensor, resident and in place while the view lives: to be let go soon, as they
/// can't leave the budget meanwhile. Keeps its manager alive. To be written only if `write` gave
/// it.
class any_view {
 public:
  any_view(any_view&& o) noexcept : core_(std::move(o.core_)), view_(o.view_) { o.core_ = nullptr; }
  any_view& operator=(any_view&&) = delete;
  ~any_view() {
    if (core_) delta_release(core_->manager, view_.slot);
  }
  [[nodiscard]] std::byte* data() const& noexcept { return static_cast<std::byte*>(view_.data); }
  /// The address would outlive the view.
  std::byte* data() && = delete;
  [[nodiscard]] std::uint64_t size() const noexcept { return view_.size; }

 private:
  template <class>
  friend class basic_any_manager;
  any_view(std::shared_ptr<any_detail::any_core> core, delta_view v) noexcept
      : core_(std::move(core)), view_(v) {}
  std::shared_ptr<any_detail::any_core> core_;
  delta_view view_;
};

}  // inline namespace
}  // namespace delta
