"""FSDP2, tensor parallel and pipelines under a budget: the bits of the same ranks without one."""

from __future__ import annotations

from typing import Any

import pytest
from test_ddp import same, shares

KINDS: dict[str, dict[str, Any]] = {
    "reshard": {"reshard": True},
    "keep": {"reshard": False},
    "made inside": {"inside": True},
    "bf16": {"mixed": True},
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("policy", ["online", "adaptive"])
# Without a host, what was computed from parameters that FSDP has freed has to stay: how close to
# that a run gets hangs on the times that it measures.
@pytest.mark.parametrize(("share", "host"), [("90%", 0), ("60%", "1GiB"), ("45%", "1GiB")])
def test_fully_shard(ranks, name: str, policy: str, share: str, host: int | str) -> None:
    same(ranks, "fsdp_cases.fsdp", shares(share, policy, host), **KINDS[name])


@pytest.mark.parametrize(("share", "host"), [("75%", 0), ("60%", "1GiB"), ("45%", "1GiB")])
def test_tensor_parallel(ranks, share: str, host: int | str) -> None:
    same(ranks, "fsdp_cases.tensor_parallel", shares(share, "online", host))


@pytest.mark.parametrize("schedule", ["1F1B", "GPipe", "interleaved"])
@pytest.mark.parametrize(("share", "host"), [("90%", 0), ("60%", "1GiB"), ("45%", "1GiB")])
def test_pipeline(ranks, schedule: str, share: str, host: int | str) -> None:
    same(ranks, "fsdp_cases.pipeline", shares(share, "online", host), schedule=schedule)


@pytest.mark.long
def test_four_ranks(four_ranks) -> None:
    """Parameters go back to shards of two ranks; four stages; and two stages on each of four."""
    run = shares("45%", "online", "1GiB")
    same(four_ranks, "fsdp_cases.fsdp", run, reshard=2)
    for schedule in ("1F1B", "interleaved"):
        same(four_ranks, "fsdp_cases.pipeline", run, schedule=schedule)
