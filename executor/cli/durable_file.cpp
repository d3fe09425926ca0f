#include "cli/durable_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "cli/output_file.hpp"

namespace delta::executor {
namespace {

constexpr int most_links = 40;  // as Linux follows them

/// Where a link leads, though nothing be there yet.
std::filesystem::path followed(std::filesystem::path file) {
  std::error_code failed;
  for (int links = 0; links < most_links && std::filesystem::is_symlink(file, failed); ++links)
    file = file.parent_path() / std::filesystem::read_symlink(file, failed);
  return file;
}

/// Whoever held the lock before may have renamed what we opened.
bool still_named(int descriptor, const std::filesystem::path& name) {
  struct stat opened = {};
  struct stat named = {};
  return ::fstat(descriptor, &opened) == 0 && ::stat(name.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/// A file system that has no such thing has its rename on the disk by its own rules.
void sync_folder(const std::filesystem::path& folder) {
  const int descriptor =
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  (void)::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

durable_file::durable_file(const char* flag, const std::filesystem::path& destination)
    : flag_(flag), name_(destination), destination_(followed(name_)), temporary_(destination_) {
  temporary_ += ".tmp";
  std::error_code ignored;
  const auto there = std::filesystem::status(destination_, ignored);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
    fail("it is no regular file");
  open();
  // Who may read the file that is there may read the new one, and nobody else.
  if (std::filesystem::exists(there))
    (void)::fchmod(descriptor_, static_cast<mode_t>(there.permissions()));
}

durable_file::~durable_file() {
  if (descriptor_ < 0) return;
  ::unlink(temporary_.c_str());
  ::close(descriptor_);
}

void durable_file::open() {
  do {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
    // Not blocking: it might be a pipe.
    const int opened =
        ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (opened < 0) fail(last_error());
    if (::flock(opened, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::close(opened);
      fail("another process is writing it");
    }
    descriptor_ = opened;
  } while (!still_named(descriptor_, temporary_));
  if (::ftruncate(descriptor_, 0) == 0) return;
  const std::string why = last_error();
  ::close(std::exchange(descriptor_, -1));
  fail(why);
}

void durable_file::write(std::span<const std::byte> content) {
  if (!write_all(descriptor_, {reinterpret_cast<const char*>(content.data()), content.size()}))
    fail(last_error());
}

void durable_file::commit() {
  if (::fsync(descriptor_) != 0) fail(last_error());
  if (std::rename(temporary_.c_str(), destination_.c_str()) != 0) fail(last_error());
  ::close(std::exchange(descriptor_, -1));
  sync_folder(destination_.parent_path());
}

void durable_file::fail(const std::string& why) const {
  throw std::runtime_error(std::string(flag_) + ": '" + name_.string() +
                           "' can't be written: " + why);
}

}  // namespace delta::executor
