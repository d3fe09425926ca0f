"""Operators that can't fit, whatever leaves: they say so at once, and nothing runs again for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import delta_torch
from away import is_away
from delta_torch import _C

N = 1 << 18  # floats: 1 MiB
BUDGET = "2500KiB"  # two such tensors, and no third
LENGTH = 10  # operators that have to run again for one of them

Operator = Callable[[torch.Tensor, torch.Tensor], object]


def square(t: torch.Tensor) -> torch.Tensor:
    return t.view(512, 512)


# Of two tensors that are away: the plan to bring both together does not fit.
OF_TWO: dict[str, Operator] = {
    "add": lambda a, b: a + b,
    "mm": lambda a, b: square(a) @ square(b),
    "bmm": lambda a, b: torch.bmm(a.view(4, 256, 256), b.view(4, 256, 256)),
    "addmm": lambda a, b: torch.addmm(torch.zeros(512), square(a), square(b)),
    "cat": lambda a, b: torch.cat([a, b]),
    "stack": lambda a, b: torch.stack([a, b]),
    "conv2d": lambda a, b: F.conv2d(a.view(1, 16, 128, 128), b.view(64, 16, 16, 16)),
    "tanh_backward": torch.ops.aten.tanh_backward,
    "softmax_backward": lambda a, b: torch.ops.aten._softmax_backward_data(
        square(a), square(b), 1, torch.float32
    ),
    "addcmul": lambda a, b: torch.addcmul(a, a, b),
    "layer_norm": lambda a, b: F.layer_norm(square(a), (512,), square(b)[0]),
    "mse": lambda a, b: F.mse_loss(a, b, reduction="none"),
    "outer": lambda a, b: torch.outer(a[:2048], b[:2048]),
}
# Of one, which comes back by a plan.
OF_ONE: dict[str, Operator] = {
    "sort": lambda a, _: a.sort(),
    "topk": lambda a, _: a.topk(N // 2),
    "repeat": lambda a, _: a.repeat(4),
    "double": lambda a, _: a.double(),
}


def chain(x: torch.Tensor) -> list[torch.Tensor]:
    made = [x.expand(N) * 1.5]
    for _ in range(LENGTH - 1):
        made.append(made[-1].tanh())
    return made


def misfit(policy: str, operator: Operator) -> tuple[str, int]:
    """The text of its error, and how often something was computed again for it."""
    with delta_torch.budget(BUDGET, policy=policy, steps="manual"):
        x = torch.ones(1)
        first, second = chain(x), chain(x)
        torch.ones(2 * N - 4096)  # all others leave
        assert is_away(first[-1]) and is_away(second[-1])
        return failed(operator, first[-1], second[-1])


def failed(operator: Operator, a: torch.Tensor, b: torch.Tensor) -> tuple[str, int]:
    before = _C.stats()["recomputes"]
    with pytest.raises(torch.OutOfMemoryError) as caught:
        operator(a, b)
    text = str(caught.value)
    assert text.startswith("delta: out of memory. operator 'aten::"), text
    assert "can't leave" in text
    return text, _C.stats()["recomputes"] - before


@pytest.mark.parametrize("policy", ["dtr", "adaptive"])
@pytest.mark.parametrize("name", OF_TWO)
def test_what_cannot_fit_says_so_at_once(name: str, policy: str) -> None:
    text, replays = misfit(policy, OF_TWO[name])
    assert replays == 0, text


@pytest.mark.parametrize("policy", ["dtr", "online"])
@pytest.mark.parametrize("name", OF_ONE)
def test_one_input_comes_back_once(name: str, policy: str) -> None:
    text, replays = misfit(policy, OF_ONE[name])
    assert replays <= LENGTH, text


@pytest.mark.parametrize("policy", ["dtr", "online", "adaptive"])
@pytest.mark.parametrize("name", ["cat", "stack", "conv2d", "outer"])
def test_what_it_will_make_counts(name: str, policy: str) -> None:
    """Both inputs can be here together, in another order than a plan's, but not with the output."""
    with delta_torch.budget("3200KiB", policy=policy, steps="manual"):
        shared = torch.ones(1).expand(N * 4 // 3) * 1.5  # a plan keeps it for both
        a = (shared[:N] * 2).tanh().tanh()
        b = torch.cat([shared[: N // 4] * 2] * 4).tanh()
        del shared
        torch.ones(3 * N - 4096)
        assert is_away(a) and is_away(b)
        text, replays = failed(OF_TWO[name], a, b)
        assert replays == 0, text
        assert torch.equal(a[:4] + b[:4], 2 * b[:4]) == torch.equal(a[:4], b[:4])  # it goes on
