"""Compiled functions and CUDA graphs within a run.

Code that torch.compile has made reads and writes tensors without PyTorch's dispatcher, where a run
sees nothing of it. While a run is on, compiled functions therefore run as they were before they
were compiled, operator by operator, and are managed. A CUDA graph cannot be captured.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import ExitStack
from typing import Any

import torch

from .patching import Patches

_SENTENCE = (
    "torch.compile has no effect while a delta_torch budget is on: {what} runs operator by "
    "operator, and is managed"
)


class Uncompiled:
    """Lets compiled functions run operator by operator, from `install` to `undo`."""

    def __init__(self) -> None:
        self._patches = Patches()
        self._stance = ExitStack()
        self._is_set = False
        self._said = False

    def install(self) -> Uncompiled:
        """Begins. A user's own torch.compiler.set_stance is back after `undo`."""
        # torch._dynamo takes a second to import: most programs never do.
        if "torch._dynamo" in sys.modules:
            self._set_stance()
        compile_function = torch.compile

        def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001
            self._set_stance()
            self.warn("what it is given")
            return compile_function(*args, **kwargs)

        self._patches.replace(torch, "compile", compile)
        graph = getattr(torch.cuda, "CUDAGraph", None)
        if graph is not None:
            self._patches.wrap(graph, "capture_begin", _refuse_capture)
        return self

    def undo(self) -> None:
        """Ends it."""
        self._patches.undo()
        self._stance.close()
        self._is_set = False

    def warn(self, what: str) -> None:
        """Says once in a run that `what` is not compiled."""
        if not self._said:
            self._said = True
            warnings.warn(_SENTENCE.format(what=what), stacklevel=4)

    def entered(self, module: torch.nn.Module) -> None:
        """Is told of each module that is called for the first time."""
        inner = getattr(module, "_orig_mod", None)
        if inner is not None or getattr(module, "_compiled_call_impl", None) is not None:
            self._set_stance()
            self.warn(type(module if inner is None else inner).__name__)

    def _set_stance(self) -> None:
        if not self._is_set:
            self._is_set = True
            self._stance.enter_context(torch.compiler.set_stance("force_eager"))


def _refuse_capture(*_args: Any, **_options: Any) -> None:
    raise RuntimeError(
        "a CUDA graph cannot be captured while a delta_torch budget is on, as its tensors must "
        "stay where they are; capture it outside of the run"
    )
