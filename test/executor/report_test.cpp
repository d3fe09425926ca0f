// ctest-labels: long_sanitized
#include "train/report.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "cli/output_file.hpp"
#include "temporary_folder.hpp"
#include "train/digest.hpp"

using namespace delta::executor;

namespace {

train_report sample() {
  train_report r;
  r.model = "resnet50";
  r.data = "synthetic";
  r.batch = 128;
  r.image = 64;
  r.seed = 18446744073709551615u;
  r.threads = 2;
  r.steps = 2;
  r.policy = "online";
  r.budget_bytes = 400u << 20;
  r.peak_bytes = 399u << 20;
  r.unmanaged_peak_bytes = bytes_by_class{1000u << 20, 1, 2, 3, 4, 5};
  r.step_seconds = 1.25;
  r.unmanaged_step_seconds = 1.0;
  r.losses = {2.30258512f, 0.1f};
  r.losses_digest = "00ff";
  r.bit_identical = true;
  r.evictions = 12;
  r.recomputes = 34;
  return r;
}

}  // namespace

TEST_CASE("a report survives writing and reading, bit for bit") {
  const delta::test::temporary_folder folder;
  const train_report r = sample();
  write_json(r, folder / "r.json");
  const train_report back = read_json(folder / "r.json");
  CHECK(back.model == r.model);
  CHECK(back.seed == r.seed);
  CHECK(back.losses == r.losses);
  CHECK(back.step_seconds == r.step_seconds);
  REQUIRE(back.unmanaged_peak_bytes.has_value());
  CHECK(back.unmanaged_peak_bytes->total == r.unmanaged_peak_bytes->total);
  CHECK(back.unmanaged_peak_bytes->workspace == 5);
  CHECK(back.bit_identical == true);
  CHECK_FALSE(back.host_budget_bytes.has_value());
  CHECK_FALSE(back.error.has_value());

  const auto text = delta::test::read_file(folder / "r.json");
  const std::string json(text.begin(), text.end());
  for (const char* key : {"model",
                          "device",
                          "batch",
                          "image",
                          "policy",
                          "budget_bytes",
                          "peak_bytes",
                          "unmanaged_peak_bytes",
                          "parameters",
                          "gradients",
                          "optimizer_state",
                          "activations",
                          "workspace",
                          "host_peak_bytes",
                          "step_seconds",
                          "unmanaged_step_seconds",
                          "losses",
                          "losses_digest",
                          "parameters_digest",
                          "state_digest",
                          "bit_identical",
                          "evictions",
                          "offloads",
                          "reloads",
                          "recomputes",
                          "prefetches",
                          "stall_seconds",
                          "manager_seconds",
                          "smallest_budget_bytes",
                          "moves",
                          "moved_bytes",
                          "copy_rate",
                          "virtual_clock"}) {
    CHECK_MESSAGE(json.find('"' + std::string(key) + '"') != std::string::npos, key);
  }
}

TEST_CASE("what was learned is an object of its own, and a line below the table") {
  const delta::test::temporary_folder folder;
  train_report r = sample();
  r.policy = "adaptive";
  r.learned = learned_report{.steps = 10,
                             .kinds = 1,
                             .divergences = 2,
                             .operators = 412,
                             .peak_bytes = 785u << 20,
                             .measured_overhead = 1.042,
                             .expected_overhead = 1.031,
                             .memory_bytes = 65536};
  write_json(r, folder / "r.json");
  const train_report back = read_json(folder / "r.json");
  REQUIRE(back.learned.has_value());
  CHECK(back.learned->steps == 10);
  CHECK(back.learned->divergences == 2);
  CHECK(back.learned->peak_bytes == 785u << 20);
  CHECK(back.learned->expected_overhead == 1.031);
  CHECK(back.learned->memory_bytes == 65536);
  const auto line = [](const train_report& report) {
    std::ostringstream out;
    print_table(out, {&report, 1});
    const std::string text = out.str();
    return text.substr(text.find('\n', text.find('\n') + 1) + 1);
  };
  CHECK(
      line(back) ==
      "resnet50 adaptive: learned from 10 steps, all alike; the last, of 412 operators, needs 785 "
      "MiB unmanaged (the budget is 400 MiB) and took 1.04x its operators' time; the next one "
      "follows a plan that should take 1.03x\n");
  r.learned = learned_report();
  r.learned->steps = 5, r.learned->kinds = 2, r.learned->operators = 1;
  r.learned->measured_overhead = 1;
  const std::string rest =
      "; the last, of 1 operator, needs 0 B unmanaged (the budget is 400 MiB) and took 1.00x its "
      "operators' time\n";
  CHECK(line(r) == "resnet50 adaptive: learned from 5 steps of 2 kinds" + rest);
  r.learned->steps = r.learned->kinds = 1;
  CHECK(line(r) == "resnet50 adaptive: learned from 1 step" + rest);
  CHECK(line(sample()).empty());
}

TEST_CASE("steps are shown as predicted beside what came out") {
  const delta::test::temporary_folder folder;
  train_report r = sample();
  r.seconds_by_step = {0.5, 0.25};
  r.learned.emplace().steps = 2;
  r.learned->outcomes = {{{0, 1.5}, {1.02, 1.031}}};
  write_json(r, folder / "r.json");
  const train_report back = read_json(folder / "r.json");
  CHECK(back.seconds_by_step == r.seconds_by_step);
  REQUIRE(back.learned.has_value());
  REQUIRE(back.learned->outcomes.has_value());
  REQUIRE(back.learned->outcomes->size() == 2);
  CHECK(back.learned->outcomes->front().predicted == 0);
  CHECK(back.learned->outcomes->back().predicted == 1.02);
  CHECK(back.learned->outcomes->back().measured == 1.031);
  const auto last_line = [](const train_report& report) {
    std::ostringstream out;
    print_table(out, {&report, 1});
    const std::string text = out.str();
    return text.substr(text.rfind('\n', text.size() - 2) + 1);
  };
  CHECK(last_line(back) == "resnet50 online: predicted / measured: - / 1.50, 1.02 / 1.03\n");
  for (int i = 0; i < 7; ++i) r.learned->outcomes->push_back({1.1, 1.2});
  CHECK(last_line(r).starts_with(
      "resnet50 online: predicted / measured, of the last 8 steps: 1.02 / 1.03, 1.10"));
  r.learned->outcomes->clear();
  CHECK(last_line(r).find("predicted /") == std::string::npos);
}

TEST_CASE("what operators ran on is kept, and a report from before reads without it") {
  const delta::test::temporary_folder folder;
  train_report r = sample();
  r.algorithms = {{{"conv1.forward", "cuDNN engine 48, knobs 2=1, tensor cores", 4096},
                   {"conv1.backward_filter", "cuDNN engine 34", 512}}};
  write_json(r, folder / "r.json");
  const train_report back = read_json(folder / "r.json");
  REQUIRE(back.algorithms.has_value());
  REQUIRE(back.algorithms->size() == 2);
  CHECK(back.algorithms->front().operation == "conv1.forward");
  CHECK(back.algorithms->front().algorithm == "cuDNN engine 48, knobs 2=1, tensor cores");
  CHECK(back.algorithms->back().workspace_bytes == 512);

  const auto text = delta::test::read_file(folder / "r.json");
  auto old = nlohmann::json::parse(text.begin(), text.end());
  CHECK(old.erase("algorithms") == 1);
  const std::string without = old.dump();
  delta::test::write_file(folder / "old.json", {without.begin(), without.end()});
  CHECK_FALSE(read_json(folder / "old.json").algorithms.has_value());
}

TEST_CASE("what a budget was looked for by is kept, and a report from before reads without it") {
  const delta::test::temporary_folder folder;
  train_report r = sample();
  r.max_overhead = 1.2;
  r.predicted_overhead = 1.19;
  r.measured_overhead = 1.21;
  r.budget_confirmed = false;
  write_json(r, folder / "r.json");
  const train_report back = read_json(folder / "r.json");
  CHECK(back.max_overhead == 1.2);
  CHECK(back.predicted_overhead == 1.19);
  CHECK(back.measured_overhead == 1.21);
  CHECK(back.budget_confirmed == false);

  const auto text = delta::test::read_file(folder / "r.json");
  auto old = nlohmann::json::parse(text.begin(), text.end());
  for (const char* key :
       {"max_overhead", "predicted_overhead", "measured_overhead", "budget_confirmed"})
    CHECK(old.erase(key) == 1);
  const std::string without = old.dump();
  delta::test::write_file(folder / "old.json", {without.begin(), without.end()});
  const train_report before = read_json(folder / "old.json");
  CHECK(before.model == r.model);
  CHECK_FALSE(before.max_overhead.has_value());
  CHECK_FALSE(before.budget_confirmed.has_value());
}

TEST_CASE("a loss that diverged is null, and NaN again when read") {
  const delta::test::temporary_folder folder;
  train_report r = sample();
  r.losses = {1.0f, std::numeric_limits<float>::quiet_NaN()};
  write_json(r, folder / "r.json");
  const auto losses = read_json(folder / "r.json").losses;
  REQUIRE(losses.size() == 2);
  CHECK(losses[0] == 1.0f);
  CHECK(std::isnan(losses[1]));
}

TEST_CASE("what is no report is refused by name") {
  const delta::test::temporary_folder folder;
  const auto missing = folder / "none.json";
  CHECK_THROWS_WITH_AS(
      read_json(missing),
      (missing.string() + ": can't be opened; allowed: a file that --json wrote").c_str(),
      std::runtime_error);
  for (const std::string content : {"", "{", "{}", "[1]", "3", "{\"model\": 3}"}) {
    const auto file = folder / "bad.json";
    delta::test::write_file(file, {content.begin(), content.end()});
    CHECK_THROWS_WITH_AS(
        read_json(file),
        (file.string() + ": is no report; allowed: a file that --json wrote").c_str(),
        std::runtime_error);
  }
}

TEST_CASE("an output file appears whole or not at all") {
  const delta::test::temporary_folder folder;
  { const output_file dropped(folder / "x"); }
  CHECK(std::filesystem::is_empty(folder.path()));

  delta::test::write_file(folder / "x", {'o', 'l', 'd'});
  output_file file(folder / "x");
  CHECK(delta::test::read_file(folder / "x").size() == 3);  // the old one until commit
  file.commit("newer");
  CHECK(delta::test::read_file(folder / "x") == std::vector<std::uint8_t>{'n', 'e', 'w', 'e', 'r'});
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);

  // Somebody takes the folder away while the run goes on: a line, not a crash.
  const auto below = folder / "below";
  std::filesystem::create_directory(below);
  output_file orphan(below / "y");
  std::filesystem::remove_all(below);
  CHECK_THROWS_AS(orphan.commit("text"), std::runtime_error);
}

TEST_CASE("the table is aligned and says what is unknown") {
  train_report bare;
  bare.model = "resnet20";
  bare.policy = "unmanaged";
  bare.peak_bytes = 5u << 20;
  train_report differs = sample();
  differs.bit_identical = false;
  const std::array<train_report, 3> reports{sample(), bare, differs};
  std::ostringstream out;
  print_table(out, reports);
  CHECK(out.str() ==
        "model     policy      budget      peak  saving  step time  evictions  offloads  reloads  "
        "recomputes  bit-identical\n"
        "resnet50  online     400 MiB   399 MiB  60.1 %      1.25x         12         0        0  "
        "        34            yes\n"
        "resnet20  unmanaged        -  5.00 MiB       -          -          0         0        0  "
        "         0              -\n"
        "resnet50  online     400 MiB   399 MiB  60.1 %      1.25x         12         0        0  "
        "        34             NO\n");
}

TEST_CASE("a GPU is named below the table, in a line of its own; the CPU is not") {
  train_report a;
  a.model = "resnet20";
  a.policy = "online";
  train_report b = a;
  b.device = "cuda";
  b.device_name = "NVIDIA H100 80GB HBM3";
  std::ostringstream out;
  print_table(out, std::array{a, b});
  CHECK(out.str().ends_with("\nresnet20 online: on NVIDIA H100 80GB HBM3\n"));
  CHECK(out.str().find("cpu") == std::string::npos);
}

TEST_CASE("the device, its name and the host's waits are kept; older reports have no names") {
  const delta::test::temporary_folder folder;
  train_report r;
  r.device = "cuda";
  r.device_name = "NVIDIA H100 80GB HBM3";
  r.host_wait_seconds = 0.25;
  r.host_waits = 3;
  write_json(r, folder / "r.json");
  const train_report back = read_json(folder / "r.json");
  CHECK(back.device == "cuda");
  CHECK(back.device_name == r.device_name);
  CHECK(back.host_wait_seconds == 0.25);
  CHECK(back.host_waits == 3);
  write_json({}, folder / "old.json");
  CHECK(read_json(folder / "old.json").device == "cpu");
  CHECK_FALSE(read_json(folder / "old.json").device_name.has_value());
}

TEST_CASE("digests: known values, and every bit counts") {
  CHECK(digest{}.hex() == "cbf29ce484222325");
  const std::array<char, 6> foobar{'f', 'o', 'o', 'b', 'a', 'r'};
  CHECK(digest{}.add(std::span<const char>(foobar)).hex() == "85944171f73967e8");
  const std::array<float, 2> zeros{0.0f, 0.0f};
  const std::array<float, 2> signs{0.0f, -0.0f};
  CHECK(digest{}.add(std::span<const float>(zeros)).hex() !=
        digest{}.add(std::span<const float>(signs)).hex());
}
