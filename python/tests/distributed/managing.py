"""What cases have in common: a run or none, the bits of what they give, and load on the memory."""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from bits import bits_of

import delta_torch
from delta_torch import _C

KIB, MIB = 2**10, 2**20


class Told:
    """What a run has done, once it is over; empty without one."""

    def __init__(self) -> None:
        self.about: dict[str, Any] = {}


@contextmanager
def managed(run: dict[str, Any] | None) -> Iterator[Told]:
    """A run with these arguments, `size` first; None: without one."""
    told = Told()
    if run is None:
        yield told
        return
    options = dict(run)
    budget = delta_torch.budget(options.pop("size"), **options)
    with budget:
        yield told
    report = budget.report()
    told.about = {
        "peak": report.peak_bytes,
        "budget": report.budget_bytes,
        "steps": report.steps,
        "left": report.evictions + report.offloads + report.clean_drops,
        "waits": report.collective_waits,
        "over": report.collective_over_bytes,
        "addresses": report.addresses,
    }


def digest(*results: Any) -> str:
    """Of the bits of all tensors and numbers within."""
    hashed = hashlib.sha256()
    for leaf in bits_of(results):
        hashed.update(leaf.what.encode() + leaf.data)
    return hashed.hexdigest()[:16]


def values(kib: int, first: int = 0) -> torch.Tensor:
    """So many KiB of float32 that differ, small whole numbers."""
    return torch.arange(kib * KIB // 4, dtype=torch.float32) % 97 + first


def load(kib: int, count: int = 6) -> torch.Tensor:
    """Makes tensors, one from the other, that drive out what can leave; their sum."""
    made = [torch.ones(kib * KIB // 4)]
    for _ in range(count - 1):
        made.append(made[-1] * 1.5)
    return torch.stack([t.sum() for t in made])


def in_collectives() -> int:
    """How many tensors the collectives in flight hold on the device."""
    return _C.stats()["in_collectives"]


class _HeapInfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


class Heap:
    """Bytes that malloc has given away, of a process whose threads have one arena together."""

    def __init__(self) -> None:
        self._info = ctypes.CDLL(None).mallinfo2
        self._info.restype = _HeapInfo
        self.first = self.most = self._now()

    def _now(self) -> int:
        info = self._info()
        return info.uordblks + info.hblkhd

    def _look(self, _frame: Any, event: str, _function: Any) -> None:
        if event.startswith("c_"):
            self.most = max(self.most, self._now())

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Looks whenever this thread calls a function that is not Python's: not within them, so
        that there may be more in use than `most` says, but not less."""
        sys.setprofile(self._look)
        try:
            yield
        finally:
            sys.setprofile(None)
