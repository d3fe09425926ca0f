// delta executor: a file that is replaced as a whole, and is on the disk when it is: a crash or a
// kill at any moment leaves the old one or the new one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace delta::executor {

/// Is written as FILE.tmp, which is locked, so that what a killed process left there is taken over
/// and two processes do not mix. fsync, rename(2), fsync of the folder: POSIX's atomic replacement.
/// Every member throws std::runtime_error, one line: the flag, the file and the reason.
class durable_file {
 public:
  /// `flag` names the file in errors, and outlives it. Where the destination is a link, what that
  /// leads to is replaced, or made. A file that is there keeps its permissions.
  durable_file(const char* flag, const std::filesystem::path& destination);
  ~durable_file();
  durable_file(const durable_file&) = delete;
  durable_file& operator=(const durable_file&) = delete;

  void write(std::span<const std::byte>);
  /// Puts it in the destination's place. Once, and last.
  void commit();

 private:
  [[noreturn]] void fail(const std::string& why) const;
  void open();

  const char* flag_;
  std::filesystem::path name_, destination_, temporary_;
  int descriptor_ = -1;
};

}  // namespace delta::executor
