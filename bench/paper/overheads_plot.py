"""A figure of time over budget: one pair of axes per model, a curve per policy, and the lower bound."""

import math

from matplotlib.figure import Figure
from workbench import keep_picture


def draw(found, policies, parts, grid, size, out, name):
    """`found`: by model the rows of replays by (policy, part); `policies`: their labels by name;
    `grid`: rows and columns of axes; `out`, `name`: as in keep_picture."""
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    axes_of = figure.subplots(*grid, sharey=True).flat
    for axes, (model, rows) in zip(axes_of, found.items(), strict=False):
        for policy, label in policies.items():
            passed = [(100 * p, rows[policy, p]["overhead"]) for p in parts
                      if rows[policy, p]["result"] == "pass"]
            if passed:
                axes.plot(*zip(*passed, strict=True), "o-", ms=3, lw=1, label=label)
        bounds = [(100 * p, rows["paper", p]["bound_overhead"]) for p in parts]
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
    keep_picture(figure, out, name)
