"""FSDP2, tensor parallel and pipelines under a budget: the bits of the same ranks without one."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
from launched import Ranks
from test_ddp import same, shares

KINDS: dict[str, dict[str, Any]] = {
    "reshard": {"reshard": True},
    "keep": {"reshard": False},
    "made inside": {"inside": True},
    "bf16": {"mixed": True},
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("policy", ["online", "adaptive"])
# Without a host, what was computed from parameters that FSDP has freed has to stay where memory is
# short: how close to that a run gets hangs on the times that it measures.
@pytest.mark.parametrize(("share", "host"), [("90%", 0), ("60%", "1GiB"), ("45%", "1GiB")])
def test_fully_shard(ranks, name: str, policy: str, share: str, host: int | str) -> None:
    same(ranks, "fsdp_cases.fsdp", shares(share, policy, host), **KINDS[name])


@pytest.fixture(scope="module")
def counted_ranks(group_support: None) -> Iterator[Ranks]:
    """Two ranks in which malloc counts all that is in use."""
    if not hasattr(ctypes.CDLL(None), "mallinfo2"):
        pytest.skip("the C library has no mallinfo2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MALLOC_ARENA_MAX", "1")
        group = Ranks()
        group.right("fsdp_cases.generations", frozen=True)
    yield group
    group.end()


@pytest.mark.parametrize("policy", ["dtr", "online", "adaptive"])
@pytest.mark.parametrize("times", [1.05, 100])
@pytest.mark.parametrize("frozen", [False, True])
def test_where_all_fits_it_takes_what_fsdp_takes(
    counted_ranks: Ranks, policy: str, times: float, frozen: bool
) -> None:
    """Parameters that FSDP has freed are not kept for replays that nobody needs: they would be as
    much as the whole model."""
    right = counted_ranks.right("fsdp_cases.generations", frozen=frozen)
    own = max(a["own"] for a in right)
    run = {"size": int(times * own), "policy": policy, "host": 0}
    got = counted_ranks.same("fsdp_cases.generations", run, frozen=frozen)
    for b in got:
        assert b["peak"] <= 1.05 * own
        assert b["left"] == 0
        assert b["unsharded"]
        assert not any(b["unsharded"])


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
