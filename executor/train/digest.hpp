// delta executor: digests that let two processes compare bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace delta::executor {

/// FNV-1a, 64 bits, over bytes in the order given. Not cryptographic: it tells runs apart that
/// differ by accident.
class digest {
 public:
  digest& add(std::span<const std::byte> data) noexcept {
    for (const std::byte b : data) {
      state_ = (state_ ^ static_cast<std::uint64_t>(b)) * 0x100000001b3u;
    }
    return *this;
  }
  /// The object representation of each element: exact bits, -0 and NaN payloads included.
  template <class T>
  digest& add(std::span<const T> values) noexcept {
    return add(std::as_bytes(values));
  }

  [[nodiscard]] std::uint64_t value() const noexcept { return state_; }
  /// Sixteen lower-case hexadecimal digits.
  [[nodiscard]] std::string hex() const {
    std::string text(16, '0');
    for (int i = 0; i < 16; ++i)
      text[std::size_t(i)] = "0123456789abcdef"[state_ >> (60 - 4 * i) & 15];
    return text;
  }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325u;
};

}  // namespace delta::executor
