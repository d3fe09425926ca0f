// delta_torch: the allocator.
#include "allocator.hpp"

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <utility>

#include "errors.hpp"
#include "replaying.hpp"
#include "session.hpp"

namespace delta_torch {

namespace {

class budgeted_allocator final : public at::Allocator {
 public:
  at::DataPtr allocate(std::size_t size) override {
    if (size == 0) return {nullptr, c10::Device(c10::kCPU)};
    void* const memory = take(size);
    if (memory == nullptr)
      throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__},
                                  "delta: the system has no memory for " + std::to_string(size) +
                                      " bytes more, of whatever budget");
    return session::plain(memory);
  }
  void copy_data(void* to, const void* from, std::size_t size) const override {
    default_copy_data(to, from, size);
  }
  at::DeleterFnPtr raw_deleter() const override { return &session::release; }

 private:
  static void* take(std::size_t size) {
    thread_state& thread = this_thread();
    if (thread.replay != nullptr) return thread.replay->allocate(size);
    session& s = session::get();
    // A worker of the kernel that is replayed: the thread that waits for it has the lock.
    if (!s.on() || (replaying::anywhere() && at::in_parallel_region())) return headed_memory(size);
    const session::inside lock(s, thread);
    if (!s.on()) return headed_memory(size);
    // What a kernel takes piece by piece is known when it has ended.
    const char* const addition =
        s.taken.operation != 0 ? "; what this kernel takes after that is not known" : "";
    void* const memory = translated(
        s, [&] { return s.take(size); }, addition);
    header_of(memory).place = thread.allocations++;
    // A kernel may leave bytes unwritten that nobody reads: they are the same when it runs again.
    if (s.checks_replays()) std::memset(memory, 0, size);
    return memory;
  }
};

budgeted_allocator ours;
at::Allocator* before = nullptr;
constexpr std::uint8_t highest = 255;

}  // namespace

void install_allocator() {
  if (before != nullptr) return;
  before = c10::GetAllocator(c10::kCPU);
  session::get().deleter_before = before->raw_deleter();
  c10::SetAllocator(c10::kCPU, &ours, highest);
}

void remove_allocator() {
  if (before == nullptr) return;
  c10::SetAllocator(c10::kCPU, std::exchange(before, nullptr), highest);
}

}  // namespace delta_torch
