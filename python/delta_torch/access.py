"""Reads of a tensor's memory that no operator makes: numpy, tolist, data_ptr, storages.

PyTorch calls these without its dispatcher, so the manager would not learn of them. While a run is
on, they are wrapped: the tensor's bytes come back first. They stay

* until the end of the step where the caller reads now or soon (tolist, const_data_ptr, a storage);
* until then, too, where the caller gets an address to write to (data_ptr): what the tensor was used
  for before is not computed again, nor is what uses it meanwhile;
* for good where the memory is shared from then on (numpy, DLPack), with the same consequences.

What takes an address without a function of Python is seen by the extension (addresses.hpp); what
saves tensors is in saving.py.

Tensors that are not managed, and those without memory of their own (sparse ones, those of fake
tensor mode, wrappers), pass through.
"""

from __future__ import annotations

from typing import Any

import torch

from . import _C, saving
from .patching import Patches

# Methods of torch.UntypedStorage: (name, may whoever called it write as well, at any later time).
# All others are made of these.
_STORAGE_READS = (
    ("__getitem__", False),
    ("is_shared", False),  # looks at the address, and ends the process where there is none
    ("_write_file", False),
    ("__setitem__", True),
    ("fill_", True),
    ("byteswap", True),
    ("_byteswap", True),
    ("_set_from_file", True),
)
# Functions that give a tensor's memory to another library.
_EXPORTS = ("_to_dlpack", "_to_dlpack_versioned")


def install() -> Patches:
    """Wraps them all; `undo` of what is returned ends it."""
    patches = Patches()
    try:
        saving.install(patches, lend)
        patches.wrap(torch.Tensor, "const_data_ptr", hold)
        for name in ("apply_", "map_", "map2_"):
            patches.wrap(torch.Tensor, name, expose)
        patches.wrap(torch.Tensor, "tolist", _before_tolist)
        patches.wrap(torch.Tensor, "numpy", _before_numpy)
        patches.wrap(torch.Tensor, "set_", _before_setting)
        for name, writes in _STORAGE_READS:
            patches.wrap(torch.UntypedStorage, name, expose_storage if writes else hold_storage)
        patches.wrap(torch.UntypedStorage, "copy_", _before_copying)
        patches.wrap(torch.UntypedStorage, "resize_", _before_resizing)
        _install_clones(patches)
        _install_lists(patches)
        _install_exports(patches)
    except BaseException:
        patches.undo()
        raise
    return patches


def _before_tolist(tensor: Any, *_args: Any, **_options: Any) -> None:
    # Of another device it makes a copy on the CPU first, by an operator.
    if isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu":
        hold(tensor)


def hold(tensor: Any, *_args: Any, **_options: Any) -> None:
    """The tensor's bytes come back, and stay until the end of the step."""
    if isinstance(tensor, torch.Tensor) and _C.active():
        _C.hold(tensor)


def lend(tensor: Any, *_args: Any, **_options: Any) -> None:
    """As hold, and others may write them until the end of the step."""
    if isinstance(tensor, torch.Tensor | torch.UntypedStorage) and _C.active():
        _C.lend(tensor)


def expose(tensor: Any, *_args: Any, **_options: Any) -> None:
    """They come back and stay for good, as others may read and write them from now on."""
    if isinstance(tensor, torch.Tensor) and _C.active():
        _C.expose(tensor)


def hold_storage(storage: Any, *_args: Any, **_options: Any) -> None:
    """As hold, for a storage."""
    if isinstance(storage, torch.UntypedStorage) and _C.active():
        _C.hold(storage)


def expose_storage(storage: Any, *_args: Any, **_options: Any) -> None:
    """As expose, for a storage."""
    if isinstance(storage, torch.UntypedStorage) and _C.active():
        _C.expose(storage)


def _before_numpy(tensor: Any, *args: Any, force: bool = False) -> None:
    # Where NumPy gets no array anyway, or one of a copy, nothing is shared.
    if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
        if force:
            hold(tensor)
        return
    expose(tensor)


def _before_setting(_tensor: Any, source: Any = None, *_args: Any, **_options: Any) -> None:
    # An operator, but it does not show the manager a storage that it is given.
    hold_storage(getattr(source, "_untyped_storage", source))


def _before_copying(to: Any, source: Any = None, *_args: Any, **_options: Any) -> None:
    # The copy itself is an operator. torch.save copies all that is on an accelerator, one storage
    # after the other: more than the budget holds.
    for storage in (to, source):
        if saving.within_torch_save() and isinstance(storage, torch.UntypedStorage) and _C.active():
            _C.bring_back(storage)
        else:
            hold_storage(storage)


def _before_resizing(storage: Any, size: Any = None, *_args: Any, **_options: Any) -> None:
    # The storage gets other memory, which is a tensor of its own from then on: what was computed
    # from the old one stays as it is. FSDP frees its parameters so, and makes them anew.
    if not isinstance(storage, torch.UntypedStorage) or not _C.active():
        return
    if size == 0:
        _C.empty(storage)
    else:
        _C.hold(storage)


def _install_clones(patches: Patches) -> None:
    # As copy.deepcopy does. By an operator on all of a storage's bytes: nothing must be held for
    # it, so that copies of a whole model may take more than the budget.
    original = torch.UntypedStorage.clone

    def clone(storage: torch.UntypedStorage) -> torch.UntypedStorage:
        if not _C.active() or not _C.bring_back(storage):
            return original(storage)
        managed = _C.attach(False)
        try:
            tensor = torch.empty(0, dtype=torch.uint8, device=storage.device)
            torch._C.TensorBase.set_(tensor, storage, 0, (storage.nbytes(),), (1,))
        finally:
            _C.attach(managed)
        return tensor.clone().untyped_storage()

    patches.replace(torch.UntypedStorage, "clone", clone)


def _install_lists(patches: Patches) -> None:
    # Once for all bytes of a storage, not for each.
    get = torch.UntypedStorage.__getitem__.__wrapped__

    def tolist(storage: torch.UntypedStorage) -> list[int]:
        hold_storage(storage)
        return [get(storage, i) for i in range(storage.nbytes())]

    patches.replace(torch.UntypedStorage, "tolist", tolist)
    patches.replace(torch.UntypedStorage, "__iter__", lambda storage: iter(tolist(storage)))


def _install_exports(patches: Patches) -> None:
    # Tensor.__dlpack__ calls these by their names in torch._C.
    for name in _EXPORTS:
        original = getattr(torch._C, name, None)
        patches.wrap(torch._C, name, expose)
        for module in (torch, torch.utils.dlpack):
            for known_as in ("to_dlpack", name):
                if original is not None and vars(module).get(known_as) is original:
                    patches.replace(module, known_as, getattr(torch._C, name))
    # A way into a tensor's memory that calls no function of Python: others then use __dlpack__.
    patches.hide(torch.Tensor, "__dlpack_c_exchange_api__")
