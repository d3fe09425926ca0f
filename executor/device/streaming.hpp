// delta executor: copying large stretches of memory past the caches: nobody reads them soon, and
// what would have to leave the caches for them is what kernels work on.
#pragma once

#include <cstddef>

namespace delta::executor {

/// As std::memcpy. What is written is there for any thread that learns of the end by an atomic or a
/// mutex. Bytes by address: any, fastest where both are aligned alike.
void streaming_copy(std::byte* to, const std::byte* from, std::size_t n) noexcept;

/// The same where the ranges may overlap and `to` is below `from`.
void streaming_move_down(std::byte* to, const std::byte* from, std::size_t n) noexcept;

}  // namespace delta::executor
