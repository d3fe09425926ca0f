"""A training in which one rank fails at a chosen place; run by worker.py."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from ddp_cases import BUCKET_MB, mlp
from torch.nn.parallel import DistributedDataParallel
from worker import timeout_s

import delta_torch

PLACES = ("forward", "backward", "hook", "issued", "waited", "step")
ACTS = ("raise", "memory", "kill", "slow", "abort")
STEPS = 4


def _act(kind: str) -> None:
    if kind == "raise":
        raise ValueError("injected")
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "slow":
        time.sleep(timeout_s() + 1)
    elif kind == "memory":
        torch.ones(2**26)
    elif kind == "abort":
        try:
            torch.ones(2**26)
        except torch.OutOfMemoryError:
            time.sleep(60)  # whoever catches it, and goes on without the others


def trains(
    rank: int, act: str, place: str, at: int, who: int, policy: str, host: int | str
) -> list[float]:
    """`who` fails in step `at`; the losses, which no rank comes to give."""
    step = 0

    def inject(here: str) -> None:
        if (rank, step, here) == (who, at, place):
            _act(act)

    ddp = DistributedDataParallel(mlp(), bucket_cap_mb=BUCKET_MB)
    ddp.module[4].weight.register_hook(lambda _: inject("backward"))
    ddp.register_comm_hook(None, _hook(inject))
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-3, foreach=False)
    losses: list[float] = []
    on_oom = "abort" if act == "abort" else "raise"
    with delta_torch.budget("8MiB", policy=policy, host=host, on_oom=on_oom):
        for step in range(STEPS):
            loss = ddp(torch.randn(1024, 160)).square().mean()
            inject("forward")
            mean = loss.detach().clone()
            work = dist.all_reduce(mean, async_op=True)
            inject("issued")
            loss.backward()
            work.wait()
            inject("waited")
            optimizer.step()
            optimizer.zero_grad()
            losses.append(mean.item())
            inject("step")
        dist.barrier()
    return losses


def _hook(inject: Callable[[str], None]) -> Callable[..., Any]:
    def reduce(_state, bucket):  # PyTorch wants annotations that are no text, or none
        inject("hook")
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    return reduce
