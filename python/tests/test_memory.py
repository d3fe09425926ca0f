"""The memory of the process under budgets, as the operating system counts it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MIB = 2**20
BUDGET = 400 * MIB

# A chain of activations of 16 MiB, in a process of its own: what the most is that it ever had.
PROGRAM = """
import contextlib, json, resource, sys
import torch, delta_torch

torch.set_num_threads(1)
rss = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
budget = int(sys.argv[1])
x = torch.ones(4, requires_grad=True)
(x * 2).sum().backward()
begun = rss()
run = delta_torch.budget(budget, policy="dtr") if budget else contextlib.nullcontext()
with run:
    weight = torch.full((2**22,), 1.0, requires_grad=True)
    for _ in range(3):
        h = weight
        for _ in range(48):
            h = torch.sin(h * 1.5)
        h.sum().backward()
        weight.grad = None
        del h
        if budget:
            run.step()
print(json.dumps({"taken": rss() - begun, "peak": run.report().peak_bytes if budget else 0}))
"""


def taken(budget: int) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(budget)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_process_stays_within_the_budget() -> None:
    """Where tensors are only dropped and computed again: a copy would be in the same memory."""
    unmanaged, managed = taken(0), taken(BUDGET)
    print(unmanaged, managed)
    assert unmanaged["taken"] > 3 * BUDGET
    assert managed["peak"] <= BUDGET
    assert managed["taken"] <= 1.1 * BUDGET + 100 * MIB
