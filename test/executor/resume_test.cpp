// Training that is saved, killed and resumed comes to the bits of training at once, whatever the
// budget, the policy and the number of threads; what differs in what the bits depend on is refused.
// ctest-labels: long_sanitized
#include "train/resume.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cli/command_line.hpp"
#include "resumed.hpp"
#include "temporary_folder.hpp"
#include "tool.hpp"
#include "training.hpp"

using namespace delta::test;
using namespace delta::executor;

namespace {

/// Forty images to train on, eight to evaluate.
void write_cifar(const std::filesystem::path& folder) {
  std::mt19937 dice(1);
  for (const char* name : {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4",
                           "data_batch_5", "test_batch"}) {
    std::vector<std::uint8_t> images(std::size_t{8} * 3073);
    for (std::size_t i = 0; i < images.size(); ++i)
      images[i] = std::uint8_t(i % 3073 == 0 ? dice() % 10 : dice() % 256);
    write_file(folder / (std::string(name) + ".bin"), images);
  }
}

std::string error_of(const train_options& o) {
  try {
    (void)train(o);
  } catch (const usage_error& error) {
    return error.what();
  }
  return "no error";
}

/// delta-train in a process that is killed after a while; true: it had come to its end before.
bool ends_within(std::vector<std::string> flags, std::chrono::microseconds time) {
  flags.insert(flags.begin(), DELTA_BINARY_DIR "/bin/delta-train");
  std::vector<char*> words;
  for (std::string& f : flags) words.push_back(f.data());
  words.push_back(nullptr);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3; ++i) dup2(nowhere, i);
    execv(words[0], words.data());
    _exit(127);
  }
  int status = 0;
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    if (waitpid(child, &status, WNOHANG) == child) {
      REQUIRE((WIFEXITED(status) && WEXITSTATUS(status) == 0));
      return true;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  kill(child, SIGKILL);
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE((WIFSIGNALED(status) || WEXITSTATUS(status) == 0));
  return WIFEXITED(status);
}

}  // namespace

TEST_CASE("each optimizer: saved and resumed elsewhere, the bits of training at once") {
  for (const std::string optimizer : {"sgd", "adam"})
    check_resumed_elsewhere({"resnet20", 16, 8, 4}, optimizer);
}

TEST_CASE("saving at every step changes no bits and keeps to the budget, under every check") {
  const temporary_folder folder;
  train_options o = saved_options({"resnet20", 16, 8, 5}, "adam");
  const train_report alone = train(o);
  for (const std::string policy : {"adaptive", "online", "dtr", "paper"}) {
    CAPTURE(policy);
    train_options saving = within(o, policy, alone, policy == "dtr" ? 0.8 : 0.4, 2);
    saving.save = folder / "state";
    saving.save_every = 1;
    saving.verify = saving.verify_tensors = policy == "adaptive";
    saving.check_replays = policy == "online";
    const train_report r = train(saving);
    CHECK(r.peak_bytes <= r.budget_bytes);
    CHECK(same_bits(alone, r));
    CHECK(r.bit_identical == (saving.verify ? std::optional(true) : std::nullopt));
  }
}

TEST_CASE("resumed in an epoch's middle, at its end and behind the last step: the same results") {
  const temporary_folder folder;
  write_cifar(folder.path());
  train_options o = saved_options({"resnet20", 16, 8, 7}, "sgd");
  o.data = {data_choice::kind::cifar10, folder.path()};
  o.evaluate = true;
  o.lr_steps = {1};
  const train_report alone = train(o);
  CHECK(alone.evaluation_accuracy.size() == 2);  // behind the epoch's five steps, and the last one
  o.save = folder / "state";
  // Each goes on from the one before it; the last two have nothing left to train.
  for (const std::uint64_t steps : {4u, 5u, 6u, 7u, 7u, 7u}) {
    CAPTURE(steps);
    o.steps = steps;
    const train_report rest = train(o);
    o.resume = o.save;
    CHECK(rest.losses.size() == steps);
    if (steps < 7) continue;
    CHECK(same_bits(alone, rest));
    CHECK(rest.evaluation_accuracy == alone.evaluation_accuracy);
  }
  o.save = folder / "another";
  o.policy = "online";
  o.budget = percent(50);
  CHECK(same_bits(alone, train(o)));
  CHECK(read_text(o.save) == read_text(o.resume));
}

TEST_CASE("killed at random moments and resumed, until it ends: the same bits") {
  const temporary_folder folder;
  const auto file = folder / "state", json = folder / "report.json";
  const std::vector<std::string> flags{
      "--device",       "cpu",  "--image",   "8",      "--batch", "4",
      "--optimizer",    "adam", "--dropout", "0.3",    "--steps", "60",
      "--copy-threads", "2",    "--budget",  "100MiB", "--json"};
  std::vector<std::string> whole = flags;
  whole.push_back(json.string());
  REQUIRE(ends_within(whole, std::chrono::hours(1)));
  const train_report alone = read_json(json);
  std::filesystem::remove(json);

  const std::uint64_t seed = std::random_device()();
  MESSAGE("seed " << seed);
  std::mt19937_64 dice(seed);
  constexpr std::array<std::array<const char*, 3>, 3> ways{
      {{"2MiB", "adaptive", "1"}, {"100MiB", "unmanaged", "2"}, {"3MiB", "online", "2"}}};
  std::uint64_t kills = 0, step = 0, killed_in_saving = 0;
  for (bool ended = false; !ended; ++kills) {
    std::vector<std::string> again = flags;
    const auto& way = ways[kills % ways.size()];
    again.insert(again.end(), {json.string(), "--budget", way[0], "--policy", way[1], "--threads",
                               way[2], "--save", file.string(), "--save-every", "1"});
    if (std::filesystem::exists(file)) again.insert(again.end(), {"--resume", file.string()});
    ended = ends_within(
        again, kills < 20 ? std::chrono::microseconds(dice() % 250'000) : std::chrono::hours(1));
    killed_in_saving += std::filesystem::exists(folder / "state.tmp");
    if (!std::filesystem::exists(file)) continue;
    const checkpoint read = read_checkpoint(file);
    CHECK(read.head.step >= step);
    step = read.head.step;
  }
  MESSAGE(kills << " processes, " << killed_in_saving << " killed while they saved");
  CHECK(step == 60);
  CHECK(same_bits(alone, read_json(json)));
  CHECK_FALSE(std::filesystem::exists(folder / "state.tmp"));
}

TEST_CASE("what the bits depend on must be as it was: a line that names file and flag") {
  const temporary_folder folder;
  train_options o = saved_options({"resnet20", 8, 4, 2}, "sgd");
  o.save = folder / "state";
  (void)train(o);
  const std::string before = read_text(o.save);
  o.resume = o.save;
  const auto differs = [&](const std::string& flag, auto&& change) {
    train_options other = o;
    change(other);
    const std::string line = error_of(other);
    CHECK_MESSAGE(line.starts_with("--resume: '" + o.resume.string() + "' was saved"), line);
    CHECK_MESSAGE(line.find(flag) != std::string::npos, line);
    CHECK(line.find('\n') == std::string::npos);
  };
  differs("--model", [](train_options& x) { x.model = "resnet18", x.image = 32; });
  differs("--image", [](train_options& x) { x.image = 16; });
  differs("--batch", [](train_options& x) { x.batch = 5; });
  differs("--optimizer", [](train_options& x) { x.optimizer = "adam"; });
  differs("--lr", [](train_options& x) { x.lr = 0.02; });
  differs("--momentum", [](train_options& x) { x.momentum = 0.8; });
  differs("--weight-decay", [](train_options& x) { x.weight_decay = 0; });
  differs("--lr-steps", [](train_options& x) { x.lr_steps = {3}; });
  differs("--seed", [](train_options& x) { x.seed = 2; });
  differs("--dropout", [](train_options& x) { x.dropout = 0; });
  differs("--evaluate", [](train_options& x) { x.evaluate = true; });
  differs("--fuse", [](train_options& x) { x.fuse = true; });
  differs("--update-group", [](train_options& x) { x.update_group = delta::bytes{1 << 20}; });
  o.steps = 1;
  CHECK(error_of(o).find("is of step 2 of a run of 1 steps; allowed: --steps 2 or more") !=
        std::string::npos);
  CHECK(read_text(o.save) == before);
}

TEST_CASE("a file system that is full: one line, and the earlier file stays") {
  const temporary_folder folder;
  const auto file = folder / "state", err = folder / "err";
  const std::string tool = DELTA_BINARY_DIR "/bin/delta-train --device cpu --image 8 --batch 4 ";
  const std::string saving = " --save " + file.string() + " >" + err.string() + " 2>&1 </dev/null";
  REQUIRE(shell(tool + "--steps 1" + saving) == 0);
  const std::string before = read_text(file);
  // Blocks of 512 bytes or of 1 KiB, as the shell has them: of two megabytes, a part.
  for (const std::string blocks : {"0", "1", "700"}) {
    // The reader of the pipe writes the file: it has no such limit.
    const int status = shell("{ ulimit -f " + blocks + "; " + tool + "--steps 3 --resume " +
                             file.string() + " --save " + file.string() +
                             " 2>&1; echo code $?; } </dev/null | cat >" + err.string());
    CHECK(status == 0);
    const std::string said = read_text(err);
    INFO(said);
    CHECK(said.find("delta-train: --save: '" + file.string() + "' can't be written: ") !=
          std::string::npos);
    CHECK(said.ends_with("code 1\n"));
    CHECK(read_text(file) == before);
    CHECK_FALSE(std::filesystem::exists(folder / "state.tmp"));
  }
  const outcome full = run_tool("delta-train", "--steps 1 --save /dev/full");
  CHECK(full.code == 2);
  CHECK(is_one_line(full.err));
  const outcome nowhere = run_tool("delta-train", "--steps 1 --save /no/such/folder/state");
  CHECK(nowhere.code == 2);
  CHECK(is_one_line(nowhere.err));
}
