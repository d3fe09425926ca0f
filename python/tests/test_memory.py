"""The memory that a process under a budget maps, as the operating system counts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MIB = 2**20
BUDGET = 400 * MIB
STATUS = Path("/proc/self/status")

# A chain of activations of 16 MiB in a process of its own, which prints the most that it ever mapped
# beyond what it had mapped when PyTorch was there. How much of that is resident at a time depends
# on what else the machine runs; how much is mapped does not.
PROGRAM = """
import contextlib, json, re, sys
from pathlib import Path
import torch, delta_torch

torch.set_num_threads(1)
def counted(which):
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(rf"{which}:\\s+(\\d+) kB", status)[1])

budget = int(sys.argv[1])
x = torch.ones(4, requires_grad=True)
(x * 2).sum().backward()
begun = counted("VmSize")
run = delta_torch.budget(budget, policy="dtr") if budget else contextlib.nullcontext()
with run:
    weight = torch.full((2**22,), 1.0, requires_grad=True)
    for _ in range(2):
        h = weight
        for _ in range(48):
            h = torch.sin(h * 1.5)
        h.sum().backward()
        weight.grad = None
        del h
        if budget:
            run.step()
print(json.dumps({"taken": counted("VmPeak") - begun, "peak": run.report().peak_bytes if budget else 0}))
"""


def taken(budget: int) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(budget)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
        # Each tensor is a mapping of its own, so no heap's holes count; a thread's arena, which
        # maps 64 MiB, used or not, is the process's one.
        env=os.environ | {"MALLOC_MMAP_THRESHOLD_": str(MIB), "MALLOC_ARENA_MAX": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(
    not STATUS.exists() or "VmPeak" not in STATUS.read_text(),
    reason=f"the system counts no mapped memory in {STATUS}",
)
def test_the_process_stays_within_the_budget() -> None:
    """Where tensors are only dropped and computed again: a copy would be in the same memory."""
    unmanaged, managed = taken(0), taken(BUDGET)
    print(unmanaged, managed)
    assert unmanaged["taken"] > 2 * BUDGET
    assert managed["peak"] <= BUDGET
    assert managed["taken"] <= 1.05 * BUDGET
