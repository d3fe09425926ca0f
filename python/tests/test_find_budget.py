"""The search for the smallest budget: its decisions by made-up times, and real steps by counts."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import delta_torch
from delta_torch import _C
from delta_torch.smallest_budget import LEARNING, WARM_UP, Search, Times

MIB = 1 << 20
PEAK = 100 * MIB


def search(
    overhead: Callable[[int], float | str], limit: float = 1.2, clock: str = "processor"
) -> Search:
    """A search in which a step takes `overhead(budget)` seconds of the processor, and 1 without."""

    def under(size: int) -> Times | str:
        took = overhead(size)
        return took if isinstance(took, str) else Times(took, 2 * took)

    one = Times(1.0, 2.0)
    return Search(PEAK, limit, clock, under, lambda: one, one)


def curve(size: int) -> float | str:
    """Slower the smaller the budget is; 1.2 at half of the peak, nothing below a fifth."""
    share = size / PEAK
    return "delta: no room" if share < 0.2 else 1 + 0.1 / share


# --- the search -----------------------------------------------------------------------------------


@pytest.mark.parametrize("clock", ["processor", "wall"])
def test_halves_until_it_knows(clock: str) -> None:
    made = search(curve, clock=clock)
    found = made.run(8)
    assert 0.5 <= found.share <= 0.5 + 1 / 2**7
    assert found.keeps and found.confirms and found.result == "confirmed"
    assert made.trials[-1] is found
    assert len(made.trials) == 8 + 1
    assert made.trials[0].budget_bytes >= PEAK
    for trial in made.trials:
        assert trial.keeps == (trial.budget_bytes >= PEAK / 2), trial
        assert trial.budget_bytes % 64 == 0


def test_out_of_memory_is_too_small() -> None:
    made = search(curve, limit=2.0)
    found = made.run(8)
    assert 0.2 <= found.share <= 0.2 + 1 / 2**7
    failed = [t for t in made.trials if t.times is None]
    assert failed and all(t.share < 0.2 and not t.keeps for t in failed)
    assert failed[0].error == "delta: no room" and failed[0].result == "out of memory"


def test_one_trial_is_the_peak() -> None:
    made = search(curve)
    assert made.run(1).budget_bytes == PEAK
    assert len(made.trials) == 2  # and it is confirmed


def test_what_is_not_confirmed_is_not_found() -> None:
    # What once kept to it is slower when it is to be confirmed, up to 0.57 of the peak.
    def wavers(size: int) -> float:
        return 1.3 if len(made.trials) >= 5 and size < 0.57 * PEAK else curve(size)

    made = search(wavers)
    found = made.run(5)
    assert found.keeps and found.share == pytest.approx(0.6, abs=1e-3)
    results = [t.result for t in made.trials if t.confirms]
    assert results == ["too slow", "too slow", "confirmed"]


def test_none_is_found() -> None:
    with pytest.raises(delta_torch.NoBudgetFound, match="a step took 1.10 times") as caught:
        search(curve, limit=1.05).run(8)
    (trial,) = caught.value.trials
    assert trial.result == "too slow"
    with pytest.raises(delta_torch.NoBudgetFound, match="ran out of memory: delta: no"):
        search(lambda size: "delta: no").run(8)
    again = iter([1.0, 9.0])  # and the second time it is no more
    with pytest.raises(delta_torch.NoBudgetFound, match="9.00 times as long"):
        search(lambda size: next(again)).run(1)
    with pytest.raises(delta_torch.NoBudgetFound, match="1.25 times as long"):
        made = search(lambda size: 1.1 if len(made.trials) < 3 else 1.25)
        made.run(3)
    assert made.trials[-1].budget_bytes == PEAK  # the last that could be confirmed


# --- real steps -----------------------------------------------------------------------------------


class Counted:
    """A training step that counts how often it runs, and how often to its end."""

    def __init__(self) -> None:
        self.model = nn.Sequential(
            *[nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(8)], nn.Linear(64, 8)
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.x, self.y = torch.randn(1024, 64), torch.randint(0, 8, (1024,))
        self.begun = self.ended = 0

    def __call__(self) -> torch.Tensor:
        self.begun += 1
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        self.ended += 1
        return loss


@pytest.mark.parametrize("policy", ["adaptive", "dtr"])
def test_real_steps(policy: str) -> None:
    step = Counted()
    # Any time will do, so that only memory decides.
    found = delta_torch.find_budget(step, 1e6, policy, trials=4, steps=2)
    assert not _C.active()
    assert found.policy == policy and found.host_bytes == 0 and found.steps == 2
    assert found.budget_bytes < 0.9 * found.unmanaged_peak_bytes
    assert found.trials[-1].confirms and found.trials[-1].budget_bytes == found.budget_bytes
    assert found.overhead == found.trials[-1].overhead < 1e6
    assert found.unmanaged.processor > 0 and found.unmanaged.wall > 0
    assert [t.share for t in found.trials][:2] == pytest.approx([1, 0.5], abs=0.01)

    completed = sum(t.times is not None for t in found.trials)
    unmanaged = 1 + sum(t.confirms for t in found.trials)
    assert step.ended >= (
        completed * (LEARNING + 2) + unmanaged * (WARM_UP + 2) + WARM_UP
    )
    assert step.begun - step.ended == len(found.trials) - completed

    with delta_torch.budget(found.unmanaged_peak_bytes, policy=policy) as run:
        step()
    assert run.report().peak_bytes <= found.unmanaged_peak_bytes


def test_prints_a_table() -> None:
    found = delta_torch.find_budget(Counted(), 1e6, "online", host="1GiB", trials=3, steps=1)
    lines = str(found).splitlines()
    assert lines[0].startswith("budget: ") and "% of the unmanaged peak of" in lines[0]
    assert "by the processor's time, at most 1e+06 was asked for" in lines[1]
    assert lines[3].split() == ["budget", "of", "the", "peak", "processor", "wall", "overhead"]
    assert lines[4].split()[0] == "none"
    assert len(lines) == 5 + len(found.trials)
    assert lines[5].split()[2] == "100%" and lines[5].endswith("keeps")
    assert lines[-1].endswith("confirmed")
    assert found.host_bytes == 1 << 30


def test_own_policy_counts(tmp_path) -> None:
    # Whatever is in policies() is taken, and nothing else.
    with pytest.raises(ValueError, match="there is no policy 'mine'; there are unmanaged"):
        delta_torch.find_budget(Counted(), policy="mine")


def test_errors_of_the_step_come_through() -> None:
    calls = 0

    def fails() -> None:
        nonlocal calls
        calls += 1
        torch.ones(1000).sum()
        if calls > WARM_UP + 1 + WARM_UP:  # under the first budget
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        delta_torch.find_budget(fails, steps=1)
    assert not _C.active()


def test_not_within_a_run() -> None:
    step = Counted()
    with delta_torch.budget("1GiB"), pytest.raises(RuntimeError, match="there is a run already"):
        delta_torch.find_budget(step)
    assert step.begun == 0


def test_a_step_without_tensors() -> None:
    with pytest.raises(RuntimeError, match="this uses none"):
        delta_torch.find_budget(lambda: None)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"step": 3}, "step is a function"),
        ({"max_overhead": 1}, "max_overhead is a number above 1"),
        ({"max_overhead": math.nan}, "max_overhead is a number above 1"),
        ({"max_overhead": "2x"}, "max_overhead is a number above 1"),
        ({"policy": "best"}, "there is no policy 'best'"),
        ({"host": "much"}, "much"),
        ({"clock": "sun"}, "clock is 'processor' or 'wall'"),
        ({"steps": 0}, "steps is a whole number"),
        ({"trials": 1.5}, "trials is a whole number"),
    ],
)
def test_bad_arguments(options, sentence: str) -> None:
    step = options.pop("step", Counted())
    with pytest.raises(ValueError, match=sentence):
        delta_torch.find_budget(step, **options)
