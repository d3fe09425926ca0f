"""A training that saves a checkpoint after each step and begins at the last one.

torchrun starts it within a budget, and rank 1 is killed in the first attempt; worker.py runs it
without. Arguments: the checkpoint's file, and a file for the bits of rank 0.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist
from ddp_cases import BUCKET_MB, mlp
from managing import MIB, digest
from torch.nn.parallel import DistributedDataParallel

import delta_torch

STEPS, KILLED_AT = 6, 3


def trained(rank: int, checkpoint: str, killed: bool = False) -> str:
    """The bits of the last step's weights and optimizer.

    killed: rank 1 kills itself within step KILLED_AT.
    """
    file = Path(checkpoint)
    torch.manual_seed(3)
    ddp = DistributedDataParallel(mlp(), bucket_cap_mb=BUCKET_MB)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-3, foreach=False)
    first = 0
    if file.exists():
        there = torch.load(file, weights_only=True)
        ddp.module.load_state_dict(there["model"])
        optimizer.load_state_dict(there["optimizer"])
        first = there["steps"]
    for step in range(first, STEPS):
        torch.manual_seed(100 * step + rank)
        loss = ddp(torch.randn(1024, 160)).square().mean()
        if killed and (rank, step) == (1, KILLED_AT):
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            beside = file.with_suffix(".new")
            states = {"model": ddp.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**states, "steps": step + 1}, beside)
            beside.replace(file)
        dist.barrier()
    state = [list(s.values()) for s in optimizer.state_dict()["state"].values()]
    return f"{digest(list(ddp.parameters()), state)} {first}"


def main() -> None:
    checkpoint, result = sys.argv[1:]
    torch.set_num_threads(1)
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    # PyTorch 2.15's torchrun keeps its store for the next attempt, where gloo may find the addresses
    # of the last one, whose processes are gone.
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.PrefixStore(f"attempt {attempt}", dist.TCPStore(address, port, is_master=False))
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    with delta_torch.budget(8 * MIB, policy="online", host="1GiB") as run:
        bits = trained(rank, checkpoint, killed=attempt == 0)
    report = run.report()
    if rank == 0:
        Path(result).write_text(f"{bits} {attempt} {report.evictions + report.offloads}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
