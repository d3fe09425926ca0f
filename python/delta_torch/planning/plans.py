"""What plan() has found: numbers, a table, JSON, a figure."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from dataclasses import dataclass, field
from typing import Any

from ..sizes import format_bytes
from .ranks import Ranks


@dataclass(frozen=True)
class Point:
    """A step under a budget. Times are of a step that did not fit until it was given up."""

    budget_bytes: int
    share: float  # of the unmanaged peak
    verdict: str  # "fits", "out of memory", "too slow"
    step_ns: int
    overhead: float  # time / unmanaged time
    bound: float  # no policy has a smaller overhead; infinite: an operator does not fit
    peak_bytes: int
    host_peak_bytes: int
    recomputes: int
    offloads: int
    stall_ns: int  # waiting for copies
    recompute_ns: int
    network_ns: int  # waiting for collectives
    error: str  # delta's sentence where memory was short

    @property
    def fits(self) -> bool:
        """Does the step fit the budget?"""
        return self.verdict == "fits"


@dataclass
class BatchPlan:
    """One batch size; None: the maker was asked for none."""

    batch: int | None
    peak_bytes: int  # unmanaged
    step_ns: int  # unmanaged
    operators: int
    host_bytes: int  # that may be copied out to
    at_peak: dict[str, int]
    points: list[Point]  # from the largest budget to the smallest
    smallest: dict[float, int | None]  # by overhead, the budget that is enough
    checkpoint_bytes: int | None = None  # with torch.utils.checkpoint, where that was asked for
    checkpoint_ns: int | None = None
    at_checkpoint: Point | None = None  # the policy, at the peak of that


@dataclass
class Plan:
    """Predictions for a device. str() is a table."""

    device: str
    memory_bytes: int  # that tensors can have there
    policy: str
    max_overhead: float
    source: str  # of the device's rates
    batches: list[BatchPlan] = field(default_factory=list)
    largest_unmanaged: int | None = None  # batch; None: not asked for
    largest_managed: int | None = None
    ranks: Ranks | None = None  # None: one device

    def __str__(self) -> str:
        lines = [
            f"{self.device}, {format_bytes(self.memory_bytes)} for tensors, "
            f"policy {self.policy} (predicted)"
        ]
        if self.ranks is not None:
            lines.append(str(self.ranks))
        for batch in self.batches:
            lines += ["", *self._of(batch)]
        if self.largest_unmanaged is not None:
            lines += [
                "",
                f"largest batch that fits: {self.largest_unmanaged} unmanaged, "
                f"{self.largest_managed} managed at {self.max_overhead:g} times the time",
            ]
        return "\n".join(lines)

    def to_json(self) -> str:
        """All numbers, as JSON; what is infinite is null."""
        return json.dumps(_finite(dataclasses.asdict(self)), indent=1)

    def plot(self, file: str | os.PathLike[str]) -> None:
        """Draws step time over budget, and what the peak is made of; the file's end says the kind.

        Raises ImportError without Matplotlib.
        """
        from .plan_plot import draw

        draw(self, file)

    def _of(self, b: BatchPlan) -> list[str]:
        name = "" if b.batch is None else f"batch {b.batch}: "
        fits = "fits" if b.peak_bytes <= self.memory_bytes else "does not fit"
        waited = b.points[0].network_ns if b.points else 0
        network = f", {format_time(waited)} of it for the network" if self.ranks is not None else ""
        lines = [
            f"{name}peak {format_bytes(b.peak_bytes)} ({fits}), step {format_time(b.step_ns)}{network}, "
            f"{b.operators:,} operators",
            "  of the peak: "
            + ", ".join(f"{role} {format_bytes(n)}" for role, n in b.at_peak.items()),
            "   budget   of peak      step   times   bound  recomputed  copied out",
        ]
        lines += [_row(p) for p in b.points]
        for target, budget in b.smallest.items():
            found = "none" if budget is None else f"{format_bytes(budget)}"
            share = "" if budget is None else f" ({budget / b.peak_bytes:.0%} of the peak)"
            lines.append(f"  smallest budget for {target:g} times the time: {found}{share}")
        if b.checkpoint_bytes is not None and b.checkpoint_ns is not None:
            lines.append(
                f"  torch.utils.checkpoint per block: peak {format_bytes(b.checkpoint_bytes)}, "
                f"{b.checkpoint_ns / b.step_ns:.3f} times the time"
            )
            at = b.at_checkpoint
            if at is not None:
                took = f"{at.overhead:.3f} times the time" if at.fits else at.verdict
                lines.append(f"  {self.policy} at that peak: {took}")
        return lines


def _row(p: Point) -> str:
    bound = f"{p.bound:.3f}" if math.isfinite(p.bound) else "-"
    start = f"{format_bytes(p.budget_bytes):>11} {p.share:>7.0%} "
    if not p.fits:
        return f"{start} {p.verdict:>26}"
    return (
        f"{start} {format_time(p.step_ns):>9} {p.overhead:>7.3f} {bound:>7} "
        f"{p.recomputes:>11,} {p.offloads:>11,}"
    )


def format_time(ns: int) -> str:
    """Such as "1.5 s" or "12 ms"."""
    return f"{ns / 1e9:.3g} s" if ns >= 1e9 else f"{ns / 1e6:.3g} ms"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return value
