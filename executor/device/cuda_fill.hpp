// delta executor: bytes that rounding adds to a tensor, written.
#pragma once

#include <cstddef>

#include "device/cuda_api.hpp"

namespace delta::executor {

/// Tensors that are copied out or moved go with what rounding adds to them, which no operator
/// writes. compute-sanitizer's initcheck calls that a read of memory that was never written. This
/// writes it: what is behind the `n` bytes of a tensor, up to the next whole `granule` (a power of
/// two, of the addresses' too), on that stream.
inline cuda_status fill_rounding(cuda_api& api, std::byte* at, bytes n, bytes granule,
                                 cuda_stream s) {
  const bytes rounded{(n.count + granule.count - 1) & ~(granule.count - 1)};
  if (rounded == n) return {};
  return api.memset_async(at + n.count, 0, rounded - n, s);
}

}  // namespace delta::executor
