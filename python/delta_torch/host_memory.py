"""The memory of this machine that copies of tensors may take where nobody says how much."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_PART = 0.5  # of what is free: the program's own is to grow, too
_GROUPS = Path("/sys/fs/cgroup")


def usual_host(device_type: str) -> int:
    """Bytes that may be copied out where `host` is "auto".

    Beside an accelerator half of the memory that is free now, shared among the processes that
    torchrun has started on this machine. On a CPU none: a copy would lie in the same memory.
    """
    if device_type == "cpu":
        return 0
    processes = max(int(os.environ.get("LOCAL_WORLD_SIZE") or 1), 1)
    return int(free_memory() * _PART) // processes


def free_memory() -> int:
    """Bytes that this process and others could take now; 0 where the system does not say.

    What a container or a service has left of its limit, where that is less.
    """
    left = [_available(), *_left_to_groups()]
    return max(min(n for n in left if n is not None), 0) if left[0] is not None else 0


def _available() -> int | None:
    for line in _lines(Path("/proc/meminfo")):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def _left_to_groups() -> Iterator[int]:
    """Of each control group (version 2) that this process is in: its limit without what is used.

    Files that were read and could be forgotten count as free, as in MemAvailable.
    """
    own = next((x[3:] for x in _lines(Path("/proc/self/cgroup")) if x.startswith("0::")), "/")
    group = _GROUPS / own.lstrip("/")
    for folder in (group, *group.parents):
        if not folder.is_relative_to(_GROUPS):
            return
        limit, used = _lines(folder / "memory.max"), _lines(folder / "memory.current")
        if not limit or not used or limit[0] == "max":
            continue
        kept = dict(line.split() for line in _lines(folder / "memory.stat"))
        yield int(limit[0]) - int(used[0]) + int(kept.get("inactive_file", 0))


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
