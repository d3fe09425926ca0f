// delta executor: one line of JSON, read token by token: what the trace readers share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace delta::executor {

/// What is wrong with a line, and what was expected; whoever knows the file and the line's number
/// makes a bad_trace of it.
struct trace_fault {
  std::string wrong;
  std::string expected;
};

/// `text` in quotes for a message: at most 40 characters, the unprintable ones as '?'.
std::string quoted(std::string_view text);

/// Reads an object member by member. Everything in it is held against the grammar, also what is
/// skipped, but for bytes beyond ASCII, which are passed on as they are. All functions throw
/// trace_fault.
///
///   json_line in;
///   in.start(line);
///   in.enter_object();
///   for (std::string_view key; in.next_key(key);) key == "size" ? use(in.integer()) : in.skip();
///   in.finish();
class json_line {
 public:
  /// Strings that were read from an earlier line are gone.
  void start(std::string_view line);
  void enter_object() { enter('{', "an object"); }
  void enter_array() { enter('[', "an array"); }
  /// The next member's key; false: the object ended, and is behind us.
  bool next_key(std::string_view& key);
  /// Whether the array has one more element; false: it ended, and is behind us.
  bool next_element() { return next(']'); }
  /// The next value's first character; 0 at the end of the line.
  char peek() noexcept {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) ++at_;
    return at_ == end_ ? '\0' : *at_;
  }
  /// A string without its escapes; valid until the next line starts.
  std::string_view string();
  /// A whole number of at most 63 bits and a sign, bare or as a string.
  std::int64_t integer();
  /// A value of any kind, up to 64 deep.
  void skip();
  /// The line ends here.
  void finish();

 private:
  [[noreturn]] void fail(const char* expected) const;
  void expect(char c, const char* expected) {
    if (peek() != c) fail(expected);
    ++at_;
  }
  void enter(char c, const char* expected) {
    expect(c, expected);
    fresh_ = true;
  }
  bool next(char close);
  std::string_view decoded(const char* first);
  std::uint32_t escaped_unit();
  void append_code_point();
  std::size_t digits();
  void number();
  void scalar();

  const char* begin_ = nullptr;
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  bool fresh_ = false;  ///< just behind an opening bracket: no comma before the next member
  std::string plain_;   ///< strings that had escapes
};

}  // namespace delta::executor
