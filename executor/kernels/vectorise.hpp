// delta executor: what the plain loops share. Internal to the kernels.
#pragma once

#include <cstddef>

// The library is built for any x86-64 and the loops pick the processor's vector width at load time.
// Bits may therefore differ between processor types, never between two runs on one. ThreadSanitizer
// cannot follow the resolvers, which run before it has started.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define DELTA_VECTORISE \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DELTA_VECTORISE
#endif

namespace delta::executor {

constexpr std::size_t ceil_div(std::size_t a, std::size_t b) noexcept {
  return (a + b - 1) / b;
}

/// Elements an element-wise task handles. Below this, waking another thread costs more than it
/// saves.
inline constexpr std::size_t element_chunk = 32 * 1024;

}  // namespace delta::executor
