// delta executor: files that appear whole or not at all, and files that are written as it goes on.
#pragma once

#include <filesystem>
#include <fstream>
#include <iosfwd>
#include <string>
#include <string_view>

namespace delta::executor {

/// What the last system call met, from errno.
[[nodiscard]] std::string last_error();
/// Writes all of it to a file that is open; false: errno says why not.
[[nodiscard]] bool write_all(int descriptor, std::string_view content) noexcept;

/// A temporary file beside its destination: renamed onto it by `commit`, removed otherwise. Made
/// early, it also proves that the destination can be written.
class output_file {
 public:
  /// Creates the temporary file. Throws std::runtime_error, one line: why `destination` can't be
  /// written (no such folder, no permission, it is a folder itself).
  explicit output_file(std::filesystem::path destination);
  ~output_file();
  output_file(const output_file&) = delete;
  output_file& operator=(const output_file&) = delete;

  /// Writes `content`, flushes it and renames. Once. Throws std::runtime_error (disk full).
  void commit(std::string_view content);

 private:
  std::filesystem::path destination_;
  std::filesystem::path temporary_;  ///< empty once renamed
  int descriptor_ = -1;
};

/// A file that is written while a run goes on; without a name, none.
class live_file {
 public:
  /// `flag` names it in the error, and outlives it. An old file is emptied.
  live_file(const char* flag, std::filesystem::path name);
  /// Null without a name.
  [[nodiscard]] std::ostream* stream() { return name_.empty() ? nullptr : &stream_; }
  /// Throws std::runtime_error where not all of it could be written.
  void finish();

 private:
  const char* flag_;
  std::filesystem::path name_;
  std::ofstream stream_;
};

}  // namespace delta::executor
