"""Tensors and other processes: pickling for them, shared memory, and forked processes.

A tensor that a run manages cannot move into memory shared with other processes, as the manager
moves its bytes. Processes that are spawned, and queues, get copies; a process that is forked gets
the bytes that it is given at its start, as they are then. share_memory_() is refused.
"""

from __future__ import annotations

import functools
import multiprocessing.popen_fork
import os
from collections.abc import Callable
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.multiprocessing  # sets how tensors are pickled for other processes

from . import _C
from .patching import Patches
from .reachable import tensors_within

_SHARE = ("share_memory_", "_share_fd_cpu_", "_share_filename_cpu_")
# What to undo in a forked process.
_in_a_child: list[Callable[[], None]] = []


def install() -> Patches:
    """Wraps what gives tensors to other processes; `undo` of what is returned ends it."""
    patches = Patches()
    try:
        for name in _SHARE:
            original = getattr(torch.UntypedStorage, name)
            patches.replace(torch.UntypedStorage, name, _sharing(original))
        is_shared = torch.UntypedStorage.is_shared
        patches.replace(torch.UntypedStorage, "is_shared", _is_shared(is_shared))
        _install_reducers(patches)
        patches.wrap(multiprocessing.popen_fork.Popen, "_launch", _before_forking)
    except BaseException:
        patches.undo()
        raise
    return patches


def _sharing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def share(storage: torch.UntypedStorage, *args: Any, **options: Any) -> Any:
        if not _C.active() or storage.device.type != "cpu":
            return original(storage, *args, **options)
        if _C.mapped(storage):
            return storage  # it is shared already
        if _C.bring_back(storage) and not storage.is_shared():
            raise RuntimeError(
                "share_memory_() is not possible for a tensor that delta_torch manages; "
                "call it before delta_torch.budget"
            )
        managed = _C.attach(False)  # copies by an operator: the shared memory is not the run's
        try:
            return original(storage, *args, **options)
        finally:
            _C.attach(managed)

    return share


def _is_shared(original: Callable[[torch.UntypedStorage], bool]) -> Callable[..., bool]:
    @functools.wraps(original)
    def is_shared(storage: torch.UntypedStorage) -> bool:
        # PyTorch tells by what frees the memory, which is the run now.
        return _C.mapped(storage) or original(storage)

    return is_shared


def _install_reducers(patches: Patches) -> None:
    changed = dict(ForkingPickler._extra_reducers)
    for kind in (torch.Tensor, torch.nn.Parameter):
        if kind in changed:
            changed[kind] = _reducer(changed[kind])
    patches.replace(ForkingPickler, "_extra_reducers", changed)


def _reducer(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def reduce(tensor: torch.Tensor) -> Any:
        if _C.active() and tensor.is_leaf and _C.bring_back(tensor):
            tensor = _plain_copy(tensor)
            process = get_spawning_popen()
            if process is not None:
                # It opens the copy's memory once it runs: the copy must live as long.
                vars(process).setdefault("_delta_torch_copies", []).append(tensor)
        return original(tensor)

    return reduce


def _plain_copy(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in memory that no run manages."""
    managed = _C.attach(False)
    try:
        _C.hold(tensor)
        copy = tensor.detach().clone()
    finally:
        _C.attach(managed)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(copy, requires_grad=tensor.requires_grad)
    return copy.requires_grad_(tensor.requires_grad)


def _before_forking(_popen: Any, process: Any) -> None:
    # A worker of a DataLoader, say, with its dataset. No operator brings bytes back over there.
    if not _C.active():
        return
    for tensor in tensors_within(process):
        try:
            _C.hold(tensor)
        except torch.OutOfMemoryError:
            return  # the process reads them: it is told, where they are away


def in_a_forked_process(undo: Callable[[], None]) -> Callable[[], None]:
    """Calls `undo` in every process that is forked off until the returned function is called."""
    _in_a_child.append(undo)
    return lambda: _in_a_child.remove(undo) if undo in _in_a_child else None


def _forked() -> None:
    # The run is the parent's.
    for undo in reversed(list(_in_a_child)):
        undo()
    _in_a_child.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
