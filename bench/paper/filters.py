"""Filters compared on three models: the paper's figure of heuristics, and delta's own beside them."""

import math

from page import SIMULATED, Section, table
from workbench import overhead

MODELS = ("ResNet-50", "EfficientNet-B0", "ResNeXt-50")
FILTERS = {"paper": "base, 1 / (m s)", "paper-lru": "LRU, 1 / s", "paper-greedy": "greedy, 1 / m",
           "online": "joint, with costs", "learned": "learned", "auto": "auto"}
PARTS = (0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15)
SHOWN = (0.8, 0.6, 0.5, 0.4, 0.3, 0.2)


def draw(found, out):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.8), dpi=150, layout="constrained")
    for axes, (model, rows) in zip(figure.subplots(1, len(found), sharey=True), found.items(),
                                   strict=True):
        for policy, name in FILTERS.items():
            passed = [(100 * p, rows[policy, p]["overhead"]) for p in PARTS
                      if rows[policy, p]["result"] == "pass"]
            axes.plot(*zip(*passed, strict=True), "o-", ms=3, lw=1, label=name)
        bounds = [(100 * p, rows["paper", p]["bound_overhead"]) for p in PARTS]
        bounds = [(x, y) for x, y in bounds if y is not None and math.isfinite(y)]
        axes.plot(*zip(*bounds, strict=True), "k:", lw=1, label="lower bound")
        axes.set_title(f"{model}, simulated", fontsize=9)
        axes.set_ylim(0.95, 2.0)
        axes.grid(alpha=0.3)
        axes.set_xlabel("budget, % of the peak", fontsize=8)
    figure.axes[0].set_ylabel("time / unmanaged")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4,
                  frameon=False, fontsize=8)
    for kind in ("png", "svg"):
        figure.savefig(out / f"paper_filters.{kind}")


def section(bench, out):
    lines, found, data = [], {}, {}
    for model in MODELS:
        found[model] = bench.replays(bench.trace(model), FILTERS, PARTS)
        for policy, name in FILTERS.items():
            cells = [overhead(found[model][policy, p]) for p in SHOWN]
            lines.append([SIMULATED, model, name, f"`{policy}`", *cells])
        data[model] = {f"{policy} {part}": overhead(r)
                       for (policy, part), r in found[model].items()}
    draw(found, out)
    return Section("Filters", [
        "The paper's last figure: its three heuristics on three models. It shows the memory that each "
        "took for a budget; here every policy keeps to the budget, and the time tells them apart. "
        "The first three are the paper's policy with another Filter. Time over unmanaged time, by the "
        "budget's part of the peak.",
        table(["row", "model", "Filter", "policy", *(f"{100 * p:.0f} %" for p in SHOWN)], lines),
        "![Time by budget and Filter](paper_filters.png)",
    ], data)
