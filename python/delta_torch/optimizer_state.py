"""Names for optimizers' state, in errors: "1.weight's exp_avg", by the parameter that it is for."""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from . import _C


def install() -> ExitStack:
    """Names what optimizers have when they step; gives what ends it."""
    names = _Names()
    undo = ExitStack()
    # Before, for what was loaded; and behind, for what the first step has made.
    for register in (register_optimizer_step_pre_hook, register_optimizer_step_post_hook):
        undo.callback(register(names.see).remove)
    return undo


class _Names:
    def __init__(self) -> None:
        # Which state, and of how many parameters, was named last.
        self._seen: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()

    def see(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        state = optimizer.state
        now = (id(state), len(state))
        if self._seen.get(optimizer) == now:
            return
        self._seen[optimizer] = now
        for parameter, own in state.items():
            if not isinstance(parameter, torch.Tensor):
                continue
            for key, value in own.items():
                if isinstance(value, torch.Tensor):
                    _C.name_state(value, parameter, key)
