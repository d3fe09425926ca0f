"""Inputs of a program made anew by operators, so that a run can compute them again."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map


class Inputs:
    """Makes copies of tensors as they lie in memory; the same tensor twice is one copy.

    `apart`: each lies within a larger tensor, at an offset, with gaps between its elements.
    """

    def __init__(self, apart: bool = False) -> None:
        self._apart = apart
        self._made: dict[int, torch.Tensor] = {}

    def of(self, values: Any, grad: bool = True) -> Any:
        """`grad`: a copy requires a gradient where the tensor did."""

        def made(value: Any) -> Any:
            if isinstance(value, slice):
                return slice(*self.of([value.start, value.stop, value.step], grad))
            if not isinstance(value, torch.Tensor):
                return value
            if id(value) not in self._made:
                copy = self._copy(value.detach())
                if value.requires_grad and grad:
                    copy.requires_grad_()
                self._made[id(value)] = copy
            return self._made[id(value)]

        return tree_map(made, values)

    def leaves(self) -> list[torch.Tensor]:
        """The copies that require a gradient."""
        return [t for t in self._made.values() if t.requires_grad and t.is_leaf]

    def all(self) -> list[torch.Tensor]:
        return list(self._made.values())

    def _copy(self, t: torch.Tensor) -> torch.Tensor:
        plain = t.layout == torch.strided and not (t.is_nested or t.is_quantized)
        if not plain or t.numel() == 0 or t.is_conj() or t.is_neg():
            return t.clone().detach()
        if self._apart:
            larger = t.new_zeros(2 * t.numel() + 3)
            view = larger[3:].as_strided(t.shape, [2 * s for s in _strides(t.shape)], 3)
            return view.copy_(t).detach()
        # All of its storage, as some operators look at what lies around a view.
        elements = t.untyped_storage().nbytes() // t.element_size()
        base = t.as_strided((elements,), (1,), 0).clone()
        return base.as_strided(t.shape, t.stride(), t.storage_offset()).detach()


def _strides(shape: torch.Size) -> list[int]:
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * max(shape[i + 1], 1)
    return strides
