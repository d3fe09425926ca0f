#!/usr/bin/env python3
"""Measures what decisions cost and writes docs/results/decisions.md, and build/results/decisions.{json,png}.

    python3 bench/decisions.py build/release [--torch-python PYTHON] [--out docs/results/decisions]
                               [GOOGLE BENCHMARK FLAG...]

Runs manager_bench, decisions_bench (the Filter beside the plain scan) where it is built, and
torch_operator.py under a Python that may have PyTorch. Rows are medians of the repetitions. What is
not there is said to be missing, and is no error; without matplotlib there is no figure.
"""

import argparse
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import plot_replay
from artefacts import PAGES, artefact, relative
from replay_results import commit, table

HERE = pathlib.Path(__file__).resolve().parent
POLICIES = ("lru_evict", "base_offload", "dtr", "online", "paper")
FINDERS = ("record_scan", "rows")
COUNTERS = ("operators", "evaluations", "recomputes", "allocations", "instructions", "records",
            "worst_ns", "worst_scans", "selects", "ns_per_operator")
# As short as rows of so many kinds allow; flags of the command line come behind these.
FLAGS = ("--benchmark_repetitions=3", "--benchmark_min_time=0.1")
MISSING = "-"
NOT_MEASURED = "not measured"


def say_and_end(line):
    print(f"decisions.py: {line}", file=sys.stderr)
    sys.exit(2)


# --- measuring -----------------------------------------------------------------------------------

def rows_of(program, flags):
    """Its rows, medians over the repetitions, and what it says of itself; ns and counters are per
    operator."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "rows.json"
        subprocess.run([program, *FLAGS, *flags, f"--benchmark_out={out}",
                        "--benchmark_out_format=json"], check=True)
        # Nothing at all is written where a flag only asked for something, such as a list.
        text = out.read_text(encoding="utf-8") if out.exists() else ""
    said = json.loads(text) if text.strip() else {"benchmarks": [], "context": {}}
    runs = {}
    for run in said["benchmarks"]:
        if run.get("run_type") == "iteration" and not run.get("error_occurred"):
            runs.setdefault(run["run_name"], []).append(run)
    return [row_of(program.name, name, runs[name]) for name in runs], said["context"]


def row_of(program, name, runs):
    # Google Benchmark writes flags such as "/iterations:256" behind the arguments. Where a benchmark
    # takes the time by itself, the processor's includes what is not to be counted.
    time = "real_time" if "manual_time" in name.split("/") else "cpu_time"
    parts = [part for part in name.split("/") if ":" not in part and part != "manual_time"]
    has_n = parts[-1].isdigit()
    to_ns = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
    median = lambda value: statistics.median(map(value, runs))
    row = {"program": program, "name": "/".join(parts[:-1] if has_n else parts),
           "n": int(parts[-1]) if has_n else None}
    row["ns"] = median(lambda r: r[time] * to_ns[r["time_unit"]] / r.get("operators", 1))
    # The processor's time of the fastest and the slowest repetition: how much a row can be trusted.
    row["spread"] = max(r[time] for r in runs) / max(min(r[time] for r in runs), 1e-9)
    for key in COUNTERS:
        if key in runs[0]:
            row[key] = median(lambda r, key=key: r[key])
    return row


def torch_times(python):
    run = subprocess.run([python, HERE / "torch_operator.py"], capture_output=True, text=True,
                         check=False)
    if run.returncode == 0 and run.stdout.startswith("{"):
        return json.loads(run.stdout)
    print(f"decisions.py: torch_operator.py: {(run.stdout + run.stderr).strip()}", file=sys.stderr)
    return None


def cached(build, name):
    """A variable of the build's CMake cache, or an empty text."""
    try:
        cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    except OSError:
        return ""
    found = re.search(rf"^{name}:[^=]*=(.*)$", cache, re.MULTILINE)
    return found[1] if found else ""


def machine(build):
    try:
        info = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        info = ""
    model = re.search(r"^model name\s*:\s*(.*)$", info, re.MULTILINE)
    kind = cached(build, "CMAKE_BUILD_TYPE")
    flags = [cached(build, "CMAKE_CXX_FLAGS"), cached(build, f"CMAKE_CXX_FLAGS_{kind.upper()}")]
    try:
        version = subprocess.run([cached(build, "CMAKE_CXX_COMPILER") or "c++", "--version"],
                                 capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        version = ""
    return {"cpu": model[1] if model else "unknown", "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            "compiler": version.splitlines()[0] if version else "unknown",
            "build": kind or "unknown", "flags": " ".join(filter(None, flags)) or "unknown"}


# --- tables --------------------------------------------------------------------------------------

def figures(value, digits=3):
    """Of so many figures: 0.012, 1.23, 45.6, 12346."""
    if value is None:
        return MISSING
    if value == 0:
        return "0"
    return f"{value:.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"


class Rows:
    """Rows by name and n."""

    def __init__(self, rows):
        self.by = {(r["name"], r["n"]): r for r in rows}

    def get(self, name, n, key="ns"):
        return self.by.get((name, n), {}).get(key)

    def counts(self, prefix):
        return sorted({n for name, n in self.by if name.startswith(prefix) and n is not None})

    def names(self, prefix=""):
        return list(dict.fromkeys(name for name, _ in self.by if name.startswith(prefix)))


def ratio(a, b):
    return None if a is None or not b else a / b


def growth_table(rows, case, torch):
    """A line per policy: ns by live tensors, their growth, and PyTorch's operator beside it."""
    counts = rows.counts(f"{case}/")
    lines = []
    for policy in POLICIES:
        name = f"{case}/{policy}"
        if name not in rows.names():
            continue
        last, first = rows.get(name, 100_000), rows.get(name, 1000)
        line = [f"`{policy}`", *(figures(rows.get(name, n)) for n in counts),
                figures(ratio(last, first))]
        if torch:
            line += [figures(ratio(last, torch.get(key))) for key in ("eager_ns", "script_ns")]
        lines.append(line)
    head = ["policy", *(f"{n:,}" for n in counts), "100,000 / 1,000"]
    head += ["100,000 / PyTorch, eager", "100,000 / PyTorch, script"] if torch else []
    return table(head, lines) if lines else "Not measured."


def pressure_table(rows, cases):
    """A line per case and policy: ns by live tensors; scores, recomputes."""
    names = [n for case in cases for n in rows.names(f"{case}/")]
    counts = sorted({n for name in names for n in rows.counts(name)})
    def cell(name, n):
        if rows.get(name, n) is None:
            return MISSING
        found = [figures(rows.get(name, n, key)) for key in ("ns", "evaluations", "recomputes")]
        return f"{found[0]} ({found[1]}; {found[2]})"
    lines = [[name.split("/")[0], f"`{name.split('/')[1]}`", *(cell(name, n) for n in counts)]
             for name in names]
    return table(["case", "policy", *(f"{n:,}" for n in counts)], lines) if lines else "Not measured."


def restore_table(rows):
    lines = []
    for name in rows.names("restore/"):
        for n in rows.counts(name):
            ns, replayed = rows.get(name, n), rows.get(name, n, "recomputes")
            lines.append([str(n), figures(ns), figures(ratio(ns, replayed)),
                          figures(rows.get(name, n, "allocations"))])
    return table(["operators in the chain", "ns per restore", "ns per operator replayed",
                  "calls of operator new"], lines) if lines else "Not measured."


def instructions_text(rows):
    """Per operator where everything stays; nothing where they were not counted."""
    counts = rows.counts("fits/")
    if all(rows.get(f"fits/{p}", n, "instructions") is None for p in POLICIES for n in counts):
        return ""
    def cell(policy, n):
        value = rows.get(f"fits/{policy}", n, "instructions")
        return NOT_MEASURED if value is None else figures(value)
    lines = [[f"`{p}`", *(cell(p, n) for n in counts)] for p in POLICIES
             if f"fits/{p}" in rows.names()]
    return ("\n\nInstructions per operator of the first table:\n\n"
            + table(["policy", *(f"{n:,}" for n in counts)], lines))


def mixes_of(rows, traces=False):
    mixes = dict.fromkeys(name.split("/", 1)[1] for name in rows.names() if "/" in name)
    return [mix for mix in mixes if mix.startswith("trace_") == traces]


def finder_table(rows):
    """A line per mix: ns of `rows` by candidates, and in brackets the record scan's time of the same
    mix and n, in the same run, over that."""
    mixes = mixes_of(rows)
    counts = sorted({n for mix in mixes for n in rows.counts(f"rows/{mix}")})
    def cell(mix, n):
        ns, scan = rows.get(f"rows/{mix}", n), rows.get(f"record_scan/{mix}", n)
        return figures(ns) if ns is None else f"{figures(ns)} ({figures(ratio(scan, ns))})"
    lines = [[f"`{mix}`", *(cell(mix, n) for n in counts)] for mix in mixes]
    return table(["mix", *(f"{n:,}" for n in counts)], lines) if lines else "Not measured."


def trace_speedups(rows):
    """By trace: candidates, and the record scan's time over the Filter's; only what was measured."""
    found = {}
    for mix in mixes_of(rows, traces=True):
        for n in rows.counts(f"rows/{mix}"):
            times = ratio(rows.get(f"record_scan/{mix}", n), rows.get(f"rows/{mix}", n))
            if times is not None:
                found[mix] = (n, times)
    return found


def trace_table(rows):
    speedups = trace_speedups(rows)
    if not speedups:
        return "Not measured."
    lines = [[f"`{mix.removeprefix('trace_')}`", str(n),
              figures(rows.get(f"rows/{mix}", n, "selects")),
              *(figures(rows.get(f"{finder}/{mix}", n)) for finder in FINDERS), figures(times)]
             for mix, (n, times) in speedups.items()]
    mean = statistics.geometric_mean(times for _, times in speedups.values())
    lines.append(["geometric mean", *[""] * (len(lines[0]) - 2), figures(mean)])
    return table(["trace", "candidates", "victims per operator",
                  *(f"`{finder}`, ns" for finder in FINDERS), "record scan's time / rows'"], lines)


# --- the page ------------------------------------------------------------------------------------

def allocations_sentence(rows):
    fits = [rows.get(name, n, "allocations") for name, n in rows.by
            if name.split("/")[0] == "fits"]
    known = [value for value in fits if value is not None]
    if not known:
        return "Calls of operator new were not counted."
    if not any(known):
        return "No row of this table calls operator new while it is measured."
    return f"Of {len(known)} rows of this table {sum(v > 0 for v in known)} call operator new."


def most_allocations(rows):
    known = [rows.get(name, n, "allocations") for name, n in rows.by
             if name.split("/")[0] in ("pressed", "early")]
    return figures(max((value for value in known if value is not None), default=None))


def torch_text(torch):
    if torch is None:
        return "PyTorch was not at hand, so there is nothing to compare with."
    script = f"{figures(torch['script_ns'])} ns" if torch["script_ns"] else torch["script"]
    return f"""PyTorch {torch["torch"]} on the same machine in the same run, for an operator that does next to
nothing (`torch.add` of two tensors of four floats, one thread, no gradients): {figures(torch["eager_ns"])} ns when
it is called from Python, and the call through Python's bindings is in that; {script} in a loop
within `torch.jit.script`, where there is no Python but PyTorch's interpreter and dispatcher are left."""


def finder_text(rows, flags):
    if not rows.by:
        return "There was no `decisions_bench` in the build, so the rows of the finders are missing."
    return f"""Which of n candidates leaves. `record_scan` looks at every candidate's record (Algorithm 2 as written), in the order of
the records; `rows` is what a manager uses: it compares kept answers, by words of 64 rows. An operator touches three
tensors, makes one and needs one victim, and all of that is timed. Both finders have to choose the same victims. ns per
operator of `rows` by candidates; in brackets, the record scan's time over it.
Compiled with `{flags}`.

{finder_table(rows)}

### Real traces

What replays with `base` and `evict_only` ask their Filter, in {trace_budget()} % of the peak that they have without a budget.
Finders are told of every operator, choose among the manager's candidates, and find its victims. ns are per operator,
replays included.

{trace_table(rows)}"""


def trace_budget():
    """Percent, as the axes of the benchmarks have it."""
    found = re.search(r"trace_budget = (\d+)", (HERE / "axes.hpp").read_text(encoding="utf-8"))
    return found[1]


def page(found, out):
    """The whole of OUT.md."""
    rows = Rows([r for r in found["rows"] if r["program"] == "manager_bench"])
    finders = Rows([r for r in found["rows"] if r["program"] == "decisions_bench"])
    at, torch = found["machine"], found["torch"]
    spreads = sorted(r["spread"] for r in found["rows"])
    spread = f"{spreads[len(spreads) // 2]:.2f}, the most {spreads[-1]:.2f}" if spreads else MISSING
    return f"""# What decisions cost

Made by `{found["command"]}`, which writes rows with all counters to
{relative(artefact(out, out.name + ".json"))}, and draws them beside it. {found["commit"]}

{at["cpu"]}, {at["cores"]} cores; {at["compiler"]}; {at["build"]}, `{at["flags"]}`. Load of the machine when it
began: {at["load"]}. Times are the processor's, medians of the repetitions; the slowest repetition over
the fastest is {spread}.

Simulated storage, empty kernels with 32 bytes of captures, given costs. An operator reads the three tensors before it
and makes one; then the oldest is dropped. `{MISSING}`: not measured.

## Nothing has to leave

ns per operator (run, record, drop) by the number of live tensors.

{growth_table(rows, "fits", torch)}

{allocations_sentence(rows)} (`manager_heap_test` checks that, and how many
bytes a tensor and an operator take.)

{torch_text(torch)}{instructions_text(rows)}

## Something has to leave

`pressed`: the budget holds nine tenths of the live tensors, and every operator is followed by one that reads a tensor
anywhere, so that victims are chosen and come back. `early`: there is room for all, but the policy starts at three
quarters of the budget. ns per operator by live tensors; in brackets, scores and recomputes per operator.

{pressure_table(rows, ("pressed", "early"))}

Lists that meet a new longest call operator new, {most_allocations(rows)} times an operator at most. `online` and
`paper` are left out at 100,000 tensors, as the warm-up takes long where every candidate is scored.

## Something comes back

All tensors of a chain are evicted, and an operator reads its end. Only the restore is timed.

{restore_table(rows)}

## Who leaves

{finder_text(finders, at.get("finder_flags") or at["flags"])}
"""


# --- the figure ----------------------------------------------------------------------------------

POLICY_STYLES = {"lru_evict": ("#CC79A7", "v"), "base_offload": ("#E69F00", "^"),
                 "dtr": ("#0072B2", "s"), "online": ("#D55E00", "o"), "paper": ("#009E73", "D")}
FINDER_STYLES = {"record_scan": ("#0072B2", "s"), "rows": ("#D55E00", "o")}


def draw_lines(axes, title, rows, lines):
    """`lines`: label, name of the rows, colour and marker."""
    for label, name, (color, marker) in lines:
        points = [(n, rows.get(name, n)) for n in rows.counts(name)
                  if rows.get(name, n) is not None]
        if points:
            axes.plot(*zip(*points), color=color, marker=marker, linewidth=1.5, markersize=4,
                      markeredgewidth=0, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(title, loc="left", fontsize=10.5, fontweight="bold")
    axes.grid(color="#ececec", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=plot_replay.GREY, labelsize=8.5, length=0, which="both")
    axes.yaxis.set_minor_formatter(plot_replay.ticker.NullFormatter())
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}" if y >= 1 else f"{y:g}")
    for side in axes.spines.values():
        side.set_visible(False)


def panels(found):
    """Title, rows, lines and the label below of each."""
    rows = Rows([r for r in found["rows"] if r["program"] == "manager_bench"])
    finders = Rows([r for r in found["rows"] if r["program"] == "decisions_bench"])
    for case, title in (("fits", "an operator, everything stays"),
                        ("pressed", "an operator, one tenth elsewhere")):
        lines = [(p, f"{case}/{p}", style) for p, style in POLICY_STYLES.items()
                 if f"{case}/{p}" in rows.names()]
        if lines:
            yield title, rows, lines, "live tensors"
    for mix in mixes_of(finders):
        lines = [(f, f"{f}/{mix}", style) for f, style in FINDER_STYLES.items()
                 if f"{f}/{mix}" in finders.names()]
        yield f"a victim: {mix.replace('_', ' ')}", finders, lines, "candidates"


def draw(found, out):
    """The artefact OUT.png, where there is something to draw, and something to draw it with."""
    wanted = list(panels(found))
    if not wanted:
        return
    if plot_replay.matplotlib is None:
        print("decisions.py: no figure: matplotlib is missing", file=sys.stderr)
        return
    plot_replay.matplotlib.rcParams.update({"font.family": "DejaVu Sans"})
    columns = min(2, len(wanted))
    lines = -(-len(wanted) // columns)
    figure, places = plot_replay.pyplot.subplots(
        lines, columns, figsize=(4.9 * columns, 3.5 * lines), squeeze=False, layout="constrained")
    for axes, (title, rows, curves, below) in zip(places.flat, wanted):
        draw_lines(axes, title, rows, curves)
        axes.set_xlabel(below, color=plot_replay.GREY, fontsize=9)
        axes.set_ylabel("ns", color=plot_replay.GREY, fontsize=9)
        low, high = axes.get_ylim()
        if rows.names("fits/") and found["torch"] and found["torch"]["script_ns"]:
            for key, name, dash in (("eager_ns", "PyTorch's add, Python", (0, (5, 2))),
                                    ("script_ns", "PyTorch's add, script", (0, (1, 1.5)))):
                axes.axhline(found["torch"][key], color="#303030", linewidth=1, linestyle=dash,
                             label=name)
            high = max(high, found["torch"]["eager_ns"])
        # Whole decades, and room for the legend: a narrow scale would make noise look like growth.
        axes.set_ylim(10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(2 * high)))
        axes.legend(fontsize=7.5, frameon=False, ncols=2, loc="upper left")
    for axes in list(places.flat)[len(wanted):]:
        axes.set_axis_off()
    plot_replay.save(figure, artefact(out, out.name + ".png"))


# --- all of it -----------------------------------------------------------------------------------

def main():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], allow_abbrev=False,
        epilog="all other flags go to Google Benchmark, such as --benchmark_min_time=0.05")
    parser.add_argument("build", type=pathlib.Path, help="a build with benchmarks")
    parser.add_argument("--torch-python", default=sys.executable, metavar="PYTHON",
                        help="a Python that has PyTorch (default: this one)")
    parser.add_argument("--out", type=pathlib.Path, default=PAGES / "decisions",
                        metavar="NAME", help="where to, without an ending")
    a, flags = parser.parse_known_args()
    if any(not flag.startswith("--benchmark_") for flag in flags):
        say_and_end(f"'{' '.join(flags)}': unknown; allowed: --help names them")
    if not (a.build / "bin" / "manager_bench").exists():
        say_and_end("BUILD_DIR: no bin/manager_bench there; expected: a build with benchmarks")
    found = {"command": " ".join(["python3 bench/decisions.py BUILD_DIR", *flags]),
             "commit": commit(), "machine": machine(a.build), "torch": None, "rows": []}
    try:
        for name in ("manager_bench", "decisions_bench"):
            program = a.build / "bin" / name
            if program.exists():
                rows, context = rows_of(program, flags)
                found["rows"] += rows
                if "compiler_flags" in context:
                    found["machine"]["finder_flags"] = context["compiler_flags"]
            else:
                print(f"decisions.py: no {name} in the build: its rows are missing", file=sys.stderr)
    except subprocess.CalledProcessError as error:
        say_and_end(f"{pathlib.Path(error.cmd[0]).name} failed, exit code {error.returncode}")
    if not found["rows"]:
        print("decisions.py: no rows, so nothing is written", file=sys.stderr)
        return
    found["torch"] = torch_times(a.torch_python)
    a.out.parent.mkdir(parents=True, exist_ok=True)
    rows = artefact(a.out, a.out.name + ".json")
    rows.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    draw(found, a.out)
    a.out.with_suffix(".md").write_text(page(found, a.out), encoding="utf-8")
    print(f"decisions.py: wrote {relative(rows)} and {a.out.name}.md", file=sys.stderr)


if __name__ == "__main__":
    main()
