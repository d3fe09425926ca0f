// Two processes, one managed and one not, print the same digests.
// ctest-labels: long_sanitized
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <string>

#include "process.hpp"
#include "temporary_folder.hpp"
#include "train/report.hpp"
#include "training.hpp"

using namespace delta::test;
using namespace delta::executor;

namespace {

/// What delta-train with these flags, in a process of its own, wrote to its --json file.
train_report report_of_process(const std::string& flags) {
  const temporary_folder folder;
  const auto json = folder / "report.json";
  const auto log = folder / "log";
  const std::string line = DELTA_BINARY_DIR "/bin/delta-train " + flags + " --json " +
                           json.string() + " >" + log.string() + " 2>&1 </dev/null";
  const int status = shell(line);
  const auto said = read_file(log);
  INFO(std::string(said.begin(), said.end()));
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
  return read_json(json);
}

}  // namespace

TEST_CASE("a managed process and an unmanaged one: the same digests") {
  for (const std::string model : {"--model resnet20 --image 32 --batch 16 --steps 4 --lr 0.05",
                                  "--image 32 --batch 16 --steps 3 --optimizer adam --dropout 0.2",
                                  "--model resnet50 --image 32 --batch 8 --steps 2 --lr 0.01"}) {
    CAPTURE(model);
    const train_report alone = report_of_process(model + " --threads 1");
    CHECK(alone.policy == "unmanaged");
    for (const std::string policy : {"online", "paper", "dtr"}) {
      // dtr can't release parameters, which are most of ResNet-50's memory at this batch.
      if (policy == "dtr" && model.starts_with("--model resnet50")) continue;
      CAPTURE(policy);
      const train_report r =
          report_of_process(model + " --threads 2 --budget 50% --policy " + policy);
      CHECK(r.policy == policy);
      CHECK(r.evictions + r.offloads > 0);
      CHECK(r.peak_bytes <= r.budget_bytes);
      CHECK(same_bits(alone, r));
      MESSAGE(row(r) << ", digests " << r.losses_digest << " " << r.parameters_digest << " "
                     << r.state_digest);
    }
  }
}
