#include "cli/format.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace delta::executor;
using delta::bytes;

namespace {

std::string why_not(auto&& parse) {
  try {
    parse();
  } catch (const format_error& error) {
    return error.what();
  }
  return "no error";
}
std::string why_no_size(const std::string& text) {
  return why_not([&] { (void)parse_bytes(text); });
}
std::string why_no_rate(const std::string& text) {
  return why_not([&] { (void)parse_rate(text); });
}

std::string why_no_time(const std::string& text) {
  return why_not([&] { (void)parse_time(text); });
}

}  // namespace

TEST_CASE("times are read exactly") {
  CHECK(parse_time("0ns").count() == 0);
  CHECK(parse_time("500ns").count() == 500);
  CHECK(parse_time("10us").count() == 10'000);
  CHECK(parse_time("1.5ms").count() == 1'500'000);
  CHECK(parse_time("0.0019us").count() == 1);
  CHECK(parse_time("2s").count() == 2'000'000'000);
  CHECK(why_no_time("") == "is empty");
  CHECK(why_no_time("10") == "'10' has no unit");
  CHECK(why_no_time("-1us") == "'-1us' is negative");
  CHECK(why_no_time("us") == "'us' is not a number with a unit");
  CHECK(why_no_time("1min") == "'1min' has an unknown unit 'min'");
  CHECK(why_no_time("1152921505s") == "'1152921505s' is too large");
}

TEST_CASE("numbers with so many decimals") {
  CHECK(format_fixed(1.23456, 3) == "1.235");
  CHECK(format_fixed(40, 1) == "40.0");
  CHECK(format_fixed(2.4, 0) == "2");
}

TEST_CASE("sizes are read exactly") {
  CHECK(parse_bytes("1") == bytes{1});
  CHECK(parse_bytes("65536") == bytes{65536});
  CHECK(parse_bytes("17B") == bytes{17});
  CHECK(parse_bytes("3KB") == bytes{3000});
  CHECK(parse_bytes("3KiB") == bytes{3072});
  CHECK(parse_bytes("2MB") == bytes{2'000'000});
  CHECK(parse_bytes("2MiB") == bytes{2u << 20});
  CHECK(parse_bytes("1.5GiB") == bytes{(3ull << 30) / 2});
  CHECK(parse_bytes("0.1GiB") == bytes{107374182});  // 107374182.4
  CHECK(parse_bytes(".5KiB") == bytes{512});
  CHECK(parse_bytes("2.KiB") == bytes{2048});
  CHECK(parse_bytes("9007199254740993") == bytes{9007199254740993u});  // no double holds it
  CHECK(parse_bytes("1152921504606846976") == bytes{1ull << 60});
  CHECK(parse_bytes("1073741824GiB") == bytes{1ull << 60});
}

TEST_CASE("what is no size is told apart") {
  CHECK(why_no_size("") == "is empty");
  CHECK(why_no_size("0") == "'0' is less than one byte");
  CHECK(why_no_size("0.0GiB") == "'0.0GiB' is less than one byte");
  CHECK(why_no_size("0.5B") == "'0.5B' is less than one byte");
  CHECK(why_no_size("-1GiB") == "'-1GiB' is negative");
  CHECK(why_no_size("GiB") == "'GiB' is not a number with a unit");
  CHECK(why_no_size("1.2.3GiB") == "'1.2.3GiB' is not a number with a unit");
  CHECK(why_no_size(".") == "'.' is not a number with a unit");
  CHECK(why_no_size("1gib") == "'1gib' has an unknown unit 'gib'");
  CHECK(why_no_size("1 GiB") == "'1 GiB' has an unknown unit ' GiB'");
  CHECK(why_no_size("1e9") == "'1e9' has an unknown unit 'e9'");
  CHECK(why_no_size("1TiB") == "'1TiB' has an unknown unit 'TiB'");
  CHECK(why_no_size("1152921504606846977") == "'1152921504606846977' is too large");
  CHECK(why_no_size("1073741825GiB") == "'1073741825GiB' is too large");
  CHECK(why_no_size("1073741824.5GiB") == "'1073741824.5GiB' is too large");
  CHECK(why_no_size("99999999999999999999999") == "'99999999999999999999999' is too large");
}

TEST_CASE("rates need a unit per second") {
  CHECK(parse_rate("2GB/s") == 2e9);
  CHECK(parse_rate("1.5GiB/s") == 1.5 * (1 << 30));
  CHECK(parse_rate("800MB/s") == 8e8);
  CHECK(parse_rate("64KiB/s") == 65536.0);
  CHECK(parse_rate("10KB/s") == 1e4);
  CHECK(parse_rate("3B/s") == 3.0);
  CHECK(why_no_rate("2GB") == "'2GB' lacks the unit's '/s'");
  CHECK(why_no_rate("2") == "'2' lacks the unit's '/s'");
  CHECK(why_no_rate("2/s") == "'2/s' has an unknown unit '/s'");
  CHECK(why_no_rate("0GB/s") == "'0GB/s' is less than one byte");
  CHECK(why_no_rate("-2GB/s") == "'-2GB/s' is negative");
}

TEST_CASE("sizes, rates and times are short to read") {
  CHECK(format_bytes(bytes{0}) == "0 B");
  CHECK(format_bytes(bytes{1023}) == "1023 B");
  CHECK(format_bytes(bytes{1024}) == "1.00 KiB");
  CHECK(format_bytes(bytes{15 << 20}) == "15.0 MiB");
  CHECK(format_bytes(bytes{300 << 20}) == "300 MiB");
  CHECK(format_bytes(bytes{(3ull << 30) / 2}) == "1.50 GiB");
  CHECK(format_bytes(bytes{2000ull << 30}) == "2000 GiB");
  CHECK(format_rate(12) == "12 B/s");
  CHECK(format_rate(2e9) == "2.00 GB/s");
  CHECK(format_rate(4.5e7) == "45.0 MB/s");
  CHECK(format_seconds(0.00045) == "450 us");
  CHECK(format_seconds(0.0123) == "12.3 ms");
  CHECK(format_seconds(1.234) == "1.23 s");
  CHECK(format_seconds(125) == "2 min 05 s");
  CHECK(format_seconds(-1.5) == "-1.50 s");
}

TEST_CASE("a printed size of few digits reads back as itself") {
  for (std::uint64_t n = 1; n < 1024; n += 7) {
    std::string text = format_bytes(bytes{n << 20});
    text.erase(text.find(' '), 1);
    CHECK(parse_bytes(text) == bytes{n << 20});
  }
}
