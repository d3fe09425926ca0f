// Traces for tests: of a few lines, and of training runs.
#pragma once

#include <cstdint>
#include <string>

#include "temporary_folder.hpp"
#include "trace/file.hpp"
#include "traces/trace.hpp"
#include "training.hpp"

namespace delta::test {

/// The trace that a file of these lines holds.
inline trace parsed(const std::string& lines) {
  return executor::parse_trace(lines, "trace.jsonl");
}

/// ResNet-20's recording under the virtual clock.
inline trace recording(std::uint64_t steps) {
  const temporary_folder folder;
  executor::train_options o =
      unmanaged({.model = "resnet20", .image = 8, .batch = 4, .steps = steps});
  o.virtual_clock = true;
  o.record = folder / "trace.jsonl";
  (void)train(o);
  return executor::read_trace(o.record);
}

}  // namespace delta::test
