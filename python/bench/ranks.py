"""Measures what a budget costs in processor time under DistributedDataParallel and on one rank.

    python python/bench/ranks.py [--ranks 2] [--share 60%] [--repetitions 10]

Each repetition trains four times, in processes of their own and with one thread each: one rank and
several, without delta_torch and within a budget. Printed are medians of the processor time of rank
0 over 18 steps, the ratio to the same ranks without a budget, and how much larger that is for
several.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed
from torch import nn

WIDTH, ROWS, LAYERS = 256, 512, 8
COLD, STEPS = 6, 24


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def train(rank: int, ranks: int, share: str | None, port: int, result: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    layers = [(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH)) for _ in range(LAYERS)]
    net: nn.Module = nn.Sequential(*[part for layer in layers for part in layer])
    if ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
        net = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    limit: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if share is not None:
        import delta_torch

        limit = delta_torch.budget(share, policy="online", host="1GiB")
    began = 0.0
    with limit:
        for step in range(STEPS):
            if step == COLD:
                began = time.process_time()
            net(torch.randn(ROWS, WIDTH)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        took = time.process_time() - began
    if rank == 0:
        Path(result).write_text(str(took))
    if ranks > 1:
        torch.distributed.destroy_process_group()


def time_of(ranks: int, share: str | None) -> float:
    """In s, of rank 0."""
    with tempfile.TemporaryDirectory() as folder:
        result = str(Path(folder) / "seconds")
        torch.multiprocessing.spawn(train, (ranks, share, free_port(), result), ranks)
        return float(Path(result).read_text())


def main() -> None:
    read = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    read.add_argument("--ranks", type=int, default=2, help="processes of the larger group")
    read.add_argument("--share", default="60%", help="budget, of what a rank takes")
    read.add_argument("--repetitions", type=int, default=10)
    asked = read.parse_args()
    if asked.ranks < 2 or asked.repetitions < 1:
        read.error("--ranks takes 2 or more, --repetitions 1 or more")
    groups = (1, asked.ranks)
    times: dict[tuple[int, str | None], list[float]] = {}
    for _ in range(asked.repetitions):
        for ranks in groups:
            for share in (None, asked.share):
                times.setdefault((ranks, share), []).append(time_of(ranks, share))
    ratios = {}
    for ranks in groups:
        without, within = times[ranks, None], times[ranks, asked.share]
        ratios[ranks] = statistics.median(b / a for a, b in zip(without, within))
        print(
            f"{ranks} rank{'s' if ranks > 1 else ''}: {statistics.median(without):.3f} s without a budget, "
            f"{statistics.median(within):.3f} s within {asked.share}: {ratios[ranks]:.3f} times"
        )
    print(f"several ranks over one: {ratios[asked.ranks] / ratios[1]:.3f}")


if __name__ == "__main__":
    main()
