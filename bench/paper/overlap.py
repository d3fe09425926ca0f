"""What overlap gains: the paper's step without and with it, and the two timelines."""

import json

from page import MEASURED, PUBLISHED, Section, not_run, number, table
from published import STEP_SECONDS
from workbench import NotMeasured, keep_picture

POLICIES = ("paper", "swap_lru", "adaptive")
LANES = {0: "compute", 1: "copies out", 2: "copies in"}
COLOURS = {0: "#888888", 1: "#8E44AD", 2: "#00A5B5"}


def lanes_of(file):
    """By lane: (begin, duration) of the work of the last whole step, ms from its begin."""
    events = [e for e in json.loads(file.read_text(encoding="utf-8"))
              if e.get("ph") == "X" and e.get("tid") in LANES]
    # Recomputed, it has the same name, and another category.
    first = [e["ts"] for e in events if e["name"] == "conv1.forward" and e["cat"] == "run"]
    begin = first[-1]
    # Behind it the program reads its state, for digests.
    end = max(e["ts"] + e["dur"] for e in events if e["tid"] == 0)
    return {lane: [((e["ts"] - begin) / 1e3, e["dur"] / 1e3) for e in events
                   if e["tid"] == lane and begin <= e["ts"] < end] for lane in LANES}


def draw(files, out):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.6), dpi=150, layout="constrained")
    for axes, (title, file) in zip(figure.subplots(2, 1, sharex=True), files.items(), strict=True):
        for lane, spans in lanes_of(file).items():
            axes.broken_barh(spans, (2 - lane - 0.4, 0.8), color=COLOURS[lane])
        axes.set_yticks([2, 1, 0], LANES.values())
        axes.set_title(title, fontsize=9)
    figure.axes[-1].set_xlabel("ms of the last step")
    keep_picture(figure, out, "overlap")


def flags_of(bench):
    link = bench.pick(["--copy-rate", "2GB/s", "--host-budget", "2GiB"], [])
    return ["--model", "resnet50", "--image", bench.pick(64, 224), "--batch", bench.pick(32, 128),
            "--lr", 0.005, "--steps", 5, "--budget", "50%", *link]


def measured(bench, data, files):
    """The rows; `files` are the runs' timelines."""
    rows = []
    for policy in POLICIES:
        times = {}
        for name, more in (("without overlap", ["--no-overlap"]), ("with overlap", [])):
            keep = bench.keep / f"lanes_{policy}_{name.split()[0]}.json"
            files[policy, name] = keep
            run = bench.train(*flags_of(bench), "--policy", policy, *more, file=("--timeline", keep))
            steps = sorted(run["seconds_by_step"][2:])
            times[name] = steps[len(steps) // 2]
            data.setdefault(policy, {})[name] = run["seconds_by_step"]
        without, beside = times.values()
        rows.append([MEASURED, bench.pick("ResNet-50, batch 32, 64 x 64, CPU",
                                           "ResNet-50, batch 128, GPU"), f"`{policy}`",
                      f"{without:.3f} s", f"{beside:.3f} s", number(beside / without)])
    return rows


def section(bench, out):
    lines = [[PUBLISHED, "ResNet-50, batch 128, A100", "DELTA",
              f"{STEP_SECONDS['DELTA without overlap']:.3f} s", f"{STEP_SECONDS['DELTA']:.3f} s",
              number(STEP_SECONDS["DELTA"] / STEP_SECONDS["DELTA without overlap"])]]
    data, files = {}, {}
    try:
        lines += measured(bench, data, files)
        draw({f"paper, {n}": files["paper", n] for n in ("without overlap", "with overlap")}, out)
    except NotMeasured:
        lines.append(not_run("overlap", 6))
    return Section("Overlap", [
        "The paper's step with copies that wait for operators and the other way round, and with "
        "copies beside operators. On the CPU copies are slowed down to 2 GB/s, as a link would, and a "
        "budget of half the peak; the median of the steps behind the second.",
        table(["row", "what", "policy", "without overlap", "with", "with / without"], lines),
    ], data)
