"""Reads snapshots of memory, as PyTorch's memory viewer does."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any


def read(file: Path) -> dict[str, Any]:
    return pickle.loads(file.read_bytes())


def curve(snapshot: dict[str, Any]) -> list[int]:
    """Bytes in use behind each change, as the viewer draws them: from those that are in use at the
    end, backwards."""
    trace = snapshot["device_traces"][0]
    now = sum(
        b["size"]
        for s in snapshot["segments"]
        for b in s["blocks"]
        if b["state"] == "active_allocated"
    )
    changes = {"alloc": 1, "free_completed": -1}
    used = [now]
    for e in reversed(trace):
        now -= changes.get(e["action"], 0) * e["size"]
        used.append(now)
    return used[::-1]
