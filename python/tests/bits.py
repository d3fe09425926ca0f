"""The bits of what a program gives: tensors, lists of them and numbers, to be compared exactly."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

COMPRESSED = (torch.sparse_csr, torch.sparse_bsr, torch.sparse_csc, torch.sparse_bsc)


@dataclass(frozen=True)
class Bits:
    """One result: what it is in words, and its bytes."""

    what: str
    data: bytes
    dtype: torch.dtype | None = None


def bits_of(results: Any) -> list[Bits]:
    """Of all tensors in nested containers, in their order; of anything else its value."""
    found: list[Bits] = []
    for leaf in tree_flatten(results)[0]:
        if isinstance(leaf, torch.Tensor):
            found.append(_of_tensor(leaf))
        elif isinstance(leaf, float):
            found.append(Bits("float", struct.pack("d", leaf)))
        else:
            found.append(Bits(type(leaf).__name__, repr(leaf).encode()))
    return found


def difference(right: list[Bits], got: list[Bits], contents: bool = True) -> str | None:
    """The first one, in words; None: there is none, not even in the sign of a zero or a NaN.

    `contents` False: the bytes do not count, all that is said about them does.
    """
    if len(right) != len(got):
        return f"{len(got)} results for {len(right)}"
    for i, (a, b) in enumerate(zip(right, got, strict=True)):
        which = f"result {i}: " if len(right) > 1 else ""
        if a.what != b.what:
            return f"{which}({b.what}) for ({a.what})"
        if contents and a.data != b.data:
            return f"{which}other bits of ({a.what}): {_first_bytes(a, b)}"
    return None


def _of_tensor(tensor: torch.Tensor) -> Bits:
    t = tensor.detach()
    shape = "nested" if t.is_nested else str(list(t.shape))
    about = [str(t.dtype).removeprefix("torch."), shape]
    about += [name for name in ("requires_grad", "is_leaf") if getattr(tensor, name)]
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        about.append(type(tensor).__name__)
    if tensor.grad_fn is not None:
        about.append(tensor.grad_fn.name())
    if t.layout != torch.strided or t.is_nested:
        about.append(str(t.layout))
        inner = bits_of(_parts(t))
        return Bits(" ".join(about + [b.what for b in inner]), b"".join(b.data for b in inner))
    about.append(f"strides {list(t.stride())} offset {t.storage_offset()}")
    about += [name for name in ("conj", "neg") if getattr(t, f"is_{name}")()]
    return Bits(" ".join(about), _bytes(t), t.dtype)


def _parts(t: torch.Tensor) -> list[Any]:
    if t.is_nested:
        return list(t.unbind())
    if t.layout == torch.sparse_coo:
        return [t._indices(), t._values(), t.is_coalesced()]
    if t.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [t.crow_indices(), t.col_indices(), t.values()]
    if t.layout in COMPRESSED:
        return [t.ccol_indices(), t.row_indices(), t.values()]
    return [t.to_dense()]


def _bytes(t: torch.Tensor) -> bytes:
    if t.numel() == 0:
        return b""
    # A copy of its own, so that its address, which keeps bytes in their place, is nobody's.
    copy = t.clone(memory_format=torch.contiguous_format)
    return ctypes.string_at(copy.data_ptr(), copy.numel() * copy.element_size())


def _first_bytes(right: Bits, got: Bits) -> str:
    size = right.dtype.itemsize if right.dtype is not None else 1
    wrong = [
        i
        for i in range(0, len(right.data), size)
        if right.data[i : i + size] != got.data[i : i + size]
    ]
    if not wrong:
        return f"{len(got.data)} bytes for {len(right.data)}"
    at = wrong[0]

    def shown(data: bytes) -> str:
        piece = bytearray(data[at : at + size])
        if right.dtype is None or len(piece) < size:
            return piece.hex()
        return str(torch.frombuffer(piece, dtype=right.dtype)[0].item())

    return (
        f"{len(wrong)} of {len(right.data) // size}, "
        f"at {at // size} {shown(got.data)} for {shown(right.data)}"
    )
