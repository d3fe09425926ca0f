"""The tensors that an object refers to, directly or through others."""

from __future__ import annotations

import gc
import threading
import types
from collections.abc import Iterator
from typing import Any

import torch

# Leads to the whole program rather than to what belongs to an object.
_NOT_WITHIN = (type, types.ModuleType, types.FrameType, types.BuiltinFunctionType, threading.Thread)
# An object of more parts is not searched further.
_MOST_PARTS = 1_000_000


def tensors_within(root: object) -> Iterator[torch.Tensor]:
    """All tensors that an object holds: in attributes, containers, and closures of functions.

    O(parts of it), and it ends after a million of them. Objects that Python's garbage collector
    does not know, such as strings and numbers, hold none.
    """
    seen = {id(root)}
    parts: list[Any] = [root]
    while parts:
        part = parts.pop()
        if isinstance(part, torch.Tensor):
            yield part
        for inner in _held_by(part):
            if id(inner) in seen or not gc.is_tracked(inner) or len(seen) >= _MOST_PARTS:
                continue
            if isinstance(inner, _NOT_WITHIN):
                continue
            seen.add(id(inner))
            parts.append(inner)


def _held_by(part: object) -> list[Any]:
    if isinstance(part, types.FunctionType):  # not its module's globals
        return [part.__closure__, part.__defaults__, part.__kwdefaults__, part.__dict__]
    return gc.get_referents(part)
