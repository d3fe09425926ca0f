#include "device/streaming.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

// Sanitizers see what memcpy touches, not what an intrinsic does.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#include <emmintrin.h>
#define DELTA_STREAMS 1
#else
#define DELTA_STREAMS 0
#endif

namespace delta::executor {
namespace {

constexpr std::size_t line = 64;
// Below this, what is written is likely to be read before it leaves the cache.
constexpr std::size_t least = std::size_t{128} << 10;

#if DELTA_STREAMS
// Whole lines, of which `to` begins one, upwards. A line is read before it is written, so the
// ranges may overlap if `to` is below `from`.
void stream_lines(std::byte* to, const std::byte* from, std::size_t lines) noexcept {
  constexpr std::size_t ahead = 16;  // lines: about a memory's latency
  for (std::size_t i = 0; i < lines; ++i, to += line, from += line) {
    if (i + ahead < lines)
      _mm_prefetch(reinterpret_cast<const char*>(from + ahead * line), _MM_HINT_NTA);
    const auto* in = reinterpret_cast<const __m128i*>(from);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    auto* out = reinterpret_cast<__m128i*>(to);
    _mm_stream_si128(out, a), _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c), _mm_stream_si128(out + 3, d);
  }
  _mm_sfence();  // such stores are in no order with others
}
#endif

template <class Plain>
void in_lines(std::byte* to, const std::byte* from, std::size_t n, const Plain& plain) noexcept {
#if DELTA_STREAMS
  if (n >= least) {
    const std::size_t head = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
    plain(to, from, head);
    const std::size_t lines = (n - head) / line, done = head + lines * line;
    stream_lines(to + head, from + head, lines);
    plain(to + done, from + done, n - done);
    return;
  }
#endif
  if (n > 0) plain(to, from, n);
}

}  // namespace

void streaming_copy(std::byte* to, const std::byte* from, std::size_t n) noexcept {
  in_lines(to, from, n, [](auto* t, auto* f, std::size_t k) { std::memcpy(t, f, k); });
}

void streaming_move_down(std::byte* to, const std::byte* from, std::size_t n) noexcept {
  in_lines(to, from, n, [](auto* t, auto* f, std::size_t k) { std::memmove(t, f, k); });
}

}  // namespace delta::executor
