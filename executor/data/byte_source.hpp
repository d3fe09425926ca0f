// delta executor: the bytes of a file, plain or gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace delta::executor {

/// A gzip stream that is cut off, damaged or followed by something else; `what()` says which.
struct stream_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Reads a file from its beginning and undoes gzip, where the file starts as gzip does. Stricter
/// than zlib's gzread, which passes over what follows the compressed stream.
class byte_source {
 public:
  /// Throws stream_error when the file can't be opened.
  explicit byte_source(const std::filesystem::path&);
  ~byte_source();
  byte_source(const byte_source&) = delete;
  byte_source& operator=(const byte_source&) = delete;

  /// Reads up to `size` bytes and gives their number: less than `size` only at the end. Throws
  /// stream_error. The checksum is verified by reading past the last byte.
  std::size_t read(std::uint8_t* to, std::size_t size);

 private:
  struct inflater;

  void refill();
  std::size_t read_plain(std::uint8_t* to, std::size_t size);
  std::size_t read_gzip(std::uint8_t* to, std::size_t size);

  std::ifstream file_;
  std::vector<std::uint8_t> buffer_;
  std::size_t begin_ = 0;  ///< of what buffer_ holds and nobody has read
  std::size_t end_ = 0;
  std::unique_ptr<inflater> inflater_;  ///< null: a plain file
};

/// All of a file, plain or gzip. Throws stream_error.
[[nodiscard]] std::string read_all(const std::filesystem::path&);

}  // namespace delta::executor
