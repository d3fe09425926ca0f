"""Names for what a run reports, by the modules that are called, and modules whose results stay.

Parameters and buffers have the names that the first module which was called, and has any, gives them:
"layer1.0.conv1.weight". Where a program calls several modules, those of the others begin with that
module's name.

Every call of an nn.Module is seen by a function around `nn.Module.__call__`: PyTorch's global hooks take
nearly three times as long, as each call then looks for all kinds of hooks. A module's name is its path in the first
module that was called, "ResNet.layer1.0.conv1". In the backward pass operators have no module.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch

from . import _C
from .patching import Patches

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
        self._named = ""  # the one of these whose tensors have their names alone
        self._calls = _Calls()
        self._patches = Patches()

    def install(self) -> ModuleNames:
        """Begins to watch calls."""
        self._patches.replace(torch.nn.Module, "__call__", self._watched(torch.nn.Module.__call__))
        _in_use.add(self)
        return self

    def undo(self) -> None:
        """Ends it."""
        _in_use.discard(self)
        self._patches.undo()
        self.outside()
        self._known.clear()

    def outside(self) -> None:
        """This thread is in no module, as between two steps."""
        self._leave_to(0)

    def forget(self, module: torch.nn.Module) -> None:
        """Looks at a module and its submodules anew when they are called next."""
        for part in module.modules():
            known = self._known.get(id(part))
            if known is not None:
                known.keep = part in _kept

    def _watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        known_modules, calls, enter = self._known, self._calls, _C.enter_module
        is_compiling = torch.compiler.is_compiling

        @functools.wraps(call)
        def watched(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return call(module, *args, **kwargs)
            known = known_modules.get(id(module))
            if known is None or known.module() is not module:
                known = self._meet(module)
            stack = calls.stack
            before = len(stack)
            try:
                stack.append(known)
                enter(known.number, known.keep)
                return call(module, *args, **kwargs)
            finally:
                # All of them: an interruption may have come between a call and its end; and none
                # where a step has ended within this one.
                self._leave_to(before)

        return watched

    def _leave_to(self, before: int) -> None:
        stack = self._calls.stack
        while len(stack) > before:
            stack.pop()
            _C.leave_module()

    def _meet(self, module: torch.nn.Module) -> _Known:
        stack = self._calls.stack
        if stack:
            root = self._name_within(module, stack[-1])
            self._name(module, root)
        else:
            root = self._name_of_root(module)
            for path, part in module.named_modules():
                path = path.removeprefix("_orig_mod").removeprefix(".")  # by torch.compile
                self._name(part, f"{root}.{path}" if path else root)
        self._name_tensors(module, root)
        self._first_call(module)
        return self._known[id(module)]

    def _name_tensors(self, module: torch.nn.Module, name: str) -> None:
        parameters, buffers = list(module.named_parameters()), list(module.named_buffers())
        root, _, path = name.partition(".")
        if not self._named and parameters:
            self._named = root
        before = path if root == self._named else name
        for tensors, are_parameters in ((parameters, True), (buffers, False)):
            for own, tensor in tensors:
                own = own.removeprefix("_orig_mod.")  # by torch.compile
                _C.name_tensor(tensor, f"{before}.{own}" if before else own, are_parameters)

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
