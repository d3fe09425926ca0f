#!/usr/bin/env python3
"""Trains ResNet-18 by DistributedDataParallel without a budget and within one, and compares the bits.

    torchrun --standalone --nproc-per-node 4 ddp.py [--budget SHARE] [--policy NAME] [--steps N]
                                                    [--batch N] [--host SIZE]

Each rank sees other MNIST images where the environment variable DELTA_DATA names a folder with
data/mnist, else other made ones. Rank 0 prints a line for each rank. Every rank ends with 1 where
a bit of any of them differs.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import statistics
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import delta_torch
from train import MIB, ResNet18, mnist

MEASURED = 2  # steps without a limit, of which the budget is a share


def train(run: delta_torch.Run | None, steps: int, batch: int) -> dict[str, Any]:
    """Trains from the same seed; gives the bits of all that training leaves, and times."""
    torch.manual_seed(1)
    images, labels, what = mnist(dist.get_world_size() * steps * batch)
    model = DistributedDataParallel(ResNet18(width=32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    bits, times = hashlib.sha256(), []
    with run or contextlib.nullcontext():
        for i in range(steps):
            began = time.process_time()
            first = (i * dist.get_world_size() + dist.get_rank()) * batch
            loss = F.cross_entropy(model(images[first : first + batch]), labels[first : first + batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bits.update(repr(loss.item()).encode())
            times.append(time.process_time() - began)
    state = optimizer.state_dict()["state"]
    tensors = [*model.state_dict().values(), *(v for one in state.values() for v in one.values())]
    for tensor in tensors:
        bits.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    time_of_step = statistics.median(times[MEASURED:])
    return {"bits": bits.hexdigest(), "time": time_of_step, "loss": loss.item(), "what": what}


def compare(options: argparse.Namespace) -> bool:
    """Trains in both ways on every rank. Rank 0 prints the table."""
    plain = train(None, options.steps, options.batch)
    run = delta_torch.budget(
        options.budget, policy=options.policy, host=options.host, share_after=MEASURED
    )
    managed = train(run, options.steps, options.batch)
    report = run.report()
    same = managed["bits"] == plain["bits"]
    rows: list[Any] = [None] * dist.get_world_size()
    # DistributedDataParallel keeps its group, and that gloo's threads, until the process ends. Where
    # one of them lets go of a Python object by then, as of what was gathered, PyTorch aborts.
    apart = dist.new_group()
    dist.all_gather_object(
        rows,
        (
            same and report.peak_bytes <= report.budget_bytes,
            f"{dist.get_rank():4} {report.unmanaged_peak_bytes / MIB:9.1f} "
            f"{report.budget_bytes / MIB:9.1f} {report.peak_bytes / MIB:9.1f} "
            f"{managed['time'] / plain['time']:7.2f} {report.evictions + report.offloads:9,} "
            f"{plain['loss']:7.4f}  {'the same' if same else 'DIFFERENT'}",
        ),
        group=apart,
    )
    if dist.get_rank() == 0:
        print(
            f"ResNet-18 on {plain['what']}, {dist.get_world_size()} ranks, {options.steps} steps of "
            f"{options.batch} images, policy {options.policy}\nmemory in MiB; time: the processor's of a "
            "step, as a ratio\nrank unmanaged    budget      peak    time      left    loss  bits"
        )
        print("\n".join(text for _, text in rows), flush=True)
    return all(good for good, _ in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=0.5, help="share of the peak; default 0.5")
    parser.add_argument("--policy", choices=delta_torch.policies(), default="adaptive")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32, help="images of a rank in a step")
    parser.add_argument("--host", default="4GiB", help="memory to copy out to; default 4GiB")
    options = parser.parse_args()
    if not 0 < options.budget <= 1:
        parser.error("--budget is a share between 0 and 1")
    if options.steps <= MEASURED or options.batch < 2:
        parser.error(f"--steps is above {MEASURED}, --batch above 1")
    if "RANK" not in os.environ:
        parser.error("torchrun --standalone --nproc-per-node 4 starts it, or ./run.sh torch-ddp")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        good = compare(options)
    except torch.OutOfMemoryError as error:
        print(f"ddp.py: {error}", file=sys.stderr)
        return 1
    dist.destroy_process_group()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
