"""Programs of one module or one optimizer each, from PyTorch's own databases of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import (
    _get_optim_inputs_including_global_cliquey_kwargs,
    optim_db,
)
from torch.utils._pytree import tree_flatten

from compared import Program
from inputs import Inputs
from operator_cases import Case


def modules() -> dict[str, Any]:
    return {f"module {info.name}": info for info in module_db}


def optimizers() -> dict[str, Any]:
    return {f"optimizer {info.optim_cls.__name__}": info for info in optim_db}


def cases_of_module(info: Any, everything: bool) -> Iterator[Case]:
    """In train and in eval mode; `everything`: with up to eight inputs, not with one."""
    for training in (True, False):
        torch.manual_seed(1)
        made = info.module_inputs_func(
            info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
        )
        made = [m for m in made if m.forward_input is not None]
        count = min(len(made), 8 if everything else 1)
        for number in range(count):
            module_input = made[number * len(made) // count]
            what = f"{'train' if training else 'eval'} input {number}"
            yield Case(what, _module(info, module_input, training, True), everything)
            if everything:
                yield Case(f"{what} without grad", _module(info, module_input, training, False))


def cases_of_optimizer(info: Any, everything: bool) -> Iterator[Case]:
    """Three steps on three parameters, for each way of being set up (or the first)."""
    found = _get_optim_inputs_including_global_cliquey_kwargs("cpu", torch.float32, info)
    for number, optimizer_input in enumerate(found if everything else found[:1]):
        what = f"setup {number} ({optimizer_input.desc})"
        yield Case(what, _optimizer(info, optimizer_input), everything)


def _module(info: Any, module_input: Any, training: bool, grad: bool) -> Program:
    def program(drive_out: Callable[[], None]) -> Any:
        built, called = module_input.constructor_input, module_input.forward_input
        inputs = Inputs()
        arguments = inputs.of((built.args, built.kwargs))
        module = info.module_cls(*arguments[0], **arguments[1]).train(training)
        module.to(torch.float32)
        args, kwargs = inputs.of((called.args, called.kwargs))
        given: list[Any] = []
        with torch.set_grad_enabled(grad):
            for _ in range(2):  # what the first call leaves in weights and statistics counts, too
                drive_out()
                result = module(*args, **kwargs)
                given.append(result)
                drive_out()
                if not grad:
                    continue
                outputs = [
                    t
                    for t in tree_flatten(result)[0]
                    if isinstance(t, torch.Tensor) and t.requires_grad
                ]
                if not outputs:
                    continue
                torch.autograd.backward(outputs, [torch.randn_like(t) for t in outputs])
                drive_out()
                with torch.no_grad():
                    for p in module.parameters():
                        if p.grad is not None and p.is_floating_point():
                            p.sub_(p.grad, alpha=0.01)
        return given, list(module.state_dict().values()), [t.grad for t in inputs.leaves()]

    return program


def _optimizer(info: Any, optimizer_input: Any) -> Program:
    def program(drive_out: Callable[[], None]) -> Any:
        sparse = info.only_supports_sparse_grads
        shapes = ((4, 3), (6,), (2, 3, 5)) if not sparse else ((4, 3), (5, 2))
        if info.optim_cls.__name__ == "Muon":
            shapes = ((4, 3), (3, 5), (6, 6))
        leaves = [torch.nn.Parameter(torch.randn(s)) for s in shapes]
        # A step that is differentiated writes its parameters, which must not be leaves then.
        differentiable = optimizer_input.kwargs.get("differentiable", False)
        weights = [w.clone() for w in leaves] if differentiable else leaves
        optimizer = info.optim_cls(weights, **dict(optimizer_input.kwargs))
        if differentiable:
            leaves += [torch.rand_like(w).requires_grad_() for w in weights]
            for w, gradient in zip(weights, leaves[len(weights) :], strict=True):
                w.grad = gradient
            drive_out()
            optimizer.step()
            drive_out()
            total = sum(w.square().sum() for w in weights)
            return weights, torch.autograd.grad(total, leaves, allow_unused=True)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = sum(w.sin().square().sum() for w in weights)
            loss.backward()
            if sparse:
                for w in weights:
                    w.grad = w.grad.to_sparse()
            drive_out()
            return loss

        losses = []
        for _ in range(3):
            losses.append(optimizer.step(closure))
            drive_out()
        state = [list(s.values()) for s in optimizer.state_dict()["state"].values()]
        return losses, weights, state

    return program
