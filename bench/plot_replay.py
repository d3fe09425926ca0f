#!/usr/bin/env python3
"""Draws what delta-replay --json wrote: budget against overhead, a panel per trace.

    bench/plot_replay.py rows.json [--output FILE.png FILE.svg] [--bandwidth 12GB/s]

A line per policy. Where one fails there is a mark above instead. The shaded area is the lower bound:
no policy gets there. Of several iterations the last one that was replayed counts. Needs matplotlib.
Exit code 2 and one line on stderr for what can't be drawn.
"""

import argparse
import io
import json
import math
import pathlib
import re
import sys

try:
    import matplotlib
    import numpy
    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
except ImportError:
    matplotlib = None

from artefacts import picture

NUMBER = (int, float)
# Every key that is drawn, and what it may be; None: also null.
KEYS = {"trace": (str,), "policy": (str,), "result": (str,), "ratio": (*NUMBER, None),
        "overhead": (*NUMBER, None), "bound_overhead": (*NUMBER, None), "bandwidth": NUMBER,
        "thrash_limit": NUMBER}
RESULTS = ("pass", "oom", "thrash")

# Okabe and Ito's colours, which colour-blind people tell apart, each with a marker of its own.
KNOWN = {"online": ("#D55E00", "o", "-"), "dtr": ("#0072B2", "s", "-"),
         "paper": ("#009E73", "D", "-"), "simrd:dtr": ("#303030", ".", (0, (3, 2)))}
OTHERS = [("#CC79A7", "v", "-"), ("#E69F00", "^", "-"), ("#56B4E9", "P", "-"),
          ("#8C6D00", "X", "-"), ("#7F3C8D", "<", "-"), ("#999999", ">", "-"),
          ("#000000", "*", "-")]
FAILURES = {"oom": "x", "thrash": 6}  # 6: a small triangle that points up
GREY = "#6b6b6b"
LABELS = {"simrd:dtr": "simrd:dtr, DTR's own simulator"}
TICKS = (1, 1.01, 1.05, 1.1, 1.2, 1.4, 1.7, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)


class Problem(Exception):
    """What is wrong, in a line."""


def rate_of(text):
    """Bytes per second: 12GB/s, 1.5GiB/s, 800MB/s."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG])(i?)B/s", text)
    if not match:
        raise Problem(f"--bandwidth: '{text}' is no rate; allowed: such as 12GB/s or 1.5GiB/s")
    power = "KMG".index(match[2]) + 1
    return round(float(match[1]) * (1024 if match[3] else 1000) ** power)


def check_row(path, number, row):
    """Raises Problem where a row can't be drawn."""
    where = f"{path}: row {number}"
    if not isinstance(row, dict):
        raise Problem(f"{where}: not an object; expected: a row of delta-replay --json")
    for key, kinds in KEYS.items():
        if key not in row:
            raise Problem(f"{where}: lacks '{key}'; expected: a row of delta-replay --json")
        value = row[key]
        types = tuple(k for k in kinds if k is not None)
        fits = value is None and None in kinds or \
            isinstance(value, types) and not isinstance(value, bool)
        if not fits:
            raise Problem(f"{where}: '{key}' is {json.dumps(value)}; expected: "
                          f"{' or '.join('null' if k is None else k.__name__ for k in kinds)}")
    if row["result"] not in RESULTS:
        raise Problem(f"{where}: result '{row['result']}'; expected: {', '.join(RESULTS)}")


def read_rows(path):
    """The rows of delta-replay --json."""
    try:
        rows = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Problem(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise Problem(f"{path}: not JSON: {error}") from error
    if not isinstance(rows, list) or not rows:
        raise Problem(f"{path}: no rows; expected: what delta-replay --json writes")
    for number, row in enumerate(rows, 1):
        check_row(path, number, row)
    return rows


def last_iterations(rows):
    """The last row of each replay: a row is followed by that of the next iteration, if any."""
    behind = [*rows[1:], {}]
    return [row for row, after in zip(rows, behind) if after.get("iteration", 1) == 1]


def of_one_bandwidth(path, rows, wanted):
    """Those with copies at `wanted` bytes per second; None: at the only rate that there is."""
    rates = sorted({row["bandwidth"] for row in rows})
    names = ", ".join(f"{rate / 1e9:g}GB/s" for rate in rates)
    if wanted is None and len(rates) > 1:
        raise Problem(f"{path}: replays at {names}; expected: one of them with --bandwidth")
    if wanted is not None and wanted not in rates:
        raise Problem(f"--bandwidth: no replay has that; allowed: {names}")
    return [row for row in rows if wanted in (None, row["bandwidth"])]


def in_order(rows, key):
    return list(dict.fromkeys(row[key] for row in rows))


def styles_of(policies):
    """A colour, a marker and a dash for each."""
    styles, others = {}, iter(OTHERS * len(policies))
    for policy in policies:
        styles[policy] = KNOWN.get(policy) or next(others)
    return styles


def runs_of(points):
    """Cuts a curve where a budget fails: a line across it would promise what is not there."""
    run = []
    for x, y in points:
        if y is not None:
            run.append((x, y))
        elif run:
            yield run
            run = []
    if run:
        yield run


def curve_of(rows, policy):
    mine = [row for row in rows if row["policy"] == policy and row["ratio"] is not None]
    return sorted(((100 * row["ratio"], row) for row in mine), key=lambda at: at[0])


def draw_bound(axes, rows):
    bound = sorted({(100 * r["ratio"], r["bound_overhead"]) for r in rows
                    if r["ratio"] is not None and r["bound_overhead"] is not None})
    if bound:
        x, y = zip(*bound)
        axes.fill_between(x, [1] * len(x), y, color="#e4e4e4", linewidth=0, zorder=1)
        axes.plot(x, y, color="#a8a8a8", linewidth=0.8, zorder=2)


def draw_policy(axes, curve, style, level):
    """The curve; what failed goes to the height `level`."""
    color, marker, dash = style
    points = [(x, r["overhead"] if r["result"] == "pass" else None) for x, r in curve]
    for run in runs_of(points):
        x, y = zip(*run)
        axes.plot(x, y, color=color, marker=marker, linestyle=dash, linewidth=1.5,
                  markersize=5.5 if marker == "." else 3.4, markeredgewidth=0, zorder=4)
    for result, mark in FAILURES.items():
        x = [at for at, r in curve if r["result"] == result]
        axes.plot(x, [level] * len(x), color=color, marker=mark, linestyle="", markersize=4.2,
                  markeredgewidth=1.1, zorder=4, clip_on=False)


def excess_scale(axes):
    """Square roots of the time beyond the unmanaged: 1 % and 100 % fit into one panel."""
    axes.set_yscale("function", functions=(
        lambda y: numpy.sqrt(numpy.maximum(numpy.asarray(y) - 1, 0)),
        lambda e: 1 + numpy.asarray(e) ** 2))
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:.4g}x")
    axes.yaxis.set_minor_locator(ticker.NullLocator())


def draw_panel(axes, name, rows, styles, top):
    """One trace. Above `top` is a strip with a line of failures per policy."""
    excess_scale(axes)
    draw_bound(axes, rows)
    width = math.sqrt(top - 1)
    above = lambda lines: 1 + (width * (1 + 0.05 * lines)) ** 2
    for i, (policy, style) in enumerate(styles.items()):
        draw_policy(axes, curve_of(rows, policy), style, above(len(styles) - i))
    axes.axhline(top, color="#c8c8c8", linewidth=0.8, zorder=3)
    axes.set_title(name, loc="left", fontsize=10.5, fontweight="bold")
    axes.set_xlim(0, 103)
    axes.set_xticks(range(0, 101, 20))
    axes.set_ylim(1, above(len(styles) + 0.8))
    axes.set_yticks([t for t in TICKS if t <= top])
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g} %")
    axes.grid(color="#ececec", linewidth=0.7, zorder=0)
    axes.tick_params(colors=GREY, labelsize=8.5, length=0, pad=4)
    axes.tick_params(axis="x", pad=7)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.spines["bottom"].set(visible=True, color="#c8c8c8")


def legend_entries(styles):
    entries = [Line2D([], [], color=c, marker=m, linestyle=d, linewidth=1.5, markersize=4.5,
                      markeredgewidth=0, label=LABELS.get(policy, policy))
               for policy, (c, m, d) in styles.items()]
    entries.append(Patch(facecolor="#e4e4e4", edgecolor="#a8a8a8", linewidth=0.8,
                         label="no policy gets there"))
    names = {"oom": "out of memory", "thrash": "given up: too slow"}
    entries += [Line2D([], [], color=GREY, marker=mark, linestyle="", markersize=4.8,
                       label=names[result]) for result, mark in FAILURES.items()]
    return entries


def grid_of(count):
    """So many panels and a place for the legend, up to three side by side, margins in inches."""
    columns = min(3, count + 1)
    lines = math.ceil((count + 1) / columns)
    width, height = 3.4 * columns + 0.6, 3.05 * lines + 0.4
    figure, grid = pyplot.subplots(lines, columns, figsize=(width, height), squeeze=False)
    figure.subplots_adjust(left=0.65 / width, right=1 - 0.2 / width, bottom=0.55 / height,
                           top=1 - 0.35 / height, wspace=0.12, hspace=0.3)
    return figure, list(grid.flat), columns


def figure_of(rows):
    """A panel per trace and the legend behind the last."""
    traces = in_order(rows, "trace")
    styles = styles_of(in_order(rows, "policy"))
    top = max(max(row["thrash_limit"] for row in rows), 1.01)
    figure, places, columns = grid_of(len(traces))
    for i, (axes, name) in enumerate(zip(places, traces)):
        draw_panel(axes, name, [r for r in rows if r["trace"] == name], styles, top)
        axes.tick_params(labelleft=i % columns == 0)
        if i % columns == 0:
            axes.set_ylabel("time / unmanaged time", color=GREY, fontsize=9)
        if i + columns >= len(traces):
            axes.set_xlabel("budget, % of the unmanaged peak", color=GREY, fontsize=9)
    for axes in places[len(traces):]:
        axes.set_axis_off()
    rate = rows[0]["bandwidth"] / 1e9
    places[len(traces)].legend(handles=legend_entries(styles), loc="center left", frameon=False,
                               fontsize=9.5, title=f"copies at {rate:g} GB/s",
                               title_fontsize=9.5, alignment="left", labelspacing=0.7)
    return figure


def save(figure, path, comments=()):
    """The same bytes from the same rows. In SVG hundredths of a point are enough. `comments`: for
    artefacts.picture."""
    if path.suffix == ".png":
        picture(figure, path, comments, dpi=120)
        return
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    rounded = re.sub(r"scale\([^)]*\)|\d+\.\d{3,}",  # a scale's decimals all count
                     lambda m: m[0] if m[0].startswith("scale") else f"{float(m[0]):.2f}",
                     text.getvalue())
    lines = [line.rstrip() for line in rounded.splitlines()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def outputs_of(arguments):
    paths = [pathlib.Path(p) for p in arguments.output or
             [pathlib.Path(arguments.results).with_suffix(".png")]]
    for path in paths:
        if path.suffix not in (".png", ".svg"):
            raise Problem(f"--output: '{path}' ends in neither; allowed: .png, .svg")
    return paths


def draw(results, outputs, wanted=None, comments=()):
    """Draws what the file has to files. `wanted`: of these copy rates, bytes per second, where there
    are several."""
    rows = of_one_bandwidth(results, last_iterations(read_rows(results)), wanted)
    if matplotlib is None:
        raise Problem("matplotlib is missing; expected: python3-matplotlib, or pip install "
                      "matplotlib")
    matplotlib.rcParams.update({"svg.hashsalt": "delta", "font.family": "DejaVu Sans"})
    figure = figure_of(rows)
    for path in outputs:
        try:
            save(figure, path, comments)
        except OSError as error:
            raise Problem(f"--output: '{path}' can't be written: {error.strerror}") from error


def run(arguments):
    outputs = outputs_of(arguments)
    wanted = rate_of(arguments.bandwidth) if arguments.bandwidth else None
    draw(arguments.results, outputs, wanted)


class Parser(argparse.ArgumentParser):
    """Errors in one line."""

    def error(self, message):
        raise Problem(message)


def main():
    parser = Parser(prog="plot_replay.py", description=__doc__.splitlines()[0])
    parser.add_argument("results", help="what delta-replay --json wrote")
    parser.add_argument("--output", nargs="+", metavar="FILE",
                        help="FILE.png or FILE.svg (default: the results' name with .png)")
    parser.add_argument("--bandwidth", metavar="RATE",
                        help="draw the replays with this rate out, such as 12GB/s (needed where "
                             "there are several)")
    try:
        run(parser.parse_args())
    except Problem as problem:
        print(f"plot_replay.py: {problem}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
