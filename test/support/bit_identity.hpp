// The claim that a budget changes no bit, as checks that several tests share.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "training.hpp"

namespace delta::test {

/// A workload and what its unmanaged run gave, against which every managed one is held.
struct twin {
  executor::train_options options;
  executor::train_report report;

  explicit twin(const executor::train_options& o) : options(o), report(train(o)) {}
  [[nodiscard]] std::uint64_t part(int percent_of_peak) const {
    return report.peak_bytes * std::uint64_t(percent_of_peak) / 100;
  }
};

inline void check_equal(const executor::train_report& r, const twin& t) {
  CHECK(same_bits(r, t.report));
  CHECK(r.peak_bytes <= r.budget_bytes);
  CHECK(r.bit_identical.value_or(true));
  MESSAGE(row(r));
}

/// The run reaches its end within `budget` bytes and is equal.
inline void check_passes(const twin& t, std::string_view policy, std::uint64_t budget) {
  const auto result = try_to_train(managed(t.options, policy, absolute(budget)));
  if (const auto* refused = std::get_if<refusal>(&result)) {
    FAIL_CHECK(policy << " in " << budget << " bytes: " << refused->line);
    return;
  }
  check_equal(std::get<executor::train_report>(result), t);
}

/// The run reaches its end and is equal; or it names a larger budget, in which it does.
inline void check_passes_or_names_a_budget(const twin& t, std::string_view policy,
                                           std::uint64_t budget) {
  const auto result = try_to_train(managed(t.options, policy, absolute(budget)));
  if (const auto* r = std::get_if<executor::train_report>(&result)) return check_equal(*r, t);
  const auto& refused = std::get<refusal>(result);
  MESSAGE(policy << " in " << budget << " bytes: " << refused.line);
  CHECK(refused.smallest_budget > budget);
  CHECK(refused.smallest_budget <= t.report.peak_bytes);
  check_passes(t, policy, refused.smallest_budget);
}

}  // namespace delta::test
