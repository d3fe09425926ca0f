// delta executor: JSON lines in the making, for what is written event by event.
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace delta::executor {

/// Puts pieces of JSON behind one another; that they are well formed is up to the caller. Numbers
/// do not depend on a locale. All throw std::bad_alloc.
class json_text {
 public:
  /// As it is: brackets, commas, keys.
  void text(std::string_view s) { result_ += s; }
  void whole(std::integral auto value) { digits<20>(value); }
  /// The shortest digits that give `value` again; null if it is not finite, as JSON has no
  /// infinity.
  void real(double value) {
    if (!std::isfinite(value)) return text("null");
    digits<32>(value);
  }
  /// In quotes. Control characters are escaped, bytes beyond ASCII are passed on as they are.
  void string(std::string_view s) {
    constexpr std::string_view hexadecimal = "0123456789abcdef";
    result_ += '"';
    for (const char c : s) {
      const auto code = static_cast<unsigned char>(c);
      if (code < ' ') {
        result_ += "\\u00";
        result_ += hexadecimal[code >> 4];
        result_ += hexadecimal[code & 15u];
        continue;
      }
      if (c == '"' || c == '\\') result_ += '\\';
      result_ += c;
    }
    result_ += '"';
  }
  /// `key` and `[...]`, or nothing for an empty list. `element(item)` writes an item.
  void list(std::string_view key, const auto& items, auto&& element) {
    if (items.empty()) return;
    text(key);
    char before = '[';
    for (const auto& item : items) {
      result_ += before;
      before = ',';
      element(item);
    }
    result_ += ']';
  }

  [[nodiscard]] std::string_view so_far() const noexcept { return result_; }
  /// Starts again; the memory is kept.
  void clear() noexcept { result_.clear(); }
  std::string take() { return std::move(result_); }

 private:
  template <std::size_t most>
  void digits(auto value) {
    std::array<char, most> buffer;
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
    result_.append(buffer.data(), end);
  }

  std::string result_;
};

}  // namespace delta::executor
