#!/usr/bin/env python3
"""Measures the adaptive policy and writes docs/results/adaptive.{md,png}, and build/results/adaptive.json.

    python3 bench/adaptive.py build/release [--data DIR] [--rows FILE] [--out docs/results/adaptive]

Runs adaptive_grid over DIR/traces (default: $DELTA_DATA), minutes of all cores, or takes its rows
from FILE; without matplotlib there is no figure. Times are virtual, so the tables repeat exactly.
Exit code 2 and one line on stderr for what can't be read.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

import plot_replay
from artefacts import PAGES, artefact
from digests import Missing, recomputed_line, rows_line
from replay_results import TRACES, commit, table

PLAIN = ("12 GB/s", "25 GB/s")
GRID = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
OURS = "adaptive"
# Time over unmanaged time to be reached from the second step on, by trace: of the parts 0.3, 0.5
# and 0.7 of the peak, at 12 and at 25 GB/s.
TARGETS = {
    "resnet32": ((1.18, 1.09, 1.03), (1.13, 1.05, 1.015)),
    "unet": ((1.36, 1.145, 1.015), (1.22, 1.005, 1.005)),
    "densenet121": ((1.295, 1.125, 1.05), (1.16, 1.08, 1.005)),
    "transformer": ((1.085, 1.05, 1.02), (1.06, 1.03, 1.005)),
    "lstm": ((1.005, 1.005, 1.005), (1.005, 1.005, 1.005)),
}
# The same on a device ten times as fast: of 0.3 to 0.7, at 25 and at 50 GB/s.
FAST = {
    "resnet32": ((1.21, 1.165, 1.12, 1.075, 1.045), (1.21, 1.15, 1.105, 1.065, 1.04)),
    "unet": ((1.43, 1.225, 1.125, 1.075, 1.055), (1.43, 1.24, 1.135, 1.065, 1.035)),
    "densenet121": ((1.305, 1.225, 1.165, 1.125, 1.095), (1.30, 1.22, 1.155, 1.115, 1.085)),
    "transformer": ((1.10, 1.08, 1.065, 1.045, 1.035), (1.10, 1.07, 1.055, 1.045, 1.03)),
    "lstm": ((1.06, 1.03, 1.02, 1.02, 1.015), (1.025, 1.025, 1.02, 1.02, 1.015)),
}
# Means over the grid: the gap to the bound that is closed, the excess from half of the peak on, the
# first step's excess, and that on a noisy machine; at 12 and 25 GB/s.
MEANS = {"adaptive closes": (0.76, 0.90), "excess from 0.5 on": (0.035, 0.013),
         "first step": (0.16, 0.15), "robust": (0.11, 0.07)}
LOWEST = {"resnet32": 0.15, "unet": 0.25, "densenet121": 0.15, "transformer": 0.10, "lstm": 0.10}


def say_and_end(line):
    print(f"adaptive.py: {line}", file=sys.stderr)
    sys.exit(2)


def rows_of(arguments):
    """The rows, and the text of the JSON file with all of them in order."""
    if arguments.rows:
        text = pathlib.Path(arguments.rows).read_text(encoding="utf-8")
    else:
        files = [arguments.data / "traces" / f"{name}.log.gz" for name in TRACES]
        text = subprocess.run([arguments.build / "bin" / "adaptive_grid", *files], check=True,
                              stdout=subprocess.PIPE, encoding="utf-8").stdout
    lines = text.splitlines()
    try:
        rows = [json.loads(line) for line in lines]
    except json.JSONDecodeError as fault:
        say_and_end(f"a row that is no JSON: {fault}")
    order = sorted(range(len(rows)), key=lambda i: [
        rows[i][k] for k in ("table", "setting", "trace", "ratio", "policy")])
    return rows, "[\n" + ",\n".join(lines[i] for i in order) + "\n]\n"


class Grid:
    """Rows by where they belong."""

    def __init__(self, rows):
        self.of = {(r["table"], r["setting"], r["trace"], r["ratio"], r["policy"]): r for r in rows}

    def run(self, setting, trace, ratio, policy, kind="grid"):
        return self.of.get((kind, setting, trace, ratio, policy))

    def reference(self, setting, trace, ratio):
        return self.of[("reference", setting, trace, ratio, "")]

    def feasible(self, setting, trace, ratio):
        """Some operator's tensors do not fit where there is no bound."""
        return self.reference(setting, trace, ratio)["bound"] is not None and any(
            (r := self.run(setting, trace, ratio, p)) and r["overheads"] and r["overheads"][0] < 2
            for p in ("dtr", "online", "adaptive"))

    def cells(self, setting, ratios=GRID):
        return [(t, r) for t in TRACES for r in ratios if self.feasible(setting, t, r)]


def later(row):
    """The overhead from the second step on, at its worst; of noisy steps the mean; None: it failed."""
    if not row or not row["passed"]:
        return None
    noisy = row["setting"].startswith("robust")
    return (statistics.fmean if noisy else max)(row["overheads"][1:])


def excess(value):
    return 1.0 if value is None else value - 1


def closed(grid, setting, policy):
    """The mean part of the gap between DTR and the bound that the policy closes."""
    parts = []
    for trace, ratio in grid.cells(setting):
        reference = grid.reference(setting, trace, ratio)
        dtr, bound = reference["dtr"], reference["bound"]
        if dtr is None or dtr - bound < 0.002:
            continue
        ours = 1 + excess(later(grid.run(setting, trace, ratio, policy)))
        parts.append(max(-1.0, (dtr - ours) / (dtr - bound)))
    return statistics.fmean(parts)


def mean_excess(grid, setting, policy, ratios=GRID, kind="grid"):
    return statistics.fmean(excess(later(grid.run(setting, t, r, policy, kind)))
                            for t, r in grid.cells(setting, ratios))


def shown(value):
    return "fails" if value is None else f"{value:.3f}"


def kept(value, target):
    return value is not None and value <= target + 0.0005


# --- tables --------------------------------------------------------------------------------------

def target_table(grid, settings, targets, ratios):
    lines = []
    for trace in TRACES:
        for place, setting in enumerate(settings):
            line = [trace if place == 0 else "", setting]
            for i, ratio in enumerate(ratios):
                target = targets[trace][place][i]
                value = later(grid.run(setting, trace, ratio, OURS))
                mark = "" if kept(value, target) else " **missed**"
                bound = grid.reference(setting, trace, ratio)["bound"]
                line.append(f"{shown(value)} ({target:g}; {shown(bound)}){mark}")
            lines.append(line)
    return table(["trace", "machine", *map(str, ratios)], lines)


def mean_table(grid):
    def line(name, value_of, better):
        cells = []
        for place, setting in enumerate(PLAIN):
            value, target = value_of(setting), MEANS[name][place]
            good = value >= target - 0.0005 if better == "more" else value <= target + 0.0005
            cells.append(f"{value:.3f} ({target:g}){'' if good else ' **missed**'}")
        return [name, *cells]
    high = [r for r in GRID if r >= 0.5]
    first = lambda s: statistics.fmean(
        excess(grid.run(s, t, r, OURS)["overheads"][0]) for t, r in grid.cells(s))
    return table(["mean", *PLAIN], [
        line("adaptive closes", lambda s: closed(grid, s, OURS), "more"),
        line("excess from 0.5 on", lambda s: mean_excess(grid, s, OURS, high), "less"),
        line("first step", first, "less"),
        line("robust", lambda s: mean_excess(grid, f"robust, {s}", OURS), "less"),
    ])


def against_dtr(grid):
    """Cells in which a step from the second on is worse than DTR's simulator, or fails."""
    lines = []
    for setting in (*PLAIN, "fast, 25 GB/s", "fast, 50 GB/s", *(f"robust, {s}" for s in PLAIN)):
        worse, lost, cells = 0, 0, 0
        for trace, ratio in grid.cells(setting):
            dtr = grid.reference(setting, trace, ratio)["dtr"]
            if dtr is None:
                continue
            cells += 1
            value = later(grid.run(setting, trace, ratio, OURS))
            lost += value is None
            worse += value is not None and value > dtr + 0.005
        lines.append(f"{setting}: {worse} worse, {lost} fail, of {cells}")
    return "; ".join(lines) + "."


def all_policies(grid, setting):
    policies = sorted({k[4] for k in grid.of if k[0] == "grid" and k[1] == setting},
                      key=lambda p: (mean_excess(grid, setting, p), p))
    lines = []
    for p in policies:
        failed = sum(later(grid.run(setting, t, r, p)) is None for t, r in grid.cells(setting))
        lines.append([f"`{p}`", f"{mean_excess(grid, setting, p):.3f}", str(failed),
                      *(f"{mean_excess(grid, setting, p, (r,)):.3f}" for r in (0.3, 0.5, 0.7))])
    return table(["policy", "mean excess", "failed", "at 0.3", "at 0.5", "at 0.7"], lines)


def steps_text(grid):
    setting, drift, grown = "ten steps, 12 GB/s", 0, 0
    for trace, ratio in grid.cells(setting):
        row = grid.run(setting, trace, ratio, OURS)
        if not row["passed"]:
            continue
        drift = max(drift, max(row["overheads"][1:]) - row["overheads"][1])
        grown += any(max(row[k][2:]) > row[k][1] for k in ("tensors", "records", "host"))
    return (f"Ten steps at 12 GB/s: no step takes more than {drift:.4f} over the second one. In {grown} cells tensors, "
            "records or host bytes behind each step grow.")


def turns_table(grid):
    """Steps of two traces in turns, from the third of each on, beside each alone; a line per pair."""
    lines, parts = {}, []
    for key in sorted(k for k in grid.of if k[0] == "in turns"):
        row, line = grid.of[key], lines.setdefault(key[2], [key[2]])
        parts = [*parts, str(key[3])] if str(key[3]) not in parts else parts
        alone = [grid.run(key[1], f"{key[2]}:{which}", key[3], key[4], "alone")
                 for which in ("first", "second")]
        if not row["passed"]:
            line.append("fails")
            continue
        worst = max(row["overheads"][i] - alone[i % 2]["overheads"][-1]
                    for i in range(4, len(row["overheads"])))
        line.append(f"{worst:+.3f}{'' if worst <= 0.02 else ' **missed**'}")
    return table(["traces", *parts], list(lines.values()))


def lowest_text(grid):
    parts = []
    for trace in TRACES:
        found = [r for r in (0.1, 0.15, 0.2, 0.25, 0.3)
                 if later(grid.run(PLAIN[0], trace, r, OURS)) is not None]
        least = min(found, default=None)
        good = least is not None and least <= LOWEST[trace]
        parts.append(f"{trace} {least}{'' if good else f' (**missed**: {LOWEST[trace]})'}")
    return "Lowest parts of the peak within twice the time, at 12 GB/s: " + ", ".join(parts) + "."


def figure(grid, out, lines):
    """Draws it. `lines`: the digests, which the picture carries."""
    if plot_replay.matplotlib is None:
        print("adaptive.py: no matplotlib, so no figure", file=sys.stderr)
        return
    pyplot = plot_replay.pyplot
    chosen = (OURS, "online", "dtr", "paper", "vdnn", "superneurons", "capuchin", "chen",
              "swap_lru")
    present = [p for p in chosen if any(k[4] == p for k in grid.of if k[0] == "grid")]
    fig, panels = pyplot.subplots(len(PLAIN), len(TRACES), figsize=(15, 6.4), sharex=True,
                                  constrained_layout=True)
    colours = pyplot.get_cmap("tab10")
    for row, setting in enumerate(PLAIN):
        for column, trace in enumerate(TRACES):
            axes = panels[row][column]
            bound = [(r, b) for r in GRID
                     if (b := grid.reference(setting, trace, r)["bound"]) is not None]
            axes.fill_between([r for r, _ in bound], 1, [b for _, b in bound], color="0.85",
                              label="no policy gets there", linewidth=0)
            for i, policy in enumerate(present):
                points = [(r, later(grid.run(setting, trace, r, policy))) for r in GRID]
                good = [(r, v) for r, v in points if v is not None]
                width = 2.4 if policy == OURS else 1.2
                axes.plot([r for r, _ in good], [v for _, v in good], marker="o", markersize=3,
                          linewidth=width, color=colours(i), label=policy,
                          zorder=10 if policy == OURS else 5)
                axes.plot([r for r, v in points if v is None],
                          [1.98 - 0.012 * i for _, v in points if v is None], "x",
                          color=colours(i), markersize=4)
            axes.set_ylim(1, 2)
            axes.set_title(f"{trace}, {setting}", fontsize=10)
            axes.grid(alpha=0.3)
            if column == 0:
                axes.set_ylabel("time / unmanaged time")
            if row == len(PLAIN) - 1:
                axes.set_xlabel("budget / unmanaged peak")
    handles, labels = panels[0][0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=9)
    plot_replay.save(fig, out.with_suffix(".png"), lines)


def page(grid, command, lines):
    ratios, faster = (0.3, 0.4, 0.5, 0.6, 0.7), "fast, 50 GB/s"
    plain = target_table(grid, PLAIN, TARGETS, (0.3, 0.5, 0.7))
    fast = target_table(grid, ("fast, 25 GB/s",), FAST, ratios)
    missed = sum(not kept(later(grid.run(faster, t, r, OURS)), FAST[t][1][i])
                 for t in TRACES for i, r in enumerate(ratios))
    return f"""# The adaptive policy on recorded traces
{chr(10).join(lines)}

Written by `{command}`. {commit()} Virtual time, so that every figure repeats exactly; DTR's five traces; steps one
behind the other; budgets are parts of the unmanaged peak; free bytes in one piece (`--memory pages`). Overheads are time /
unmanaged time at their worst from the second step on (on noisy machines their mean), the excess is that less 1, and 1 for
a run that fails or takes more than twice the time. "DTR" is its authors' simulator at the better of its two heuristics.
How the policy works: [adaptive.md](../adaptive.md).

![Budget against overhead](adaptive.png)

## Targets
Adaptive (target; lower bound that no policy beats).

{plain}

Means over the feasible parts 0.2 to 0.8 (target). A gap is that between DTR and the bound, where DTR passes and lies over
it.

{mean_table(grid)}

A device ten times as fast:

{fast}

With copies at 50 GB/s {missed} of {len(TRACES) * len(ratios)} cells miss their targets.

Cells, of those in which DTR passes, where a step from the second on takes 0.005 more than DTR: {against_dtr(grid)}

{steps_text(grid)} {lowest_text(grid)}

## All policies
At 12 GB/s. Peers' rules are in `executor/peers/peers.hpp`; of these, those that swap alone, or swap while they measure
(`capuchin`), mostly fail in the first step: it takes more than twice the time.

{all_policies(grid, PLAIN[0])}

## Two programs in turns
Steps of two traces one after the other; the budget is a part of the larger one's peak. The worst step from the third of
each on, against that trace alone under the same budget (target 0.02).

{turns_table(grid)}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("DELTA_DATA"))
    parser.add_argument("--rows", help="rows that adaptive_grid wrote")
    parser.add_argument("--out", type=pathlib.Path,
                        default=PAGES / "adaptive")
    arguments = parser.parse_args()
    if arguments.data is None:
        say_and_end("no traces; give --data or set DELTA_DATA")
    rows, text = rows_of(arguments)
    grid = Grid(rows)
    try:
        lines = [recomputed_line(arguments.build, arguments.data / "traces", "adaptive"),
                 rows_line(text)]
    except (Missing, subprocess.CalledProcessError) as problem:
        say_and_end(str(problem))
    artefact(arguments.out, "adaptive.json").write_text(text, encoding="utf-8")
    figure(grid, arguments.out, lines)
    arguments.out.with_suffix(".md").write_text(
        page(grid, "python3 bench/adaptive.py build/release", lines), encoding="utf-8")


if __name__ == "__main__":
    main()
