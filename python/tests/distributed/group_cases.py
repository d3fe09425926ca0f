"""What ranks tell each other past collectives: reports, shares, timelines, searches; run by worker.py."""

from __future__ import annotations

import json
import threading
import time
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from ddp_cases import BUCKET_MB, mlp
from torch.nn.parallel import DistributedDataParallel

import delta_torch
from delta_torch import group


def _made() -> tuple[DistributedDataParallel, torch.optim.Optimizer]:
    ddp = DistributedDataParallel(mlp(), bucket_cap_mb=BUCKET_MB)
    return ddp, torch.optim.AdamW(ddp.parameters(), lr=1e-3, foreach=False)


def _step(ddp: torch.nn.Module, optimizer: torch.optim.Optimizer, rows: int = 1024) -> None:
    ddp(torch.randn(rows, 160)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def report(rank: int, file: str, late_s: float, absent: bool = False) -> Any:
    """Rank 1 is late in every step; with `absent` it gives no report."""
    ddp, optimizer = _made()
    with delta_torch.budget("8MiB", policy="online", host="1GiB", timeline=file) as run:
        for _ in range(4):
            time.sleep(late_s if rank == 1 else 0)
            _step(ddp, optimizer)
        if absent:
            if rank == 1:
                raise ValueError("injected")
            gathered = run.gather_report()
            return {"missing": gathered.missing, "text": str(gathered)} if gathered else None
    mine, gathered = run.report(), run.gather_report()
    dist.barrier()
    about: dict[str, Any] = {
        "collectives": mine.collectives,
        "bytes": mine.collective_bytes,
        "peak": mine.peak_bytes,
        "gradients": sum(p.nbytes for p in ddp.parameters()),
    }
    if gathered is not None:
        about["group"] = {
            "text": str(gathered),
            "json": json.loads(gathered.to_json()),
            "peaks": [r.peak_bytes for r in gathered.ranks if r is not None],
            "total": gathered.total("collective_bytes"),
            "slowest": gathered.slowest,
            "waited_ns": [gathered.waited_ns(r) for r in range(len(gathered.ranks))],
        }
    return about


def ask(rank: int, times: int) -> list[str]:
    """All ranks at once ask who failed, before the thread of rank 0 that answers has begun."""
    said = []
    connection = group.Group._connection
    main = threading.current_thread()

    def late(self: Any) -> Any:
        if rank == 0 and threading.current_thread() is not main:
            time.sleep(0.3)
        return connection(self)

    with mock.patch.object(group.Group, "_connection", late), delta_torch.budget("8MiB"):
        for _ in range(times):
            dist.barrier()
            said.append(str(group.current()._suspects()))
        dist.barrier()
    return said


def share(rank: int, measures: int) -> Any:
    """Ranks of different peaks; rank 1 measures so many steps."""
    after = measures if rank == 1 else 2
    with delta_torch.budget("60%", policy="online", host="1GiB", share_after=after) as run:
        ddp, optimizer = _made()
        for _ in range(4):
            _step(ddp, optimizer, 1024 if rank == 0 else 512)
    report = run.report()
    return {"budget": report.budget_bytes, "of": report.unmanaged_peak_bytes}


def timeline(rank: int, file: str) -> Any:
    """Both compute between two barriers, and rank 1's run begins later."""
    dist.barrier()
    time.sleep(0.3 * rank)
    with delta_torch.budget(None, policy="unmanaged", timeline=file, steps="manual"):
        for i in range(5):
            dist.barrier()
            torch.full((64 + i,), float(rank)).exp()
    dist.barrier()
    return list(delta_torch.merge_timelines(file)) if rank == 0 else None


def search(rank: int) -> Any:
    """Rank 0 takes more, and is short of memory where rank 1 is not yet."""
    ddp, optimizer = _made()
    calls = 0

    def step() -> None:
        nonlocal calls
        calls += 1
        _step(ddp, optimizer, 1024 if rank == 0 else 512)

    found = delta_torch.find_budget(step, 1e6, "online", trials=5, steps=1)
    return {
        "budget": found.budget_bytes,
        "calls": calls,
        "trials": [(t.budget_bytes, t.result, t.error) for t in found.trials],
        "peak": found.unmanaged_peak_bytes,
    }
