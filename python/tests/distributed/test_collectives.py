"""Collectives under a budget: the same bits as without, whatever leaves meanwhile."""

from __future__ import annotations

from typing import Any

import collective_cases
import pytest
from managing import KIB

TIMES = 5  # in one run
KINDS = sorted(collective_cases.KINDS)
ROOM = 600 * KIB  # a collective's tensors of 32 KiB, at most ten, and most of the load beside them


def runs(size: int = ROOM) -> list[dict[str, Any]]:
    return [
        {"size": size, "policy": policy, "host": host, "steps": "manual"}
        for policy, host in (("dtr", 0), ("online", "1GiB"), ("adaptive", "1GiB"))
    ]


@pytest.mark.parametrize("name", KINDS)
def test_every_kind(ranks, name: str) -> None:
    right = ranks.run("collective_cases.kind", name=name, run=None, times=TIMES)
    peak = left = 0
    for run in (*runs(64 * ROOM)[-1:], *runs()):
        if peak:
            run["size"] = peak * 80 // 100
        got = ranks.same("collective_cases.kind", run, right, name=name, times=TIMES)
        for b in got:
            assert b["held"] == [0] * TIMES, run
            # By their own threads they take addresses, of tensors that are known to be written.
            assert all(label.endswith("aten::empty") for label, _ in b["addresses"]), b["addresses"]
        left += min(b["left"] for b in got)
        peak = peak or min(b["peak"] for b in got)
    # What these hold, and gloo's threads take beside, is most of the peak.
    assert left > 0 or "coalesced" in name


LATE = ["all_reduce", "all_gather", "send_and_receive", "functional_all_reduce"]


@pytest.mark.parametrize("name", LATE)
def test_a_late_rank(ranks, name: str) -> None:
    right = ranks.right("collective_cases.to_the_limit", name=name, late=0.0)
    for run in runs(600 * KIB):
        ranks.same("collective_cases.to_the_limit", run, right, name=name, late=0.3)


@pytest.mark.parametrize("operator", ["broadcast", "all_reduce"])
def test_over_what_is_copied_out(ranks, operator: str) -> None:
    for run in runs(700 * KIB):
        if run["host"] == 0:
            continue
        for b in ranks.same("collective_cases.copied_out", run, operator=operator):
            assert b["left"] > 0


def test_a_groups_threads_take_more_than_the_budget(ranks) -> None:
    """Rather than to end the collective on all ranks; it is in the report."""
    run = {"size": 200 * KIB, "policy": "online", "host": "1GiB", "steps": "manual"}
    for b in ranks.same("collective_cases.more_than_the_budget", run):
        assert b["over"] > 0
