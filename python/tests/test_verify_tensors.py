"""verify="tensors": what writes in secret, and what gives other bits when it runs again, is named
with operator, module, step and number; right programs pass, and give the same bits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from training import Training, managed, measured, unmanaged

import delta_torch
from delta_torch.options import Options

STEPS = 3
LIBRARY = torch.library.Library("delta_verify", "DEF")
LIBRARY.define("secret(Tensor x, bool writes) -> Tensor")
LIBRARY.define("counted(Tensor x, bool counts) -> Tensor")
NUMBERS = itertools.count()


def _secret(x: torch.Tensor, writes: bool) -> torch.Tensor:
    if writes:
        x.data[-1].add_(1)  # with a version counter of its own
    return x * 2


def _counted(x: torch.Tensor, counts: bool) -> torch.Tensor:
    return x + (next(NUMBERS) if counts else 1)


LIBRARY.impl("secret", _secret, "CPU")
LIBRARY.impl("counted", _counted, "CPU")


def maker() -> Training:
    """A network with what is hashed in ways of its own: dropout, statistics, in place, embeddings."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.Dropout(0.1),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 16 * 16, 10),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(i: int) -> torch.Tensor:
        images = torch.randn(16, 3, 32, 32, generator=torch.Generator().manual_seed(i))
        loss = nn.functional.cross_entropy(model(images), torch.arange(16) % 10)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training(model, optimizer, step)


@pytest.mark.parametrize(
    ("policy", "host", "share"),
    [("adaptive", "1GiB", 0.7), ("dtr", 0, 0.8), ("online", "1GiB", 0.7)],
)
def test_right_trainings_pass_with_the_same_bits(policy: str, host: str, share: float) -> None:
    expected = unmanaged(maker, STEPS)
    peak = measured(maker, STEPS).peak_bytes
    trained = managed(maker, STEPS, int(peak * share), policy=policy, host=host, verify="tensors")
    assert trained.outcome == expected
    report = trained.report
    assert report.recomputes + report.reloads > 0
    assert report.tensors_compared > report.operators


def test_hashing_of_nothing_is_counted_as_nothing() -> None:
    assert managed(maker, 1, None).report.tensors_compared == 0


class Secret(nn.Module):
    """A layer whose operator writes its argument."""

    writes = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.delta_verify.secret(x, self.writes)


def test_argument_that_is_written_in_secret() -> None:
    layer = nn.Sequential(nn.Linear(8, 8), Secret())
    with delta_torch.budget("8MiB", steps="manual", verify="tensors") as run, torch.no_grad():
        x = torch.ones(4, 8)
        layer(x)
        run.step()
        layer[1].writes = True
        with pytest.raises(delta_torch.TensorDiffers, match="has written tensor") as error:
            layer(x)
    found = error.value
    assert found.operator == "delta_verify::secret"
    assert found.module == "Sequential.1"
    assert found.cause == "undeclared write"
    assert found.step == 2
    assert found.number > 2
    assert "of operator 'Sequential.0 aten::addmm'" in str(found)


def recomputed(counts: bool) -> None:
    """Reads again what was dropped meanwhile."""
    with delta_torch.budget("1MiB", policy="dtr", steps="manual", verify="tensors") as run:
        x = torch.ones(1 << 15)
        made = [torch.ops.delta_verify.counted(x, counts) for _ in range(12)]
        assert run.report().evictions > 0
        for y in made:
            y.sum()
        assert run.report().recomputes > 0


def test_other_bits_when_it_runs_again() -> None:
    recomputed(False)
    with pytest.raises(delta_torch.TensorDiffers, match="did not give the same bits") as error:
        recomputed(True)
    found = error.value
    assert (found.operator, found.module) == ("delta_verify::counted", "")
    assert found.cause == "recompute"
    assert found.step == 1
    assert found.number > 0
    assert isinstance(found, RuntimeError)


def test_program_may_write_what_it_has_the_address_of() -> None:
    numbers = np.zeros(1024, dtype=np.float32)
    with delta_torch.budget("8MiB", steps="manual", verify="tensors") as run:
        shared = torch.from_numpy(numbers)
        own = torch.zeros(1024)
        for i in range(4):
            numbers += 1  # between operators
            assert shared.sum() == 1024 * (i + 1)
            view = own.numpy()
            view += 1
            assert own.sum() == 1024 * (i + 1)
            own.data.mul_(1)
            run.step()
        assert run.report().tensors_compared > 0


def test_undefined_bytes_are_the_same_again() -> None:
    with delta_torch.budget("1MiB", policy="dtr", steps="manual", verify="tensors"):
        made = [torch.empty(1 << 15) for _ in range(12)]
        for y in made:
            (y + 1).sum()


def test_wrong_values() -> None:
    with pytest.raises(ValueError, match="verify is True, False or 'tensors', not 'tensor'"):
        Options(verify="tensor")
