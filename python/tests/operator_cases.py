"""Programs of one operator each, from PyTorch's own databases of operators and their samples."""

from __future__ import annotations

import random
import unittest
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
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
LOOKED_AT = 64  # samples of an operator that are chosen from: some have thousands
LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
OUT_SIZES = ("as is", "smaller", "larger", "empty", "strided")
ENOUGH = 10_000  # elements


@dataclass(frozen=True)
class Case:
    """A program, and what it is in words."""

    what: str
    program: Program
    # Run with the inputs on the device as the operator begins, too?
    resident: bool = False
    # Is it known to work without delta_torch? The databases do not say of each variant.
    works: bool = True


def operators(references: bool = False) -> dict[str, Any]:
    """By their full names."""
    return {("_refs." if references else "") + o.full_name.removeprefix("_refs."): o
            for o in (python_ref_db if references else op_db)}


def cases_of(info: Any, everything: bool) -> Iterator[Case]:
    """All variants of an operator that are worth running; `everything`: of many samples."""
    grad = info.supports_autograd
    floats = torch.float32 if info.supports_dtype(torch.float32, "cpu") else None
    types = [t for t in OTHER_TYPES if info.supports_dtype(t, "cpu")]
    main = floats or next(iter(types + sorted(info.supported_dtypes("cpu"), key=str)), None)
    if main is None:
        return  # not for CPUs
    chosen = _samples(info, main, grad and _differentiable(info, main), 8 if everything else 1)
    for number, sample in enumerate(chosen):
        yield from _of_sample(info, sample, f"{_name(main)} sample {number}", everything, number)
    if not everything:
        return
    for layout in LAYOUTS:
        for number, sample in enumerate(_sparse_samples(info, layout, main, grad)):
            what = f"{_name(main)} {str(layout).removeprefix('torch.')} sample {number}"
            for case in _of_sample(info, sample, what, False, number):
                yield replace(case, works=False)  # not each with a backward pass
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
    """The one with most elements, and others by chance: neighbours in the databases are alike."""
    torch.manual_seed(1)
    found = _not_large(islice(info.sample_inputs("cpu", kind, requires_grad=grad), LOOKED_AT))
    if len(found) <= count:
        return found
    largest = max(range(len(found)), key=lambda i: _elements(found[i]))
    others = [i for i in range(len(found)) if i != largest]
    chosen = [largest, *random.Random(info.full_name).sample(others, count - 1)]
    return [found[i] for i in chosen]


def _sparse_samples(info: Any, layout: torch.layout, kind: torch.dtype, grad: bool) -> list[Any]:
    """At most two. That the database has none is known only once it is asked."""
    if not info.supports_sparse_layout(layout):
        return []
    torch.manual_seed(1)
    try:
        return _not_large(islice(info.sample_inputs_sparse(layout, "cpu", kind, grad), 4))[-2:]
    except (NotImplementedError, unittest.SkipTest):
        return []


def _not_large(samples: Iterable[Any]) -> list[Any]:
    found = list(samples)
    return [s for s in found if _elements(s) <= ENOUGH] or found[:1]


def _elements(sample: Any) -> int:
    leaves = tree_flatten((sample.input, sample.args, sample.kwargs))[0]
    return sum(t.numel() for t in leaves if isinstance(t, torch.Tensor))


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
    # That these work without delta_torch is not known of each sample.
    others: dict[str, Program] = {}
    if twice:
        others["double backward"] = _forward(info, sample, grad=True, twice=True)
    if everything and number % 2 == 0:
        others["of views"] = _forward(info, sample, grad=requires, apart=True)
    if info.get_inplace() is not None and not sample.broadcasts_input:
        others["in place"] = _in_place(info, sample, grad=False)
        if everything and requires and info.supports_inplace_autograd:
            others["in place, backward"] = _in_place(info, sample, grad=True)
    if info.supports_out:
        for size in OUT_SIZES if everything else OUT_SIZES[:2]:
            others[f"out= {size}"] = _out(info, sample, size)
    for variant, program in others.items():
        yield Case(f"{what} {variant}", program, works=False)


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
        if size == "smaller":
            return like.new_zeros(min(like.numel(), 1))
        if size == "empty":
            return like.new_zeros(0)
        if size == "larger":
            return like.new_zeros([n + 1 for n in like.shape]).add(1)
        every_other = tuple(slice(None, None, 2) for _ in like.shape)
        return like.new_zeros([2 * n for n in like.shape])[every_other]

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
