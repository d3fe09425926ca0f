"""Addresses that are taken past PyTorch's dispatcher, and what else a run can't see by itself."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import delta_torch
from away import is_away, tensor_away, values
from delta_torch import _C

BUDGET = 8 << 20


def addresses() -> int:
    return _C.stats()["addresses"]


def stays(tensor: torch.Tensor) -> bool:
    """Is it still here when all that can leave has to?"""
    fits, too_large = 0, BUDGET
    while too_large - fits > 64:
        size = (fits + too_large) // 2
        try:
            torch.full((size,), 7, dtype=torch.uint8)
            fits = size
        except torch.OutOfMemoryError:
            too_large = size
    return not is_away(tensor)


@pytest.mark.parametrize("policy", ["dtr", "online", "adaptive"])
def test_what_is_written_by_its_address_is_data(policy: str) -> None:
    """A function of PyTorch that is made of others and writes a new tensor by itself."""
    x = torch.randn(300, 5)
    expected = torch.quantile(x, 0.5, dim=-1)
    with delta_torch.budget(BUDGET, policy=policy, host="1GiB", steps="manual") as run:
        got = torch.quantile(x * 1, 0.5, dim=-1)
        assert addresses() > 0
        stays(got)
        assert torch.equal(got * 1, expected)
    assert "addresses taken past PyTorch's dispatcher: tensors of aten::" in str(run.report())


def test_an_address_is_lent_until_the_step_ends() -> None:
    with delta_torch.budget(BUDGET, policy="online", host="1GiB", steps="manual") as run:
        tensor = values(1.0) + 2
        used = tensor * 2  # must not be computed again from what is written below
        ctypes.c_float.from_address(tensor.data_ptr()).value = 50.0
        assert stays(tensor)
        assert used[0] == 6 and tensor[0] == 50
        run.step()
        assert not stays(tensor)
        assert tensor[0] == 50  # the copy on the host has what was written
        assert used[0] == 6


def test_reading_takes_no_address() -> None:
    with tensor_away() as tensor:
        before = _C.stats()["updates"]
        assert tensor.const_data_ptr() != 0
        assert tensor.tolist()[:2] == values()[:2].tolist()
        assert addresses() == 0
        assert _C.stats()["updates"] == before


@torch.library.custom_op("delta_addresses::takes_it", mutates_args=())
def takes_it(x: torch.Tensor) -> torch.Tensor:
    take_address(x)
    return x + 1


def take_address(x: torch.Tensor) -> None:
    """As an extension does: not by what delta_torch wraps in Python."""
    with torch._C.DisableTorchFunctionSubclass():
        torch._C.TensorBase.data_ptr(x)


def test_a_kernel_may_take_its_arguments_addresses_and_others_are_seen_then() -> None:
    with delta_torch.budget(BUDGET, policy="online", steps="manual"):
        x = values(1.0) + 2
        takes_it(x)
        assert addresses() == 0
        take_address(x)
        assert addresses() == 1


def test_training_takes_no_address() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    with delta_torch.budget("64MiB"):
        for _ in range(2):
            F.cross_entropy(model(torch.randn(4, 8)), torch.randint(2, (4,))).backward()
            optimizer.step()
        assert addresses() == 0


def test_random_states_count_and_are_shared() -> None:
    """2,496 bytes for 624 numbers, in the budget; 20,000 operators had 5 KB each beside it."""
    def drawn() -> list[torch.Tensor]:
        return [torch.rand(8) for _ in range(3 * 624 // 8)]

    torch.manual_seed(1)
    expected = drawn()
    with delta_torch.budget(BUDGET, policy="online", steps="manual"):
        torch.manual_seed(1)
        before = _C.stats()["used"]
        kept = drawn()
        more = _C.stats()["used"] - before - 64 * len(kept)
        assert 2496 < more <= 4 * 2496
        assert not stays(kept[0])
        assert all(torch.equal(x, y) for x, y in zip(kept, expected, strict=True))


def test_nested_tensors() -> None:
    """The encoder's fast path, which evaluation with a mask takes."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    net = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(4, 10, 16)
    mask = torch.arange(10)[None] >= torch.tensor([10, 7, 3, 9])[:, None]
    with torch.no_grad():
        expected = net(x, src_key_padding_mask=mask)
        with delta_torch.budget("40KiB", policy="swap_lru", host="1GiB", steps="manual") as run:
            got = net(x, src_key_padding_mask=mask)
        assert run.report().offloads > 0
    assert torch.equal(got, expected)


def test_higher_order_operators() -> None:
    from torch._higher_order_ops import scan, while_loop

    x = torch.arange(32.0).view(4, 8).sin()

    def results() -> list[torch.Tensor]:
        y = x * 2
        return [
            torch.cond(y.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (y,)),
            while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (torch.tensor(0), y))[1],
            scan(lambda c, a: (c + a, c * a), torch.zeros(8), y)[1],
        ]

    expected = results()
    with delta_torch.budget("1MiB", policy="online", steps="manual"):
        for got, right in zip(results(), expected, strict=True):
            assert torch.equal(got, right)


# Under a policy that never recomputes: what is run again is in the profile again, and rightly.
PROFILED = """
import torch, delta_torch
net = torch.nn.Sequential(*[m for _ in range(6) for m in (torch.nn.Linear(64, 64), torch.nn.Tanh())])

def step():
    with torch.profiler.profile(record_shapes=True) as profile:
        net(torch.randn(256, 64)).pow(2).mean().backward()
    averages = profile.key_averages(group_by_input_shape=True)
    products = [e for e in averages if e.key.startswith("aten::") and "mm" in e.key]
    return sorted((e.key, str(e.input_shapes), e.count) for e in products)

expected = step()
with delta_torch.budget("600KiB", policy="swap_lru", host="1GiB", steps="manual") as run:
    assert step() == expected and step() == expected
assert run.report().offloads > 0
"""


def test_the_profiler_knows_shapes_and_says_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROFILED], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "away" not in done.stderr and "ASSERT" not in done.stderr and "delta" not in done.stderr
