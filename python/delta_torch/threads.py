"""Threads of the program whose operators a run manages."""

from __future__ import annotations

from types import TracebackType

from . import _C


class attach:  # noqa: N801 (it is called as a function, and is a context manager, too)
    """Lets a run manage the operators of the calling thread.

    The thread that has begun the run is attached, and so are PyTorch's own threads. Threads that
    the program starts itself are not: call this at their start. Until the thread ends, or as a
    context manager for a while:

        def work():
            with delta_torch.attach():
                model(batch)

    Raises RuntimeError where no run is on.
    """

    def __init__(self) -> None:
        if not _C.active():
            raise RuntimeError("attach() needs a run: 'with delta_torch.budget(...)'")
        self._before = _C.attach(True)

    def __enter__(self) -> attach:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _C.attach(self._before)
