"""Fake tensors: a program runs with sizes and types alone, without computing anything.

What depends on values is answered, or refused in a sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..patching import Patches


class Fake:
    """A context in which new tensors are fake. nonzero: the share that is true of a mask; None:
    a shape that depends on it is an error."""

    def __init__(self, nonzero: float | None) -> None:
        from torch._subclasses.fake_tensor import (
            DataDependentOutputException,
            DynamicOutputShapeException,
            FakeTensorMode,
        )

        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._nonzero = nonzero
        self._reads: Any = DataDependentOutputException
        self._shapes: Any = DynamicOutputShapeException
        self._state: Any = None
        self._making = False

    def __enter__(self) -> Fake:
        self._state = torch.get_rng_state()
        self._mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._mode.__exit__(*error)
        torch.set_rng_state(self._state)

    def make(self, maker: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[], Any]:
        """Builds the program: the step that `maker` returns."""
        patches = _building()
        try:
            self._making = True
            with _Answers(self):
                step = maker(*args)
        finally:
            self._making = False
            patches.undo()
        if not callable(step):
            raise TypeError(
                "with fake tensors, a function that builds the model and returns the step is "
                f"needed; {_name(maker)} returned {type(step).__name__}"
            )
        return step

    def run(
        self, func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Runs an operator, where that needs no values."""
        name = func.overloadpacket
        if self._nonzero is not None:
            if name is torch.ops.aten.nonzero:
                return self._places(args[0])
            if name is torch.ops.aten.masked_select:
                return args[0].new_empty(self._count(args[1].numel()))
            if name in (torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_):
                args = (args[0], self._without_masks(args[1]), *args[2:])
        try:
            return func(*args, **kwargs)
        except self._reads as error:
            if name is torch.ops.aten._local_scalar_dense:
                if args[0].is_floating_point():
                    return 0.0
                if self._making and args[0].dtype == torch.bool:
                    return False
            raise self._refusal(error) from None
        except self._shapes as error:
            raise self._refusal(error) from None

    def _count(self, elements: int) -> int:
        assert self._nonzero is not None
        return round(elements * self._nonzero)

    def _places(self, mask: torch.Tensor) -> torch.Tensor:
        return mask.new_empty((self._count(mask.numel()), mask.dim()), dtype=torch.int64)

    def _without_masks(self, indices: Any) -> list[Any]:
        plain: list[Any] = []
        for index in indices:
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                plain += self._places(index).unbind(1)
            else:
                plain.append(index)
        return plain

    @staticmethod
    def _refusal(error: Exception) -> RuntimeError:
        func = getattr(error, "func", None) or (error.args[0] if error.args else error)
        name = str(func)
        if "_local_scalar_dense" in name or "equal" in name:
            return RuntimeError(
                "the step reads a value that fake tensors don't have, a whole number or a truth "
                f"({name}): record a real run, or take it out of the step"
            )
        return RuntimeError(
            f"a shape depends on values that fake tensors don't have ({name}): say which share is "
            "true, nonzero=0.5, or record a real run"
        )


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__


class _Answers(TorchDispatchMode):
    """Lets what builds the program be answered as the step is: a float is 0, a truth is false."""

    def __init__(self, values: Fake) -> None:
        super().__init__()
        self._values = values

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._values.run(func, args, kwargs or {})


def _building() -> Patches:
    """What is done otherwise while modules are built.

    Weights have no values, so nothing is drawn for them; some would be drawn until they fit.
    PyTorch's own Module.to can't exchange fake parameters.
    """
    patches = Patches()
    for name, function in list(vars(torch.nn.init).items()):
        if name.endswith("_") and not name.startswith("_") and callable(function):
            patches.replace(torch.nn.init, name, lambda tensor, *_, **__: tensor)
    # By conversion and parameter: one that modules share stays one. Both are kept, so that no
    # other has their id.
    made: dict[tuple[int, int], tuple[Any, Any, Any]] = {}

    def converted(convert: Any, old: torch.Tensor) -> Any:
        key = (id(convert), id(old))
        if key not in made:
            with torch.no_grad():
                new = convert(old)
            if isinstance(old, torch.nn.Parameter) and new is not old:
                new = torch.nn.Parameter(new, old.requires_grad)
            made[key] = (convert, old, new)
        return made[key][2]

    def apply(self: torch.nn.Module, fn: Any, recurse: bool = True) -> torch.nn.Module:
        if recurse:
            for child in self.children():
                child._apply(fn)
        for tensors in (self._parameters, self._buffers):
            for name, old in tensors.items():
                if old is not None:
                    tensors[name] = converted(fn, old)
        return self

    patches.replace(torch.nn.Module, "_apply", apply)
    return patches
