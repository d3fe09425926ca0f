#include "cli/command_flags.hpp"

namespace delta::executor {
namespace {

/// Every flag, in the order of --help.
void describe(command_line& given) {
  given.group("What is trained");
  given.value("--model", "NAME", "one of the models below (default resnet20)");
  given.value("--data", "WHAT",
              "synthetic: labelled colour images made from the seed (default),\n"
              "mnist:DIR: MNIST's IDX files in DIR, or cifar10:DIR: CIFAR-10's binary\n"
              "files in DIR; gzip or plain");
  given.value("--image", "PIXELS",
              "side of the square images, which are scaled to it (default 32)");
  given.value("--batch", "IMAGES", "images per step (default 32)");

  given.group("On what");
  given.value("--device", "WHICH",
              "cuda: an NVIDIA GPU (cuda:1 the second), cpu, or auto (default): the one\n"
              "that the other flags need, else a GPU where one answers, else the CPU");
  given.value("--threads", "N",
              "cpu: threads (default: the machine's); the results do not depend on it");
  given.flag("--tf32",
             "cuda: let tensor cores round what convolutions and products read to 10\n"
             "bits (default: float32 throughout)");
  given.value("--fuse", "on|off",
              "one operator for a batch norm with the addition and the ReLU behind it:\n"
              "the same results but where there is dropout, fewer bytes moved (default: on\n"
              "with a GPU, off on a CPU)");
  given.value("--update-group", "SIZE",
              "update parameters together once SIZE of their gradients are complete: the\n"
              "same results but where there is dropout, fewer kernels, gradients kept for\n"
              "longer; 0: each by itself (default: 16MiB on a GPU, 0 on a CPU)");
  given.value("--kernels", "WHOSE",
              "cuda: cudnn (default where it was found), or to compare legacy: cuDNN's\n"
              "older API for convolutions, or own: convolutions of ours; graph is cudnn");
  given.value("--batch-norm", "WHOSE",
              "cuda: batch norm by kernels that are own (default) or cudnn's, for\n"
              "comparison: as operators by themselves, so that it is --fuse off, too; not\n"
              "with --kernels own");
  given.value("--workspace-cap", "SIZE",
              "cuda: convolutions take no more workspace than that, also where more\n"
              "would make them faster (default: by the budget, at most 1GiB)");
  given.value("--arena", "HOW",
              "cuda: plain (default): one cudaMalloc, or vmm: one range of the driver's\n"
              "virtual memory API");
  given.flag("--no-overlap",
             "wait for each copy (cuda: copy on the stream that computes), to measure what\n"
             "overlap gains");
  given.flag("--fill-rounding",
             "cuda: write what rounding adds to tensors, too: for compute-sanitizer's\n"
             "initcheck");

  given.group("For how long, and how");
  given.value("--steps", "N",
              "train for N steps (default 10, with --find-budget 3); not with --epochs");
  given.value("--epochs", "N", "train for N passes over the training images; not with --steps");
  given.value("--optimizer", "NAME", "sgd (default) or adam");
  given.value("--lr", "X", "learning rate (default 0.1, with adam 0.001)");
  given.value("--momentum", "X", "sgd: momentum, at least 0 and below 1 (default 0.9)");
  given.value("--beta1", "X", "adam: decay of the gradient's mean, below 1 (default 0.9)");
  given.value("--beta2", "X", "adam: decay of its square's mean, below 1 (default 0.999)");
  given.value("--epsilon", "X", "adam: added to the root, from 1e-30 to 1 (default 1e-8)");
  given.value("--weight-decay", "X", "weight decay, from 0 to 1 (default 0.0001)");
  given.value("--dropout", "P",
              "probability of zeroing what the last linear layer reads, below 1\n"
              "(default 0: none)");
  given.value("--lr-steps", "E,E,...", "epochs after which the rate is multiplied by --lr-gamma");
  given.value("--lr-gamma", "G", "that factor, over 0 and up to 1 (default 0.1); needs --lr-steps");
  given.value("--seed", "N", "weights, order of the images, synthetic images, dropout (default 1)");
  given.flag("--evaluate", "measure accuracy on the images held back, after every epoch");

  given.group("Memory");
  given.value("--budget", "BYTES|PERCENT%",
              "what tensors, workspace and copies in flight may take together;\n"
              "PERCENT% is of the unmanaged peak, measured first in the same run\n"
              "(default: no budget)");
  given.flag("--find-budget",
             "in place of --budget: record one step, replay it in many budgets, and\n"
             "train in the smallest that keeps to --max-overhead; see below");
  given.value("--max-overhead", "X",
              "step time over unmanaged step time, from 1 to 1000 (default 1.2);\n"
              "needs --find-budget");
  given.value("--host-budget", "BYTES",
              "host memory for tensors copied out (default: as much as the\n"
              "unmanaged peak); needs a budget");
  given.value("--policy", "NAME",
              "what leaves and how it comes back (default adaptive with a budget, also\n"
              "one to be found, unmanaged without); 'list' explains each in a line");

  given.group("Comparing and measuring");
  given.flag("--verify",
             "run the unmanaged twin too, and compare every loss and the final\n"
             "parameters, optimizer state and running statistics bit for bit;\n"
             "needs a budget");
  given.flag("--check-replays",
             "run every operator that may be replayed once more right away and compare its\n"
             "outputs byte for byte; the first that differs ends the run with its name");
  given.flag("--verify-tensors",
             "cpu: hash every tensor when it is made, and after every reload, recompute\n"
             "and operator that reads it; the first that differs ends the run with the\n"
             "operator, the cause and the step");
  given.value("--copy-rate", "RATE",
              "cpu: slow copies down to RATE each way, to imitate a PCIe link;\nneeds a budget");
  given.value("--copy-threads", "N",
              "cpu: 2: a thread per direction copies beside the kernels; 0: the kernels'\n"
              "threads copy in between, which is better where all cores compute; auto\n"
              "(default): whichever costs less, as measured at the start; needs a budget");
  given.flag("--virtual-clock",
             "take times from flops and bytes instead of the clock: the same\n"
             "decisions on every run; needs a budget");
  given.flag("--turns",
             "before each step say 'waits for its turn' on standard error and wait for a\n"
             "line on standard input: runs that take turns can be compared on a machine\n"
             "whose speed changes (bench/live.py)");

  given.group("Output");
  given.value("--json", "FILE", "write the results to FILE, all at once, when done");
  given.value("--timeline", "FILE",
              "write what the run does to FILE as it goes on, for ui.perfetto.dev and\n"
              "chrome://tracing: compute, copies out and in, bytes, decisions with their\n"
              "reasons (some 100 KB a step)");
  given.value("--decisions", "FILE",
              "write every decision to FILE as it is taken, a line of JSON each: what\n"
              "left or came back, how, for whom, and what the other way would cost");
  given.value("--record", "FILE",
              "record what the run asks of its memory, for delta-replay: write it to\n"
              "FILE when done, gzip if it ends in .gz; with --find-budget the step that\n"
              "is replayed. On a GPU operators are timed by events, for which the step may\n"
              "be held up: it takes longer than one that is not recorded");
  given.value("--save", "FILE",
              "save the training's state (a checkpoint) to FILE behind the last step; the\n"
              "old file stays until the new one is on the disk, whatever happens");
  given.value("--save-every", "N", "also behind every N-th step; needs --save");
  given.value("--resume", "FILE",
              "go on from FILE to the same bits, under any budget, policy and threads; all\n"
              "that the bits depend on must be as it was; --steps and --epochs count from\n"
              "the beginning");
  given.list("--table", "FILE", "train nothing: print one table of these earlier results");
  given.flag("--version", "print the version, the commit, and what was built in");
  given.flag("-h,--help", "print this text");
}

}  // namespace

command_flags::command_flags(int argc, const char* const* argv) : command_line("delta-train") {
  describe(*this);
  split(argc, argv);
}

std::string command_flags::help(std::span<const preset> policies) const {
  std::string text =
      "delta-train: trains a residual network on a CPU or a GPU under a byte budget.\n"
      "\n"
      "Under --budget, tensors that do not fit are dropped and computed again, or copied out\n"
      "and back, as --policy decides. The results are the same bits as without a budget;\n"
      "--verify shows it.\n";
  text += "\n" + flags();
  text += "\nModels (and their parameters but for the last layer):\n";
  text += name_lines(known_models(), [](const model_choice& model) {
    return std::string(model.explanation) + ", images from " +
           std::to_string(model.smallest_image) + " pixels up";
  });
  text += "\nPolicies:\n" + policy_lines(policies);
  text +=
      "  (m: bytes, s: operators since the last use, c_r: what computing it again costs,\n"
      "  c_s: what copying it out and back costs)\n"
      "\n"
      "Below the table of results a policy that learns from steps says what it learned: how many\n"
      "steps it saw; what the last one needs without a budget; what that took over the time of "
      "its\n"
      "operators, each counted once (the rest is recomputing, waiting, deciding, and making the\n"
      "images); of adaptive, which policy would decide the next one, and what that is expected to\n"
      "take.\n"
      "\n"
      "--find-budget trains three steps without a budget and records the last. It replays that,\n"
      "as often in a row as there are steps, but 8 times at most, in the budgets of "
      "delta-replay's\n"
      "--find-budget. It trains in the smallest in which the last repetition keeps to\n"
      "--max-overhead, to compare what it takes with what the replay says. The first step is left\n"
      "out, as a policy knows nothing then. A budget is confirmed when the run comes to its end "
      "in\n"
      "it and keeps to the overhead: the median step's but for the first, or with --virtual-clock\n"
      "the last step's in virtual time. If it is not, larger ones are tried, three in all.\n"
      "--timeline and --decisions show the last run.\n"
      "\n"
      "Units:\n"
      "  sizes  65536, 512KiB, 300MiB, 1.5GiB; KB, MB and GB are powers of 1000\n"
      "  rates  2GB/s, 1.5GiB/s, 800MB/s\n"
      "\n"
      "Examples:\n"
      "  delta-train --model resnet50 --image 64 --batch 16 --lr 0.005 --budget 40% --verify\n"
      "  delta-train --data mnist:data/mnist --epochs 3 --lr-steps 2 --evaluate --budget 40%\n"
      "  delta-train --budget 24MiB --copy-rate 2GB/s --json result.json\n"
      "  delta-train --model resnet18 --budget 50% --timeline timeline.json\n"
      "  delta-train --model resnet50 --batch 16 --steps 2 --record resnet50.jsonl.gz\n"
      "  delta-train --model resnet50 --batch 16 --find-budget --max-overhead 1.1 --verify\n"
      "  delta-train --device cuda --model resnet50 --image 224 --batch 128 --budget 60%\n"
      "  delta-train --table first.json second.json\n"
      "\n"
      "Exit codes: 0 done (with --verify: and equal), 1 a failure, or not equal under --verify,\n"
      "2 a flag, file or device that can't be used, 3 the policy can't keep to the budget: the "
      "message\n"
      "names a budget to try, 4 --find-budget: none was confirmed.\n";
  return text;
}

}  // namespace delta::executor
