"""The simulator held to reality: what it predicts of a step on this machine, and what the step takes."""

import statistics

from page import MEASURED, Section, not_run, number, table
from workbench import NotMeasured

EXECUTOR = {"resnet20": ("ResNet-20", 32, 128), "resnet50": ("ResNet-50", 64, 32),
            "resnext50_32x4d": ("ResNeXt-50", 64, 16)}
PARTS = (0.6, 0.4)
LIMIT = 0.05  # between predicted and measured, both over the unmanaged time
STEPS = 10


def sizes(bench, model):
    name, image, batch = EXECUTOR[model]
    return bench.pick((name, image, batch), (name, 32 if model == "resnet20" else 224, 128))


def median_behind(run, learning):
    return statistics.median(run["seconds_by_step"][learning:])


def executor(bench, model):
    """By part: predicted and measured. Unmanaged, managed and unmanaged again, as the machine drifts."""
    _, image, batch = sizes(bench, model)
    common = ["--model", model, "--image", image, "--batch", batch, "--lr", 0.005]
    copies = bench.pick(["--copy-threads", 2], [])
    trace = bench.keep / f"{model}_{image}_{batch}_on_{bench.device}.jsonl.gz"
    recorded = bench.train(*common, "--steps", 4, file=("--record", trace))
    predicted = bench.replays(trace, ["adaptive"], PARTS)
    found = {}
    for part in PARTS:
        budget = int(recorded["peak_bytes"] * part)
        before = bench.train(*common, "--steps", 4, "--seed", 10 + int(10 * part))
        run = bench.train(*common, *copies, "--steps", STEPS, "--budget", budget, "--policy", "adaptive")
        after = bench.train(*common, "--steps", 4, "--seed", 20 + int(10 * part))
        plain = (median_behind(before, 1) + median_behind(after, 1)) / 2
        row = predicted["adaptive", part]
        found[part] = (row["overhead"] if row["result"] == "pass" else None,
                       median_behind(run, 4) / plain)
    return found


def measured(bench, lines, data):
    for model in EXECUTOR:
        name, image, batch = sizes(bench, model)
        for part, (said, took) in executor(bench, model).items():
            off = None if said is None else took - said
            verdict = "-" if off is None else ("yes" if abs(off) <= LIMIT else "**no**")
            lines.append([MEASURED, f"{name}, {image} x {image}, batch {batch}, executor",
                          f"{100 * part:.0f} %", number(said), number(took), number(off), verdict])
            data.setdefault(model, {})[str(part)] = [said, took]


def section(bench, out):
    lines, data = [], {}
    try:
        measured(bench, lines, data)
    except NotMeasured:
        lines = [not_run("reality", 7)]
    return Section("The simulator beside this machine", [
        "A step is recorded here, with its operators' times and the copies' rates, and replayed under a "
        "budget; then it is trained under that budget. Time over unmanaged time, policy `adaptive`, "
        f"the last of four replayed steps and the median behind the fourth of {STEPS}; meant to be "
        f"within {LIMIT} of each other.",
        table(["row", "model", "budget", "predicted", "measured", "difference", f"within {LIMIT}"],
              lines),
    ], data)
