"""The reports of all ranks of a group, side by side: sums, the fullest rank and the slowest one."""

from __future__ import annotations

import os
from dataclasses import dataclass

from .report import Report, as_json, seconds_of, table
from .sizes import format_bytes


@dataclass(frozen=True)
class GroupReport:
    """What Run.gather_report() gives on rank 0."""

    ranks: tuple[Report | None, ...]  # by their number; None: it has not reported

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks that have not reported."""
        return tuple(rank for rank, report in enumerate(self.ranks) if report is None)

    @property
    def fullest(self) -> int:
        """The rank with the largest peak."""
        there = self._there()
        return max(there, key=lambda rank: there[rank].peak_bytes)

    @property
    def slowest(self) -> int:
        """The rank that the others waited for the most: its collectives took the least time, as
        all others were in theirs already."""
        there = self._there()
        return min(there, key=lambda rank: there[rank].collective_ns)

    def waited_ns(self, rank: int) -> int:
        """How much longer than the slowest rank's its collectives were under way. What it computed
        meanwhile is not taken off."""
        there = self._there()
        return there[rank].collective_ns - there[self.slowest].collective_ns

    def total(self, name: str) -> int:
        """The sum of a number of Report, such as "bytes_out", over the ranks that have reported."""
        return sum(getattr(report, name) for report in self._there().values())

    def __str__(self) -> str:
        there = self._there()
        rows = [("rank", *(title for title, _ in _COLUMNS), "waited for others")]
        for rank, report in there.items():
            cells = [show(report) for _, show in _COLUMNS]
            rows.append((str(rank), *cells, seconds_of(self.waited_ns(rank))))
        lines = [
            f"{len(self.ranks)} ranks; the largest peak: rank {self.fullest}; the slowest: rank "
            f"{self.slowest}",
            *table(rows),
            f"all together: {self.total('evictions'):,} tensors dropped, "
            f"{self.total('offloads'):,} copied out ({format_bytes(self.total('bytes_out'))}), "
            f"{self.total('recomputes'):,} computed again; "
            f"{format_bytes(self.total('collective_bytes'))} in collectives",
        ]
        if self.missing:
            lines.append(f"no report of rank {', '.join(map(str, self.missing))}")
        return "\n".join(lines)

    def to_json(self, file: str | os.PathLike[str] | None = None) -> str:
        """As Report.to_json."""
        return as_json(self, file)

    def _there(self) -> dict[int, Report]:
        return {rank: report for rank, report in enumerate(self.ranks) if report is not None}


_COLUMNS = (
    ("budget", lambda r: "" if r.budget_bytes is None else format_bytes(r.budget_bytes)),
    ("peak", lambda r: format_bytes(r.peak_bytes)),
    ("dropped", lambda r: f"{r.evictions:,}"),
    ("copied out", lambda r: f"{r.offloads:,}"),
    ("computed again", lambda r: f"{r.recomputes:,}"),
    ("collectives", lambda r: f"{r.collectives:,}"),
    ("of", lambda r: format_bytes(r.collective_bytes)),
    ("under way", lambda r: seconds_of(r.collective_ns)),
)
