"""Tensors whose bytes are away, for tests that read them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

import delta_torch
from delta_torch import _C

ELEMENTS = 2**18  # a MiB of float32
# PyTorch 2.11 has one way to ask for an address, which nobody hears of.
READS = "const_data_ptr" if hasattr(torch._C.TensorBase, "const_data_ptr") else "data_ptr"


def is_away(tensor: torch.Tensor) -> bool:
    """Has it no bytes on the device? Does not bring them back."""
    try:
        # Past what delta_torch wraps, and only to read. PyTorch 2.11 gives 0, later ones refuse.
        with torch._C.DisableTorchFunctionSubclass():
            return getattr(torch._C.TensorBase, READS)(tensor) == 0
    except RuntimeError:
        return True


def values(first: float = 3.0) -> torch.Tensor:
    """What tensor_away() gives, as it should be read."""
    return torch.arange(ELEMENTS, dtype=torch.float32) % 7 + first


@contextmanager
def tensor_away(
    policy: str = "online", budget: str = "8MiB", host: str = "1GiB", grad: bool = False
) -> Iterator[torch.Tensor]:
    """A tensor like values(), whose bytes others have driven out, within a run.

    `grad`: a leaf that requires a gradient.
    """
    with delta_torch.budget(budget, policy=policy, host=host, steps="manual"):
        tensor = values(1.0) + 2
        if grad:
            tensor.requires_grad_(True)
        others = drive_out(tensor)
        yield tensor
        del others


def drive_out(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Runs an operator that leaves 128 bytes of the budget, and gives its tensors."""
    third = torch.zeros((_C.stats()["budget"] - 128) // 3 // 64 * 64 // torch.float32.itemsize)
    others = [third, third + 1]
    others.append(others[0] * others[1])
    assert is_away(tensor), "the tensor's bytes do not leave"
    return others
