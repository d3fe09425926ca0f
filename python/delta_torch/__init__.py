"""Trains an unmodified PyTorch model within a budget of bytes.

    import delta_torch

    with delta_torch.budget("4GiB", policy="adaptive", host="16GiB") as run:
        train()                       # model, loop, optimizer: unchanged
    print(run.report())

What does not fit is dropped and computed again, or copied out to the host and back, and the
results are the same bits. Which budget would do, and on which device, is predicted by

    print(delta_torch.plan(maker, device="h100", batches=[32, 64]))
"""

from torch import OutOfMemoryError

from ._version import __version__
from .modules import keep
from .planning import Machine, Plan, Recording, machines, plan, record
from .report import Report
from .run import Run, budget, pin, policies, step
from .threads import attach

__all__ = [
    "Machine",
    "OutOfMemoryError",
    "Plan",
    "Recording",
    "Report",
    "Run",
    "__version__",
    "attach",
    "budget",
    "keep",
    "machines",
    "pin",
    "plan",
    "policies",
    "record",
    "step",
]
