#include "trace/json_line.hpp"

#include <algorithm>
#include <limits>

namespace delta::executor {
namespace {

bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}
bool is_control(char c) noexcept {
  return static_cast<unsigned char>(c) < ' ';
}

}  // namespace

std::string quoted(std::string_view text) {
  constexpr std::size_t most = 40;
  std::string result(text.substr(0, most));
  std::ranges::replace_if(
      result, [](char c) { return c < ' ' || c > '~'; }, '?');
  return "'" + result + (text.size() > most ? "...'" : "'");
}

void json_line::start(std::string_view line) {
  begin_ = at_ = line.data();
  end_ = begin_ + line.size();
  fresh_ = false;
  plain_.clear();
}

void json_line::fail(const char* expected) const {
  throw trace_fault{"no JSON from column " + std::to_string(at_ - begin_ + 1) + " on", expected};
}

bool json_line::next(char close) {
  const char c = peek();
  if (c == close) {
    ++at_;
    fresh_ = false;
    return false;
  }
  if (!fresh_) expect(',', close == '}' ? "',' or '}'" : "',' or ']'");
  fresh_ = false;
  return true;
}

bool json_line::next_key(std::string_view& key) {
  if (!next('}')) return false;
  key = string();
  expect(':', "':'");
  return true;
}

std::string_view json_line::string() {
  expect('"', "a string");
  const char* const first = at_;
  while (at_ != end_ && *at_ != '"' && *at_ != '\\' && !is_control(*at_)) ++at_;
  if (at_ != end_ && *at_ == '"') return {first, static_cast<std::size_t>(at_++ - first)};
  return decoded(first);
}

/// The rest of a string that began at `first`, from its first escape on.
std::string_view json_line::decoded(const char* first) {
  // All the line's strings together fit, so that the views of earlier ones stay valid.
  plain_.reserve(static_cast<std::size_t>(end_ - begin_));
  const std::size_t start = plain_.size();
  plain_.append(first, at_);
  while (true) {
    if (at_ == end_ || is_control(*at_)) fail("the string's end");
    const char c = *at_++;
    if (c == '"') break;
    if (c != '\\') {
      plain_ += c;
      continue;
    }
    constexpr std::string_view names = "\"\\/bfnrt";
    constexpr std::string_view values = "\"\\/\b\f\n\r\t";
    const char name = at_ == end_ ? '\0' : *at_;
    if (const auto i = names.find(name); i != std::string_view::npos) {
      plain_ += values[i];
      ++at_;
    } else if (name == 'u') {
      append_code_point();
    } else {
      fail("an escape: one of \"\\/bfnrtu");
    }
  }
  return std::string_view(plain_).substr(start);
}

/// 'u' and four hexadecimal digits.
std::uint32_t json_line::escaped_unit() {
  std::uint32_t unit = 0;
  ++at_;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char c = at_ == end_ ? '\0' : *at_;
    unsigned digit = 0;
    if (is_digit(c))
      digit = static_cast<unsigned>(c - '0');
    else if (c >= 'a' && c <= 'f')
      digit = static_cast<unsigned>(c - 'a') + 10;
    else if (c >= 'A' && c <= 'F')
      digit = static_cast<unsigned>(c - 'A') + 10;
    else
      fail("four hexadecimal digits");
    unit = unit << 4 | digit;
  }
  return unit;
}

void json_line::append_code_point() {
  std::uint32_t point = escaped_unit();
  if (point >= 0xdc00 && point < 0xe000) fail("the first half of a surrogate pair");
  if (point >= 0xd800 && point < 0xdc00) {
    const bool more = end_ - at_ >= 2 && at_[0] == '\\' && at_[1] == 'u';
    if (!more) fail("the second half of a surrogate pair");
    ++at_;
    const std::uint32_t low = escaped_unit();
    if (low < 0xdc00 || low >= 0xe000) fail("the second half of a surrogate pair");
    point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
  }
  const auto tail = [&](unsigned shift) {
    plain_ += static_cast<char>(0x80 | (point >> shift & 0x3f));
  };
  if (point < 0x80) {
    plain_ += static_cast<char>(point);
  } else if (point < 0x800) {
    plain_ += static_cast<char>(0xc0 | point >> 6);
    tail(0);
  } else if (point < 0x10000) {
    plain_ += static_cast<char>(0xe0 | point >> 12);
    tail(6);
    tail(0);
  } else {
    plain_ += static_cast<char>(0xf0 | point >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

std::int64_t json_line::integer() {
  const bool in_quotes = peek() == '"';
  if (in_quotes) ++at_;
  const bool negative = at_ != end_ && *at_ == '-';
  if (negative) ++at_;
  const char* const first = at_;
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  std::int64_t value = 0;
  for (; at_ != end_ && is_digit(*at_); ++at_) {
    const int digit = *at_ - '0';
    if (value > (most - digit) / 10) throw trace_fault{"a number beyond 63 bits", "a smaller one"};
    value = value * 10 + digit;
  }
  const auto length = at_ - first;
  const char behind = at_ == end_ ? '\0' : *at_;
  if (length == 0 || (length > 1 && *first == '0') || behind == '.' || behind == 'e' ||
      behind == 'E') {
    fail("a whole number");
  }
  if (in_quotes) {
    if (behind != '"') fail("a whole number and its closing quote");
    ++at_;
  }
  return negative ? -value : value;
}

std::size_t json_line::digits() {
  const char* const first = at_;
  while (at_ != end_ && is_digit(*at_)) ++at_;
  if (at_ == first) fail("a digit");
  return static_cast<std::size_t>(at_ - first);
}

void json_line::number() {
  const auto at = [&](char c) { return at_ != end_ && *at_ == c; };
  if (at('-')) ++at_;
  const bool zero = at('0');
  if (digits() > 1 && zero) fail("a number without leading zeros");
  if (at('.')) {
    ++at_;
    digits();
  }
  if (at('e') || at('E')) {
    ++at_;
    if (at('+') || at('-')) ++at_;
    digits();
  }
}

void json_line::scalar() {
  const char c = peek();
  if (c == '"') {
    string();
    return;
  }
  if (c == '-' || is_digit(c)) return number();
  for (const std::string_view word : {"true", "false", "null"}) {
    if (std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with(word)) {
      at_ += word.size();
      return;
    }
  }
  fail("a value");
}

void json_line::skip() {
  constexpr unsigned deepest = 64;
  std::uint64_t objects = 0;  // one bit per level: an object, or else an array
  unsigned depth = 0;
  std::string_view key;
  do {
    if (depth > 0) {
      const bool more = (objects & 1) != 0 ? next_key(key) : next_element();
      if (!more) {
        --depth;
        objects >>= 1;
        continue;
      }
    }
    const char c = peek();
    if (c != '{' && c != '[') {
      scalar();
      continue;
    }
    if (depth == deepest) fail("values at most 64 deep");
    ++depth;
    objects = objects << 1 | (c == '{' ? 1u : 0u);
    c == '{' ? enter_object() : enter_array();
  } while (depth > 0);
}

void json_line::finish() {
  if (peek() != '\0' || at_ != end_) fail("the end of the line");
}

}  // namespace delta::executor
