#include "data/data_file.hpp"

#include <utility>

namespace delta::executor {

data_error::data_error(std::filesystem::path file, const std::string& wrong,
                       const std::string& allowed)
    : std::runtime_error(file.string() + ": " + wrong + "; allowed: " + allowed),
      file_(std::move(file)) {}

void expect_folder(const std::filesystem::path& directory, const std::string& allowed) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored)) {
    throw data_error(directory, "there is no such folder", allowed);
  }
}

std::filesystem::path find_plain_or_gzip(const std::filesystem::path& path) {
  for (const char* ending : {"", ".gz"}) {
    auto candidate = path;
    candidate += ending;
    std::error_code ignored;
    if (std::filesystem::is_regular_file(candidate, ignored)) return candidate;
  }
  return {};
}

data_file::data_file(std::filesystem::path path, std::string whole_file)
    : path_(std::move(path)),
      whole_file_(std::move(whole_file)),
      source_(open(path_, whole_file_)) {}

std::size_t data_file::read(std::uint8_t* to, std::size_t size) {
  try {
    return source_.read(to, size);
  } catch (const stream_error& error) {
    fail(error.what());
  }
}

void data_file::fail(const std::string& wrong, const std::string& allowed) const {
  throw data_error(path_, wrong, allowed);
}

byte_source data_file::open(const std::filesystem::path& path, const std::string& whole_file) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    throw data_error(path, "there is no such file", whole_file);
  }
  try {
    return byte_source(path);
  } catch (const stream_error& error) {
    throw data_error(path, error.what(), "a file that may be read");
  }
}

}  // namespace delta::executor
