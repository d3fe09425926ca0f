// delta: a value or an error, as any_manager.hpp gives it; and how errors are thrown where the
// includer has exceptions. C++17.
#pragma once

#include <cstdio>
#include <cstdlib>
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

}  // inline namespace
}  // namespace delta
