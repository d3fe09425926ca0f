// delta: a hash of a tensor's bytes, at the speed of the memory: to see that they have changed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace delta::hashes {

/// 64 chains of 32-bit words, each word xored in, rotated and multiplied as in xxHash32: a chain is
/// another for any single word that changes, and for any other accident but by a chance of 2^-32.
/// Not cryptographic, and not for files: it depends on the machine's byte order. O(n).
[[nodiscard]] std::uint64_t byte_hash(const std::byte* at, std::size_t n) noexcept;

}  // namespace delta::hashes
