"""Models of torchvision and transformers under budgets: the same bits as without, and never over."""

from __future__ import annotations

import functools

import pytest

from real_models import MODELS
from training import check_same, measured, unmanaged

STEPS = 3
POLICIES = ("online", "adaptive")
SHARES = (0.6, 0.4, 0.3)  # of the unmanaged peak


@functools.cache
def without_a_budget(model: str):
    """What must come out, and the peak."""
    return unmanaged(MODELS[model], STEPS), measured(MODELS[model], STEPS).peak_bytes


@pytest.mark.long
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("model", MODELS)
def test_same_bits(model: str, policy: str, share: float) -> None:
    expected, peak = without_a_budget(model)
    report = check_same(
        MODELS[model], STEPS, int(peak * share), expected, policy=policy, host="8GiB"
    )
    print(report)
    assert report.evictions + report.offloads > 0
