// delta: the error of an operator that does other things when it is replayed than when it ran.
#pragma once

#include <cstddef>
#include <cstdint>

#include "delta/error.hpp"
#include "delta/units.hpp"

namespace delta {

/// What a checked replay found (replay_check).
enum class replay_difference : std::uint8_t {
  output,     ///< an output holds other bytes when it is made again
  unwritten,  ///< a byte of an output was not written when it was made again
  input       ///< the operator has changed an input that is not among its updates
};

/// An operator that may be replayed does not keep to what that takes. Thrown by the operator, which
/// has no outputs then, as if its kernel had thrown.
class replay_differs : public error {
 public:
  /// Which operator (`sequence`: call::sequence()), which of its outputs or inputs, and the first
  /// byte there.
  struct place {
    const char* operation = "";
    std::uint64_t sequence = 0;
    replay_difference what = replay_difference::output;
    std::size_t index = 0;
    bytes offset{};
  };
  /// `was`: the byte of the first run, of an input the one before it; `now`: the other.
  replay_differs(const place& p, std::byte was, std::byte now) noexcept
      : where(p), expected(was), found(now) {
    const auto at = static_cast<unsigned long long>(p.offset.count);
    print("operator '%s' (number %llu) ", p.operation, static_cast<unsigned long long>(p.sequence));
    if (p.what == replay_difference::input)
      print("changes its input %zu in secret, from byte %llu on; name it in `updates`", p.index,
            at);
    else if (p.what == replay_difference::unwritten)
      print(
          "does not write its output %zu, from byte %llu on, when it runs again; it may leave "
          "bytes out, or write to an address that it has kept",
          p.index, at);
    else
      print(
          "does not give the same bits when it runs again: output %zu, from byte %llu on (0x%02x, "
          "then 0x%02x); it may read memory before writing it, draw numbers that do not come from "
          "call::sequence(), or use an address that it has kept",
          p.index, at, std::to_integer<unsigned>(was), std::to_integer<unsigned>(now));
    if (p.what != replay_difference::input)
      print("; until it is repaired, give it trait::never_replay");
  }
  place where;
  std::byte expected;
  std::byte found;
};

}  // namespace delta
