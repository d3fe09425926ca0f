"""Random numbers of the CPU's generator: replays draw the same, and steps that draw alike are alike.

The generator makes its numbers in blocks of 624; where in a step one ends is another place in every
step. What a run remembers of a step must not depend on that: its plan would not be followed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import delta_torch
from delta_torch import _C

BLOCK = 624

Draws = Callable[[torch.Tensor], torch.Tensor]


def noise(*counts: int) -> Draws:
    """Draws each of these counts of numbers twice: uniform and normal, one operator after another."""

    def draw(x: torch.Tensor) -> torch.Tensor:
        for count in counts:
            x = x + torch.rand(count).sum()
            x = x * torch.randn(count).mean()
        return x.tanh()

    return draw


def dropouts(x: torch.Tensor) -> torch.Tensor:
    for _ in range(5):
        x = F.dropout(x, 0.3).tanh()
    return x


def checkpointed(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = checkpoint(lambda y: F.dropout(noise(3)(y), 0.2), x, use_reentrant=False)
    return x


def set_back(x: torch.Tensor) -> torch.Tensor:
    before = torch.get_rng_state()
    x = noise(40, 500)(x)
    torch.set_rng_state(before)
    return noise(40, 500)(x)


def seeded(x: torch.Tensor) -> torch.Tensor:
    x = noise(7)(x)
    torch.manual_seed(int(torch.randint(0, 1000, ())))
    return noise(7)(x)


DRAWS: dict[str, Draws] = {
    "few": noise(1, 2, 3),
    "about a block": noise(BLOCK - 1, BLOCK, BLOCK + 1),
    "several blocks": noise(3 * BLOCK, 3 * BLOCK + 1, BLOCK, 3),
    "many": noise(20 * BLOCK + 3, 5, 30_000),
    "dropout": dropouts,
    "checkpointed": checkpointed,
    "set back": set_back,
    "seeded": seeded,
}


def training(draws: Draws) -> Callable[[], torch.Tensor]:
    torch.manual_seed(11)
    weight = torch.randn(64, 64).requires_grad_()
    x = torch.randn(512, 64)

    def step() -> torch.Tensor:
        weight.grad = None
        y = x
        for _ in range(6):
            y = draws(y @ weight).sigmoid()
        y.square().mean().backward()
        return weight.grad.clone()

    return step


@pytest.mark.parametrize("draws", [d for d in DRAWS if d != "seeded"])
def test_steps_that_draw_alike_are_alike(draws: str) -> None:
    step = training(DRAWS[draws])
    seen = set()
    with delta_torch.budget(None) as run:
        for i in range(40):
            step()
            run.step()
            program = _C.last_step()["program"]
            if i > 1:
                seen.add((program.operators, program.peak_bytes))
    assert len(seen) == 1


@pytest.mark.parametrize("policy", ["dtr", "adaptive"])
@pytest.mark.parametrize("draws", DRAWS)
def test_replays_draw_the_same(draws: str, policy: str) -> None:
    step = training(DRAWS[draws])
    right = [step() for _ in range(6)]
    after = torch.get_rng_state()
    step = training(DRAWS[draws])
    with delta_torch.budget(None) as run:
        step()
    budget = run.report().peak_bytes * 6 // 10
    step = training(DRAWS[draws])
    with delta_torch.budget(budget, policy=policy) as run:
        got = [step().numpy().copy() for _ in range(6)]
    assert run.report().recomputes > 0, "nothing was computed again: the test shows nothing"
    for a, b in zip(got, right, strict=True):
        assert torch.equal(torch.from_numpy(a), b)
    assert torch.equal(torch.get_rng_state(), after)
