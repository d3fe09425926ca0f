#include "cli/option_values.hpp"

#include <stdexcept>

#include "cli/output_file.hpp"

namespace delta::executor {
std::string policy_lines(std::span<const preset> policies) {
  return name_lines(policies, [](const preset& policy) { return policy.explanation; });
}

bool read_real(std::string_view text, double& value) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

double percent_of(std::string_view flag, std::string_view text, std::string_view allowed) {
  double percent = 0;
  if (!read_real(text.substr(0, text.size() - 1), percent))
    reject(flag, in_quotes(text) + " is not a percentage", allowed);
  if (!(percent > 0 && percent <= 100)) reject(flag, in_quotes(text) + " is out of range", allowed);
  return percent;
}

std::filesystem::path output_of(const command_line& given, const std::string& flag) {
  if (!given.has(flag)) return {};
  std::filesystem::path file(given.text(flag));
  try {
    const output_file probe(file);
  } catch (const std::runtime_error& error) {
    reject(flag, error.what(), "a file in an existing folder that may be written to");
  }
  return file;
}

output_files outputs_of(const command_line& given) {
  output_files files{output_of(given, "--json"), output_of(given, "--timeline")};
  if (!files.timeline.empty() && files.timeline == files.json)
    reject("--timeline", "names the file of --json", "another file");
  return files;
}

std::uint64_t whole(std::string_view flag, std::string_view text, std::uint64_t least,
                    std::uint64_t most) {
  const std::string allowed =
      "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range)
    reject(flag, in_quotes(text) + " is too large", allowed);
  if (error != std::errc{} || end != text.data() + text.size()) {
    const bool negative = text.size() > 1 && text[0] == '-' && text[1] >= '0' && text[1] <= '9';
    reject(flag, in_quotes(text) + (negative ? " is negative" : " is not a whole number"), allowed);
  }
  if (value < least) reject(flag, in_quotes(text) + " is too small", allowed);
  if (value > most) reject(flag, in_quotes(text) + " is too large", allowed);
  return value;
}

int whole_int(std::string_view flag, std::string_view text, int least, int most) {
  return static_cast<int>(
      whole(flag, text, static_cast<std::uint64_t>(least), static_cast<std::uint64_t>(most)));
}

bytes size_of(std::string_view flag, std::string_view text) {
  try {
    return parse_bytes(text);
  } catch (const format_error& error) {
    reject(flag, error.what(), size_forms);
  }
}

double rate_of(std::string_view flag, std::string_view text) {
  try {
    return parse_rate(text);
  } catch (const format_error& error) {
    reject(flag, error.what(), rate_forms);
  }
}
nanoseconds latency_of(std::string_view flag, std::string_view text) {
  constexpr nanoseconds longest{1'000'000'000};
  const std::string allowed = std::string(time_forms) + ", up to 1s";
  try {
    const nanoseconds latency = parse_time(text);
    if (latency > longest) reject(flag, in_quotes(text) + " is too long", allowed);
    return latency;
  } catch (const format_error& error) {
    reject(flag, error.what(), allowed);
  }
}

}  // namespace delta::executor
