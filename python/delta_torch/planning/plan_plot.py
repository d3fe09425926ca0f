"""The figure of a plan: step time over budget, beside what the unmanaged peak is made of."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from .recording import ROLES

if TYPE_CHECKING:
    from .plans import BatchPlan, Plan

# Wong's palette, which colour-blind readers can tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
_GIB = 2**30


def draw(plan: Plan, file: str | os.PathLike[str]) -> None:
    """Writes the figure to a file. Raises ImportError without Matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("Plan.plot needs Matplotlib: pip install matplotlib") from None
    figure = Figure(figsize=(10.5, 4.0), dpi=150, layout="constrained")
    times, parts = figure.subplots(1, 2, width_ratios=(3, 1.5))
    for i, batch in enumerate(plan.batches):
        _draw_times(times, batch, plan, _COLOURS[i % len(_COLOURS)])
    largest = max(b.peak_bytes for b in plan.batches)
    if plan.memory_bytes < 1.5 * largest:
        memory = plan.memory_bytes / _GIB
        times.axvline(memory, color="black", linestyle="--", linewidth=0.9)
        times.annotate(
            f" {plan.device}", (memory, 0.99), xycoords=("data", "axes fraction"), va="top"
        )
    times.set_xlabel("budget (GiB)")
    times.set_ylabel("step time / unmanaged")
    times.set_xlim(left=0)
    times.set_title(f"predicted on {plan.device}, policy {plan.policy}", fontsize="medium")
    times.grid(alpha=0.3)
    times.legend(frameon=False, fontsize="small")
    _draw_parts(parts, plan)
    figure.savefig(file)


def _draw_times(axes, b: BatchPlan, plan: Plan, colour: str) -> None:
    name = "" if b.batch is None else f"batch {b.batch}, "
    fitting = [p for p in b.points if p.fits]
    axes.plot(
        [p.budget_bytes / _GIB for p in fitting],
        [p.overhead for p in fitting],
        marker="o",
        color=colour,
        label=f"{name}{plan.policy}",
    )
    bounded = [p for p in b.points if math.isfinite(p.bound)]
    axes.plot(
        [p.budget_bytes / _GIB for p in bounded],
        [p.bound for p in bounded],
        color=colour,
        linewidth=0.9,
        linestyle=":",
        label="no policy is faster",
    )
    failing = [p for p in b.points if not p.fits]
    if failing:
        axes.plot(
            [p.budget_bytes / _GIB for p in failing],
            [1.0 for _ in failing],
            color=colour,
            marker="x",
            linestyle="none",
            label="does not fit",
        )
    if b.checkpoint_bytes is not None and b.checkpoint_ns is not None:
        axes.plot(
            [b.checkpoint_bytes / _GIB],
            [b.checkpoint_ns / b.step_ns],
            color=colour,
            marker="s",
            markerfacecolor="none",
            linestyle="none",
            label="checkpoint per block",
        )


def _draw_parts(axes, plan: Plan) -> None:
    names = [str(b.batch) if b.batch is not None else "" for b in plan.batches]
    below = [0.0] * len(names)
    for role, colour in zip(ROLES, _COLOURS, strict=True):
        sizes = [b.at_peak.get(role, 0) / _GIB for b in plan.batches]
        if any(sizes):
            axes.bar(range(len(names)), sizes, bottom=below, color=colour, label=role, width=0.6)
            below = [a + s for a, s in zip(below, sizes, strict=True)]
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.8, len(names) - 0.2)
    axes.set_xlabel("batch" if any(names) else "")
    axes.set_ylabel("unmanaged peak (GiB)")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1],
        labels[::-1],
        frameon=False,
        fontsize="small",
        loc="upper left",
        bbox_to_anchor=(1, 1),
    )
