#include "memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

namespace simulated {

namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

DeviceMemory& DeviceMemory::instance() {
  static auto* const memory = new DeviceMemory;  // outlives everything that a static may free
  return *memory;
}

DeviceMemory::DeviceMemory() {
  file_ = memfd_create("simulated-device", MFD_CLOEXEC);
  if (file_ < 0) {
    fail("memfd_create");
  }
  // Nothing is taken from the system before it is written.
  if (ftruncate(file_, static_cast<off_t>(extent)) != 0) {
    fail("ftruncate");
  }
  void* const reserved = mmap(nullptr, extent, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  void* const mapped =
      mmap(nullptr, extent, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  if (reserved == MAP_FAILED || mapped == MAP_FAILED) {
    fail("mmap");
  }
  // Else a crash that the tests provoke writes gigabytes of core.
  madvise(mapped, extent, MADV_DONTDUMP);
  reserved_ = static_cast<std::byte*>(reserved);
  mapped_ = static_cast<std::byte*>(mapped);
}

bool DeviceMemory::contains(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  return at >= reserved_ && at < reserved_ + extent;
}

std::byte* DeviceMemory::real(const void* address, std::size_t bytes) const {
  if (!contains(address)) {
    throw std::logic_error("address " + std::to_string(reinterpret_cast<std::uintptr_t>(address)) +
                           " is not of the simulated device");
  }
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - reserved_);
  if (bytes > extent - offset) {
    throw std::logic_error("a range that doesn't end inside the simulated device's memory");
  }
  return mapped_ + offset;
}

void DeviceMemory::forget(const void* address, std::size_t bytes) const {
  const auto offset = static_cast<const std::byte*>(address) - reserved_;
  // A failure only means that the pages stay.
  (void)fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
                  static_cast<off_t>(bytes));
}

}  // namespace simulated
