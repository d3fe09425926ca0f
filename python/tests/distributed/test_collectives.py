"""Collectives under a budget: the same bits as without, whatever leaves meanwhile."""

from __future__ import annotations

from typing import Any

import collective_cases
import pytest
from managing import KIB

TIMES = 5
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
        got = ranks.run("collective_cases.kind", name=name, run=run, times=TIMES)
        for a, b in zip(right, got, strict=True):
            assert b["bits"] == a["bits"], run
            assert b["peak"] <= b["budget"], run
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
        got = ranks.run("collective_cases.to_the_limit", name=name, run=run, late=0.3)
        for a, b in zip(right, got, strict=True):
            assert b["bits"] == a["bits"], run
            assert b["peak"] <= b["budget"], run


@pytest.mark.parametrize("operator", ["broadcast", "all_reduce"])
def test_over_what_is_copied_out(ranks, operator: str) -> None:
    right = ranks.run("collective_cases.copied_out", operator=operator, run=None)
    for run in runs(700 * KIB):
        if run["host"] == 0:
            continue
        got = ranks.run("collective_cases.copied_out", operator=operator, run=run)
        for a, b in zip(right, got, strict=True):
            assert b["bits"] == a["bits"], run
            assert b["left"] > 0


def test_a_groups_threads_take_more_than_the_budget(ranks) -> None:
    """Rather than to end the collective on all ranks; it is in the report."""
    right = ranks.right("collective_cases.more_than_the_budget")
    run = {"size": 200 * KIB, "policy": "online", "host": "1GiB", "steps": "manual"}
    got = ranks.run("collective_cases.more_than_the_budget", run=run)
    for a, b in zip(right, got, strict=True):
        assert b["bits"] == a["bits"]
        assert b["peak"] <= b["budget"] and b["over"] > 0


def test_no_collective_runs_twice(ranks) -> None:
    """The group counts its collectives: as many as without a run."""
    of = {"name": "functional_all_reduce", "times": 8}
    first = ranks.run("collective_cases.kind", run=None, **of)
    without = ranks.run("collective_cases.kind", run=None, **of)
    within = ranks.run("collective_cases.kind", run=runs(430 * KIB)[0], **of)
    for a, b, c in zip(first, without, within, strict=True):
        assert c["left"] > 0
        assert c["sequence"] - b["sequence"] == b["sequence"] - a["sequence"]
