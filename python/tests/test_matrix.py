"""Small trainings of many kinds under budgets: the same bits as without, and never over."""

from __future__ import annotations

import functools

import pytest

from matrix_cases import CASES
from training import check_same, measured, unmanaged

STEPS = 4
POLICIES = ("dtr", "online", "adaptive")
SHARES = (None, 0.7, 0.4)  # of what is above the parameters, gradients and optimizer state
SHORT = [
    (case, policy, 0.4)
    for case in ("resnet_sgd", "transformer", "resnet_accumulated")
    for policy in ("online", "adaptive")
]


def parameters() -> list:
    return [
        pytest.param(
            *which, marks=() if which in SHORT else pytest.mark.long, id="-".join(map(str, which))
        )
        for which in [(c, p, s) for c in CASES for p in POLICIES for s in SHARES]
    ]


@functools.cache
def without_a_budget(case: str):
    """What must come out, the peak, and what stays between steps."""
    expected = unmanaged(CASES[case], STEPS)
    report = measured(CASES[case], STEPS)
    return expected, report.peak_bytes, report.used_bytes


@pytest.mark.parametrize(("case", "policy", "share"), parameters())
def test_same_bits(case: str, policy: str, share: float | None) -> None:
    expected, peak, stays = without_a_budget(case)
    size = None if share is None else int(stays + (peak - stays) * share)
    host = 0 if policy == "dtr" else "4GiB"
    report = check_same(CASES[case], STEPS, size, expected, policy=policy, host=host)
    print(report)
    if share is not None and report.budget_bytes < peak:
        assert report.evictions + report.offloads > 0


@pytest.mark.parametrize("case", ["resnet_sgd", "transformer"])
def test_measuring_changes_nothing(case: str) -> None:
    expected, _, _ = without_a_budget(case)
    check_same(CASES[case], STEPS, None, expected, policy="unmanaged")


@pytest.mark.parametrize("case", ["resnet_adamw", "lstm"])
def test_share_of_measured_steps(case: str) -> None:
    expected, _, _ = without_a_budget(case)
    # The third step takes more than the two that are measured, and the share is of that then.
    peak = measured(CASES[case], STEPS).peak_bytes
    report = check_same(CASES[case], STEPS, 0.85, expected, policy="online", host="4GiB")
    assert report.unmanaged_peak_bytes == pytest.approx(peak, rel=0.001)
    # A budget counts in whole granules of 64 bytes.
    assert report.budget_bytes == pytest.approx(0.85 * report.unmanaged_peak_bytes, abs=64)
