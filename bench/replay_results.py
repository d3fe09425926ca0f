#!/usr/bin/env python3
"""Makes docs/results/replay.md and its figure anew.

    python3 bench/replay_results.py [--build build/release] [--data DIR]

Runs delta-replay and paper_pieces on DTR's traces, and replaces what stands between the comments
`<!-- NAME -->` and `<!-- end of NAME -->` in the page. The rows go to build/results/replay.json.
Needs matplotlib for the figure; a build with benchmarks; DIR/traces (default: $DELTA_DATA).
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import textwrap

import plot_replay
from artefacts import PAGES, ROOT, artefact
from digests import Missing, put, recomputed_line, rows_line

TRACES = ("resnet32", "unet", "densenet121", "transformer", "lstm")
POLICIES = ("dtr", "online", "paper", "simrd:dtr")
RATIOS = [n / 20 for n in range(2, 21)]
IN_TABLES = [n / 10 for n in range(2, 9)]
CAUSES = (0.3, 0.5, 1.0)
BESIDE_SIMRD = [n / 10 for n in range(10, 0, -1)]


def say_and_end(line):
    print(f"replay_results.py: {line}", file=sys.stderr)
    sys.exit(2)


def replays(build, data, file):
    """The rows, by trace, policy and ratio, and the line with their digest; the file has them, too."""
    traces = [data / "traces" / f"{name}.log.gz" for name in TRACES]
    subprocess.run([build / "bin" / "delta-replay", *traces, "--policy", ",".join(POLICIES),
                    "--budget", ",".join(map(str, RATIOS)), "--bandwidth", "12GB/s",
                    "--iterations", "1", "--memory", "places",
                    "--json", file], check=True, stdout=subprocess.DEVNULL)
    text = file.read_text(encoding="utf-8")
    return {(r["trace"], r["policy"], r["ratio"]): r for r in json.loads(text)}, rows_line(text)


def table(head, rows):
    lines = ["| " + " | ".join(line) + " |" for line in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def verdict(row):
    return f"{row['overhead']:.3f}" if row["result"] == "pass" else row["result"]


def overheads(rows):
    def bound(trace, ratio):
        value = rows[trace, "dtr", ratio]["bound_overhead"]
        return "-" if value is None else f"{value:.3f}"
    lines = []
    for trace in TRACES:
        lines += [[trace, f"`{policy}`", *(verdict(rows[trace, policy, r]) for r in IN_TABLES)]
                  for policy in POLICIES]
        lines.append([trace, "bound", *(bound(trace, r) for r in IN_TABLES)])
    return table(["trace", "policy", *map(str, IN_TABLES)], lines)


def causes(rows):
    """What the two spend their time on."""
    def part(row, key):
        return f"{100 * row[key] / row['unmanaged_time_ns']:.1f} %"

    def line(trace, ratio):
        ours, theirs = (rows[trace, policy, ratio] for policy in ("paper", "dtr"))
        out = 100 * ours["bytes_out"] / ours["unmanaged_peak_bytes"]
        return [trace, str(ratio), theirs["result"], part(theirs, "recompute_ns"), ours["result"],
                part(ours, "recompute_ns"), part(ours, "stall_ns"), f"{out:.1f} %",
                str(ours["offloads"]), str(ours["reloads"]), str(ours["prefetches"])]
    return table(["trace", "ratio", "`dtr`", "recompute", "`paper`", "recompute", "stall",
                  "copied out, of the peak", "offloads", "reloads", "of them early"],
                 [line(trace, ratio) for trace in TRACES for ratio in CAUSES])


def pieces(build, data):
    run = subprocess.run([build / "bin" / "paper_pieces", data / "traces"], check=True,
                         capture_output=True, text=True)
    return run.stdout.strip()


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def commit():
    """The last one that changed what is replayed: later ones would write the same."""
    what = ("include", "engine", "executor")
    name = git("log", "-1", "--format=%h", "--", *what).stdout.strip() or "unknown"
    changed = git("diff", "--quiet", "HEAD", "--", *what).returncode != 0
    return f"Commit {name}{', with changes not committed' if changed else ''}."


def beside_simrd(rows):
    """By how much the preset `dtr` and DTR's simulator differ."""
    pairs = [[rows[trace, policy, ratio] for policy in ("dtr", "simrd:dtr")]
             for trace in TRACES for ratio in BESIDE_SIMRD]
    both = [(ours, theirs) for ours, theirs in pairs if theirs["result"] == "pass"]
    lost = sum(ours["result"] != "pass" for ours, _ in both)
    more = [(ours["recompute_ns"] - theirs["recompute_ns"]) / ours["unmanaged_time_ns"]
            for ours, theirs in both if ours["result"] == "pass"]
    passes = "It passes wherever DTR's simulator does" if lost == 0 else \
        f"It fails in {lost} cells in which DTR's simulator passes; elsewhere it does"
    return textwrap.fill(
        f"{passes}, and recomputes for {-statistics.fmean(more):.3f} of the unmanaged time less on "
        f"average, at worst for {max(more):.3f} more ({len(both)} cells, ratios from 0.1 to 1).", 120)


def write(blocks):
    """Replaces these blocks of the page."""
    page = PAGES / "replay.md"
    text = page.read_text(encoding="utf-8")
    for block, content in blocks.items():
        text = put("docs/results/replay.md", text, block, content)
    page.write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("DELTA_DATA"),
                        help="folder with traces/ (default: $DELTA_DATA)")
    a = parser.parse_args()
    if a.data is None or not (a.data / "traces").is_dir():
        say_and_end("--data: no folder with traces/; expected: DTR's traces, as DELTA_DATA has them")
    if not (a.build / "bin" / "paper_pieces").exists():
        say_and_end(f"--build: no {a.build}/bin/paper_pieces; expected: a build with benchmarks")
    try:
        file = artefact(PAGES / "replay.md", "replay.json")
        rows, all_rows = replays(a.build, a.data, file)
        digests = recomputed_line(a.build, a.data / "traces", "replay") + "\n" + all_rows
        write({"commit": commit(), "overheads": overheads(rows), "simrd": beside_simrd(rows),
               "causes": causes(rows), "pieces": pieces(a.build, a.data), "digests": digests})
        plot_replay.draw(file, [PAGES / "replay.png"], comments=[digests])
    except subprocess.CalledProcessError as error:
        say_and_end(f"{pathlib.Path(error.cmd[0]).name} failed, exit code {error.returncode}")
    except (Missing, plot_replay.Problem, OSError) as problem:
        say_and_end(str(problem))


if __name__ == "__main__":
    main()
