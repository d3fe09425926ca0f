"""Timelines of several ranks in one file for Perfetto: a process each, by one clock."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def of_rank(file: str, rank: int | None) -> str:
    """The file of one rank of several: "trace.rank1.json" for "trace.json". None: it is alone."""
    path = Path(file)
    return file if rank is None else str(path.with_name(f"{path.stem}.rank{rank}{path.suffix}"))


def merge_timelines(file: str | os.PathLike[str]) -> tuple[int, ...]:
    """Writes the timelines of all ranks into one file, which Perfetto opens; gives the ranks.

    file: what was given to budget() as `timeline`. Where several processes train together, each
        writes its own, "trace.rank1.json" for "trace.json"; all that lie beside `file` are taken.
        Those of other machines are to be copied there first. One that ended early is taken as far
        as it goes.

    Each rank is a process of its own. Time 0 is the beginning of the first run; the clock is the
    machine's, so ranks of one machine are aligned within a microsecond, those of several as well
    as their clocks are set, by NTP mostly within some milliseconds.

    Raises FileNotFoundError where there is none, ValueError for a file that is no such timeline.
    """
    path = Path(file)
    parts = sorted(path.parent.glob(f"{path.stem}.rank*{path.suffix}"), key=_rank_of)
    if not parts:
        raise FileNotFoundError(
            f"there is no {of_rank(str(path), 0)}, nor that of another rank: give the file that "
            "was timeline= of the ranks' runs"
        )
    zeros = {part: _zero_of(part) for part in parts}
    first = min(zeros.values())
    with open(path, "w", encoding="utf-8") as out:
        separator = "[\n"
        for part in parts:
            rank, later = _rank_of(part), (zeros[part] - first) / 1000
            for event in _events(part):
                event["pid"] = rank
                if "ts" in event:
                    event["ts"] += later
                elif event["name"] == "process_name":
                    event["args"]["name"] = f"delta, rank {rank}"
                out.write(separator + json.dumps(event, separators=(",", ":")))
                separator = ",\n"
        out.write("\n]\n")
    return tuple(map(_rank_of, parts))


def _rank_of(part: Path) -> int:
    found = re.search(r"\.rank(\d+)$", part.stem)
    return int(found[1]) if found else -1


def _zero_of(part: Path) -> int:
    """When its time 0 was, in ns since 1970."""
    for event in _events(part):
        if event["name"] == "delta_torch":
            return event["args"]["unix_ns"]
    raise ValueError(f"{part} is no timeline of delta_torch: budget(timeline=...) writes them")


def _events(part: Path) -> Iterator[dict[str, Any]]:
    """One in each line. The last line of a run that was killed may be cut off."""
    with open(part, encoding="utf-8") as lines:
        for line in lines:
            text = line.strip().rstrip(",")
            if text.startswith("{"):
                try:
                    yield json.loads(text)
                except json.JSONDecodeError:
                    return
