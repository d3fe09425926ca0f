"""The options of a managed step: each with its unit, its default and its check."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from . import _C
from .devices import device_of_run
from .host_memory import usual_host
from .sizes import AUTO, Share, parse_budget, parse_host

# What a managed step may take, times the unmanaged one, where nothing is said of it.
MAX_OVERHEAD = 1.2


def policies() -> list[str]:
    """The names of the policies that there are, those of compile_policy last.

    docs/policies.md says what each of delta's own does.
    """
    return list(_C.policies())


@dataclass(frozen=True)
class Options:
    """The options of a managed step: given as budget() takes them, kept as the types here say.

    Raises ValueError for what makes no sense.
    """

    size: int | Share | None = None  # bytes, or a share of the peak; None: no limit
    policy: str = "adaptive"
    host: int | str = AUTO  # bytes that may be copied out; once checked, never "auto"
    verify: bool | str = False  # computes every operator twice; "tensors": hashes them
    timeline: str = ""  # a file; given as None: none
    steps: str = "optimizer"  # what ends them, or "manual"
    # Of a share, steps that are measured without a limit: in the first, optimizers make their
    # state; the second one is as all others.
    share_after: int = 2
    # What memory that is short does: an error, or the process's end as well, where it is one of
    # several.
    on_oom: str = "raise"
    device: torch.device | None = None  # given as None: the accelerator, or the CPU

    def __post_init__(self) -> None:
        policy, steps, share_after = self.policy, self.steps, self.share_after
        if policy not in policies():
            raise ValueError(f"there is no policy {policy!r}; there are {', '.join(policies())}")
        if steps not in ("optimizer", "manual"):
            raise ValueError(f"steps is 'optimizer' or 'manual', not {steps!r}")
        if self.on_oom not in ("raise", "abort"):
            raise ValueError(f"on_oom is 'raise' or 'abort', not {self.on_oom!r}")
        if self.verify != "tensors" and isinstance(self.verify, str):
            raise ValueError(f"verify is True, False or 'tensors', not {self.verify!r}")
        if not isinstance(share_after, int) or isinstance(share_after, bool) or share_after < 1:
            raise ValueError(f"share_after is a number of steps, 1 or more: not {share_after!r}")
        device, host = device_of_run(self.device), parse_host(self.host)
        vars(self).update(
            size=None if self.size is None else parse_budget(self.size),
            host=usual_host(device.type) if host is None else host,
            verify=self.verify if self.verify == "tensors" else bool(self.verify),
            timeline="" if self.timeline is None else os.fspath(self.timeline),
            device=device,
        )
        if self.verify == "tensors" and self.device.type != "cpu":
            raise ValueError(
                f"verify='tensors' hashes what the host can read: tensors of the CPU, and not of "
                f"{self.device}; verify=True compares operators there"
            )
