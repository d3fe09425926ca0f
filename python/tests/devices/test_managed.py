"""delta_torch on a simulated accelerator: late streams, memory that the host can't touch.

The same bits under every schedule, whatever leaves and comes back; and no wait for another stream
can be left out.
"""

from __future__ import annotations

import functools

import matrix_cases
import pytest
import torch
from training import check_same, managed, measured, unmanaged

import delta_torch
from delta_torch import _C

DEVICE = "simulated:0"
STEPS = 4
POLICIES = ("dtr", "online", "adaptive", "auto")
SHARES = (None, 0.7, 0.4)  # of what is above the parameters, gradients and optimizer state
SHORT = [("transformer", "online", 0.4), ("transformer", "adaptive", 0.4)]
# Who waits for whom between streams, and what would go wrong otherwise.
WAITS = {
    ("copy_out", "compute"): "bytes are copied before they are written",
    ("copy_in", "compute"): "bytes are copied over others that an operator still reads",
    ("compute", "copy_in"): "an operator reads bytes that have not arrived",
    ("compute", "copy_out"): "an operator writes over bytes that are still being copied",
    ("copy_in", "copy_out"): "bytes are copied back before they have been copied out",
    ("copy_out", "copy_in"): "the host's bytes are written over before they were copied back",
}


def on_device(case: str):
    return functools.partial(matrix_cases.CASES[case], DEVICE)


def parameters() -> list:
    return [
        pytest.param(
            *which, marks=() if which in SHORT else pytest.mark.long, id="-".join(map(str, which))
        )
        for which in [(c, p, s) for c in matrix_cases.CASES for p in POLICIES for s in SHARES]
    ]


@functools.cache
def without_a_budget(case: str):
    """What must come out, the peak, and what stays between steps."""
    expected = unmanaged(on_device(case), STEPS)
    report = measured(on_device(case), STEPS, device=DEVICE)
    return expected, report.peak_bytes, report.used_bytes


@pytest.mark.parametrize(("case", "policy", "share"), parameters())
def test_same_bits(sim, case: str, policy: str, share: float | None) -> None:
    expected, peak, stays = without_a_budget(case)
    size = None if share is None else int(stays + (peak - stays) * share)
    host = 0 if policy == "dtr" else "4GiB"
    sim.set_schedule(hash((case, policy, share)) % 1000, 0.95)
    report = check_same(
        on_device(case), STEPS, size, expected, policy=policy, host=host, device=DEVICE
    )
    print(report)
    if share is not None and report.budget_bytes < peak:
        assert report.evictions + report.offloads > 0
