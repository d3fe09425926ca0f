#!/usr/bin/env python3
"""Makes docs/results/placement.md anew: what places cost, beside memory of pages.

    python3 bench/placement.py build/release TRACE... [--out docs/results/placement.md]

Runs placement_grid over the traces at several copy rates, in virtual time. In the page lines of other
traces stay as they are. Prints the table; exit code 2 and one line on stderr for what can't be read.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

from digests import Missing, put, recomputed_line
from replay_results import commit

RATES = ("6e9", "12e9", "25e9")
POLICIES = ("online", "adaptive")
FAILED = 2.5  # what a replay that fails counts for


def rows_of(program, traces):
    rows = []
    for rate in RATES:
        text = subprocess.run([program, "--rate", rate, "--policy", ",".join(POLICIES),
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


def lines_of(page):
    """The lines of the table in the page, by trace and policy, each as its cells; but for those of
    policies that there are no longer."""
    table = page.split("<!-- table -->\n", 1)[-1].split("<!-- end of table -->", 1)[0]
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {(line[0], line[1]): line for line in cells if line[1] in POLICIES}


def markdown(now, old):
    """`old`: what lines_of gave for the page as it is, or nothing."""
    number = lambda x, f: "-" if x is None else format(x, f)
    out = ["| trace | policy | pages | places | MB moved at 0.4 | failed |", "|---|---|---|---|---|---|"]
    for key in sorted({*now, *old}):
        line = old.get(key)
        if key in now:
            pages, places, moved, failed = now[key]
            line = [*key, f"{pages:.3f}", f"{places:.3f}", number(moved, ".0f"), str(failed)]
        out.append("| " + " | ".join(line) + " |")
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("traces", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, help="replaces the table in this page; the "
                        "first trace's folder has DTR's traces")
    a = parser.parse_args()
    try:
        page = a.out.read_text(encoding="utf-8") if a.out else ""
        digest = recomputed_line(a.build, a.traces[0].parent, "placement") if a.out else ""
        table = markdown(summary(rows_of(a.build / "bin" / "placement_grid", a.traces)),
                         lines_of(page) if a.out else {})
        if a.out:
            page = put(a.out, put(a.out, page, "table", table), "commit", commit())
            a.out.write_text(put(a.out, page, "digests", digest), encoding="utf-8")
    except (Missing, OSError, ValueError, subprocess.CalledProcessError) as problem:
        print(f"placement.py: {problem}", file=sys.stderr)
        sys.exit(2)
    print(table)


if __name__ == "__main__":
    main()
