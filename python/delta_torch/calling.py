"""Where a run cannot begin: in the middle of a model's forward or backward pass, and the like."""

from __future__ import annotations

import sys

import torch

_SENTENCE = "delta_torch.budget must be entered before the step, not {where}"


def refuse_within_a_pass() -> None:
    """Raises RuntimeError if the caller is within a pass or a transform of PyTorch.

    An autograd graph that is being built by plain function calls cannot be told: tensors made
    before the run are then managed, but never computed again.
    """
    if torch._C._current_graph_task_id() != -1:
        raise RuntimeError(_SENTENCE.format(where="within a backward pass"))
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise RuntimeError(_SENTENCE.format(where="within a transform such as torch.func.grad"))
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        raise RuntimeError(_SENTENCE.format(where="within a function that is compiled or traced"))
    module = _module_being_called()
    if module is not None:
        raise RuntimeError(
            _SENTENCE.format(where=f"within the forward pass of {type(module).__name__}")
        )


def _module_being_called() -> torch.nn.Module | None:
    call = torch.nn.Module._call_impl.__code__
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is call:
            return frame.f_locals.get("self")
        frame = frame.f_back
    return None
