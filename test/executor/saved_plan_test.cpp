// Plans that are written down: what `adaptive` followed is read again as it was, and whoever
// follows it takes as long as `adaptive` did, on steps that are recorded from PyTorch and by DTR's
// authors.
// ctest-labels: long_sanitized
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "replay/replay_plan.hpp"
#include "simrd_reference.hpp"
#include "trace/file.hpp"
#include "trace/plan_file.hpp"
#include "trace/repeat.hpp"
#include "traces/trace.hpp"

using namespace delta;
using namespace delta::executor;

namespace {

/// Saves the plan of a step of that trace, and follows it. False: `adaptive` had none.
bool check_followed(const trace& step, double part, double rate) {
  const bytes peak = unmanaged_peak(step);
  const replay_machine on{.budget = bytes{std::uint64_t(part * double(peak.count))},
                          .host_budget = peak * 4,
                          .rate_out = rate,
                          .rate_in = rate};
  const trace program = repeat_trace(step, 3);
  offline_plan saved;
  const replay_result made = replay_saving_plan(saved, program, on);
  REQUIRE(made.result == replay_result::verdict::pass);
  if (saved.operators == 0) return false;
  const offline_plan read = parse_plan(text_of(saved), "plan");
  CHECK(read == saved);
  const replay_result followed = replay_plan(read, program, on);
  REQUIRE(followed.result == replay_result::verdict::pass);
  CHECK(followed.steps.back().time == made.steps.back().time);
  CHECK(followed.steps.back().counts.recomputes == made.steps.back().counts.recomputes);
  CHECK(followed.steps.back().counts.offloads == made.steps.back().counts.offloads);
  CHECK(followed.peak <= on.budget);
  return true;
}

}  // namespace

TEST_CASE("a saved plan takes as long as it took adaptive: PyTorch's models with their optimizer") {
  const std::filesystem::path folder = std::filesystem::path(DELTA_SOURCE_DIR) / "test/reference";
  int followed = 0;
  for (const std::string model : {"ResNet-50", "ResNeXt-50", "EfficientNet-B0", "BERT-base"}) {
    const trace step = read_trace(folder / "paper_traces" / (model + ".jsonl.gz"));
    for (const double part : {0.3, 0.6}) {
      INFO(model << " at " << part << " of the peak");
      followed += check_followed(step, part, 22.4e9) ? 1 : 0;
    }
  }
  CHECK(followed >= 6);
}

TEST_CASE("a saved plan takes as long as it took adaptive: DTR's traces") {
  const auto folder = test::dtr_traces("saved_plan_test");
  if (folder.empty()) return;
  int followed = 0;
  for (const std::string model : {"resnet32", "unet", "densenet121", "transformer", "lstm"}) {
    const trace step = test::dtr_trace(folder, model);
    for (const double rate : {12e9, 25e9}) {
      INFO(model << " at " << rate << " bytes per second");
      followed += check_followed(step, 0.4, rate) ? 1 : 0;
    }
  }
  CHECK(followed >= 8);
}
