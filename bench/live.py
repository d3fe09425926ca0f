#!/usr/bin/env python3
"""Times training steps under a budget on this machine, policy beside policy, and whether the
policies' predictions come true.

    python3 bench/live.py [--train PROGRAM] [--out build/results/live] [--quick] [--wrap "COMMAND"]

A cell is a model, a batch, a number of kernel threads, a budget and a copy rate. All of a cell's
policies, and the unmanaged run, train at the same time and take turns step by step, each round in
an order of its own: a machine whose speed drifts, or that is shared, favours none, and a ratio
compares steps that are seconds apart. Writes OUT.json, all that was measured, and OUT.md, and
prints the latter. docs/results/live.md is put together from such pages by hand. Exit code 1: a run gave other bits than the unmanaged one; 2: a run failed, or a
flag is wrong.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

from replay_results import commit, table
from training import (BUSY, busy_times, children_seconds, load_between, machine, stolen_between,
                      train)

MODELS = {"resnet50": (64, 128), "resnet20": (64,), "resnext50_32x4d": (32,)}
POLICIES = ("online", "dtr", "paper", "adaptive")
SIMPLE = ("online", "dtr", "paper")
RATES = ("memory", "2GB/s")
IMAGE = 64
FEWEST_QUIET = 4  # rounds
WARM_UP = 2  # steps: caches and pages, and a policy that learns knows nothing in the first
TARGET_BEST = 1.03  # of the best simple policy of the cell
TARGETS = {60: 1.06, 40: 1.16}  # adaptive over unmanaged, copies as fast as memory


def say_and_end(line):
    print(f"live.py: {line}", file=sys.stderr)
    sys.exit(2)


def not_found(fault):
    say_and_end(f"{fault.filename}: not found; expected: --train PROGRAM, a delta-train")


# --- measuring -----------------------------------------------------------------------------------
class Run:
    """A delta-train that takes a step when it is told to."""

    def __init__(self, a, cell, policy, budget_bytes):
        self.policy, self.loads, self.failed = policy, [], False
        self.report = tempfile.NamedTemporaryFile(suffix=".json")
        flags = ["--model", cell["model"], "--image", IMAGE, "--batch", cell["batch"], "--lr", 0.005,
                 "--device", "cpu", "--threads", cell["threads"], "--steps", a.steps,
                 "--policy", policy, "--turns", "--json", self.report.name]
        if policy != "unmanaged":
            flags += ["--budget", budget_bytes]
            if cell["rate"] != "memory":
                flags += ["--copy-rate", cell["rate"]]
        try:
            self.process = subprocess.Popen(
                [*a.wrap.split(), a.train, *map(str, flags), *a.flags], stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8")
        except FileNotFoundError as fault:
            not_found(fault)
        self.said = []
        self.await_its_turn()

    def await_its_turn(self):
        """Reads on until the program waits, or has ended."""
        for line in self.process.stderr:
            if line.endswith(": waits for its turn\n"):
                return
            self.said.append(line)
        code = self.process.wait()
        if code not in (0, 3):  # too small a budget is a result
            say_and_end(f"delta-train, exit code {code}: {(self.said or ['no message'])[-1].strip()}")
        self.failed = code == 3

    def step(self):
        """One step; and what the machine did meanwhile."""
        if self.process.returncode is not None:
            return
        before = busy_times()
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.await_its_turn()
        self.loads.append(stolen_between(before, busy_times()))

    def result(self):
        if self.failed:
            return {"policy": self.policy, "failed": True}
        report = json.load(open(self.report.name, encoding="utf-8"))
        per_step = {key: report[key] / report["steps"]
                    for key in ("evictions", "offloads", "reloads", "recomputes", "moved_bytes")}
        return {"policy": self.policy, "failed": False,
                "seconds": report["seconds_by_step"][WARM_UP:], "stolen": self.loads[WARM_UP:],
                "step": statistics.median(report["seconds_by_step"][WARM_UP:]), **per_step,
                "manager_seconds": report["manager_seconds"],
                "stall_seconds": report["stall_seconds"],
                "copy_threads": report.get("copy_threads"), "budget_bytes": report["budget_bytes"],
                "peak_bytes": report["peak_bytes"],
                "digests": [report[k + "_digest"] for k in ("losses", "parameters", "state")],
                "outcomes": (report["learned"] or {}).get("outcomes") or []}


peaks = {}


def unmanaged_peak(a, cell):
    """In bytes, by a run of one step. Workspaces depend on the number of threads."""
    key = cell["model"], cell["batch"], cell["threads"]
    if key not in peaks:
        try:
            report = train(a.train, "--model", cell["model"], "--image", IMAGE,
                           "--batch", cell["batch"], "--threads", cell["threads"],
                           "--device", "cpu", "--steps", 1, "--policy", "unmanaged", *a.flags)
        except FileNotFoundError as fault:
            not_found(fault)
        except subprocess.CalledProcessError as fault:
            said = fault.stderr.strip().splitlines() or ["no message"]
            say_and_end(f"delta-train, exit code {fault.returncode}: {said[-1]}")
        peaks[key] = report["peak_bytes"]
    return peaks[key]


def measure(a, cell):
    """The cell's runs, the unmanaged one first."""
    print(f"{cell['model']} {cell['batch']}, {cell['budget']} %, copies {cell['rate']}, "
          f"{cell['threads']} threads", file=sys.stderr)
    budget = int(unmanaged_peak(a, cell) * cell["budget"] / 100)
    began, children = busy_times(), children_seconds()
    runs, order = [], random.Random(1)
    try:
        for policy in ["unmanaged", *a.policies]:
            runs.append(Run(a, cell, policy, budget))
        for _ in range(a.steps):
            for run in order.sample(runs, len(runs)):
                run.step()
        return [run.result() for run in runs], load_between(began, busy_times(), children)
    finally:
        for run in runs:
            run.process.kill()  # nothing where it has ended


# --- what comes of it ----------------------------------------------------------------------------
def rows_of(cell, measured):
    """A row per policy. Ratios are those of the same round, the median over rounds."""
    runs, load = measured
    rows, first = [], runs[0]
    for run in runs:
        row = {**cell, "policy": run["policy"], "failed": run["failed"], "load": load}
        rows.append(row)
        if row["failed"]:
            continue
        ratios, quiet = step_ratios(run, first)
        row.update(step=run["step"], steps_counted=len(run["seconds"]),
                   ratio=statistics.median(ratios), ratios=ratios, quiet_rounds=quiet,
                   manager_share=run["manager_seconds"] / run["step"],
                   stall_share=run["stall_seconds"] / run["step"],
                   moved_mb=run["moved_bytes"] / 1e6,
                   **{k: run[k] for k in ("evictions", "offloads", "reloads", "recomputes")},
                   same_bits=run["digests"] == first["digests"],
                   within_budget=run["peak_bytes"] <= run["budget_bytes"],
                   busy=quiet < FEWEST_QUIET, predictions=predictions(run), run=run)
    add_best(rows)
    return rows


def step_ratios(run, other):
    """Step over step of the same round, of the rounds in which at most BUSY was stolen from either;
    of all, where these are fewer than FEWEST_QUIET. And how many of those there were."""
    pairs = list(zip(run["seconds"], other["seconds"], run["stolen"], other["stolen"]))
    quiet = [p for p in pairs if max(p[2] or 0, p[3] or 0) <= BUSY]
    return [p[0] / p[1] for p in (quiet if len(quiet) >= FEWEST_QUIET else pairs)], len(quiet)


def predictions(run):
    """How far predicted steps were from what they took, behind warm-up; None: nothing predicted."""
    told = [(o["predicted"], o["measured"]) for o in run["outcomes"][WARM_UP:]
            if o["predicted"] > 0 and o["measured"] > 0]
    if not told:
        return None
    return {"count": len(told), "predicted": statistics.median(p for p, _ in told),
            "measured": statistics.median(m for _, m in told),
            "error": statistics.median(abs(p / m - 1) for p, m in told)}


def add_best(rows):
    """To the row of `adaptive`: the step over that of the best simple policy, round by round."""
    simple = [r for r in rows if r["policy"] in SIMPLE and not r["failed"]]
    if not simple:
        return
    best = min(simple, key=lambda r: r["ratio"])
    for row in rows:
        if row["policy"] == "adaptive" and not row["failed"]:
            row["over_best"] = statistics.median(step_ratios(row["run"], best["run"])[0])


def name_of(row):
    return (f"{row['model']} {row['batch']}, {row['budget']} %, copies {row['rate']}, "
            f"{row['threads']} thread{'s' if row['threads'] > 1 else ''}")


# --- the page ------------------------------------------------------------------------------------
def marked(value, limit):
    """A ratio; bold where it is above its target."""
    return f"**{value:.2f}**" if limit and value > limit else f"{value:.2f}"


def row_line(r):
    head = [r["policy"] + (" (busy)" if r["busy"] else "")]
    p = r["predictions"]
    said = f"{p['predicted']:.2f} / {p['measured']:.2f} ({p['error']:.1%})" if p else "-"
    moves = [f"{r['offloads']:.0f}", f"{r['reloads']:.0f}", f"{r['recomputes']:.0f}"]
    learns = r["policy"] == "adaptive"
    limit = TARGETS.get(r["budget"]) if learns and r["rate"] == "memory" else None
    return [*head, f"{r['step']:.3f}", marked(r["ratio"], limit),
            marked(r["over_best"], TARGET_BEST) if "over_best" in r else "-",
            f"{r['manager_share']:.1%}", f"{r['stall_share']:.1%}", f"{r['moved_mb']:.0f}", *moves,
            said, "yes" if r["same_bits"] else "NO"]


def loads(rows):
    """What else the machine did, in words."""
    cells = {name_of(row): row["load"] for row in rows}.values()
    steps = [x for row in rows if not row["failed"] for x in row["run"]["stolen"] if x is not None]
    if not steps:
        return "What else the machine did is not known: there is no /proc."
    busy = sum(x > BUSY for x in steps) / len(steps)
    others = [load["others"] for load in cells if load["others"] is not None]
    return (f"Others had {statistics.median(others):.1%} of all cores' time (median over cells; at "
            f"most {max(others):.1%}). The machine's host took {statistics.median(steps):.1%} of it "
            f"(median over steps; at most {max(steps):.1%}); {busy:.0%} of the steps lost over "
            f"{BUSY:.0%}: rounds with such a step do not count, unless fewer than {FEWEST_QUIET} are "
            f"left; then the row says busy, and all count.")


def page(result):
    rows = result["rows"]
    text = f"""# Live steps: policies side by side on a machine

Written by `{result['command']}`. {result['commit']} {result['machine']}. All runs of a
cell take turns step by step: a round is a step of each. {result['steps']} rounds, of which the first
{WARM_UP} do not count. {loads(rows)}

Step: seconds, the median over all counted steps. Ratio: to the unmanaged step of the same round,
the median over rounds; likewise over the best of {', '.join(SIMPLE)} in the cell. **Bold**: `adaptive` above
its target, which is {TARGET_BEST} over the best, and {' and '.join(f"{x} at {b} %" for b, x in TARGETS.items())} where copies are as fast as memory. Manager
and stall: parts of the step, waits for copies and, where kernels' threads copy, the copying; moved: MB by
compaction; all of these and the counts are means over all steps. Predicted / measured: of steps that the
policy predicted, the step over its operators' time, medians, and the median of the error. Same bits:
losses, parameters and state, by digest.

"""
    return text + cells_table(rows)


def cells_table(rows):
    """A line per policy; the first column says of which cell, what a step takes unmanaged, where the
    copies ran, and who could not keep to the budget."""
    head = ["cell", "policy", "step, s", "ratio", "over best", "manager", "stall",
            "moved, MB", "offloads", "reloads", "recomputes", "predicted / measured", "same bits"]
    words = {0: "by the kernels' threads", 2: "by a thread each way"}
    lines = []
    for cell in dict.fromkeys(map(name_of, rows)):
        plain, *runs = [r for r in rows if name_of(r) == cell]
        done = [r for r in runs if not r["failed"]]
        copiers = {r["run"].get("copy_threads") for r in done} - {None}
        said = [cell + "".join(f", {words[c]}" for c in sorted(copiers)),
                f"unmanaged {plain['step']:.3f} s",
                *(f"too small for {r['policy']}" for r in runs if r["failed"])]
        lines += [["; ".join(said) if i == 0 else "", *row_line(r)] for i, r in enumerate(done)]
    return table(head, lines) + "\n"


# --- the command ---------------------------------------------------------------------------------
def listed(kind, allowed=None):
    def read(text):
        values = [kind(word) for word in text.split(",")]
        if allowed and set(values) - set(allowed):
            raise argparse.ArgumentTypeError(f"allowed: {', '.join(map(str, allowed))}")
        return values
    return read


def model_and_batch(word):
    """resnet50, or resnet50:64."""
    name, _, batch = word.partition(":")
    if name not in MODELS:
        raise argparse.ArgumentTypeError(f"'{name}'; allowed: {', '.join(MODELS)}, NAME:BATCH")
    return name, ((int(batch),) if batch else MODELS[name])


def options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", default="build/release/bin/delta-train")
    parser.add_argument("--models", type=listed(model_and_batch), default=list(MODELS.items()),
                        help="NAME or NAME:BATCH, by commas (default: all)")
    parser.add_argument("--budgets", type=listed(int), default=[60, 40, 30],
                        help="per cent of the unmanaged peak (default 60,40,30)")
    parser.add_argument("--rates", type=listed(str), default=list(RATES),
                        help="copy rates; memory: as fast as they go (default memory,2GB/s)")
    parser.add_argument("--threads", type=listed(int), default=[2, 1], help="(default 2,1)")
    parser.add_argument("--policies", type=listed(str, POLICIES), default=list(POLICIES))
    parser.add_argument("--steps", type=int, help="of a run (default 12, with --quick 6)")
    parser.add_argument("--quick", action="store_true",
                        help="resnet50:64 with two threads, copies as fast as they go")
    parser.add_argument("--wrap", default="", help="words before the program: a wrapper's command")
    parser.add_argument("--flags", type=str.split, default=[], help="more flags for delta-train")
    parser.add_argument("--out", help="writes OUT.json and OUT.md")
    parser.add_argument("--append", action="store_true",
                        help="keep the other cells that OUT.json has, of this commit and machine")
    a = parser.parse_args()
    if a.quick:
        a.models, a.rates, a.threads = [("resnet50", (64,))], ["memory"], [2]
    a.steps = a.steps or (6 if a.quick else 12)
    if a.steps <= WARM_UP:
        parser.error(f"--steps: more than the {WARM_UP} of warm-up")
    if a.append and not a.out:
        parser.error("--append: needs --out")
    return a


def take_over(result, file, cells):
    """Into result: the rows of the cells that are not measured again, and the commands they are of."""
    try:
        earlier = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except json.JSONDecodeError as fault:
        say_and_end(f"--append: {file}, line {fault.lineno}: {fault.msg}")
    for key in ("commit", "machine", "steps"):
        if earlier.get(key) != result[key]:
            say_and_end(f"--append: {file} has {key} '{earlier.get(key)}', not '{result[key]}'")
    again = lambda row: any(all(row[key] == cell[key] for key in cell) for cell in cells)
    result["rows"] = [row for row in earlier["rows"] if not again(row)]
    result["command"] = earlier["command"] + "`, `" + result["command"]


def main():
    a = options()
    cells = [{"model": model, "batch": batch, "threads": threads, "budget": budget, "rate": rate}
             for model, batches in a.models for batch in batches for threads in a.threads
             for rate in a.rates for budget in a.budgets]
    result = {"command": " ".join(["python3 bench/live.py", *sys.argv[1:]]), "commit": commit(),
              "machine": machine(), "steps": a.steps, "rows": []}
    if a.out:
        out = pathlib.Path(a.out)
        out.parent.mkdir(parents=True, exist_ok=True)
        rows = out.with_suffix(".json")
    if a.append:
        take_over(result, rows, cells)
    for cell in cells:
        result["rows"] += rows_of(cell, measure(a, cell))
        if a.out:  # what was measured so far is worth keeping
            rows.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            out.with_suffix(".md").write_text(page(result), encoding="utf-8")
    print(page(result))
    sys.exit(0 if all(r["failed"] or r["same_bits"] for r in result["rows"]) else 1)


if __name__ == "__main__":
    main()
