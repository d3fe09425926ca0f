"""record(): one training step as a trace, from a real run or from fake tensors."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import torch
from torch.optim import optimizer as optimizers

from .. import _C
from ..calling import refuse_within_a_pass
from ..patching import Patches
from .fake import Fake
from .machines import Machine, machine
from .recorder import Price, Recorder
from .recording import Recording
from .roofline import Roofline


def record(
    step: Callable[..., Any],
    file: str | os.PathLike[str] | None = None,
    *,
    device: str | Machine | None = None,
    fake: bool = False,
    args: tuple[Any, ...] = (),
    warmup: int = 2,
    repeats: int = 1,
    tf32: bool = False,
    nonzero: float | None = None,
) -> Recording:
    """Records a training step as a program that can be repeated, and gives it.

    step: does one training step when it is called. With fake=True: builds the model and the data,
        and returns such a step; called with `args`.
    file: written, too, in delta's trace format, which delta-replay reads; gzip where its name ends
        in .gz.
    device: what operators are priced for, "h100" or a Machine: see machines(). None: they take what
        they take here, measured; of fake tensors, "cpu".
    fake: nothing is computed: a model may be larger than the memory. Sizes alone are known, so the
        step must not depend on values; a float that it reads is 0.
    warmup: steps before the one that is recorded; in the first, optimizers make their state.
    repeats: steps that are recorded; an operator's time is the median of them.
    tf32: float32 products are priced as TF32's.
    nonzero: of fake tensors, the share that is taken to be true where a shape depends on how many
        are, as torch.where(mask) does.

    Raises TypeError and ValueError for arguments that make no sense, RuntimeError where the step
    can't be recorded, OSError where the file can't be written.
    """
    _check(step, warmup, repeats, nonzero)
    refuse_within_a_pass()
    if _C.active():
        raise RuntimeError("record() is not for within a run: leave delta_torch.budget first")
    on = machine(device or "cpu") if fake or device is not None else None
    price: Price = Roofline(on, tf32) if on is not None else _measured
    with ExitStack() as undo:
        if fake:
            values = Fake(nonzero)
            undo.enter_context(values)
            if on is not None and on.name != "cpu":
                undo.callback(_as_on_a_gpu().undo)
            recorder = Recorder(price, values.run)
            program = values.make(step, args)
        else:
            recorder = Recorder(price)
            program = step if not args else lambda: step(*args)
        done = _recorded(recorder, program, on, warmup, repeats)
    if file is not None:
        done.save(file)
    return done


def _check(step: object, warmup: int, repeats: int, nonzero: float | None) -> None:
    if not callable(step):
        raise TypeError(f"a step is a function, not {type(step).__name__}")
    if warmup < 1:
        raise ValueError(f"at least one step comes before the recorded one, not {warmup!r}")
    if repeats < 1:
        raise ValueError(f"at least one step is recorded, not {repeats!r}")
    if nonzero is not None and not 0 <= nonzero <= 1:
        raise ValueError(f"nonzero is a share from 0 to 1, not {nonzero!r}")


def _measured(*what: Any) -> int:
    return max(1, what[-1])


def _recorded(
    recorder: Recorder, step: Callable[[], Any], on: Machine | None, warmup: int, repeats: int
) -> Recording:
    steps: list[Recording] = []
    stepped: dict[int, torch.optim.Optimizer] = {}  # they say what parameters and gradients are

    def steps_now(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        stepped[id(optimizer)] = optimizer
        _name_roles(recorder, optimizer)

    with ExitStack() as undo, recorder:
        undo.callback(optimizers.register_optimizer_step_pre_hook(steps_now).remove)
        for i in range(warmup + repeats):
            if i == warmup:
                for p in _parameters(stepped.values()):
                    undo.callback(p.register_post_accumulate_grad_hook(recorder.complete).remove)
            if i >= warmup:
                _name_roles(recorder, *stepped.values())
                recorder.begin(_empty(on))
            step()
            if i >= warmup:
                _name_roles(recorder, *stepped.values())
                steps.append(recorder.end())
    last = steps[-1]
    if not last.operations:
        raise RuntimeError("the step has no operators, so nothing can be recorded: it has to train the model once")
    same = [s for s in steps if s.operators == last.operators]
    for i, operation in enumerate(last.operations):
        operation.cost_ns = round(statistics.median(s.operations[i].cost_ns for s in same))
    return last


def _empty(on: Machine | None) -> Recording:
    if on is None:
        return Recording("this machine, measured", granularity=64)
    return Recording(
        on.name,
        granularity=on.granularity,
        rate_out=on.copy,
        rate_in=on.copy,
        latency_ns=round(on.latency * 1e9),
    )


def _parameters(of: Iterable[torch.optim.Optimizer]) -> list[torch.Tensor]:
    """Each once, that gets a gradient."""
    groups = [g for optimizer in of for g in optimizer.param_groups]
    unique = {id(p): p for g in groups for p in g["params"]}
    return [p for p in unique.values() if p.requires_grad and p.is_leaf]


def _name_roles(recorder: Recorder, *of: torch.optim.Optimizer) -> None:
    for state in (s for optimizer in of for s in optimizer.state.values()):
        for value in state.values():
            if isinstance(value, torch.Tensor):
                recorder.name(value, "optimizer state")
    for group in (g for optimizer in of for g in optimizer.param_groups):
        for p in group["params"]:
            recorder.name(p, "parameters")
            if p.grad is not None:
                recorder.name(p.grad, "gradients")


def _as_on_a_gpu() -> Patches:
    """On a GPU optimizers that are not told otherwise take all parameters at once (foreach)."""
    patches = Patches()
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.optim.") and "_default_to_fused_or_foreach" in vars(module):
            patches.replace(
                module,
                "_default_to_fused_or_foreach",
                lambda params, differentiable, use_fused=False: (False, not differentiable),
            )
    return patches
