"""A roofline: what an operator takes on a machine, by what it computes and the bytes that it moves.

    launch + max(flops / (peak * efficiency), bytes / (bandwidth * efficiency))

The flops are those of PyTorch's flop counter; what that has no formula for does one operation for
each element. The efficiencies are by kind of operator, in machines.py.
"""

from __future__ import annotations

import logging
from typing import Any

import torch

from .kinds import Operator, tensors_in
from .machines import Machine


class Roofline:
    """Prices operators for a machine. tf32: may products of float32 be computed in TF32?"""

    def __init__(self, machine: Machine, tf32: bool = False) -> None:
        self._machine = machine
        self._tf32 = tf32
        self._formulas = _flop_formulas()

    def __call__(
        self,
        op: Operator,
        func: torch._ops.OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        took: int,
    ) -> int:
        """Nanoseconds."""
        m = self._machine
        if op.kind == "nothing":
            return 0
        tensors = [*tensors_in(args), *tensors_in(tuple(kwargs.values()))]
        made = list(tensors_in(result))
        kind = "grouped convolution" if _is_grouped(op, args) else op.kind
        for_flops, for_bytes = m.efficiency_of(kind)
        moved = self._bytes(op, tensors, made, args, kwargs)
        heavy = op.kind in ("matmul", "convolution", "attention")
        dtype = _type_of(tensors or made)
        rate = m.flops_of(dtype, heavy and self._tf32)
        if not heavy and not dtype.is_floating_point:
            rate = m.flops["float32"]
        flops = self._flops(op, func, args, kwargs, result, tensors, made)
        seconds = m.launch + max(flops / (rate * for_flops), moved / (m.bandwidth * for_bytes))
        return max(1, round(seconds * 1e9))

    def _flops(
        self,
        op: Operator,
        func: torch._ops.OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        tensors: list[torch.Tensor],
        made: list[torch.Tensor],
    ) -> float:
        if op.name == "aten::convolution_backward":
            return _convolution_flops(args)
        formula = self._formulas.get(func.overloadpacket)
        if formula is not None:
            return float(formula(*args, **kwargs, out_val=result))
        if op.kind == "attention":
            return _attention_flops(op.name, args)
        return float(max((t.numel() for t in (*tensors, *made)), default=0))

    @staticmethod
    def _bytes(
        op: Operator,
        tensors: list[torch.Tensor],
        made: list[torch.Tensor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> int:
        read = [_size(t) for t in tensors]
        results = sum(_size(t) for t in made)
        if op.kind == "embedding" and not op.name.endswith("backward") and read:
            # Of a table, as many rows as there are results.
            largest = max(read)
            in_place = any(op.written)
            rest = sum(read) - largest
            return 2 * rest if in_place else rest + min(largest, results) + results
        changed = [
            t
            for place, value in enumerate(args)
            if place < len(op.written) and op.written[place]
            for t in tensors_in(value)
        ]
        # What it gives back may be what it changed: an addition in place. Or not: a batch norm
        # changes running statistics.
        theirs = {t.untyped_storage()._cdata for t in changed}
        fresh = [t for t in made if t.untyped_storage()._cdata not in theirs]
        return sum(read) + sum(_size(t) for t in (*changed, *fresh))


def _flop_formulas() -> dict[Any, Any]:
    """PyTorch's, whose module warns where Triton is missing, which is of no use here."""
    log = logging.getLogger("torch.utils.flop_counter")
    was, log.disabled = log.disabled, True
    try:
        from torch.utils.flop_counter import flop_registry
    finally:
        log.disabled = was
    return flop_registry


def _is_grouped(op: Operator, args: tuple[Any, ...]) -> bool:
    groups = {"aten::convolution": 8, "aten::convolution_backward": 9}.get(op.name)
    return groups is not None and len(args) > groups and args[groups] > 1


def _convolution_flops(args: tuple[Any, ...]) -> float:
    """Of a convolution's gradients, each as much as the convolution; PyTorch's formula does not
    know groups there."""
    result, image, weight = args[:3]
    transposed, mask = args[7], args[10]
    most = image if transposed else result
    return 2.0 * most.numel() * weight.numel() / weight.shape[0] * (int(mask[0]) + int(mask[1]))


def _attention_flops(name: str, args: tuple[Any, ...]) -> float:
    """Of scaled dot products: two products of the queries' length by the keys', five backward."""
    backward = "backward" in name
    q, k, v = [a for a in args if isinstance(a, torch.Tensor)][1 if backward else 0 :][:3]
    batch_heads, queries, size = q.shape[:-2].numel(), q.shape[-2], q.shape[-1]
    keys, out = k.shape[-2], v.shape[-1]
    forward = 2 * batch_heads * queries * keys * (size + out)
    return float(forward * 5 / 2 if backward else forward)


def _type_of(tensors: list[torch.Tensor]) -> torch.dtype:
    floating = [t.dtype for t in tensors if t.dtype.is_floating_point]
    if floating:
        return floating[-1] if len(set(floating)) == 1 else floating[0]
    return tensors[0].dtype if tensors else torch.float32


def _size(t: torch.Tensor) -> int:
    # An expanded tensor has fewer bytes than elements.
    count = 1
    for size, stride in zip(t.shape, t.stride(), strict=True):
        if stride != 0:
            count *= size
    return count * t.element_size()
