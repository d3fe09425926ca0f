"""Lets torch.save and safetensors write checkpoints within a run, and keeps no tensor for them after.

Both tell tensors that share memory from others by their storages' addresses, as libraries about them
do. Such an address is only compared: here it is a number that a storage keeps while it lives, and
nothing has to come back for it. torch.save then writes storage by storage: each comes back for that,
and may leave again. safetensors takes the addresses of all tensors before it writes the first one:
up to half of the budget they stay meanwhile; what is beyond, and what somebody else holds and may let
go, is copied to memory outside of it.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from . import _C
from .patching import Patches

# Functions that only compare addresses.
_COMPARING = frozenset(
    (module, function)
    for module, functions in (
        ("safetensors.torch", "storage_ptr _end_ptr _filter_shared_not_shared _is_complete"),
        ("huggingface_hub.serialization._torch",
         "storage_ptr _get_unique_id _end_ptr _filter_shared_not_shared _is_complete"),
        ("transformers.pytorch_utils", "id_tensor_storage"),
        ("transformers.modeling_utils", "_end_ptr _find_disjoint _find_identical"),
        ("accelerate.utils.modeling", "id_tensor_storage"),
    )
    for function in functions.split()
)  # fmt: skip
# Those whose tensors are written by a function of the same module that is called later.
_WRITING = frozenset({("safetensors.torch", "_to_ndarray"), ("safetensors.torch", "_tobytes")})
_WRITERS = ("serialize", "serialize_file")
# PyTorch 2.11 has one way to ask for an address, which says nothing of writing.
_read_address: Callable[[torch.Tensor], int] = getattr(
    torch._C.TensorBase, "const_data_ptr", torch._C.TensorBase.data_ptr
)


class _Thread(threading.local):
    """What this thread is about to save."""

    def __init__(self) -> None:
        self.torch_saves = False  # is it within torch.save?
        self.taken: list[weakref.ref[torch.Tensor] | bytes] = []  # of safetensors: held, or copied
        self.held = 0  # bytes of those that are held until they are written


_thread = _Thread()


def within_torch_save() -> bool:
    """True if this thread is within torch.save."""
    return _thread.torch_saves


def install(patches: Patches, lend: Callable[[Any], None]) -> None:
    """Replaces data_ptr and what saves. lend: is told of addresses that are taken for other ends."""
    of_tensor, of_storage = torch.Tensor.data_ptr, torch.UntypedStorage.data_ptr
    # Imported within the run, it is as any other library: what it takes stays until the step's end.
    safetensors = sys.modules.get("safetensors.torch")

    def tensor_address(tensor: torch.Tensor) -> int:
        if _C.active():
            caller = _caller(sys._getframe().f_back)
            if caller in _COMPARING and tensor.device.type != "meta":
                offset = tensor.storage_offset() * tensor.element_size()
                return _number_of(tensor.untyped_storage()) + offset if tensor.numel() else 0
            if safetensors and caller in _WRITING and tensor.device.type == "cpu":
                return _to_be_written(tensor)
            lend(tensor)
        return of_tensor(tensor)

    def storage_address(storage: torch.UntypedStorage) -> int:
        if _C.active():
            if _thread.torch_saves or _caller(sys._getframe().f_back) in _COMPARING:
                return _number_of(storage)
            lend(storage)
        return of_storage(storage)

    patches.replace(torch.Tensor, "data_ptr", tensor_address)
    patches.replace(torch.UntypedStorage, "data_ptr", storage_address)
    _install_torch_save(patches)
    for name in _WRITERS if safetensors else ():
        patches.replace(safetensors, name, _writer(getattr(safetensors, name)))


def _caller(frame: FrameType | None) -> tuple[str, str] | None:
    # A typed storage asks its untyped one.
    while frame is not None and frame.f_globals.get("__name__") == "torch.storage":
        frame = frame.f_back
    return frame and (frame.f_globals.get("__name__", ""), frame.f_code.co_name)


def _number_of(storage: torch.UntypedStorage) -> int:
    # Beyond all addresses, and as far from the next one as no storage is long.
    return storage._cdata << 64 if storage.device.type != "meta" and storage.nbytes() else 0


def _install_torch_save(patches: Patches) -> None:
    writer = getattr(torch._C, "PyTorchFileWriter", None)
    if writer is not None:
        patches.wrap(writer, "write_record", _before_writing)
    save = getattr(torch.serialization, "_save", None)
    if save is None:
        return

    def saving(*args: Any, **kwargs: Any) -> Any:
        before, _thread.torch_saves = _thread.torch_saves, True
        try:
            return save(*args, **kwargs)
        finally:
            _thread.torch_saves = before

    patches.replace(torch.serialization, "_save", saving)


def _before_writing(_writer: Any, _name: Any, data: Any = None, *_rest: Any) -> None:
    if isinstance(data, torch.UntypedStorage) and _C.active():
        _C.bring_back(data)


def _to_be_written(tensor: torch.Tensor) -> int:
    """An address at which a tensor's bytes are until safetensors has written them."""
    limit = _C.stats()["budget"]
    anew = _C.hold(tensor)
    if anew and (limit is None or _thread.held + tensor.nbytes <= limit // 2):
        _thread.taken.append(weakref.ref(tensor))
        _thread.held += tensor.nbytes
        return _read_address(tensor)
    copy = ctypes.string_at(_read_address(tensor), tensor.nbytes)
    if anew:
        _C.let_go(tensor)
    _thread.taken.append(copy)
    at = ctypes.cast(ctypes.c_char_p(copy), ctypes.c_void_p).value
    assert at is not None
    return at


def _writer(original: Callable[..., Any]) -> Callable[..., Any]:
    def write(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(tensors, *args, **kwargs)
        finally:
            # Others are of a call that has failed before it wrote: they stay till the step's end.
            taken, _thread.taken, _thread.held = _thread.taken, [], 0
            for one in taken[max(0, len(taken) - len(tensors)) :]:
                if isinstance(one, weakref.ref) and (tensor := one()) is not None and _C.active():
                    _C.let_go(tensor)

    return write
