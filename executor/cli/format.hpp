// delta executor: sizes, rates and times as people write and read them.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "delta/units.hpp"

namespace delta::executor {

/// Text that is no size or rate; `what()` says why, without naming the flag it came from.
struct format_error : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// The text in quotes, as messages name it.
std::string in_quotes(std::string_view text);

/// What parse_bytes and parse_rate take, for messages.
inline constexpr std::string_view size_forms =
    "a size of at least 1 byte such as 65536, 512KiB, 300MiB or 1.5GiB "
    "(units B, KB, MB, GB, KiB, MiB, GiB)";
inline constexpr std::string_view rate_forms =
    "a rate of at least 1 B/s such as 2GB/s or 1.5GiB/s "
    "(units B/s, KB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s)";

inline constexpr std::string_view time_forms =
    "a time such as 0ns, 500ns, 10us or 1.5ms (units ns, us, ms, s)";

/// A size: digits with at most one decimal point, then a unit: B (or nothing), KB, MB, GB (powers
/// of 1000) or KiB, MiB, GiB (powers of 1024). Rounded down to whole bytes. Throws format_error for
/// anything else, for less than one byte and for more than 1 EiB.
bytes parse_bytes(std::string_view text);

/// A rate in bytes per second: a size with a unit and "/s". Throws format_error likewise.
double parse_rate(std::string_view text);

/// A time: a number as in a size, then ns, us, ms or s; zero too. Rounded down to whole
/// nanoseconds. Throws format_error likewise.
nanoseconds parse_time(std::string_view text);

/// "0.40": the number with so many decimals.
std::string format_fixed(double value, int decimals);
/// "1.50 GiB", "300.0 MiB", "17 B": three or four digits and the largest unit that fits.
std::string format_bytes(bytes);
/// "2.00 GB/s".
std::string format_rate(double bytes_per_second);
/// "1.234 s", "12.3 ms", "450 us", "2 min 05 s".
std::string format_seconds(double seconds);

}  // namespace delta::executor
