"""What an accelerator's kernels and allocators do that PyTorch's interfaces do not show.

The kernels and faults here stand in for those of a GPU.
"""

from __future__ import annotations

import pytest
import torch

import delta_torch
from delta_torch import _C

DEVICE = "simulated:0"
SIZE = 4096


def budget(size: str = "128KiB", **options):
    """A run of eight tensors that can only be made again; or with other options."""
    options = {"policy": "dtr", "host": 0, **options}
    return delta_torch.budget(size, device=DEVICE, **options)


def filled(value: float, size: int = SIZE) -> torch.Tensor:
    return torch.full((size,), value, device=DEVICE)


def crowd(count: int = 8) -> None:
    """So much that everything else has to leave."""
    kept = [filled(float(i)) for i in range(count)]
    assert all(bool((t == i).all().item()) for i, t in enumerate(kept))


def kernel_of(name: str, kernel) -> torch.library.Library:
    library = torch.library.Library("aten", "IMPL")
    library.impl(name, kernel, "PrivateUse1")
    return library


@pytest.mark.parametrize("deterministic", [False, True])
def test_sums_in_any_order_are_not_made_again(sim, deterministic: bool) -> None:
    """Unless PyTorch's deterministic algorithms fix their order."""
    calls = [0]

    def kernel(x: torch.Tensor, *_: object) -> torch.Tensor:
        calls[0] += 1
        return x + (1 if deterministic else calls[0])

    library = kernel_of("cumsum", kernel)
    torch.use_deterministic_algorithms(deterministic)
    try:
        with budget() as run:
            y = torch.cumsum(filled(0.0), 0)
            crowd(8 if deterministic else 6)
            assert bool((y == 1).all().item())
        assert (calls[0] > 1) == deterministic, run.report()
    finally:
        torch.use_deterministic_algorithms(False)
        library._destroy()
