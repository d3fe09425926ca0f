"""Names for what a run reports, by the modules that are called, and modules whose results stay.

Every call of an nn.Module is seen by two global hooks. A module's name is its path in the first
module that was called, "ResNet.layer1.0.conv1". In the backward pass operators have no module.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as module_hooks

from . import _C

# Modules whose activations stay, each with its submodules. Holds for all runs.
_kept: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()


def keep(module: torch.nn.Module, on: bool = True) -> torch.nn.Module:
    """Lets the activations of a module, and of its submodules, stay on the device.

    For the current run and later ones, at any time; `on=False` ends it. What the module's
    operators compute is neither dropped nor copied out, so it must fit within the budget. Returns
    the module. Raises TypeError for what is no module.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"keep() takes a torch.nn.Module, not {type(module).__name__}")
    for part in module.modules():
        (_kept.add if on else _kept.discard)(part)
    for names in list(_in_use):
        names.forget(module)
    return module


class _Known:
    """What a call of a module needs: its name's number, and whether its results stay."""

    __slots__ = ("keep", "module", "name", "number")

    def __init__(self, module: weakref.ref[torch.nn.Module], name: str, stays: bool) -> None:
        self.module = module
        self.name = name
        self.number = _C.name_module(name)
        self.keep = stays


class _Calls(threading.local):
    """The modules that a thread is in, the outermost first."""

    def __init__(self) -> None:
        self.stack: list[_Known] = []


class ModuleNames:
    """Tells the extension which module each operator is called in, from `install` to `undo`.

    `first_call` is called with each module at its first call.
    """

    def __init__(self, first_call: Callable[[torch.nn.Module], None] = lambda module: None) -> None:
        self._first_call = first_call
        self._known: dict[int, _Known] = {}  # by the module's id; its entry dies with the module
        # The living modules of a class that were called first, "ResNet" and "ResNet#2".
        self._roots: dict[str, list[weakref.ref[torch.nn.Module]]] = {}
        self._calls = _Calls()
        self._handles: list[Any] = []

    def install(self) -> ModuleNames:
        """Begins to watch calls."""
        self._handles = [
            module_hooks.register_module_forward_pre_hook(self._before),
            # Also where forward raises: the stack must be right afterwards.
            module_hooks.register_module_forward_hook(self._after, always_call=True),
        ]
        _in_use.add(self)
        return self

    def undo(self) -> None:
        """Ends it."""
        _in_use.discard(self)
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.outside()
        self._known.clear()

    def outside(self) -> None:
        """This thread is in no module, as between two steps.

        KeyboardInterrupt leaves calls without the second hook: they end here.
        """
        stack = self._calls.stack
        while stack:
            stack.pop()
            _C.leave_module()

    def forget(self, module: torch.nn.Module) -> None:
        """Looks at a module and its submodules anew when they are called next."""
        for part in module.modules():
            known = self._known.get(id(part))
            if known is not None:
                known.keep = part in _kept

    def _before(self, module: torch.nn.Module, _args: Any) -> None:
        if torch.compiler.is_compiling():
            return
        known = self._known.get(id(module))
        if known is None or known.module() is not module:
            known = self._meet(module)
        self._calls.stack.append(known)
        _C.enter_module(known.number, known.keep)

    def _after(self, module: torch.nn.Module, _args: Any, _result: Any) -> None:
        stack = self._calls.stack
        known = self._known.get(id(module))
        # A hook that raised before ours has kept us from entering; an interruption, from leaving.
        if known is None or known not in stack:
            return
        while True:
            left = stack.pop()
            _C.leave_module()
            if left is known:
                return

    def _meet(self, module: torch.nn.Module) -> _Known:
        stack = self._calls.stack
        if stack:
            self._name(module, self._name_within(module, stack[-1]))
        else:
            root = self._name_of_root(module)
            for path, part in module.named_modules():
                path = path.removeprefix("_orig_mod").removeprefix(".")  # by torch.compile
                self._name(part, f"{root}.{path}" if path else root)
        self._first_call(module)
        return self._known[id(module)]

    def _name_of_root(self, module: torch.nn.Module) -> str:
        # A program may make a loss module in every step: the places of the dead are used again.
        kind = type(getattr(module, "_orig_mod", module)).__name__
        same = self._roots.setdefault(kind, [])
        place = next((i for i, other in enumerate(same) if other() is None), len(same))
        same[place : place + 1] = [weakref.ref(module)]
        return f"{kind}#{place + 1}" if place else kind

    def _name_within(self, module: torch.nn.Module, caller: _Known) -> str:
        # Not among the root's submodules when it was first called: made since, or in no attribute.
        owner = caller.module()
        for name, child in owner.named_children() if owner is not None else ():
            if child is module:
                return f"{caller.name}.{name}"
        return f"{caller.name}.{type(module).__name__}"

    def _name(self, module: torch.nn.Module, name: str) -> None:
        key = id(module)
        known = self._known

        def died(reference: weakref.ref[torch.nn.Module]) -> None:
            # Another module may have its id by now.
            if key in known and known[key].module is reference:
                del known[key]

        known[key] = _Known(weakref.ref(module, died), name, module in _kept)


# Those that watch calls at the moment.
_in_use: set[ModuleNames] = set()
