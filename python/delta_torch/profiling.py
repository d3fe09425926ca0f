"""PyTorch's profiler within a run: it looks at tensors before the run brings their bytes back.

With `record_shapes=True` it notes each tensor's address beside its shape. While it is on, the address
of bytes that are away is null, where otherwise an error is raised, which PyTorch would print for
every operator.
"""

from __future__ import annotations

from typing import Any

from torch.autograd import profiler

from . import _C
from .patching import Patches


def install() -> Patches:
    """Tells the run when the profiler begins and ends; `undo` of what is returned ends it."""
    patches = Patches()
    patches.wrap(profiler, "_enable_profiler", _begins)
    patches.wrap(profiler, "_disable_profiler", _ends)
    _C.profile(profiler._is_profiler_enabled)
    return patches


def _begins(*_args: Any, **_options: Any) -> None:
    _C.profile(True)


def _ends(*_args: Any, **_options: Any) -> None:
    _C.profile(False)
