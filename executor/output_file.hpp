// delta executor: a file that appears whole or not at all.
#pragma once

#include <filesystem>
#include <string_view>

namespace delta::executor {

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

}  // namespace delta::executor
