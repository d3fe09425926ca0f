"""The simulator held to reality: what it predicts of a step on this machine, and what the step takes."""

import json
import os
import pathlib
import subprocess
import sys

from page import MEASURED, Section, not_run, number, table
from workbench import Failed, NotMeasured, fastest, say

EXECUTOR = {"resnet20": ("ResNet-20", 32, 128), "resnet50": ("ResNet-50", 64, 32),
            "resnext50_32x4d": ("ResNeXt-50", 64, 16)}
PARTS = (0.6, 0.4)
LIMIT = 0.05  # between predicted and measured, both over the unmanaged time
RECORDED, STEPS, LEARNING = 4, 12, 4


def sizes(bench, model):
    name, image, batch = EXECUTOR[model]
    return bench.pick((name, image, batch), (name, 32 if model == "resnet20" else 224, 128))


def executor(bench, model):
    """By part what is compared. Unmanaged, managed and unmanaged again, as the machine drifts."""
    _, image, batch = sizes(bench, model)
    common = ["--model", model, "--image", image, "--batch", batch, "--lr", 0.005]
    # One core computes, so that copies have another, as a device's copy engines are its own.
    common += bench.pick(["--threads", 1], [])
    copies = bench.pick(["--copy-threads", 2], [])
    trace = bench.keep / f"{model}_{image}_{batch}_on_{bench.device}.jsonl.gz"
    recorded = bench.train(*common, "--steps", RECORDED, file=("--record", trace))
    predicted = bench.replays(trace, ["adaptive"], PARTS)
    found = {}
    for part in PARTS:
        budget = int(recorded["peak_bytes"] * part)
        before = bench.train(*common, "--steps", 4, "--seed", 10 + int(10 * part))
        run = bench.train(*common, *copies, "--steps", STEPS, "--budget", budget, "--policy", "adaptive")
        after = bench.train(*common, "--steps", 4, "--seed", 20 + int(10 * part))
        plain = min(fastest(before), fastest(after))
        row = predicted["adaptive", part]
        found[part] = {
            "predicted": row["overhead"] if row["result"] == "pass" else None,
            "measured": fastest(run, LEARNING) / plain,
            "managing": run["manager_seconds"] / plain,
            "recomputes": [row["recomputes"] / RECORDED, run["recomputes"] / STEPS],
        }
    return found


def pytorch(bench):
    """The same by model and part, of unmodified PyTorch on the CPU."""
    script = pathlib.Path(__file__).with_name("reality_torch.py")

    def run():
        say("EfficientNet-B0 and BERT through PyTorch")
        # The C library keeps what was freed, as a device's allocator does, and does not take new pages of
        # the kernel for it in every step, which no replay knows of.
        kept = {"MALLOC_TRIM_THRESHOLD_": str(1 << 33), "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}
        done = subprocess.run([sys.executable, script, *map(str, PARTS)], capture_output=True,
                              encoding="utf-8", env=os.environ | kept)
        if done.returncode != 0:
            raise Failed(f"reality_torch.py: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        return json.loads(done.stdout)

    return bench.kept(["reality of PyTorch", script.read_text(encoding="utf-8")], run)


def measured(bench, lines, data):
    found = {}
    for model in EXECUTOR:
        name, image, batch = sizes(bench, model)
        found[f"{name}, {image} x {image}, batch {batch}, executor"] = executor(bench, model)
    if bench.device == "cpu":
        found |= {f"{model}, PyTorch": by_part for model, by_part in pytorch(bench).items()}
    for model, by_part in found.items():
        for part, f in by_part.items():
            said, took = f["predicted"], f["measured"]
            off = None if None in (said, took) else took - said
            verdict = "-" if off is None else ("yes" if abs(off) <= LIMIT else "**no**")
            lines.append([MEASURED, model, f"{100 * float(part):.0f} %", number(said), number(took),
                          number(off), verdict, number(f.get("managing")),
                          " / ".join(number(n, 0) for n in f["recomputes"])])
            data.setdefault(model, {})[str(part)] = f


def section(bench, out):
    lines, data = [], {}
    try:
        measured(bench, lines, data)
    except NotMeasured:
        lines = [not_run("reality", 10)]
    return Section("The simulator beside this machine", [
        "A step is recorded here, with its operators' times and the copies' rates, and replayed under a "
        "budget; then it is trained under that budget. Time over unmanaged time, policy `adaptive`, "
        f"the last of four replayed steps and the fastest behind the first {LEARNING} of {STEPS}; "
        f"meant to be within {LIMIT} of each other. The executor computes on one core, so that copies "
        "have the other one; PyTorch's copies on a CPU hide behind nothing, and processor time of one "
        "thread is taken. There the C library keeps what was freed, as a device's allocator does: else "
        "a step under a budget takes thousands of pages of the kernel anew, which no replay knows of, "
        "and no GPU does.",
        table(["row", "model", "budget", "predicted", "measured", "difference", f"within {LIMIT}",
               "managing", "recomputed, predicted / run"], lines),
        "What explains a difference: managing, as a part of the step (of the executor the manager's own "
        "work, rehearsals between steps by `adaptive` included; of PyTorch what a run with memory to spare "
        "takes longer), on the processor that also computes, is in no replay. "
        "A run's costs are measured and scatter, so it may recompute more operators a step than the "
        "replay.",
    ], data)
