"""A training that saves a checkpoint after each step and begins at the last one; torchrun starts it.

Arguments: the checkpoint's file, a file for the bits of rank 0, and what is to be done: "plain", or
"killed": within a budget, and rank 1 is killed in the first attempt.
"""

from __future__ import annotations

import contextlib
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


def main() -> None:
    checkpoint, result, kind = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    # PyTorch 2.15's torchrun keeps its store for the next attempt, where gloo may find the addresses
    # of the last one, whose processes are gone.
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.PrefixStore(f"attempt {attempt}", dist.TCPStore(address, port, is_master=False))
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    torch.manual_seed(3)
    ddp = DistributedDataParallel(mlp(), bucket_cap_mb=BUCKET_MB)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-3, foreach=False)
    run = delta_torch.budget(8 * MIB, policy="online", host="1GiB")
    first = 0
    with run if kind == "killed" else contextlib.nullcontext():
        if checkpoint.exists():
            there = torch.load(checkpoint, weights_only=True)
            ddp.module.load_state_dict(there["model"])
            optimizer.load_state_dict(there["optimizer"])
            first = there["steps"]
        for step in range(first, STEPS):
            torch.manual_seed(100 * step + rank)
            loss = ddp(torch.randn(1024, 160)).square().mean()
            if kind == "killed" and (rank, attempt, step) == (1, 0, KILLED_AT):
                os.kill(os.getpid(), signal.SIGKILL)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if rank == 0:
                beside = checkpoint.with_suffix(".new")
                states = {"model": ddp.module.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**states, "steps": step + 1}, beside)
                beside.replace(checkpoint)
            dist.barrier()
    if rank == 0:
        left = 0
        if kind == "killed":
            report = run.report()
            left = report.evictions + report.offloads
        state = [list(s.values()) for s in optimizer.state_dict()["state"].values()]
        result.write_text(f"{digest(list(ddp.parameters()), state)} {attempt} {first} {left}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
