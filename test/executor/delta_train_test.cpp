// delta-train as a process: exit codes, one line per error, nothing half-written, and the same
// digests from two processes of which one is managed.
// ctest-labels: long_sanitized
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "backend/backend.hpp"
#include "skip.hpp"
#include "temporary_folder.hpp"
#include "tool.hpp"
#include "trace/file.hpp"
#include "train/feasibility.hpp"
#include "train/report.hpp"

using namespace delta::executor;
using namespace delta::test;

namespace {

outcome run(const std::string& flags) {
  return run_tool("delta-train", flags);
}

const std::string tiny = "--image 8 --batch 4 --steps 2 --threads 2 ";

}  // namespace

TEST_CASE("bad input: exit code 2, one line, no file") {
  const temporary_folder folder;
  write_file(folder / "t10k-images-idx3-ubyte", {0, 0, 8, 3, 0, 0});
  write_file(folder / "t10k-labels-idx1-ubyte", {0, 0, 8, 1, 0, 0});
  const auto json = folder / "out.json";
  for (const std::string flags :
       {"--model vgg", "--policy best --budget 40%", "--budget 0", "--budget -3MiB", "--batch 0",
        "--batch 9001", "--find-budget --budget 40%", "--max-overhead 1.1", "--frobnicate",
        "--copy-rate 2GB/s", "--lr-gamma 0.5", "--data cifar10:/none", "--steps 1 --epochs 1",
        "--data mnist:/does/not/exist"}) {
    const outcome o = run(flags + " --json " + json.string());
    CHECK_MESSAGE(o.code == 2, flags);
    CHECK_MESSAGE(is_one_line(o.err), o.err);
    CHECK(o.err.starts_with("delta-train: "));
    CHECK(o.err.find("allowed: ") != std::string::npos);
    CHECK(o.out.empty());
    CHECK_FALSE(std::filesystem::exists(json));
  }
  const outcome truncated = run("--data mnist:" + folder.path().string());
  CHECK(truncated.code == 2);
  CHECK(truncated.err ==
        "delta-train: " + (folder / "t10k-images-idx3-ubyte").string() +
            ": truncated in its header; allowed: a whole IDX file, gzip or plain\n");
  const outcome unwritable = run("--json /does/not/exist/out.json");
  CHECK(unwritable.code == 2);
  CHECK(is_one_line(unwritable.err));
}

TEST_CASE("a GPU that is not there: exit code 2, one line that says what to do, no file") {
  if (cuda_answers()) {
    skip("delta_train_test: what --device cuda says without a GPU", "there is one");
    return;
  }
  const temporary_folder folder;
  const outcome o = run("--device cuda --json " + (folder / "out.json").string());
  CHECK(o.code == 2);
  CHECK_MESSAGE(is_one_line(o.err), o.err);
  CHECK_MESSAGE(o.err.find("--device cpu") != std::string::npos, o.err);
  CHECK(o.out.empty());
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("the report names the device") {
  const temporary_folder folder;
  const auto json = folder / "out.json";
  const outcome o = run(tiny + "--device cpu --json " + json.string());
  CHECK_MESSAGE(o.code == 0, o.err);
  const train_report r = read_json(json);
  CHECK(r.device == "cpu");
  REQUIRE(r.device_name.has_value());
  CHECK(r.device_name->ends_with(", 2 threads"));
  CHECK(r.host_waits == 0);
}

TEST_CASE("a budget below the largest operator: exit code 2, the bound named, no file") {
  const temporary_folder folder;
  const auto json = folder / "out.json";
  const outcome o = run(tiny + "--budget 1KiB --json " + json.string());
  CHECK(o.code == 2);
  const auto line = o.err.find("delta-train: --budget: 1024 bytes are less than the largest ");
  REQUIRE(line != std::string::npos);
  CHECK(is_one_line(o.err.substr(line)));
  CHECK(o.err.find("allowed: at least ", line) != std::string::npos);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("help and the list of policies: exit code 0, nothing on stderr") {
  for (const std::string flags : {"--help", "--policy list"}) {
    const outcome o = run(flags);
    CHECK(o.code == 0);
    CHECK(o.err.empty());
    CHECK(o.out.find("online") != std::string::npos);
  }
}

TEST_CASE(
    "--verify-tensors: a right run compares its tensors, says how many, and has the same bits") {
  const temporary_folder folder;
  const auto json = (folder / "out.json").string();
  const outcome o =
      run(tiny + "--device cpu --budget 60% --verify --verify-tensors --json " + json);
  CHECK_MESSAGE(o.code == 0, o.err);
  CHECK(o.out.find(" times a tensor had the bits that it had before") != std::string::npos);
  const train_report r = read_json(json);
  CHECK(r.bit_identical == true);
  CHECK(r.tensors_compared.value_or(0) > r.reloads + r.recomputes);
}

TEST_CASE("two processes, one managed: the same digests; one table of both") {
  const temporary_folder folder;
  const auto plain = (folder / "plain.json").string();
  const auto managed = (folder / "managed.json").string();
  const outcome first = run(tiny + "--json " + plain);
  CHECK_MESSAGE(first.code == 0, first.err);
  const outcome second = run(tiny + "--budget 60% --policy online --json " + managed);
  CHECK_MESSAGE(second.code == 0, second.err);
  const train_report a = read_json(plain);
  const train_report b = read_json(managed);
  CHECK(a.policy == "unmanaged");
  CHECK(b.policy == "online");
  CHECK(a.losses.size() == 2);
  CHECK(a.losses_digest == b.losses_digest);
  CHECK(a.parameters_digest == b.parameters_digest);
  CHECK(a.state_digest == b.state_digest);
  CHECK(b.peak_bytes <= b.budget_bytes);
  CHECK(b.peak_bytes < a.peak_bytes);

  const outcome table = run("--table " + plain + " " + managed);
  CHECK(table.code == 0);
  CHECK(std::ranges::count(table.out, '\n') == 3);
}

TEST_CASE(
    "runs that take turns: a step says that it waits, goes on where there is no input, same bits") {
  const temporary_folder folder;
  const std::string flags = "--batch 4 --image 16 --steps 3 --seed 3 --json ";
  const auto alone = folder / "alone.json", waits = folder / "waits.json";
  REQUIRE(run_tool("delta-train", flags + alone.string()).code == 0);
  // Nothing is on standard input: every wait is over at once.
  const outcome o = run_tool("delta-train", "--turns " + flags + waits.string());
  REQUIRE(o.code == 0);
  int turns = 0;
  for (auto at = o.err.find("waits for its turn\n"); at != std::string::npos;
       at = o.err.find("waits for its turn\n", at + 1))
    ++turns;
  CHECK(turns == 3);
  CHECK(nlohmann::json::parse(read_text(waits))["parameters_digest"] ==
        nlohmann::json::parse(read_text(alone))["parameters_digest"]);
}

TEST_CASE("a policy that learns says below the table, and in the report, what it learned") {
  const temporary_folder folder;
  const auto json = (folder / "learned.json").string();
  const auto find_after = [&](const std::string& flags) {
    const outcome o = run(tiny + "--budget 60% --virtual-clock --json " + json + " " + flags);
    REQUIRE_MESSAGE(o.code == 0, o.err);
    const train_report r = read_json(json);
    REQUIRE(r.learned.has_value());
    CHECK(r.learned->steps == 2);
    CHECK(r.learned->kinds == 1);
    CHECK(r.learned->divergences == 0);
    CHECK(r.learned->operators > 100);
    CHECK(r.learned->peak_bytes == r.unmanaged_peak_bytes->total);
    CHECK(r.learned->measured_overhead >= 1);
    CHECK(r.learned->memory_bytes > 0);
    // Heading, row, what was learned, and predicted beside measured.
    CHECK(std::ranges::count(o.out, '\n') == 4);
    CHECK(o.out.find("\nresnet20 " + r.policy + ": learned from 2 steps, all alike; ") !=
          std::string::npos);
    return std::pair(r, o.out);
  };
  const auto [usual, usual_text] = find_after("");
  CHECK(usual.policy == "adaptive");
  CHECK((usual_text.find("follows a plan that should take ") != std::string::npos) ==
        usual.learned->expected_overhead.has_value());
  const outcome other = run(tiny + "--budget 60% --policy online --json " + json);
  CHECK(other.out.find("learned") == std::string::npos);
  CHECK_FALSE(read_json(json).learned.has_value());
}

TEST_CASE("a budget is found, trained in and confirmed, by the clock") {
  const temporary_folder folder;
  const auto json = folder / "found.json";
  const auto step = folder / "step.jsonl";
  // An overhead that a busy machine can't miss.
  const outcome o = run(tiny + "--find-budget --max-overhead 100 --verify --json " + json.string() +
                        " --record " + step.string());
  CHECK_MESSAGE(o.code == 0, o.err);
  CHECK(o.out.find("smallest budgets with an overhead of at most 100.000x") != std::string::npos);
  CHECK(o.out.find("confirmed\n") != std::string::npos);
  const train_report r = read_json(json);
  CHECK(r.policy == "adaptive");
  CHECK(r.steps == 2);
  CHECK(r.budget_confirmed == true);
  CHECK(r.bit_identical == true);
  CHECK(r.peak_bytes <= r.budget_bytes);
  REQUIRE(r.unmanaged_peak_bytes.has_value());
  CHECK(r.budget_bytes < r.unmanaged_peak_bytes->total);
  CHECK(r.max_overhead == 100);
  CHECK(r.predicted_overhead.value_or(101) <= 100);
  CHECK(r.measured_overhead == r.step_seconds / *r.unmanaged_step_seconds);
  const delta::trace t = read_trace(step);
  CHECK(std::ranges::count(t.events, delta::trace::kind::end_of_step, &delta::trace::event::what) ==
        1);
}

TEST_CASE("no budget is confirmed: exit code 4, the curve, one line of error, a report of it") {
  const temporary_folder folder;
  const auto json = folder / "none.json";
  const outcome o = run(tiny + "--virtual-clock --policy dtr --find-budget --max-overhead 1 " +
                        "--json " + json.string());
  CHECK(o.code == 4);
  CHECK(
      o.err.ends_with("\ndelta-train: --find-budget: no budget that was replayed keeps to an "
                      "overhead of 1.000x\n"));
  CHECK(o.out.find("no budget that was tried keeps to it") != std::string::npos);
  const train_report r = read_json(json);
  CHECK(r.budget_confirmed == false);
  CHECK(r.error == "no budget that was replayed keeps to an overhead of 1.000x");
}

TEST_CASE("a timeline of the managed run, also of one that ends in an error") {
  const temporary_folder folder;
  const auto file = folder / "timeline.json";
  const auto parsed = [&] { return nlohmann::json::parse(read_text(file)); };
  const std::string flags = tiny + "--policy online --timeline " + file.string() + " --budget ";
  CHECK(run(flags + "50%").code == 0);
  std::map<std::string, int> phases;
  std::set<std::string> lanes;
  bool convolution = false;
  for (const auto& e : parsed()) {
    ++phases[e["ph"]];
    if (e["name"] == "thread_name") lanes.insert(std::string(e["args"]["name"]));
    convolution = convolution || e["name"] == "layer1.0.conv1.forward";
  }
  CHECK(lanes == std::set<std::string>{"compute", "copy in", "copy out", "decisions"});
  CHECK(phases["X"] > 100);
  CHECK(phases["C"] > 100);
  CHECK(phases["i"] > 0);
  CHECK(convolution);
  // Recomputation alone can't do with so little; what it did until then is there to be looked at.
  CHECK(run(tiny + "--policy dtr --batch 16 --budget 60% --timeline " + file.string()).code == 3);
  CHECK(parsed().size() > 10);
}

TEST_CASE(
    "a recording of the run, and what it decided; of a run that ends in an error the latter") {
  const temporary_folder folder;
  const auto file = folder / "trace.jsonl.gz";
  const auto log = folder / "decisions.jsonl";
  const std::string flags = tiny + "--record " + file.string() + " --decisions " + log.string();
  CHECK(run(flags + " --policy online --budget 50% --evaluate").code == 0);
  const delta::trace t = read_trace(file);
  REQUIRE(t.recorded_on.has_value());
  CHECK(t.recorded_on->device.ends_with(" threads"));
  CHECK(t.recorded_on->rate_out > 0);
  CHECK(t.recorded_on->rate_in > 0);
  CHECK(t.recorded_on->granularity == cpu_granularity);
  CHECK_FALSE(t.has_results());
  CHECK(std::ranges::none_of(t.operations, [](const auto& o) { return o.cost.count() <= 0; }));
  const auto steps =
      std::ranges::count(t.events, delta::trace::kind::end_of_step, &delta::trace::event::what);
  const auto backward =
      std::ranges::count(t.events, delta::trace::kind::backward, &delta::trace::event::what);
  CHECK(backward >= 1);
  CHECK(steps > backward);  // evaluation passes end steps, too
  CHECK(std::ranges::find(t.names, "layer1.0.conv1.forward") != t.names.end());
  std::istringstream lines(read_text(log));
  std::uint64_t decisions = 0;
  for (std::string line; std::getline(lines, line);)
    CHECK(nlohmann::json::parse(line).at("decision") == ++decisions);
  CHECK(decisions > 10);

  std::filesystem::remove(file);
  CHECK(run(flags + " --policy dtr --batch 16 --budget 60%").code == 3);
  CHECK_FALSE(std::filesystem::exists(file));
  CHECK_FALSE(read_text(log).empty());

  // The program is the same without a budget, and so is its trace, but for what was measured.
  CHECK(run(tiny + "--evaluate --record " + file.string()).code == 0);
  CHECK(read_trace(file).events == t.events);
  CHECK(read_trace(file).tensors == t.tensors);
}
