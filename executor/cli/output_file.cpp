#include "cli/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace delta::executor {
namespace {

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& why) {
  throw std::runtime_error("'" + file.string() + "' can't be written: " + why);
}

}  // namespace

std::string last_error() {
  return std::generic_category().message(errno);
}

bool write_all(int descriptor, std::string_view content) noexcept {
  while (!content.empty()) {
    const auto written = ::write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

output_file::output_file(std::filesystem::path destination) : destination_(std::move(destination)) {
  std::error_code ignored;
  if (std::filesystem::is_directory(destination_, ignored)) fail(destination_, "it is a folder");
  if (!destination_.has_filename()) fail(destination_, "it names no file");

  static std::atomic<unsigned> counter{0};
  auto candidate = destination_;
  candidate += "." + std::to_string(getpid()) + "-" + std::to_string(counter++) + ".tmp";
  descriptor_ = ::open(candidate.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail(destination_, last_error());
  temporary_ = std::move(candidate);
}

output_file::~output_file() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void output_file::commit(std::string_view content) {
  if (!write_all(descriptor_, content)) fail(destination_, last_error());
  if (::close(std::exchange(descriptor_, -1)) != 0) fail(destination_, last_error());
  if (std::rename(temporary_.c_str(), destination_.c_str()) != 0) {
    fail(destination_, last_error());
  }
  temporary_.clear();
}

live_file::live_file(const char* flag, std::filesystem::path name)
    : flag_(flag), name_(std::move(name)) {
  if (!name_.empty()) stream_.open(name_, std::ios::binary);
}

void live_file::finish() {
  stream_.flush();
  if (!name_.empty() && !stream_)
    throw std::runtime_error(std::string(flag_) + ": '" + name_.string() +
                             "' could not be written");
}

}  // namespace delta::executor
