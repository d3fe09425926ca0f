"""Sees every operator of a program, below autograd, and writes down what it does to memory.

What an operator means to delta is what the extension makes of it when it manages a run
(csrc/managed_operator.cpp): a storage is a tensor, views are nothing, an operator in place on what
can be made again makes a new version, and on anything else changes it for good.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..devices import finish
from .kinds import Operator, look_up, tensors_in
from .recording import (
    ACTIVATION,
    BACKWARD,
    DROP,
    EFFECT_ONCE,
    END_OF_STEP,
    NEVER_REPLAY,
    RANDOM,
    RUN,
    VARIABLE,
    Operation,
    Recording,
)
from .scratch import workspace

# (operator, arguments, keywords, result, measured ns) -> ns
Price = Callable[[Operator, Any, tuple[Any, ...], dict[str, Any], Any, int], int]


class _Storage:
    """A storage that is alive and has been seen."""

    __slots__ = ("again", "number", "reference", "role", "size")

    def __init__(self, size: int, role: str) -> None:
        self.size = size
        self.role = role
        self.number = -1  # in the recording; -1: not there yet
        self.again = False  # an operator of this step has made it, and could again
        self.reference: Any = None


class _Touched:
    """A storage that the operator at hand touches."""

    __slots__ = ("known", "statistics", "written")

    def __init__(self, known: _Storage) -> None:
        self.known = known
        self.written = self.statistics = False


class Recorder(TorchDispatchMode):
    """A dispatch mode. `begin` and `end` go round the step that is recorded; the steps before show
    which storages there are."""

    def __init__(self, price: Price, answer: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self._price = price
        self._answer = answer  # runs an operator, where that is not simply calling it
        self._operators: dict[Any, Operator] = {}
        self._alive: dict[int, _Storage] = {}  # by the address of the storage's C++ object
        self._recording: Recording | None = None
        self._backward = False  # has the backward pass begun?
        # By parameter: its gradient, and the operation with which that is complete.
        self._complete: dict[int, tuple[int, int]] = {}

    def begin(self, recording: Recording) -> None:
        """From here on everything is recorded. What is alive comes first."""
        self._recording = recording
        self._backward = False
        self._complete = {}
        for s in self._alive.values():
            s.number, s.again = -1, False
            self._appear(s)

    def end(self) -> Recording:
        """The end of the step."""
        done = self._recording
        assert done is not None
        done.events.append((END_OF_STEP, 0))
        latest: dict[int, int] = {}  # parameters may share one
        for tensor, after in self._complete.values():
            latest[tensor] = max(after, latest.get(tensor, 0))
        done.gradients = sorted(latest.items(), key=lambda gradient: gradient[1])
        self._recording = None
        return done

    def name(self, tensor: torch.Tensor, role: str) -> None:
        """Says what a tensor is."""
        s = self._alive.get(_key(tensor)) if _has_storage(tensor) else None
        if s is not None:
            s.role = role
            if self._recording is not None and s.number >= 0:
                self._recording.roles[s.number] = role

    def complete(self, parameter: torch.Tensor) -> None:
        """A parameter's gradient has been accumulated. Where that happens several times in a step,
        as of microbatches, the last one counts."""
        grad = parameter.grad
        s = self._alive.get(_key(grad)) if grad is not None and _has_storage(grad) else None
        if self._recording is None or s is None or s.number < 0:
            return
        self._complete.pop(id(parameter), None)
        self._complete[id(parameter)] = (s.number, len(self._recording.operations) - 1)

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        op = self._operators.get(func)
        if op is None:
            op = self._operators[func] = look_up(func)
        if op.composite:
            with self:
                return func.decompose(*args, **kwargs)
        if op.unseen:
            return func(*args, **kwargs)
        touched = self._look_at(op, args, kwargs)
        result, took = self._timed(func, args, kwargs)
        if self._recording is None:
            self._track(op, args, kwargs, result)
        else:
            cost = self._price(op, func, args, kwargs, result, took)
            made = self._write(op, touched, args, kwargs, result)
            made.cost_ns = cost
            made.workspace = workspace(op, args, kwargs, result)
        return result

    # What it gives, and how long it took, in ns; work of an accelerator is waited for.
    def _timed(self, func: torch._ops.OpOverload, args: Any, kwargs: Any) -> tuple[Any, int]:
        began = time.perf_counter_ns()
        if self._answer is not None:
            result = self._answer(func, args, kwargs)
        else:
            finish()
            began = time.perf_counter_ns()
            result = func(*args, **kwargs)
            finish()
        return result, time.perf_counter_ns() - began

    # What the operator reads and writes.
    def _look_at(
        self, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[int, _Touched]:
        touched: dict[int, _Touched] = {}
        trains = _trains(op, args, kwargs)
        for place, tensor in _arguments(op, args, kwargs):
            if not _has_storage(tensor):
                raise RuntimeError(
                    f"{op.name} has a sparse or quantized tensor, which can't be recorded: leave it "
                    "out of the step, or train under delta_torch.budget and read the report"
                )
            key = _key(tensor)
            known = self._alive.get(key)
            if known is None:
                known = self._meet(tensor, key)
                if known is None:
                    continue
            at = touched.setdefault(key, _Touched(known))
            if op.written[place] and (trains or not op.running[place]):
                at.written = True
        return touched

    # A storage from outside: a parameter or data.
    def _meet(self, tensor: torch.Tensor, key: int) -> _Storage | None:
        whole = tensor if tensor._base is None else tensor._base
        leaf = whole.requires_grad and whole.is_leaf
        parameter = leaf or isinstance(whole, torch.nn.Parameter)  # one that is frozen
        made = self._add(tensor, key, "parameters" if parameter else "buffers and data")
        if made is not None and self._recording is not None:
            self._appear(made)
        return made

    def _add(self, tensor: torch.Tensor, key: int, role: str) -> _Storage | None:
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        if size == 0:
            return None
        made = self._alive[key] = _Storage(size, role)
        alive = self._alive

        def died(_: Any) -> None:
            # Another storage may have the address by now.
            if alive.get(key) is made:
                del alive[key]
            self._drop(made)

        made.reference = weakref.ref(storage, died)
        return made

    def _drop(self, s: _Storage) -> None:
        if self._recording is not None and s.number >= 0:
            self._recording.events.append((DROP, s.number))
        s.number = -1

    def _appear(self, s: _Storage) -> None:
        assert self._recording is not None
        s.number = self._number(s)
        self._recording.events.append((VARIABLE, s.number))

    def _number(self, s: _Storage) -> int:
        r = self._recording
        assert r is not None
        r.sizes.append(s.size)
        r.roles.append(s.role)
        return len(r.sizes) - 1

    # Before the step that counts: which storages there are.
    def _track(
        self, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        for _, tensor in self._fresh(op, args, kwargs, result):
            self._add(tensor, _key(tensor), ACTIVATION)

    # Tensors of storages that the operator has made or given another size; of the latter, what
    # they were.
    def _fresh(
        self, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> Iterator[tuple[_Storage | None, torch.Tensor]]:
        for place, tensor in _arguments(op, args, kwargs):
            if not op.written[place]:
                continue
            known = self._alive.get(_key(tensor))
            if known is None or known.size != tensor.untyped_storage().nbytes():
                yield known, tensor
        for tensor in tensors_in(result):
            if not _has_storage(tensor):
                raise RuntimeError(
                    f"{op.name} makes a sparse or quantized tensor, which can't be recorded: leave "
                    "it out of the step, or train under delta_torch.budget and read the report"
                )
            if self._alive.get(_key(tensor)) is None:
                yield None, tensor

    def _write(
        self,
        op: Operator,
        touched: dict[int, _Touched],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> Operation:
        r = self._recording
        assert r is not None
        if not self._backward and torch._C._current_autograd_node() is not None:
            self._backward = True
            r.events.append((BACKWARD, 0))

        everything = list(touched.values())
        written = [t for t in everything if t.written]
        # A generator's state is the program's.
        repeatable = op.repeatable and not any(
            isinstance(value, torch.Generator) for value in (*args, *kwargs.values())
        )
        if op.advances and _trains(op, args, kwargs):
            repeatable = False
        if op.any_order and any(t.is_cuda for _, t in _arguments(op, args, kwargs)):
            repeatable = False
        if not op.statistics and any(not t.known.again for t in written):
            repeatable = False
        versions = repeatable and not op.statistics
        renewed = written if versions else []
        read = [t for t in everything if not t.written]
        made = Operation(
            name=op.name,
            kind=op.kind,
            inputs=[t.known.number for t in (*renewed, *read)],
            outputs=[],
            updates=[] if versions else [t.known.number for t in written],
            replaced=len(renewed),
        )
        if not repeatable:
            made.traits = NEVER_REPLAY
        elif made.updates:
            made.traits = EFFECT_ONCE
        if op.random and repeatable:
            made.traits |= RANDOM
        old = []
        for t in renewed:
            old.append(t.known.number)
            t.known.number = self._number(t.known)
            made.outputs.append(t.known.number)
        for before, tensor in self._fresh(op, args, kwargs, result):
            fresh = self._add(tensor, _key(tensor), ACTIVATION)
            if before is not None and before.number >= 0:
                old.append(before.number)
                before.number = -1
            if fresh is None:
                continue
            fresh.again = repeatable
            fresh.number = self._number(fresh)
            made.outputs.append(fresh.number)
        r.operations.append(made)
        r.events.append((RUN, len(r.operations) - 1))
        r.events.extend((DROP, number) for number in old)
        return made


def _key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _has_storage(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_quantized


def _trains(op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True if what is written in training only is written."""
    return all(
        args[i] > 0 if i < len(args) else kwargs.get(op.arguments[i], True) for i in op.conditions
    )


def _arguments(
    op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[int, torch.Tensor]]:
    for place, value in enumerate(args):
        for tensor in tensors_in(value):
            yield place, tensor
    for name, value in kwargs.items():
        for tensor in tensors_in(value):
            yield op.arguments.index(name), tensor
