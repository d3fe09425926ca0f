#!/usr/bin/env python3
"""Draws the memory of a training step over time, without a budget and with one.

    python3 bench/memory_over_time.py [--build build/release] [--model resnet50] [--image 64]
                                      [--batch 128] [--percent 40] [--steps 11] [--redraw]

Trains twice with delta-train, unmanaged and under the budget, at the same time: the two take turns
step by step, as a machine's speed changes. Compares losses, parameters and state of the two, and draws
the round whose ratio of times is the median one, from their timelines; rounds in which policies learn
are left out. Writes memory.png and memory.json to build/results; --redraw draws the latter anew,
and trains nothing. Needs matplotlib.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import plot_replay
from artefacts import PAGES, ROOT, artefact

OUT = artefact(PAGES / "live.md", "memory.png")
MIB = 1 << 20
LEFT_OUT = 2  # steps
UNMANAGED, MANAGED, HOST = "#5a5a5a", "#D55E00", "#0072B2"  # of Okabe and Ito's colours


def steps_of(events):
    """Each step as points (seconds since its beginning, bytes on the device, bytes on the host)."""
    work = [e for e in events if e.get("cat") == "run"]
    first = work[0]["name"]
    starts = [e["ts"] for e in work if e["name"] == first]
    end = max(e["ts"] + e["dur"] for e in work)
    counters = [(e["ts"], e["args"]) for e in events if e["ph"] == "C"]
    for begin, behind in zip(starts, [*starts[1:], end]):
        yield [[round((ts - begin) / 1e6, 4), use["resident"] + use["in flight"], use["host"]]
               for ts, use in counters if begin <= ts < behind]


class Run:
    """A delta-train that takes a step when it is told to, and writes a timeline."""

    def __init__(self, arguments, folder, name, *flags):
        self.timeline, self.report = folder / f"{name}.timeline", folder / f"{name}.json"
        self.flags = ["--model", arguments.model, "--image", str(arguments.image), "--batch",
                      str(arguments.batch), "--lr", "0.005", "--steps", str(arguments.steps), *flags]
        self.process = subprocess.Popen(
            [arguments.build / "bin" / "delta-train", *self.flags, "--turns",
             "--timeline", self.timeline, "--json", self.report],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.await_its_turn()

    def await_its_turn(self):
        said = ""
        for line in self.process.stderr:
            if line.endswith(": waits for its turn\n"):
                return
            said = line
        if self.process.wait() != 0:
            sys.exit(f"memory_over_time.py: delta-train failed: {said.strip()}")

    def step(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.await_its_turn()

    def result(self):
        return json.loads(self.report.read_text())

    def steps(self):
        return list(steps_of(json.loads(self.timeline.read_text())))


def unmanaged_peak(arguments, folder):
    once = argparse.Namespace(**{**vars(arguments), "steps": 1})
    run = Run(once, folder, "once")
    run.step()
    return run.result()["peak_bytes"]


def measure(arguments):
    """Both runs of the round that is drawn."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        budget = unmanaged_peak(arguments, folder) * arguments.percent // 100
        runs = [Run(arguments, folder, "unmanaged"),
                Run(arguments, folder, "managed", "--budget", str(budget))]
        for _ in range(arguments.steps):
            for run in runs:
                run.step()
        rounds = list(zip(*(run.steps() for run in runs)))[LEFT_OUT:]
        unmanaged, managed = (run.result() for run in runs)
    rounds.sort(key=lambda both: both[1][-1][0] / both[0][-1][0])
    drawn = rounds[len(rounds) // 2]
    same = all(unmanaged[key] == managed[key]
               for key in ("losses_digest", "parameters_digest", "state_digest"))
    image = f"{arguments.image}x{arguments.image}"
    return {"title": f"One training step of {arguments.model}, {arguments.batch} images of {image}: "
                     f"{'the same bits' if same else 'OTHER BITS'} at {arguments.percent} % of the memory",
            "flags": runs[1].flags, "device": managed["device_name"], "policy": managed["policy"],
            "same_bits": same, "budget_bytes": budget, "time_ratio": drawn[1][-1][0] / drawn[0][-1][0],
            **{f"{which}_peak_bytes": report["peak_bytes"]
               for which, report in (("unmanaged", unmanaged), ("managed", managed))},
            "unmanaged": drawn[0], "managed": drawn[1]}


def from_zero(points):
    """A step's bytes are told at the end of its operators; before the first they are what they are then."""
    return [[0, *points[0][1:]], *points]


def draw(figures):
    pyplot = plot_replay.pyplot
    plot_replay.matplotlib.rcParams.update({"font.family": "DejaVu Sans"})
    figure, axes = pyplot.subplots(figsize=(8.2, 3.5))
    times, device, _ = zip(*from_zero(figures["unmanaged"]))
    managed, managed_device, host = zip(*from_zero(figures["managed"]))
    budget = figures["budget_bytes"] / MIB
    peak = figures["unmanaged_peak_bytes"] / MIB

    def line(x, values, color, label, **style):
        axes.plot(x, [v / MIB for v in values], color=color, drawstyle="steps-post", label=label,
                  **style)
    axes.fill_between(times, [v / MIB for v in device], step="post", color="#e4e4e4", linewidth=0)
    line(times, device, UNMANAGED, f"without a budget: peak {peak:,.0f} MiB", linewidth=1.5)
    line(managed, managed_device, MANAGED,
         f"with delta: peak {figures['managed_peak_bytes'] / MIB:,.0f} MiB", linewidth=1.6)
    line(managed, host, HOST, "with delta: copied out to host memory", linewidth=1, linestyle=":")
    axes.axhline(budget, color="black", linewidth=1, linestyle=(0, (5, 3)))
    axes.annotate(f"budget {budget:,.0f} MiB", (1, budget), xycoords=("axes fraction", "data"),
                  xytext=(-4, 4), textcoords="offset points", ha="right", fontsize=9)
    axes.set_xlim(0, max(times[-1], managed[-1]))
    axes.set_ylim(0, 1.08 * peak)
    axes.set_xlabel("seconds since the step began", fontsize=9)
    axes.set_ylabel("memory of tensors, MiB", fontsize=9)
    axes.tick_params(labelsize=8.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="upper right")
    axes.set_title(figures["title"], fontsize=10, loc="left")
    figure.tight_layout(pad=0.6)
    plot_replay.save(figure, OUT)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--image", type=int, default=64)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--percent", type=int, default=40, help="of the unmanaged peak")
    parser.add_argument("--steps", type=int, default=11)
    parser.add_argument("--redraw", action="store_true", help="draw build/results/memory.json anew")
    arguments = parser.parse_args()
    if plot_replay.matplotlib is None:
        parser.error("matplotlib is missing; expected: python3-matplotlib, or pip install matplotlib")
    data = artefact(PAGES / "live.md", "memory.json")
    try:
        if not arguments.redraw:
            figures = measure(arguments)
            data.write_text(json.dumps(figures).replace("], [", "],\n[") + "\n", encoding="utf-8")
        draw(json.loads(data.read_text(encoding="utf-8")))
    except OSError as error:
        parser.exit(2, f"memory_over_time.py: {error}\n")


if __name__ == "__main__":
    main()
