#!/usr/bin/env python3
"""Makes docs/results/optimum.md and build/results/optimum.json anew: policies beside the least time that there is.

    build/optimum-venv/bin/python bench/optimum/compare.py build/release --out docs/results/optimum

Writes the programs of generate.py to build/optimum, or takes the traces given, of one step each;
replays them with delta-replay under policies and budgets, in virtual time, and has HiGHS solve the
integer programs of stages.py for the same. It needs HiGHS from PyPI, which it does not install:

    python3 -m venv build/optimum-venv && build/optimum-venv/bin/pip install highspy

Prints a line per program and budget as it goes on. Exit code 2 and one line on stderr for what is
missing or can't be read; 1 where a plan could not be carried out as the integer program says.
"""

import argparse
import json
import math
import multiprocessing
import pathlib
import subprocess
import sys
import tempfile
import time

try:
    import highspy  # noqa: F401 - without it the message below, not a trace of calls
except ImportError:
    sys.exit("compare.py: HiGHS is missing: python3 -m venv build/optimum-venv && "
             "build/optimum-venv/bin/pip install highspy, and run it with that python")

import generate
import page
from program import BadProgram, read
from stages import Kind, Machine, least_budget, solve
from walk import BadPlan, walk

POLICIES = ("adaptive", "online", "dtr", "chen", "capuchin")
PARTS = (0.8, 0.6, 0.5, 0.4)
NEAR = 1.05  # of the least budget for recomputation
ITERATIONS = 12
SLOWEST = 1_000_000  # bytes per second; delta-replay knows no slower copies


def replay(tool, trace, budgets, rate):
    """The last step under each policy and budget; rate 0: nothing can be copied."""
    with tempfile.TemporaryDirectory() as folder:
        rows = pathlib.Path(folder) / "rows.json"
        machine = (["--bandwidth", f"{rate}B/s"] if rate else
                   ["--bandwidth", f"{SLOWEST}B/s", "--host-budget", "1B"])
        subprocess.run([tool, trace, "--policy", ",".join(POLICIES), "--budget",
                        ",".join(f"{b}B" for b in budgets), "--iterations", str(ITERATIONS),
                        "--latency", "0ns", "--memory", "pages", "--thrash-limit", "20", "--json",
                        rows, *machine], check=True, stdout=subprocess.DEVNULL)
        last = {}
        for row in json.loads(rows.read_text(encoding="utf-8")):
            last[row["budget_bytes"], row["policy"]] = row
    return last


def checked(program, machine, result):
    """The result, carried out step by step: the same time, within the budget."""
    if result.plan is None or result.time is None:
        return result
    outcome = walk(program, machine, result.plan)
    if not math.isclose(outcome.time, result.time, rel_tol=1e-5):
        raise BadPlan(f"{program.name}: takes {outcome.time} ns, not {result.time}")
    return result


def as_row(program, result):
    over = lambda x: None if x is None or x == float("inf") else x / program.time
    return {"status": result.status, "time": over(result.time), "at_least": over(result.bound),
            "seconds": round(result.seconds, 2)}


def policies_of(program, rows, budget):
    cells = {p: rows[budget, p] for p in POLICIES if (budget, p) in rows}
    return {"bound": next(iter(cells.values()))["bound_overhead"],
            **{p: (r["overhead"] if r["result"] == "pass" else None) for p, r in cells.items()}}


def cell(job):
    """One program under one budget: the two machines' rows. `seconds`: for LOOSE; RECOMPUTE has twice
    that, BARRIER half."""
    trace, name, budget, label, rate, replayed, seconds = job
    program = read(trace)
    alone, both = Machine(budget), Machine(budget, rate, rate)
    row = {"program": name, "operators": len(program.operators), "budget": budget,
           "part": budget / program.peak(), "label": label, "rate": rate,
           "recompute": policies_of(program, replayed[0], budget),
           "both": policies_of(program, replayed[1], budget)}
    least = checked(program, alone, solve(program, alone, Kind.RECOMPUTE, 2 * seconds))
    row["recompute"]["optimum"] = as_row(program, least)
    held = checked(program, both, solve(program, both, Kind.BARRIER, seconds / 2, least.plan))
    row["both"]["barrier"] = as_row(program, held)
    times = [row["both"][p] for p in POLICIES] + [as_row(program, held)["time"]]
    best = min((x for x in times if x is not None), default=None)
    row["both"]["best_known"] = best
    if best is not None and best < 1 + 1e-9:
        # Nothing takes less than its operators: there is nothing to solve.
        row["both"]["loose"] = {"status": "optimal", "time": 1.0, "at_least": 1.0, "seconds": 0.0}
        return row
    cutoff = None if best is None else best * program.time
    fits = least.plan if least.time is not None and (cutoff is None or least.time <= cutoff) else None
    loose = solve(program, both, Kind.LOOSE, seconds, fits, cutoff)
    row["both"]["loose"] = as_row(program, loose)
    return row


def jobs_of(tool, trace, name, seconds):
    """Budgets: parts of the peak, and near the least in which recomputation gets through."""
    program = read(trace)
    rate = int(program.peak() / 4 / (program.forward_time * 1e-9))
    plan, proven = least_budget(program, seconds)
    least = walk(program, Machine(1 << 62), plan).peak
    budgets = {int(program.peak() * part): f"{part:.0%}" for part in PARTS}
    budgets[int(least * NEAR)] = "near"
    replayed = [replay(tool, trace, list(budgets), r) for r in (0, rate)]
    about = {"program": name, "operators": len(program.operators), "peak": program.peak(),
             "time_ns": program.time, "rate": rate, "least_found": least, "least_proven": proven,
             "floor": program.floor()}
    return about, [(trace, name, b, label, rate, replayed, seconds)
                   for b, label in budgets.items()]


def run(arguments):
    tool = arguments.build / "bin" / "delta-replay"
    if arguments.traces:
        files = {t.name.split(".")[0]: t for t in arguments.traces}
    else:
        files = generate.write_all(pathlib.Path("build/optimum"))
    began, about, rows = time.monotonic(), [], []
    with multiprocessing.Pool(arguments.processes, maxtasksperchild=1) as pool:
        made = pool.starmap(jobs_of, [(tool, f, n, arguments.seconds) for n, f in files.items()], 1)
        jobs = []
        for a, j in made:
            about.append(a)
            jobs += j
        for row in pool.imap(cell, jobs, 1):
            rows.append(row)
            print(page.line(row), flush=True)
    return {"about": about, "rows": rows, "policies": POLICIES, "seconds": arguments.seconds,
            "near": NEAR, "iterations": ITERATIONS, "highs": version(),
            "took_seconds": round(time.monotonic() - began)}


def version():
    return highspy.Highs().version()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path, help="where bin/delta-replay is")
    parser.add_argument("traces", nargs="*", type=pathlib.Path, help="in place of the programs here")
    parser.add_argument("--seconds", type=float, default=20,
                        help="for LOOSE at most; RECOMPUTE has twice that, BARRIER half (default 20)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=pathlib.Path,
                        help="writes the tables of OUT.md, whose words stay, and their rows as JSON")
    a = parser.parse_args()
    try:
        result = run(a)
        if a.out:
            page.write(a.out, result)
        print(page.summary(result))
    except (BadProgram, OSError, ValueError, subprocess.CalledProcessError) as problem:
        print(f"compare.py: {problem}", file=sys.stderr)
        sys.exit(2)
    except BadPlan as problem:
        print(f"compare.py: {problem}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
