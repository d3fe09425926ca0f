"""What a run has done, in numbers: bytes, counts and times, whole and by module."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Any

from . import _C
from .planning.outlook import Outlook
from .sizes import format_bytes

_BIGGEST = 10
_MUCH = 0.1  # of the time, for computing again or for copies


@dataclass(frozen=True)
class ModuleUse:
    """What a module's own operators did, without those of its submodules."""

    name: str  # "ResNet.layer1.0.conv1"; "" for operators outside of modules, as in backward
    made_bytes: int  # tensors that they made, all together
    at_peak_bytes: int  # of these, on the device when the run took the most
    left: int  # how often a tensor of theirs left the device: dropped or copied out
    left_bytes: int
    recomputes: int  # how often one of them was computed again
    recompute_ns: int


@dataclass(frozen=True)
class Sample:
    """A run at one instant; counts are since its start."""

    time_ns: int  # since the run's start
    used_bytes: int  # on the device: the most since the sample before
    host_bytes: int  # copied out to the host
    evictions: int
    offloads: int
    reloads: int
    recomputes: int


@dataclass(frozen=True)
class Report:
    """A run in numbers: memory in bytes, times in ns or, where the name says so, in seconds."""

    policy: str
    budget_bytes: int | None  # None: no limit, or not yet, as the first steps are being measured
    peak_bytes: int  # the most that tensors and kernels took under the budget
    unmanaged_peak_bytes: int | None  # where the budget is a share: as measured, or grown since
    measured_ns: int  # when these were over and the budget held; 0: from the start
    used_bytes: int  # now, or at the end of the run
    host_budget_bytes: int
    host_bytes: int  # copied out now, or at the end
    host_peak_bytes: int
    seconds: float  # by the clock, from the run's start
    steps: int
    batches: int  # of these steps, those that ended behind a backward pass, or by hand
    operators: int
    evictions: int  # tensors dropped, to be computed again
    offloads: int  # tensors copied out to the host
    reloads: int  # and back
    prefetches: int  # of these, before they were needed
    recomputes: int  # operators that were computed again
    recompute_ns: int
    clean_drops: int  # tensors that left without a copy, as the host had one still
    bytes_out: int
    bytes_in: int
    waits: int  # for copies
    adopted: int  # tensors that were there before the run knew of them
    in_place: int  # operators that changed an activation
    updates: int  # operators that changed what stays, as weights
    not_replayable: int  # operators that cannot be computed again
    refused: int  # operators that were refused memory, and have done with less
    collectives: int  # of torch.distributed: that have begun
    collective_bytes: int  # of the tensors that they were given
    collective_ns: int  # that at least one was under way
    collective_waits: int  # for a collective of torch.distributed, to make room
    collective_over_bytes: int  # that process groups took beyond the budget, all together
    guessed_costs: int  # decisions where no operator's time was known yet
    replays_checked: int  # operators computed twice and compared (verify=True)
    tensors_compared: int  # with their hashes (verify="tensors")
    live_tensors: int
    live_records: int
    addresses: tuple[tuple[str, int], ...]  # taken past PyTorch's dispatcher: of whose tensors, how often
    modules: tuple[ModuleUse, ...]
    samples: tuple[Sample, ...]
    error: dict[str, Any] | None  # the last torch.OutOfMemoryError of the run, as Run.error
    # What more of the host's memory would bring; None: the run is on, or no step of it is known.
    outlook: Outlook | None = None

    def __str__(self) -> str:
        return "\n".join([*self._whole(), *self._by_module(), *self._advice()])

    def to_json(self, file: str | os.PathLike[str] | None = None) -> str:
        """All of it as JSON, with the attributes' names; written to `file` as well, if given."""
        return as_json(self, file)

    def stats(self) -> dict[str, int | float]:
        """The attributes that are numbers, by their names; one that is None is left out."""
        return {name: n for name, n in vars(self).items() if isinstance(n, (int, float))}

    def plot(self, file: str | os.PathLike[str]) -> None:
        """Draws memory over time, the budget, and what left and came back, as a PNG, SVG or PDF.

        The file's name says which. Needs Matplotlib: raises ImportError without it.
        """
        from .plot import draw

        draw(self, file)

    def past_error(self) -> str:
        """What comes past the last error, where that is known; else ""."""
        ways = []
        if enough := (self.error or {}).get("smallest_budget", 0):
            ways.append(f"a budget of {format_bytes(enough)} comes past the last error")
        if self.error and self.outlook is not None and self.outlook.overhead is None:
            ways += self._with_host("would let the last whole step fit, at {}")
        return "; ".join(ways)

    def _whole(self) -> list[str]:
        limit = "no limit" if self.budget_bytes is None else format_bytes(self.budget_bytes)
        host = ""
        if self.host_budget_bytes:
            host = (
                f"; host: {format_bytes(self.host_peak_bytes)} of "
                f"{format_bytes(self.host_budget_bytes)} at the peak"
            )
        measured = ""
        if self.unmanaged_peak_bytes is not None:
            measured = f", {format_bytes(self.unmanaged_peak_bytes)} without a budget"
        lines = [
            f"budget: {limit}, policy {self.policy}",
            f"peak: {format_bytes(self.peak_bytes)}{measured}{host}",
            f"left: {self.evictions:,} tensors dropped, {self.offloads:,} copied out "
            f"({format_bytes(self.bytes_out)})",
            f"came back: {self.recomputes:,} computed again ({seconds_of(self.recompute_ns)}), "
            f"{self.reloads:,} copied in ({format_bytes(self.bytes_in)}; "
            f"{self.prefetches:,} ahead of time)",
            f"{self.steps:,} steps, {self.operators:,} operators, {self.seconds:.1f} s",
        ]
        if self.steps - self.batches > self.steps // 10:
            lines.append(
                f"{self.steps:,} steps for {self.batches:,} batches: two optimizers? "
                'steps="manual" and run.step() end a step where it ends'
            )
        if self.refused:
            lines.append(
                f"{self.refused:,} operators did with less memory than they asked for: their "
                "results may be other bits than without a budget"
            )
        if self.addresses:
            tensors = ", ".join(f"{label} ({times:,})" for label, times in self.addresses[:3])
            lines.append(f"addresses taken past PyTorch's dispatcher: tensors of {tensors}")
        if self.collectives:
            lines.append(
                f"collectives: {self.collectives:,} ({format_bytes(self.collective_bytes)}), "
                f"{seconds_of(self.collective_ns)} under way, {self.collective_waits:,} waited for to "
                f"make room, {format_bytes(self.collective_over_bytes)} taken beyond the budget"
            )
        if self.error is not None:
            lines.append(f"last error: {self.error.get('message', '')}")
        return lines

    def _by_module(self) -> list[str]:
        used = [m for m in self.modules if m.at_peak_bytes or m.left or m.recomputes]
        used.sort(key=lambda m: (m.at_peak_bytes, m.left_bytes, m.recompute_ns), reverse=True)
        if not used:
            return []
        rows = [("module", "at the peak", "left", "times", "recomputed", "in")]
        rows += [_row(m.name or "(no module)", m) for m in used[:_BIGGEST]]
        if len(used) > _BIGGEST:
            rows.append(_row(f"({len(used) - _BIGGEST} more)", _sum_of(used[_BIGGEST:])))
        return ["", *table(rows)]

    def _advice(self) -> list[str]:
        """One line of what its numbers and its last step allow to say, or none."""
        moved = self.evictions + self.offloads + self.clean_drops
        if past_error := self.past_error():
            advice = past_error
        elif self.budget_bytes is not None and not moved and self.steps and not self.error:
            advice = f"nothing had to leave: a budget of {format_bytes(self.peak_bytes)} is enough"
        else:
            advice = self._of_loss()
        return ["", f"advice: {advice}"] if advice else []

    def _of_loss(self) -> str:
        """What most of the lost time went into, and what would take less; "": little was lost."""
        managed_ns = self.seconds * 1e9 - self.measured_ns
        copies = self.outlook.copy_ns if self.outlook is not None else 0
        lost = max(self.recompute_ns, copies)
        if not lost > _MUCH * managed_ns > 0:
            return ""
        if copies > self.recompute_ns:
            into = "copies to the host and back"
        else:
            most = max(self.modules, key=lambda m: m.recompute_ns)
            into = f"computing again, most of it for {most.name or 'operators outside of modules'}"
        ways = ["a larger budget takes less", *self._with_host("would take {}")]
        return f"{lost / managed_ns:.0%} of the time went into {into}: {'; '.join(ways)}"

    def _with_host(self, does: str) -> list[str]:
        """What more of the host's memory does, `{}` being the time; none: nothing that is known."""
        o = self.outlook
        if o is None or o.host_overhead is None:
            return []
        now = "" if o.overhead is None else f", not {o.overhead:.2f}"
        took = f"{o.host_overhead:.2f} times the unmanaged step{now}"
        same = ", though on a CPU copies take the same RAM" if o.same_memory else ""
        return [f'host="{format_bytes(o.host_bytes)}" {does.format(took)} (predicted){same}']


def as_json(report: Any, file: str | os.PathLike[str] | None) -> str:
    """All of a report, which is a dataclass, as JSON; written to `file` as well, if given."""
    text = json.dumps(asdict(report), indent=1)
    if file is not None:
        with open(file, "w", encoding="utf-8") as out:
            out.write(text + "\n")
    return text


def table(rows: list[tuple[str, ...]]) -> list[str]:
    """Lines of a table: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            [row[0].ljust(widths[0])]
            + [cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)]
        )
        for row in rows
    ]


def made_report(
    *,
    details: bool = True,
    policy: str,
    host_budget: int,
    measured_ns: int,
    steps_alone: int,
    seconds: float,
) -> Report:
    """A report of the extension's counts at this moment; details: modules and samples, too."""
    stats = _C.stats()
    return Report(
        policy=policy,
        budget_bytes=stats["budget"],
        peak_bytes=stats["peak"],
        unmanaged_peak_bytes=stats["unmanaged_peak"] or None,
        measured_ns=measured_ns,
        used_bytes=stats["used"],
        host_budget_bytes=host_budget,
        host_bytes=stats["host_used"],
        host_peak_bytes=stats["host_peak"],
        seconds=seconds,
        batches=stats["steps"] - steps_alone,
        addresses=tuple(_C.addresses()),
        modules=tuple(
            ModuleUse(**{name: m[name] for name in ModuleUse.__dataclass_fields__})
            for m in (_C.modules() if details else ())
            # The names of earlier runs are there, too.
            if m["made_bytes"] or m["left"] or m["recomputes"]
        ),
        samples=tuple(Sample(*s) for s in (_C.samples() if details else ())),
        error=_C.last_error(),
        collective_over_bytes=stats["collective_over"],
        **{name: stats[name] for name in _COUNTS},
    )


# Fields that have the names of the extension's counts.
_COUNTS = (
    "steps",
    "operators",
    "evictions",
    "offloads",
    "reloads",
    "prefetches",
    "recomputes",
    "recompute_ns",
    "clean_drops",
    "bytes_out",
    "bytes_in",
    "waits",
    "adopted",
    "in_place",
    "updates",
    "not_replayable",
    "refused",
    "collectives",
    "collective_bytes",
    "collective_ns",
    "collective_waits",
    "guessed_costs",
    "replays_checked",
    "tensors_compared",
    "live_tensors",
    "live_records",
)


def _row(name: str, use: ModuleUse) -> tuple[str, ...]:
    return (
        name,
        format_bytes(use.at_peak_bytes),
        format_bytes(use.left_bytes),
        f"{use.left:,}",
        f"{use.recomputes:,}",
        seconds_of(use.recompute_ns),
    )


def _sum_of(uses: list[ModuleUse]) -> ModuleUse:
    names = [name for name in ModuleUse.__dataclass_fields__ if name != "name"]
    return ModuleUse(name="", **{name: sum(getattr(u, name) for u in uses) for name in names})


def seconds_of(ns: int) -> str:
    """A time for people: "1.20 s", "3.4 ms"."""
    return f"{ns / 1e9:.2f} s" if ns >= 10**9 else f"{ns / 1e6:.1f} ms"
