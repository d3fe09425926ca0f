"""A run's memory over time, as PyTorch's memory viewer reads it."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from typing import Any

import torch

from . import _C

# Bytes between blocks that are shown as two segments: PyTorch's own segments are multiples of it.
_APART = 2 << 20
_PROTOCOL = 4  # of pickle; the viewer's page, which is no Python, knows no later one


def write_snapshot(log: _C.MemoryLog, device: torch.device, file: str | os.PathLike[str]) -> None:
    """Writes what torch.cuda.memory._dump_snapshot would. Raises OSError where it can't."""
    snapshot = _snapshot_of(log.changes(), log.in_use(), device.index or 0)
    with open(file, "wb") as out:
        pickle.dump(snapshot, out, protocol=_PROTOCOL)


def _snapshot_of(
    changes: list[tuple[Any, ...]], in_use: list[tuple[Any, ...]], device: int
) -> dict[str, Any]:
    frames = _Frames()
    trace = []
    for taken, address, size, maker, needed_by, time_ns in changes:
        for action in ("alloc",) if taken else ("free_requested", "free_completed"):
            trace.append(
                {
                    "action": action,
                    "addr": address,
                    "size": size,
                    "stream": 0,
                    "time_us": time_ns // 1000,
                    "frames": frames.of(maker, needed_by),
                }
            )
    blocks = [
        {
            "address": address,
            "size": size,
            "requested_size": size,
            "state": "active_allocated",
            "frames": frames.of(maker, needed_by),
        }
        for address, size, maker, needed_by in sorted(in_use)
    ]
    places = {(address, address + size) for _, address, size, *_ in changes}
    places.update((address, address + size) for address, size, *_ in in_use)
    return {
        "segments": [
            _segment(begin, end, [b for b in blocks if begin <= b["address"] < end], device)
            for begin, end in _areas(sorted(places))
        ],
        "device_traces": [[] for _ in range(device)] + [trace],
    }


class _Frames:
    """The frames of blocks, one list for all that have the same."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def of(self, maker: str, needed_by: str) -> list[dict[str, Any]]:
        """First what made the block's tensor, then the operator that ran; each is a line of the
        viewer, "module:0:operator"."""
        key = (maker, needed_by)
        if key not in self._known:
            labels = dict.fromkeys(label for label in key if label)
            self._known[key] = [_frame(label) for label in labels or ("outside of operators",)]
        return self._known[key]


def _frame(label: str) -> dict[str, Any]:
    module, _, operator = label.rpartition(" ")
    return {"filename": module or "(no module)", "line": 0, "name": operator}


def _areas(places: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Beginning and end of the parts of memory in which blocks lie close to each other."""
    area: tuple[int, int] | None = None
    for begin, end in places:
        if area is not None and begin <= area[1] + _APART:
            area = (area[0], max(area[1], end))
            continue
        if area is not None:
            yield area
        area = (begin, end)
    if area is not None:
        yield area


def _segment(begin: int, end: int, blocks: list[dict[str, Any]], device: int) -> dict[str, Any]:
    """A segment with its blocks and, between them, what is free."""
    filled, at = [], begin
    for block in (*blocks, {"address": end, "size": 0}):
        if block["address"] > at:
            free = block["address"] - at
            filled.append(
                {
                    "address": at,
                    "size": free,
                    "requested_size": 0,
                    "state": "inactive",
                    "frames": [],
                }
            )
        if block["size"]:
            filled.append(block)
        at = block["address"] + block["size"]
    used = sum(block["size"] for block in blocks)
    return {
        "device": device,
        "address": begin,
        "total_size": end - begin,
        "allocated_size": used,
        "active_size": used,
        "requested_size": used,
        "stream": 0,
        "segment_type": "large",
        "is_expandable": False,
        "frames": [],
        "blocks": filled,
    }
