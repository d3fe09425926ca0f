"""Attributes of other people's classes and modules, replaced for a while and put back exactly."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_ABSENT = object()


class Patches:
    """A list of replaced attributes, which `undo` puts back, the last one first."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []  # owner, name, what it had, what it has

    def replace(self, owner: Any, name: str, made: Any) -> None:
        """Sets an attribute; what `owner` itself had is remembered, be it nothing."""
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, made)
        self._done.append((owner, name, before, made))

    def wrap(self, owner: Any, name: str, first: Callable[..., None]) -> None:
        """Lets `first` run before a function, with the same arguments.

        Nothing where there is no such function: which ones there are depends on PyTorch's version.
        """
        original = getattr(owner, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            first(*args, **kwargs)
            return original(*args, **kwargs)

        self.replace(owner, name, wrapper)

    def hide(self, owner: Any, name: str) -> None:
        """Takes an attribute away, where `owner` itself has one."""
        if name in vars(owner):
            before = vars(owner)[name]
            delattr(owner, name)
            self._done.append((owner, name, before, _ABSENT))

    def undo(self) -> None:
        """Puts everything back. What somebody else has replaced meanwhile is left as it is."""
        while self._done:
            owner, name, before, made = self._done.pop()
            if vars(owner).get(name, _ABSENT) is not made:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
