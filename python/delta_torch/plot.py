"""The figure of a report: memory over time, and below it what left the device and came back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .report import Report, Sample

# Wong's palette, which colour-blind readers can tell apart.
_DEVICE, _HOST, _BUDGET = "#0072B2", "#E69F00", "#000000"
_DROPPED, _COPIED_OUT, _RECOMPUTED, _COPIED_IN = "#D55E00", "#E69F00", "#009E73", "#56B4E9"
_BARS = 100  # at most
_MIB = 2**20


def draw(report: Report, file: str | os.PathLike[str]) -> None:
    """Writes the figure to a file, whose name's end says the kind: .png, .svg, .pdf.

    Raises ImportError without Matplotlib, ValueError for a report without samples.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("Report.plot needs Matplotlib: pip install matplotlib") from None
    if not report.samples:
        raise ValueError("the report has nothing to plot: the run had no operators")

    figure = Figure(figsize=(9, 5.6), dpi=150, layout="constrained")
    memory, moves = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    _draw_memory(memory, report)
    _draw_moves(moves, report.samples)
    moves.set_xlabel("time since the run's start (s)")
    figure.savefig(file)


def _draw_memory(axes, report: Report) -> None:
    times = [s.time_ns / 1e9 for s in report.samples]
    unit, name = _unit(max(max(s.used_bytes, s.host_bytes) for s in report.samples))
    used = [s.used_bytes / unit for s in report.samples]
    axes.fill_between(times, used, step="pre", color=_DEVICE, alpha=0.35, linewidth=0)
    axes.step(times, used, where="pre", color=_DEVICE, linewidth=0.8, label="device")
    if any(s.host_bytes for s in report.samples):
        host = [s.host_bytes / unit for s in report.samples]
        axes.step(times, host, where="pre", color=_HOST, linewidth=1.2, label="host")
    if report.budget_bytes is not None:
        label = f"budget ({report.budget_bytes / unit:.4g} {name})"
        begin = report.measured_ns / 1e9
        axes.hlines(
            report.budget_bytes / unit, begin, times[-1], color=_BUDGET, linestyle="--", label=label
        )
        if begin > 0:
            axes.axvspan(0, begin, color="0.85", label="measured without", linewidth=0, zorder=0)
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    axes.set_ylabel(f"memory ({name})")
    axes.set_title(f"policy {report.policy}, {report.steps:,} steps", fontsize="medium")
    _legend(axes)


def _draw_moves(axes, samples: tuple[Sample, ...]) -> None:
    edges, counts = _per_interval(samples)
    middles = [(a + b) / 2 for a, b in zip(edges, edges[1:], strict=False)]
    width = edges[1] - edges[0]
    bars = {"width": width, "linewidth": 0}
    axes.bar(middles, counts["evictions"], color=_DROPPED, label="dropped", **bars)
    axes.bar(
        middles,
        counts["offloads"],
        bottom=counts["evictions"],
        color=_COPIED_OUT,
        label="copied out",
        **bars,
    )
    recomputed = [-n for n in counts["recomputes"]]
    axes.bar(middles, recomputed, color=_RECOMPUTED, label="computed again", **bars)
    axes.bar(
        middles,
        [-n for n in counts["reloads"]],
        bottom=recomputed,
        color=_COPIED_IN,
        label="copied back",
        **bars,
    )
    axes.axhline(0, color="black", linewidth=0.6)
    axes.margins(x=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):,.0f}")
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel(f"tensors per {_span(width)}\nback  |  left")
    _legend(axes)


def _per_interval(samples: tuple[Sample, ...]) -> tuple[list[float], dict[str, list[int]]]:
    """Equal intervals of time (their edges in s), and what each count grew by in each of them."""
    end = max(samples[-1].time_ns, 1)
    bars = min(_BARS, max(len(samples), 1))
    counts = {name: [0] * bars for name in ("evictions", "offloads", "recomputes", "reloads")}
    before = dict.fromkeys(counts, 0)
    for sample in samples:
        place = min(sample.time_ns * bars // end, bars - 1)
        for name, grown in counts.items():
            now = getattr(sample, name)
            grown[place] += now - before[name]
            before[name] = now
    return [end / 1e9 * i / bars for i in range(bars + 1)], counts


def _legend(axes) -> None:
    # Beside the axes, where it covers nothing.
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize="small")


def _unit(most: int) -> tuple[int, str]:
    return (2**30, "GiB") if most >= 4 * 2**30 else (_MIB, "MiB") if most >= _MIB else (1024, "KiB")


def _span(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
