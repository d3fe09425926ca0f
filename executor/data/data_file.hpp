// delta executor: files of a data set, with errors that name them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "data/byte_source.hpp"

namespace delta::executor {

/// A data file that can't be used. `what()` is one line: the file, what is wrong, what is allowed.
class data_error : public std::runtime_error {
 public:
  data_error(std::filesystem::path file, const std::string& wrong, const std::string& allowed);
  [[nodiscard]] const std::filesystem::path& file() const noexcept { return file_; }

 private:
  std::filesystem::path file_;
};

/// Throws data_error unless `directory` is a folder; `allowed` says what folder it should be.
void expect_folder(const std::filesystem::path& directory, const std::string& allowed);

/// `path` or `path`.gz: the first that is a file, or none.
std::filesystem::path find_plain_or_gzip(const std::filesystem::path& path);

/// A file read from its beginning, plain or gzip. Everything that goes wrong is a data_error.
class data_file {
 public:
  /// `whole_file` says what a good file of this kind is ("a whole IDX file, gzip or plain").
  data_file(std::filesystem::path path, std::string whole_file);

  /// As byte_source::read.
  std::size_t read(std::uint8_t* to, std::size_t size);

  [[noreturn]] void fail(const std::string& wrong, const std::string& allowed) const;
  /// What is allowed is a whole file.
  [[noreturn]] void fail(const std::string& wrong) const { fail(wrong, whole_file_); }

 private:
  static byte_source open(const std::filesystem::path&, const std::string& whole_file);

  std::filesystem::path path_;
  std::string whole_file_;
  byte_source source_;
};

}  // namespace delta::executor
