"""Programs of one operator each, from PyTorch's own databases of operators and their samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db, python_ref_db
from torch.utils._pytree import tree_flatten

from compared import Program
from inputs import Inputs

OTHER_TYPES = (
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.complex64,
    torch.int64,
    torch.bool,
)
LOOKED_AT = 40  # samples of an operator that are chosen from: some have thousands


@dataclass(frozen=True)
class Case:
    """A program, and what it is in words."""

    what: str
    program: Program
    # Worth less: also with the inputs on the device as the operator begins.
    resident: bool = False


def operators(references: bool = False) -> dict[str, Any]:
    """By their full names."""
    return {("_refs." if references else "") + o.full_name.removeprefix("_refs."): o
            for o in (python_ref_db if references else op_db)}


def cases_of(info: Any, everything: bool) -> Iterator[Case]:
    """All variants of an operator that are worth running; `everything`: of many samples."""
    grad = info.supports_autograd
    floats = torch.float32 if info.supports_dtype(torch.float32, "cpu") else None
    types = [t for t in OTHER_TYPES if info.supports_dtype(t, "cpu")]
    main = floats or types[0] if floats or types else sorted(info.supported_dtypes("cpu"), key=str)[0]
    chosen = _samples(info, main, grad and _differentiable(info, main), 8 if everything else 1)
    for number, sample in enumerate(chosen):
        yield from _of_sample(info, sample, f"{_name(main)} sample {number}", everything, number)
    if not everything:
        return
    for kind in [t for t in types if t != main][:3]:
        with_grad = grad and _differentiable(info, kind)
        for number, sample in enumerate(_samples(info, kind, with_grad, 2)):
            yield from _of_sample(info, sample, f"{_name(kind)} sample {number}", False, number)


def _differentiable(info: Any, kind: torch.dtype) -> bool:
    return kind in info.supported_backward_dtypes("cpu") and (
        kind.is_floating_point or kind.is_complex
    )


def _name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")


def _samples(info: Any, kind: torch.dtype, grad: bool, count: int) -> list[Any]:
    """Spread over those that there are, those with elements first."""
    torch.manual_seed(1)
    found = list(islice(info.sample_inputs("cpu", kind, requires_grad=grad), LOOKED_AT))
    if len(found) <= count:
        return found
    if count == 1:
        whole = [s for s in found if _elements(s) > 1]
        return (whole or found)[:1]
    return [found[i * len(found) // count] for i in range(count)]


def _elements(sample: Any) -> int:
    return min(
        (t.numel() for t in tree_flatten((sample.input, sample.args, sample.kwargs))[0]
         if isinstance(t, torch.Tensor)),
        default=0,
    )


def _of_sample(
    info: Any, sample: Any, what: str, everything: bool, number: int
) -> Iterator[Case]:
    requires = any(
        isinstance(t, torch.Tensor) and t.requires_grad
        for t in tree_flatten((sample.input, sample.args, sample.kwargs))[0]
    )
    twice = everything and requires and info.supports_gradgrad and number < 3
    yield Case(f"{what} forward", _forward(info, sample), everything)
    if requires:
        yield Case(f"{what} backward", _forward(info, sample, grad=True), everything)
    if twice:
        yield Case(f"{what} double backward", _forward(info, sample, grad=True, twice=True))
    if everything and number % 2 == 0:
        yield Case(f"{what} of views", _forward(info, sample, grad=requires, apart=True))
    if info.get_inplace() is not None and not sample.broadcasts_input:
        yield Case(f"{what} in place", _in_place(info, sample, grad=False))
        if everything and requires and info.supports_inplace_autograd:
            yield Case(f"{what} in place, backward", _in_place(info, sample, grad=True))
    if info.supports_out:
        sizes = ("as is", "empty", "larger", "strided") if everything else ("as is", "empty")
        for size in sizes:
            yield Case(f"{what} out= {size}", _out(info, sample, size))


def _forward(
    info: Any, sample: Any, *, grad: bool = False, twice: bool = False, apart: bool = False
) -> Program:
    def program(drive_out: Callable[[], None]) -> Any:
        inputs = Inputs(apart)
        first, args, kwargs = inputs.of((sample.input, sample.args, sample.kwargs), grad)
        drive_out()
        with torch.set_grad_enabled(grad):
            result = info(first, *args, **kwargs)
        drive_out()
        if not grad:
            return result, inputs.all()
        return result, _gradients(sample.output_process_fn_grad(result), inputs, drive_out, twice)

    return program


def _in_place(info: Any, sample: Any, *, grad: bool) -> Program:
    function = info.get_inplace()

    def program(drive_out: Callable[[], None]) -> Any:
        inputs = Inputs()
        first, args, kwargs = inputs.of((sample.input, sample.args, sample.kwargs), grad)
        first = first.clone()  # a leaf can't be written in place
        drive_out()
        with torch.set_grad_enabled(grad):
            result = function(first, *args, **kwargs)
        drive_out()
        return result, first, _gradients(result, inputs, drive_out, False) if grad else ()

    return program


def _out(info: Any, sample: Any, size: str) -> Program:
    def made(like: torch.Tensor) -> torch.Tensor:
        if size == "as is":
            return torch.zeros_like(like).add(1)
        if size == "empty":
            return like.new_zeros(0)
        if size == "larger":
            return like.new_zeros([n + 1 for n in like.shape]).add(1)
        return like.new_zeros([2 * n for n in like.shape])[tuple(slice(None, None, 2) for _ in like.shape)]

    def program(drive_out: Callable[[], None]) -> Any:
        inputs = Inputs()
        first, args, kwargs = inputs.of((sample.input, sample.args, sample.kwargs), False)
        with torch.no_grad():
            like = info(first, *args, **kwargs)
            out = made(like) if isinstance(like, torch.Tensor) else tuple(map(made, like))
            drive_out()
            result = info(first, *args, out=out, **kwargs)
        drive_out()
        return result, out

    return program


def _gradients(
    result: Any, inputs: Inputs, drive_out: Callable[[], None], twice: bool
) -> list[torch.Tensor | None]:
    outputs = [
        t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    leaves = inputs.leaves()
    if not outputs or not leaves:
        return []
    directions = [torch.randn_like(t) if t.layout == torch.strided else torch.ones_like(t)
                  for t in outputs]
    drive_out()
    first = torch.autograd.grad(
        outputs, leaves, directions, allow_unused=True, create_graph=twice
    )
    drive_out()
    again = [t for t in first if t is not None and t.requires_grad]
    if not twice or not again:
        return list(first)
    second = torch.autograd.grad(
        again, leaves, [torch.randn_like(t) for t in again], allow_unused=True
    )
    return [*first, *second]
