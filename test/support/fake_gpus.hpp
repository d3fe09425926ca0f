// delta tests: several GPUs in one process, each a fake_cuda. As in CUDA every thread has a current
// device, and what is created goes to that one. A call on a stream, an event or memory of another
// device than the thread's current one is reported, and so is a copy of device memory that nothing
// ever wrote, as compute-sanitizer's initcheck reports it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "fake_cuda.hpp"

namespace delta::test {

/// Threads may use it side by side, each its own device. One at a time in a process, as its current
/// devices are the threads'.
class fake_gpus final : public executor::cuda_api {
 public:
  using status = executor::cuda_status;
  using cuda_stream = executor::cuda_stream;
  using cuda_event = executor::cuda_event;

  explicit fake_gpus(int devices, const fake_cuda_options& o = {}) {
    for (int d = 0; d < devices; ++d) {
      fake_cuda_options own = o;
      own.seed += static_cast<std::uint64_t>(d);
      gpus_.push_back(std::make_unique<gpu>(own));
    }
    current() = 0;
  }

  fake_cuda& operator[](int device) { return gpus_[static_cast<std::size_t>(device)]->cuda; }
  /// The calling thread's: programs may change it behind delta's back.
  static int& current() {
    thread_local int device = 0;
    return device;
  }
  /// How often a thread's current device was changed.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }
  [[nodiscard]] std::vector<std::string> violations() {
    const std::lock_guard lock(mutex_);
    auto all = misuse_;
    for (const auto& g : gpus_) {
      const auto own = g->cuda.violations();
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }

  /// A kernel's launch, on the stream's device.
  void launch(cuda_stream s, std::vector<range> reads, std::vector<range> writes,
              std::function<void()> work) {
    gpu& on = at(s, "a launch");
    for (const range& r : writes) on.wrote(r.begin, r.size);
    reinterpret_cast<fake_cuda::stream*>(s)->launch(std::move(reads), std::move(writes),
                                                    std::move(work));
  }

  // -------------------------------------------------------------------------------------------
  // cuda_api

  status device_count(int* to) override { return *to = static_cast<int>(gpus_.size()), status{}; }
  status driver_version(int* to) override { return here().cuda.driver_version(to); }
  status set_device(int d) override {
    if (d < 0 || d >= static_cast<int>(gpus_.size()))
      return {101, "cudaErrorInvalidDevice", "invalid device ordinal"};
    const std::lock_guard lock(mutex_);
    changes_ += current() != d;
    current() = d;
    return {};
  }
  status current_device(int* to) override { return *to = current(), status{}; }
  status properties(int d, executor::cuda_device_properties* to) override {
    return (*this)[d].properties(d, to);
  }
  status memory_info(bytes* free, bytes* total) override {
    return here().cuda.memory_info(free, total);
  }

  status malloc(std::byte** to, bytes n) override {
    return taken(here().cuda.malloc(to, n), to, n);
  }
  status free(std::byte* p) override { return dropped(p, "cudaFree").cuda.free(p); }
  status malloc_host(std::byte** to, bytes n) override {
    return made(here().cuda.malloc_host(to, n), to);
  }
  status free_host(std::byte* p) override { return at(p, "cudaFreeHost").cuda.free_host(p); }
  status map_virtual(std::byte** to, bytes n) override {
    return taken(here().cuda.map_virtual(to, n), to, n);
  }
  status unmap_virtual(std::byte* p, bytes n) override {
    return dropped(p, "cuMemUnmap").cuda.unmap_virtual(p, n);
  }

  status stream_create(cuda_stream* to, bool high) override {
    return made(here().cuda.stream_create(to, high), to);
  }
  status stream_destroy(cuda_stream s) override {
    return at(s, "cudaStreamDestroy").cuda.stream_destroy(s);
  }
  status stream_wait_event(cuda_stream s, cuda_event e) override {
    return both(s, e, "cudaStreamWaitEvent").cuda.stream_wait_event(s, e);
  }
  status stream_synchronize(cuda_stream s) override {
    return at(s, "cudaStreamSynchronize").cuda.stream_synchronize(s);
  }
  status stream_query(cuda_stream s, bool* done) override {
    return at(s, "cudaStreamQuery").cuda.stream_query(s, done);
  }
  status stream_pause(cuda_stream s, nanoseconds t) override {
    return at(s, "cudaLaunchHostFunc").cuda.stream_pause(s, t);
  }

  status event_create(cuda_event* to) override { return made(here().cuda.event_create(to), to); }
  status event_destroy(cuda_event e) override {
    return at(e, "cudaEventDestroy").cuda.event_destroy(e);
  }
  status event_record(cuda_event e, cuda_stream s) override {
    return both(s, e, "cudaEventRecord").cuda.event_record(e, s);
  }
  status event_query(cuda_event e, bool* done) override {
    return at(e, "cudaEventQuery").cuda.event_query(e, done);
  }
  status event_synchronize(cuda_event e) override {
    return at(e, "cudaEventSynchronize").cuda.event_synchronize(e);
  }
  status event_elapsed(cuda_event from, cuda_event to, float* ms) override {
    at(from, "cudaEventElapsedTime");
    return at(to, "cudaEventElapsedTime").cuda.event_elapsed(from, to, ms);
  }

  status memcpy_async(std::byte* to, const std::byte* from, bytes n, executor::cuda_copy way,
                      cuda_stream s) override {
    gpu& on = at(s, "cudaMemcpyAsync");
    if (way != executor::cuda_copy::to_device && !on.all_written(from, n.count))
      complain("cudaMemcpyAsync: copies what was never written");
    if (way != executor::cuda_copy::to_host) on.wrote(to, n.count);
    return on.cuda.memcpy_async(to, from, n, way, s);
  }
  status memset_async(std::byte* p, int value, bytes n, cuda_stream s) override {
    gpu& on = at(s, "cudaMemsetAsync");
    on.wrote(p, n.count);
    return on.cuda.memset_async(p, value, n, s);
  }
  status device_synchronize() override { return here().cuda.device_synchronize(); }
  status last_error() override { return here().cuda.last_error(); }
  void range_push(const char*) override {}
  void range_pop() override {}
  void mark(const char*) override {}

 private:
  struct gpu {
    explicit gpu(const fake_cuda_options& o) : cuda(o) {}
    void wrote(const std::byte* p, std::size_t n) {
      if (auto* const all = of(p)) std::fill_n(all->second.begin() + (p - all->first), n, true);
    }
    [[nodiscard]] bool all_written(const std::byte* p, std::size_t n) {
      const auto* const all = of(p);
      if (all == nullptr) return false;
      const auto first = all->second.begin() + (p - all->first);
      return std::find(first, first + static_cast<std::ptrdiff_t>(n), false) ==
             first + static_cast<std::ptrdiff_t>(n);
    }
    /// The allocation that an address is in.
    std::pair<const std::byte* const, std::vector<bool>>* of(const std::byte* p) {
      auto it = written.upper_bound(p);
      if (it == written.begin()) return nullptr;
      --it;
      return p - it->first < static_cast<std::ptrdiff_t>(it->second.size()) ? &*it : nullptr;
    }
    fake_cuda cuda;
    std::map<const std::byte*, std::vector<bool>> written;  // of device memory, for each byte
  };

  gpu& here() { return *gpus_[static_cast<std::size_t>(current())]; }
  void complain(std::string text) {
    const std::lock_guard lock(mutex_);
    misuse_.push_back(std::move(text));
  }
  int owner(const void* thing) {
    const std::lock_guard lock(mutex_);
    const auto it = owners_.find(thing);
    return it == owners_.end() ? 0 : it->second;
  }
  /// The device that it is of, which has to be the thread's current one.
  gpu& at(const void* thing, const char* call) {
    const int of = owner(thing);
    if (of != current())
      complain(std::string(call) + ": of device " + std::to_string(of) +
               ", while the thread's current device is " + std::to_string(current()));
    return *gpus_[static_cast<std::size_t>(of)];
  }
  gpu& both(cuda_stream s, cuda_event e, const char* call) {
    if (owner(s) != owner(e)) complain(std::string(call) + ": stream and event of two devices");
    return at(s, call);
  }
  template <class T>
  status made(status s, T** to) {
    const std::lock_guard lock(mutex_);
    if (s.ok()) owners_[*to] = current();
    return s;
  }
  status taken(status s, std::byte** to, bytes n) {
    if (s.ok()) here().written[*to].assign(n.count, false);
    return made(s, to);
  }
  gpu& dropped(std::byte* p, const char* call) {
    gpu& on = at(p, call);
    on.written.erase(p);
    return on;
  }

  std::vector<std::unique_ptr<gpu>> gpus_;
  std::mutex mutex_;
  std::map<const void*, int> owners_;  // of all that was ever made
  std::vector<std::string> misuse_;
  std::uint64_t changes_ = 0;
};

}  // namespace delta::test
