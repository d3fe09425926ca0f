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

from ._version import __version__, check_torch

check_torch()  # before the extension is loaded, which says it in symbols

from .group_report import GroupReport
from .modules import keep
from .options import policies
from .own_policy import PolicyError, compile_policy
from .planning import (
    Comparison,
    Machine,
    Plan,
    Recording,
    compare_policies,
    machines,
    plan,
    record,
)
from .report import Report
from .run import Run, TensorDiffers, budget, pin, step, stop
from .smallest_budget import FoundBudget, NoBudgetFound, find_budget
from .threads import attach
from .timelines import merge_timelines

__all__ = [
    "Comparison",
    "FoundBudget",
    "GroupReport",
    "Machine",
    "NoBudgetFound",
    "OutOfMemoryError",
    "Plan",
    "PolicyError",
    "Recording",
    "Report",
    "Run",
    "TensorDiffers",
    "__version__",
    "attach",
    "budget",
    "compare_policies",
    "compile_policy",
    "find_budget",
    "keep",
    "machines",
    "merge_timelines",
    "pin",
    "plan",
    "policies",
    "record",
    "step",
    "stop",
]
