// Training that is saved and resumed in another memory, compared with training at once.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "temporary_folder.hpp"
#include "training.hpp"

namespace delta::test {

/// With dropout, so that random numbers are part of the state.
inline executor::train_options saved_options(const workload& w, const std::string& optimizer) {
  executor::train_options o = unmanaged(w);
  o.optimizer = optimizer;
  if (optimizer == "adam") o.lr = 0.001;
  o.dropout = 0.3;
  return o;
}

/// In a part of the peak of a run without a budget.
inline executor::train_options within(executor::train_options o, std::string_view policy,
                                      const executor::train_report& alone, double part,
                                      int threads) {
  o.threads = threads;
  return managed(o, policy, absolute(std::uint64_t(double(alone.peak_bytes) * part)));
}

/// Half of the steps, then the rest under another budget and policy on another number of threads.
inline void check_resumed_elsewhere(const workload& w, const std::string& optimizer) {
  CAPTURE(w.model);
  CAPTURE(optimizer);
  const temporary_folder folder;
  const executor::train_options o = saved_options(w, optimizer);
  const executor::train_report alone = train(o);
  executor::train_options first = within(o, "online", alone, 0.8, 2);
  first.steps = w.steps / 2;
  first.save = folder / "state";
  const executor::train_report half = train(first);
  CHECK(half.peak_bytes <= half.budget_bytes);
  executor::train_options second = within(o, "adaptive", alone, 0.7, 1);
  second.resume = first.save;
  const executor::train_report rest = train(second);
  CHECK(rest.peak_bytes <= rest.budget_bytes);
  CHECK(rest.evictions + rest.offloads > 0);
  CHECK(same_bits(alone, rest));
  CHECK(rest.losses == alone.losses);
  MESSAGE(row(rest) << ", digests " << rest.parameters_digest << " " << rest.state_digest);
}

}  // namespace delta::test
