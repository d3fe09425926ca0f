"""DistributedDataParallel under a budget: the bits of the same ranks without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from launched import torchrun

HOSTS = [0, "1GiB"]


def same(ranks, case: str, run: dict[str, Any], over: int = 0, **arguments: Any) -> list[Any]:
    """Ranks.same; tensors have left some rank, and who takes addresses is known."""
    got = ranks.same(case, run, **arguments)
    # A share is of the largest peak: of a smaller one it may be all.
    assert any(b["left"] > 0 for b in got), "nothing has left"
    for b in got:
        assert b["over"] <= over
        # DDP takes some by itself: as it is made, and for the order of its buckets.
        mine = ("aten::empty", "aten::copy_") if arguments.get("inside") else ("aten::empty",)
        assert all(label.endswith(mine) for label, _ in b["addresses"]), b["addresses"]
    return got


def shares(share: str, policy: str, host: int | str) -> dict[str, Any]:
    return {"size": share, "policy": policy, "host": host, "share_after": 2}


@pytest.mark.parametrize("policy", ["dtr", "online", "adaptive"])
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("share", ["60%", "40%"])
@pytest.mark.parametrize("view", [False, True])
def test_shares(ranks, policy: str, host: int | str, share: str, view: bool) -> None:
    same(
        ranks,
        "ddp_cases.train",
        shares(share, policy, host),
        gradient_as_bucket_view=view,
        inside=share == "60%",
    )


@pytest.mark.parametrize("policy", ["dtr", "online", "adaptive"])
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("share", ["90%", "80%"])
def test_shares_where_weights_are_late(ranks, policy: str, host: int | str, share: str) -> None:
    same(ranks, "ddp_cases.train", shares(share, policy, host), model="uneven")


@pytest.mark.parametrize("policy", ["dtr", "online", "adaptive"])
@pytest.mark.parametrize("size", ["6MiB", "5MiB"])
@pytest.mark.parametrize("view", [False, True])
def test_bytes_from_the_first_step(ranks, policy: str, size: str, view: bool) -> None:
    run = {"size": size, "policy": policy}
    same(ranks, "ddp_cases.train", run, model="uneven", gradient_as_bucket_view=view)


OPTIONS: dict[str, dict[str, Any]] = {
    "find_unused": {"model": "partly", "find_unused_parameters": True},
    "static_graph": {"static_graph": True},
    "no_sync": {"accumulate": True},
    "no_sync, bucket view": {"accumulate": True, "gradient_as_bucket_view": True},
    "join": {"joined": True},
    "fp16 hook": {"hook": "fp16"},
    "bf16 hook": {"hook": "bf16"},
    "bf16 hook, bucket view": {"hook": "bf16", "gradient_as_bucket_view": True},
    "allreduce hook": {"hook": "allreduce"},
    "builtin allreduce hook": {"hook": "builtin"},
    "batch norm": {"model": "batch"},
    "batch norm, bucket view": {"model": "batch", "gradient_as_bucket_view": True},
    "one bucket for each": {"bucket_cap_mb": 0.01},
}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("name", OPTIONS)
def test_options(ranks, name: str, host: int | str) -> None:
    same(ranks, "ddp_cases.train", shares("60%", "online", host), **OPTIONS[name])


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("optimizer", ["zero", "zero_view", "local"])
def test_optimizers_of_shares(ranks, optimizer: str, host: int | str) -> None:
    got = same(ranks, "ddp_cases.train", shares("80%", "online", host), optimizer=optimizer)
    assert [b["steps"] for b in got] == [5, 5]


def test_four_ranks(four_ranks) -> None:
    same(four_ranks, "ddp_cases.train", shares("50%", "adaptive", "1GiB"), model="batch")


EXAMPLE = Path(__file__).resolve().parents[2] / "examples/ddp.py"


def test_the_example(group_support) -> None:
    assert torchrun(EXAMPLE, "--steps", "4", "--batch", "8").count("the same") == 2
