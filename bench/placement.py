#!/usr/bin/env python3
"""Makes docs/results/placement.md anew: what places cost, beside memory of pages.

    python3 bench/placement.py build/release TRACE... [--before FILE] [--out docs/results/placement.md]

Runs placement_grid over the traces at several copy rates, in virtual time. FILE: rows that an
earlier commit's placement_grid printed for the same traces and rates, to compare with; a row is a
line of JSON. Prints the table; exit code 2 and one line on stderr for what can't be read.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

RATES = ("6e9", "12e9", "25e9")
FAILED = 2.5  # what a replay that fails counts for


def rows_of(program, traces):
    rows = []
    for rate in RATES:
        text = subprocess.run([program, "--rate", rate, "--policy", "online,learned,adaptive,auto",
                               "--budget", "0.7,0.6,0.5,0.4,0.3", *traces],
                              check=True, capture_output=True, text=True).stdout
        rows += [json.loads(line) for line in text.splitlines()]
    return rows


def summary(rows):
    """By trace and policy: mean overhead in pages, in places, MB moved a step at 0.4, failures."""
    cells = {}
    for r in rows:
        cells.setdefault((r["trace"], r["policy"], r["part"], r["rate"]), {})[r["memory"]] = r
    worst = lambda r: max(r["overheads"][2:]) if r["passed"] else FAILED
    groups = {}
    for (trace, policy, part, _), both in cells.items():
        if not both["pages"]["passed"]:
            continue  # nothing to compare with
        places = both["places"]
        moved = statistics.mean(places["moved_mb"][2:]) if places["passed"] else None
        groups.setdefault((trace, policy), []).append(
            (worst(both["pages"]), worst(places), moved if part == 0.4 else None,
             not places["passed"]))
    result = {}
    for key, cell in groups.items():
        moved = [c[2] for c in cell if c[2] is not None]
        result[key] = (statistics.mean(c[0] for c in cell), statistics.mean(c[1] for c in cell),
                       statistics.mean(moved) if moved else None, sum(c[3] for c in cell))
    return result


def markdown(now, before):
    number = lambda x, f: "-" if x is None else format(x, f)
    out = ["| trace | policy | pages | places | before | MB moved at 0.4 | before | failed | before |",
           "|---|---|---|---|---|---|---|---|---|"]
    for key in sorted(now):
        pages, places, moved, failed = now[key]
        _, places_was, moved_was, failed_was = before.get(key, (None, None, None, None))
        out.append(f"| {key[0]} | {key[1]} | {pages:.3f} | {places:.3f} | {number(places_was, '.3f')} | "
                   f"{number(moved, '.0f')} | {number(moved_was, '.0f')} | {failed} | "
                   f"{number(failed_was, 'd')} |")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("traces", nargs="+", type=pathlib.Path)
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, help="replaces the table in this page")
    a = parser.parse_args()
    try:
        before = {}
        if a.before:
            lines = a.before.read_text(encoding="utf-8").splitlines()
            before = summary([json.loads(line) for line in lines])
        table = markdown(summary(rows_of(a.build / "bin" / "placement_grid", a.traces)), before)
        if a.out:
            page = a.out.read_text(encoding="utf-8")
            first, last = "<!-- table -->\n", "<!-- end of table -->"
            head, rest = page.split(first)
            a.out.write_text(head + first + table + last + rest.split(last)[1], encoding="utf-8")
    except (OSError, ValueError, subprocess.CalledProcessError) as problem:
        print(f"placement.py: {problem}", file=sys.stderr)
        sys.exit(2)
    print(table)


if __name__ == "__main__":
    main()
