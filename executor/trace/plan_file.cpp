#include "trace/plan_file.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "trace/json_line.hpp"
#include "traces/trace.hpp"

namespace delta::executor {
namespace {

constexpr const char* whole_plan = "a whole plan: lines of JSON, the first with the key delta_plan";
constexpr std::int64_t version = 1;
constexpr std::uint32_t most_operators = 1u << 29;  // so that positions of three steps are numbers
// By offline_plan::way.
constexpr std::array<std::string_view, 3> ways{"evict", "offload", "keep"};
constexpr const char* all_ways = "evict, offload or keep";
using position = offline_plan::position;

std::uint32_t number(std::int64_t value, std::string_view key) {
  if (value < 0 || value >= std::numeric_limits<std::uint32_t>::max())
    throw trace_fault{std::string(key) + " " + std::to_string(value), "a number of 32 bits"};
  return static_cast<std::uint32_t>(value);
}

/// Reads line by line.
class plan_reader {
 public:
  void line(std::string_view text) {
    in_.start(text);
    in_.enter_object();
    begun_ ? absence() : header();
    in_.finish();
  }
  /// Behind the last line.
  offline_plan finish() {
    if (!begun_) throw trace_fault{"empty", whole_plan};
    if (expected_ && *expected_ != plan_.absences.size())
      throw trace_fault{std::to_string(plan_.absences.size()) + " absences",
                        std::to_string(*expected_) + " by the first line: the file was cut off"};
    return std::move(plan_);
  }

 private:
  void header() {
    bool is_plan = false;
    std::optional<std::uint32_t> operators;
    for (std::string_view key; in_.next_key(key);) {
      if (key == "delta_plan") {
        if (const std::int64_t v = in_.integer(); v != version)
          throw trace_fault{"version " + std::to_string(v), "version 1"};
        is_plan = true;
      } else if (key == "operators") {
        operators = number(in_.integer(), "operators");
      } else if (key == "absences") {
        expected_ = number(in_.integer(), "absences");
      } else if (key == "held") {
        held();
      } else {
        in_.skip();
      }
    }
    if (!is_plan) throw trace_fault{"a first line without the key delta_plan", whole_plan};
    if (!operators) throw trace_fault{"no operators", "how many operators the step has"};
    if (*operators > most_operators)
      throw trace_fault{std::to_string(*operators) + " operators",
                        "at most " + std::to_string(most_operators)};
    if (!plan_.held.empty() && plan_.held.size() != *operators)
      throw trace_fault{"held of " + std::to_string(plan_.held.size()) + " positions",
                        "one for each of " + std::to_string(*operators) + " operators"};
    plan_.operators = *operators;
    begun_ = true;
  }
  void absence() {
    constexpr std::array<std::string_view, 8> keys{"made_by", "output", "used_by",  "input",
                                                   "from",    "to",     "out_from", "in_from"};
    std::array<std::optional<std::int64_t>, keys.size()> given;
    const auto& [made_by, output, used_by, input, from, to, out_from, in_from] = given;
    std::optional<std::size_t> way;
    for (std::string_view key; in_.next_key(key);) {
      const auto at = std::ranges::find(keys, key);
      if (at != keys.end()) {
        given[static_cast<std::size_t>(at - keys.begin())] = in_.integer();
      } else if (key == "how") {
        const std::string_view how = in_.string();
        const auto known = std::ranges::find(ways, how);
        if (known == ways.end()) throw trace_fault{"unknown way " + quoted(how), all_ways};
        way = static_cast<std::size_t>(known - ways.begin());
      } else {
        in_.skip();
      }
    }
    if (made_by.has_value() == used_by.has_value())
      throw trace_fault{made_by ? "made_by and used_by" : "no made_by and no used_by", "one"};
    const auto is_there = [](const auto& value, const char* key) {
      if (!value) throw trace_fault{std::string("no ") + key, "a number"};
    };
    made_by ? is_there(output, "output") : is_there(input, "input");
    is_there(from, "from"), is_there(to, "to");
    if (!way) throw trace_fault{"no how", all_ways};
    offline_plan::absence a{.how = static_cast<offline_plan::way>(*way)};
    a.tensor =
        made_by ? offline_plan::name{number(*made_by, "made_by"), number(*output, "output")}
                : offline_plan::name{number(*used_by, "used_by"), number(*input, "input"), false};
    const std::int64_t n = plan_.operators;
    if (a.tensor.operation >= n)
      throw trace_fault{"operator " + std::to_string(a.tensor.operation),
                        "one below " + std::to_string(n)};
    const auto within = [&](std::int64_t low, std::int64_t value, std::int64_t high) {
      return low <= value && value <= high;
    };
    const bool in_order = within(made_by ? *made_by : -n, *from, *to - 1) && *to <= 2 * n &&
                          within(-n, out_from.value_or(*from), *from) &&
                          within(*from + 1, in_from.value_or(*to), *to);
    if (!in_order)
      throw trace_fault{
          (made_by ? "made by " + std::to_string(*made_by) + ", " : std::string()) + "away from " +
              std::to_string(*from) + " to " + std::to_string(*to),
          "operators in that order, at most a step of " + std::to_string(n) + " before and behind"};
    a.from = static_cast<position>(*from), a.to = static_cast<position>(*to);
    if (out_from) a.out_from = static_cast<position>(*out_from);
    if (in_from) a.in_from = static_cast<position>(*in_from);
    plan_.absences.push_back(a);
  }
  void held() {
    in_.enter_array();
    while (in_.next_element()) {
      const std::int64_t size = in_.integer();
      if (size < 0) throw trace_fault{"held " + std::to_string(size), "bytes"};
      plan_.held.push_back(static_cast<std::uint64_t>(size));
    }
  }

  json_line in_;
  bool begun_ = false;
  std::optional<std::uint32_t> expected_;
  offline_plan plan_;
};

template <class T>
void put(std::string& text, std::string_view key, const T& value) {
  text.append(",\"").append(key).append("\":").append(std::to_string(value));
}

}  // namespace

std::string text_of(const offline_plan& plan) {
  std::string text = "{\"delta_plan\":" + std::to_string(version);
  put(text, "operators", plan.operators), put(text, "absences", plan.absences.size());
  const char* before = ",\"held\":[";
  for (const std::uint64_t size : plan.held)
    text.append(std::exchange(before, ",")).append(std::to_string(size));
  text += plan.held.empty() ? "}\n" : "]}\n";
  for (const offline_plan::absence& a : plan.absences) {
    text.append("{\"how\":\"").append(ways[static_cast<std::size_t>(a.how)]).append("\"");
    put(text, a.tensor.output ? "made_by" : "used_by", a.tensor.operation);
    put(text, a.tensor.output ? "output" : "input", a.tensor.index);
    put(text, "from", a.from), put(text, "to", a.to);
    if (a.out_from) put(text, "out_from", *a.out_from);
    if (a.in_from) put(text, "in_from", *a.in_from);
    text += "}\n";
  }
  return text;
}

offline_plan parse_plan(std::string_view text, std::string_view name) {
  plan_reader reader;
  std::uint64_t line = 0;
  try {
    while (!text.empty()) {
      ++line;
      const auto end = text.find('\n');
      reader.line(text.substr(0, end));
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    return reader.finish();
  } catch (const trace_fault& fault) {
    throw bad_trace(name, line, fault.wrong.c_str(), fault.expected.c_str());
  }
}

offline_plan read_plan(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto fail = [&](const char* what) { throw bad_trace(path.string(), 0, what, whole_plan); };
  if (!exists(path, ignored)) fail("there is no such file");
  if (!is_regular_file(path, ignored)) fail("it is no regular file");
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) fail("it can't be read");
  return parse_plan(text, path.string());
}

}  // namespace delta::executor
