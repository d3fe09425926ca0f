"""What more of the host's memory would bring, by a run's last step: that it holds in a real run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import delta_torch
from delta_torch import _C
from delta_torch.planning import outlook as module
from delta_torch.planning.outlook import Outlook, outlook
from delta_torch.sizes import format_bytes

MIB = 2**20


def training() -> Callable[[], None]:
    """Products of which a copy takes a fraction of the time."""
    torch.manual_seed(1)
    layers = [nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(8)]
    model = nn.Sequential(*layers, nn.Linear(512, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
    x = torch.randn(1024, 512)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def ran(size: int | str | None, steps: int = 4, **options: Any) -> delta_torch.Run:
    step = training()
    with delta_torch.budget(size, **options) as run:
        try:
            for _ in range(steps):
                step()
        except torch.OutOfMemoryError:
            pass
    return run


# --- the step of a run ----------------------------------------------------------------------------


def test_the_last_step_is_the_programs() -> None:
    step = training()
    with delta_torch.budget(None) as run:
        assert _C.last_step() is None
        for _ in range(3):
            step()
        program = _C.last_step()["program"]
        torch.ones(10) * 2  # in the step that is under way
        assert _C.last_step()["program"].operators == program.operators
    report = run.report()
    assert program.operators == (report.operators - 2) / 3
    assert program.peak_bytes == report.peak_bytes
    assert _C.last_step() is None
    assert report.outlook is None  # without a budget


def test_none_is_known_of_a_policy_that_does_not_learn() -> None:
    run = ran("60%", policy="dtr")
    assert run.report().steps == 4 and run.report().recomputes > 0
    assert run.report().outlook is None


# --- advice that holds ----------------------------------------------------------------------------


def test_what_an_error_advises_fits() -> None:
    run = ran("40%", host=0)
    report = run.report()
    assert report.error is not None and report.steps == 2, "it fits: the test shows nothing"
    seen = report.outlook
    assert seen.overhead is None and 1 <= seen.host_overhead < 3 and seen.same_memory
    assert "would let the last whole step fit" in str(report).splitlines()[-1]
    again = ran("40%", host=seen.host_bytes)
    assert again.report().error is None and again.report().steps == 4
    assert again.report().host_peak_bytes > 0


@pytest.mark.parametrize(("policy", "notes"), [("adaptive", 1), ("dtr", 0)])
def test_an_error_that_ends_the_run_says_it(policy: str, notes: int) -> None:
    step = training()
    with pytest.raises(torch.OutOfMemoryError) as caught:
        with delta_torch.budget("40%", host=0, policy=policy) as run:
            for _ in range(3):
                step()
    found = getattr(caught.value, "__notes__", [])
    assert len(found) == notes
    for note in found:
        assert note == f"delta: {str(run.report()).rpartition('advice: ')[2]}"
        assert f'host="{format_bytes(run.report().outlook.host_bytes)}" would let' in note


def test_an_error_that_is_not_the_runs_says_nothing() -> None:
    step = training()
    with pytest.raises(torch.OutOfMemoryError, match="another") as caught:
        with delta_torch.budget("40%", host=0):
            for _ in range(2):
                try:
                    step()
                except torch.OutOfMemoryError:
                    raise torch.OutOfMemoryError("another") from None
    assert not getattr(caught.value, "__notes__", [])


def test_what_is_advised_computes_less_again() -> None:
    report = ran("60%", host=0, steps=5).report()
    assert report.error is None and report.recomputes > 0
    seen = report.outlook
    assert seen.host_overhead <= 0.97 * seen.overhead
    again = ran("60%", host=seen.host_bytes, steps=5).report()
    assert again.error is None and again.offloads > 0
    assert again.recomputes < report.recomputes


def test_a_host_that_is_too_small_is_too_small() -> None:
    report = ran("30%", host=4 * MIB).report()
    assert report.error is not None
    assert report.outlook.host_bytes > 4 * MIB
    assert ran("30%", host=report.outlook.host_bytes).report().error is None


def test_says_nothing_where_nothing_is_better() -> None:
    ample = ran(64 * MIB)
    assert ample.report().outlook == Outlook(same_memory=True, copy_ns=0)
    enough = ran("60%", host=64 * MIB).report()
    assert enough.bytes_out > 0 and enough.outlook.copy_ns > 0
    assert dataclasses.replace(enough.outlook, copy_ns=0) == Outlook(True, 0)


def test_is_made_once_and_after_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*args: Any, **options: Any) -> Outlook:
        calls.append(args)
        return outlook(*args, **options)

    monkeypatch.setattr("delta_torch.active.outlook", counted)
    step = training()
    with delta_torch.budget("60%", host=0) as run:
        for _ in range(3):
            step()
        assert run.report().outlook is None
    run.stats()
    assert not calls
    report = run.report()
    assert report is run.report() and len(calls) == 1
    assert json.loads(report.to_json())["outlook"] == dataclasses.asdict(report.outlook)


# --- what it may take -----------------------------------------------------------------------------


@dataclasses.dataclass
class Program:
    operators: int
    peak_bytes: int = MIB


def replays(
    monkeypatch: pytest.MonkeyPatch,
    seconds: float = 0.01,
    *,
    operators: int = 100,
    host: int = 0,
    took: int = 110,
) -> tuple[Outlook, list[int]]:
    """What comes of replays that take so long each, and the host's memory in each of them."""
    clock, hosts = [0.0], []

    def replayed(program: Program, *, host: int, **on: Any) -> dict[str, Any]:
        clock[0] += seconds
        hosts.append(host)
        return {
            "verdict": "fits",
            "time_ns": took if host >= 5000 else 150,
            "unmanaged_ns": 100,
            "host_peak_bytes": min(host, 5000),
        }

    monkeypatch.setattr(module, "replayed", replayed)
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    last = {
        "program": Program(operators),
        "rate_out": 1e9,
        "rate_in": 2e9,
        "latency": 0,
        "burden": 0.0,
    }
    seen = outlook(
        last,
        policy="adaptive",
        budget=MIB,
        host=host,
        bytes_out=3 * 10**9,
        bytes_in=4 * 10**9,
        same_memory=True,
    )
    return seen, hosts


def test_a_second_is_not_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, hosts = replays(monkeypatch, 0.33)
    assert hosts == [4 * MIB, 0, 6144]  # 5000 bytes, in two digits
    assert seen == Outlook(True, 5 * 10**9, 6144, 1.5, 1.1)
    for seconds in (0.34, 5.0):
        seen, hosts = replays(monkeypatch, seconds)
        assert len(hosts) == 1 and seen == Outlook(True, 5 * 10**9)
    seen, hosts = replays(monkeypatch, operators=10_000)
    assert not hosts and seen == Outlook(True, 5 * 10**9)


def test_what_is_hardly_better_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert replays(monkeypatch, took=145)[0].host_overhead == 1.45
    for took in (146, 160):
        seen, hosts = replays(monkeypatch, took=took)
        assert len(hosts) == 3 and seen == Outlook(True, 5 * 10**9)


def test_a_host_that_is_enough_is_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert replays(monkeypatch, host=4096)[0].host_bytes == 6144
    seen, hosts = replays(monkeypatch, host=6144)
    assert len(hosts) == 1 and seen == Outlook(True, 5 * 10**9)
