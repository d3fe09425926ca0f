#include "cli/format.hpp"

#include <array>
#include <cmath>
#include <cstdio>

namespace delta::executor {
namespace {

struct unit {
  std::string_view name;
  std::uint64_t factor;
};
constexpr std::array<unit, 8> units{{{"", 1},
                                     {"B", 1},
                                     {"KB", 1'000},
                                     {"MB", 1'000'000},
                                     {"GB", 1'000'000'000},
                                     {"KiB", 1u << 10},
                                     {"MiB", 1u << 20},
                                     {"GiB", 1u << 30}}};
constexpr std::uint64_t largest = std::uint64_t{1} << 60;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// number x factor, rounded down, in integers: 1.1GiB has no exact double. Nine decimals count;
/// what comes after them is less than two bytes.
std::uint64_t scaled(std::string_view number, std::uint64_t factor, std::string_view whole) {
  std::uint64_t value = 0;
  std::size_t i = 0;
  for (; i < number.size() && number[i] != '.'; ++i) {
    const auto figure = static_cast<std::uint64_t>(number[i] - '0');
    if (value > (largest - figure) / 10) throw format_error(in_quotes(whole) + " is too large");
    value = value * 10 + figure;
  }
  if (value > largest / factor) throw format_error(in_quotes(whole) + " is too large");
  value *= factor;

  std::uint64_t numerator = 0;
  std::uint64_t denominator = 1;
  for (++i; i < number.size() && denominator < 1'000'000'000; ++i) {
    numerator = numerator * 10 + static_cast<std::uint64_t>(number[i] - '0');
    denominator *= 10;
  }
  value += numerator * factor / denominator;  // < 10^9 * 2^30 < 2^60
  if (value > largest) throw format_error(in_quotes(whole) + " is too large");
  return value;
}

struct quantity {
  std::string_view number;  ///< digits with at most one point
  std::string_view unit;
};

quantity split_unit(std::string_view text) {
  if (text.empty()) throw format_error("is empty");
  if (text.front() == '-') throw format_error(in_quotes(text) + " is negative");
  std::size_t end = 0;
  std::size_t points = 0;
  std::size_t digits = 0;
  for (; end < text.size() && (is_digit(text[end]) || text[end] == '.'); ++end) {
    (text[end] == '.' ? points : digits) += 1;
  }
  if (digits == 0 || points > 1)
    throw format_error(in_quotes(text) + " is not a number with a unit");
  return {text.substr(0, end), text.substr(end)};
}

[[noreturn]] void fail_unit(std::string_view text, std::string_view name) {
  throw format_error(in_quotes(text) +
                     (name.empty() ? " has no unit" : " has an unknown unit " + in_quotes(name)));
}

/// A size, whose unit must end in `suffix` ("/s" or nothing).
std::uint64_t parse(std::string_view text, std::string_view suffix) {
  const auto [number, whole_name] = split_unit(text);
  std::string_view name = whole_name;
  if (!name.ends_with(suffix)) {
    throw format_error(in_quotes(text) + " lacks the unit's " + in_quotes(suffix));
  }
  name.remove_suffix(suffix.size());
  for (const unit& u : units) {
    if (name != u.name || (name.empty() && !suffix.empty())) continue;
    const std::uint64_t value = scaled(number, u.factor, text);
    if (value == 0) throw format_error(in_quotes(text) + " is less than one byte");
    return value;
  }
  fail_unit(text, whole_name);
}

template <class... Values>
std::string print(const char* form, Values... values) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), form, values...);
  return text.data();
}

/// Three significant figures at least, four where the part before the point needs them.
std::string figures(double value, const char* unit_name) {
  const int decimals = value < 10 ? 2 : value < 100 ? 1 : 0;
  return print("%.*f %s", decimals, value, unit_name);
}

}  // namespace

std::string in_quotes(std::string_view text) {
  return "'" + std::string(text) + "'";
}

bytes parse_bytes(std::string_view text) {
  return bytes{parse(text, "")};
}

double parse_rate(std::string_view text) {
  return static_cast<double>(parse(text, "/s"));
}

nanoseconds parse_time(std::string_view text) {
  constexpr std::array<unit, 4> times{
      {{"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}}};
  const auto [number, name] = split_unit(text);
  for (const unit& u : times)
    if (name == u.name) return nanoseconds{std::int64_t(scaled(number, u.factor, text))};
  fail_unit(text, name);
}

std::string format_fixed(double value, int decimals) {
  return print("%.*f", decimals, value);
}

std::string format_bytes(bytes n) {
  const auto value = static_cast<double>(n.count);
  if (value < 1024.0) return print("%.0f B", value);
  if (value < 0x1p20) return figures(value / 0x1p10, "KiB");
  if (value < 0x1p30) return figures(value / 0x1p20, "MiB");
  return figures(value / 0x1p30, "GiB");
}

std::string format_rate(double rate) {
  if (rate < 1e3) return print("%.0f B/s", rate);
  if (rate < 1e6) return figures(rate / 1e3, "KB/s");
  if (rate < 1e9) return figures(rate / 1e6, "MB/s");
  return figures(rate / 1e9, "GB/s");
}

std::string format_seconds(double seconds) {
  if (seconds < 0) return "-" + format_seconds(-seconds);
  if (seconds < 1e-3) return print("%.0f us", seconds * 1e6);
  if (seconds < 1) return figures(seconds * 1e3, "ms");
  if (seconds < 120) return figures(seconds, "s");
  const double minutes = std::floor(seconds / 60);
  return print("%.0f min %02.0f s", minutes, std::floor(seconds - 60 * minutes));
}

}  // namespace delta::executor
