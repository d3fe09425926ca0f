"""Time against memory: curves of all models, and the smallest budgets for given times."""

import math

from page import SIMULATED, Section, percent, table
from workbench import MODELS, smallest

POLICIES = ("dtr", "paper", "adaptive", "auto")
PARTS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1)
LIMITS = (1.05, 1.2, 2.0)


def draw(found, out):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 6.0), dpi=150, layout="constrained")
    axes_of = figure.subplots(2, 3, sharey=True).flat
    for axes, (model, rows) in zip(axes_of, found.items(), strict=False):
        for policy in POLICIES:
            passed = [(100 * p, rows[policy, p]["overhead"]) for p in PARTS
                      if rows[policy, p]["result"] == "pass"]
            if passed:
                axes.plot(*zip(*passed, strict=True), "o-", ms=3, lw=1, label=policy)
        bounds = [(100 * p, rows["paper", p]["bound_overhead"]) for p in PARTS]
        bounds = [(x, y) for x, y in bounds if y is not None and math.isfinite(y)]
        axes.plot(*zip(*bounds, strict=True), "k:", lw=1, label="lower bound")
        axes.set_title(f"{model}, simulated", fontsize=9)
        axes.set_ylim(0.95, 2.0)
        axes.grid(alpha=0.3)
        axes.set_xlabel("budget, % of the peak", fontsize=8)
    for axes in figure.axes[len(found):]:
        axes.set_axis_off()
    figure.axes[0].set_ylabel("time / unmanaged")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4,
                  frameon=False, fontsize=8)
    for kind in ("png", "svg"):
        figure.savefig(out / f"paper_curves.{kind}")


def section(bench, out):
    found, lines, data = {}, [], {}
    for model in MODELS:
        trace = bench.trace(model)
        found[model] = bench.replays(trace, POLICIES, PARTS)
        curves, peak = bench.curves(trace, list(POLICIES)), bench.peak(trace)
        for policy in POLICIES:
            least = [smallest(curves[policy], limit) for limit in LIMITS]
            cells = [percent(None if b is None else b / peak) for b in least]
            lines.append([SIMULATED, model, f"`{policy}`", *cells])
            data.setdefault(model, {})[policy] = cells
    draw(found, out)
    return Section("Time against memory", [
        "Not in the paper. The smallest budget, as a part of the unmanaged peak, in which a step takes "
        "at most so much of the unmanaged time, of some 64 that were tried:",
        table(["row", "model", "policy", *(f"{limit}x" for limit in LIMITS)], lines),
        "![Time by budget, policy and model](paper_curves.png)",
    ], data)
