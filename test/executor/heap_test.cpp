// No scratch outside the arena: from the end of the first step to the end of the last the process's
// heap neither grows nor bulges by 1 MiB. This executable counts every malloc of the process, those
// of the libraries included.
// ctest-labels: slow
#include <doctest/doctest.h>
#include <malloc.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <new>
#include <ostream>
#include <streambuf>
#include <string_view>

#include "skip.hpp"
#include "training.hpp"

#if defined(__SANITIZE_ADDRESS__) || !defined(__GLIBC__)

TEST_CASE("heap between the steps") {
  delta::test::skip("heap_test", "malloc is the sanitizer's here, or not glibc's");
}

#else

namespace {

/// Live bytes of the heap, and the most since somebody asked for a new mark.
struct heap {
  static inline std::atomic<std::int64_t> live{0}, most{0};

  static void* took(void* p) noexcept {
    if (p == nullptr) return p;
    const auto size = static_cast<std::int64_t>(malloc_usable_size(p));
    const std::int64_t now = live.fetch_add(size, std::memory_order_relaxed) + size;
    std::int64_t before = most.load(std::memory_order_relaxed);
    while (before < now && !most.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
    }
    return p;
  }
  static void gave(void* p) noexcept {
    if (p == nullptr) return;
    live.fetch_sub(static_cast<std::int64_t>(malloc_usable_size(p)), std::memory_order_relaxed);
  }
};

}  // namespace

// glibc's own allocator under its other names; what is defined here is what every library calls.
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming): the names are glibc's
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)

void* malloc(std::size_t n) {
  return heap::took(__libc_malloc(n));
}
void* calloc(std::size_t count, std::size_t n) {
  return heap::took(__libc_calloc(count, n));
}
void* realloc(void* p, std::size_t n) {
  heap::gave(p);
  void* const q = __libc_realloc(p, n);
  if (q == nullptr && n > 0) heap::took(p);
  return heap::took(q);
}
void* memalign(std::size_t alignment, std::size_t n) {
  return heap::took(__libc_memalign(alignment, n));
}
void* aligned_alloc(std::size_t alignment, std::size_t n) {
  return heap::took(__libc_memalign(alignment, n));
}
int posix_memalign(void** p, std::size_t alignment, std::size_t n) {
  *p = heap::took(__libc_memalign(alignment, n));
  return *p != nullptr || n == 0 ? 0 : ENOMEM;
}
void free(void* p) {
  heap::gave(p);
  __libc_free(p);
}
}

namespace {

using namespace delta::test;
using namespace delta::executor;

/// Reads the trainer's progress, which is flushed after every step, without using the heap.
class step_watch final : public std::streambuf {
 public:
  explicit step_watch(std::string_view run) : run_(run) {}

  std::int64_t first = 0;  ///< live bytes at the end of the first step
  std::int64_t last = 0;   ///< at the end of the last one seen
  std::int64_t most = 0;   ///< the most between the two
  int steps = 0;

 private:
  int_type overflow(int_type c) override {
    if (used_ < line_.size()) line_[used_++] = traits_type::to_char_type(c);
    return c;
  }
  int sync() override {
    const std::string_view line(line_.data(), used_);
    used_ = 0;
    if (!line.starts_with(run_) || line.find(": step ") == line.npos) return 0;
    last = heap::live.load();
    most = heap::most.load();
    if (steps++ == 0) first = most = last, heap::most.store(last);
    return 0;
  }

  std::string_view run_;
  std::array<char, 256> line_{};
  std::size_t used_ = 0;
};

constexpr std::int64_t mebibyte = 1 << 20;

/// `bulge`: by how much the heap may exceed, within a step, what it was after the first one.
void check_heap(const train_options& o, std::int64_t bulge = mebibyte) {
  step_watch watch(o.policy);
  std::ostream progress(&watch);
  const train_report r = delta::executor::train(o, progress);
  REQUIRE(watch.steps == int(o.steps));  // up to 8 steps, the trainer reports every one
  MESSAGE(row(r) << std::string(o.virtual_clock ? ", virtual clock" : "") << ": heap grew by "
                 << watch.last - watch.first << " bytes, bulged by " << watch.most - watch.first);
  CHECK(watch.last - watch.first < mebibyte);
  CHECK(watch.most - watch.first < bulge);
}

}  // namespace

TEST_CASE("the count sees the heap") {
  const std::int64_t before = heap::live.load();
  void* volatile held = ::operator new(3 << 20);  // volatile: else neither call need happen
  CHECK(heap::live.load() - before >= 3 << 20);
  ::operator delete(held);
  CHECK(heap::live.load() - before < 1 << 20);
  held = ::operator new(3 << 20, std::align_val_t{64});
  CHECK(heap::live.load() - before >= 3 << 20);
  ::operator delete(held, std::align_val_t{64});
  CHECK(heap::live.load() - before < 1 << 20);
}

TEST_CASE("heap between the steps: ResNet-20") {
  train_options o = unmanaged({.model = "resnet20", .image = 32, .batch = 32, .steps = 6});
  check_heap(o);
  const std::uint64_t peak = delta::test::train(o).peak_bytes;
  for (const bool virtual_clock : {false, true})
    for (const std::string_view policy : {"online", "dtr", "paper"}) {
      o.virtual_clock = virtual_clock;
      check_heap(managed(o, policy, absolute(peak * 40 / 100)));
    }
}

TEST_CASE("heap between the steps: ResNet-50") {
  train_options o = unmanaged({.model = "resnet50", .image = 64, .batch = 8, .steps = 3});
  // oneDNN's sgemm packs panels of its operands into memory of its own, at most 1.06 MiB for the
  // products that these convolutions are cut into, and as often as there are threads.
  const std::int64_t packing = o.threads * (mebibyte + mebibyte / 8);
  check_heap(o, packing);
  const std::uint64_t peak = delta::test::train(o).peak_bytes;
  check_heap(managed(o, "online", absolute(peak * 40 / 100)), packing);
}

#endif
