"""Groups, runs and tensors that begin or end around a collective: the bits of without a run."""

from __future__ import annotations

import pytest
from managing import KIB

RUNS = [
    {"size": 400 * KIB, "policy": "online", "host": "1GiB", "steps": "manual"},
    {"size": 400 * KIB, "policy": "adaptive", "host": "1GiB", "steps": "manual"},
]
CASES = [
    "group_within",
    "two_runs",
    "handle_dropped",
    "ended_in_flight",
    "storage_dropped",
    "storage_resized",
    "callback",
]


@pytest.mark.parametrize("run", RUNS, ids=[r["policy"] for r in RUNS])
@pytest.mark.parametrize("case", CASES)
def test_same_bits(ranks, case: str, run: dict) -> None:
    for b in ranks.same(f"lifecycle_cases.{case}", run):
        assert b["held"] == 0
        assert b["left"] > 0, "nothing has left"


def test_an_operator_waits_for_room(ranks) -> None:
    run = {"size": 600 * KIB, "policy": "online", "host": "1GiB", "steps": "manual"}
    got = ranks.same("lifecycle_cases.waits_for_a_landing", run)
    assert got[0]["waits"] > 0
