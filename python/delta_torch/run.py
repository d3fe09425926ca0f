"""A run: the part of a program whose eager training stays within a budget of bytes."""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Literal

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from . import _C, access, sharing
from .calling import refuse_within_a_pass
from .compiled import Uncompiled
from .devices import device_of_run, prepare
from .higher_order import pass_through
from .modules import ModuleNames
from .report import Report, made_report
from .sizes import Share, format_bytes, parse_budget, parse_host

# Steps without a limit that are measured where the budget is a share: in the first, optimizers
# make their state; the second one is as all others.
MEASURED_STEPS = 2
_NO_LIMIT = -1

_lock = threading.Lock()
_current: Run | None = None


def policies() -> list[str]:
    """The names of the policies that there are, those of compile_policy last.

    docs/policies.md says what each of delta's own does.
    """
    return list(_C.policies())


def budget(
    size: int | float | str | None,
    *,
    policy: str = "adaptive",
    host: int | str = 0,
    verify: bool = False,
    strict: bool = False,
    timeline: str | os.PathLike[str] | None = None,
    steps: Literal["optimizer", "manual"] = "optimizer",
    device: torch.device | str | None = None,
) -> Run:
    """A context manager: what is trained within it takes at most `size` bytes for its tensors.

    size: "4GiB", "1.5 GB", a whole number of bytes, or a share of the peak ("40%", 0.4): then two
        steps run without a limit first, are measured, and the limit holds from the third on.
        None: no limit, to measure only.
    policy: what decides which tensors leave; see policies().
    host: how many bytes may be copied out to other memory of the host, "16GiB"; 0: tensors are
        only dropped and computed again.
    verify: computes every operator twice and compares the bytes, to find one that cannot be
        repeated; slow.
    strict: of the policy "paper" only: nothing leaves in the backward pass, as published.
    timeline: a file for a trace of all that happens, to be opened in Perfetto (ui.perfetto.dev).
    steps: what ends a training step: each step() of an optimizer, or only run.step() ("manual").
    device: whose memory it is about, "cuda:1"; None: the accelerator that PyTorch uses, or the CPU
        where there is none. Tensors of other devices are left alone.

    Raises ValueError for arguments that make no sense, at once. Entering raises RuntimeError where
    a run cannot begin. Within it, torch.OutOfMemoryError says that the budget is too small; the
    run can go on afterwards, and `error` has the details.
    """
    return Run(
        size,
        policy=policy,
        host=host,
        verify=verify,
        strict=strict,
        timeline=timeline,
        steps=steps,
        device=device,
    )


class Run:
    """What budget() gives: see there. It is entered once; one run at a time in a process."""

    def __init__(
        self,
        size: int | float | str | None,
        *,
        policy: str = "adaptive",
        host: int | str = 0,
        verify: bool = False,
        strict: bool = False,
        timeline: str | os.PathLike[str] | None = None,
        steps: Literal["optimizer", "manual"] = "optimizer",
        device: torch.device | str | None = None,
    ) -> None:
        self._size = None if size is None else parse_budget(size)
        self._host = parse_host(host)
        if policy not in policies():
            raise ValueError(
                f"there is no policy {policy!r}; there are {', '.join(policies())}"
            )
        if steps not in ("optimizer", "manual"):
            raise ValueError(f"steps is 'optimizer' or 'manual', not {steps!r}")
        self.policy = policy
        self.device = device_of_run(device)
        self._steps_by = steps
        self._verify = bool(verify)
        self._strict = bool(strict)
        self._timeline = "" if timeline is None else os.fspath(timeline)
        self._modules: ModuleNames | None = None
        self._left: ExitStack | None = None  # undoes what Python was given; None: not on
        self._entered = False
        self._began = 0.0
        self._unmanaged_peak: int | None = None
        self._measured_ns = 0
        self._report: Report | None = None

    def __enter__(self) -> Run:
        global _current
        refuse_within_a_pass()
        with _lock:
            if self._entered:
                raise RuntimeError("a run is entered once: call delta_torch.budget again")
            if _current is not None:
                raise RuntimeError("there is a run already: leave it before the next one begins")
            undo = ExitStack()
            try:
                self._begin(undo)
            except BaseException:
                with undo:
                    if _C.active():
                        _C.stop()
                raise
            self._left = undo
            self._entered = True
            _current = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._end()
        except KeyboardInterrupt:
            self._end()  # whatever was interrupted: nothing may stay managed
            raise

    def step(self) -> None:
        """Ends a training step, where no optimizer does, or where steps="manual".

        Raises RuntimeError where the run is not on, torch.OutOfMemoryError as an operator would.
        """
        if self._left is None:
            raise RuntimeError("step() needs a run that is on")
        if self._modules is not None:
            self._modules.outside()
        _C.end_of_step()
        if not isinstance(self._size, Share) or self._unmanaged_peak is not None:
            return
        stats = _C.stats()
        if stats["steps"] >= MEASURED_STEPS:
            _C.set_budget(self._size.bytes_of(stats["peak"]))
            self._unmanaged_peak = stats["peak"]
            self._measured_ns = _C.samples()[-1][0]

    def report(self) -> Report:
        """What has happened so far, or, after the run, until its end.

        Raises RuntimeError where the run has not begun.
        """
        if self._left is not None:
            return self._reported()
        if self._report is None:
            raise RuntimeError("there is no report yet: the run has not begun")
        return self._report

    @property
    def error(self) -> dict[str, Any] | None:
        """The last torch.OutOfMemoryError that this run has raised; None: there was none.

        Its message, the operation, bytes that were `requested`, `capacity`, what was in use and
        why by `holders`, and `smallest_budget`: a budget in bytes that is known to come past what
        failed (0: unknown). Later operators may need more.
        """
        if self._left is not None:
            return _C.last_error()
        return self._report.error if self._report is not None else None

    def __repr__(self) -> str:
        size = self._size
        limit = (
            "no limit"
            if size is None
            else f"{size.of_peak:.0%} of the peak"
            if isinstance(size, Share)
            else format_bytes(size)
        )
        state = "on" if self._left is not None else "ended" if self._entered else "not begun"
        return f"<delta_torch.Run: {limit}, policy {self.policy!r}, {state}>"

    def _begin(self, undo: ExitStack) -> None:
        prepare(self.device)
        pass_through()
        limit = self._size if isinstance(self._size, int) else _NO_LIMIT
        _C.start(
            self.policy,
            limit,
            self._host,
            strict=self._strict,
            check_replays=self._verify,
            timeline=self._timeline,
            device=str(self.device),
        )
        undo.callback(sharing.in_a_forked_process(self._forked))
        undo.callback(access.install().undo)
        undo.callback(sharing.install().undo)
        uncompiled = Uncompiled()
        undo.callback(uncompiled.undo)
        uncompiled.install()
        self._modules = ModuleNames(uncompiled.entered)
        undo.callback(self._modules.undo)
        self._modules.install()
        if self._steps_by == "optimizer":
            handle = register_optimizer_step_post_hook(self._optimizer_stepped)
            undo.callback(handle.remove)
        self._began = time.perf_counter()

    def _end(self) -> None:
        global _current
        undo = self._left
        if undo is None:
            return
        try:
            with undo:  # in any case, also where the report fails
                self._report = self._reported()
        finally:
            try:
                _C.stop()
            finally:
                self._left = None
                with _lock:
                    if _current is self:
                        _current = None

    def _optimizer_stepped(self, _optimizer: Any, _args: Any, _kwargs: Any) -> None:
        self.step()

    def _reported(self) -> Report:
        return made_report(
            policy=self.policy,
            host_budget=self._host,
            unmanaged_peak=self._unmanaged_peak,
            measured_ns=self._measured_ns,
            seconds=time.perf_counter() - self._began,
        )

    def _forked(self) -> None:
        # In a forked process. The run and its tensors are the parent's; only what Python was given
        # is undone here.
        global _current
        undo, self._left = self._left, None
        _current = None
        _C.attach(False)
        if undo is not None:
            undo.close()


def current(function: str) -> Run:
    """The run that is on. Raises RuntimeError, naming the function that needs it."""
    run = _current
    if run is None:
        raise RuntimeError(f"{function}() needs a run: 'with delta_torch.budget(...)'")
    return run


def step() -> None:
    """Ends a training step of the run that is on, as run.step() does."""
    current("step").step()


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """Keeps a tensor's bytes on the device for as long as the tensor lives; returns the tensor.

    Raises RuntimeError where no run is on, TypeError for what is no tensor, and
    torch.OutOfMemoryError where there is no room.
    """
    current("pin")
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"pin() takes a torch.Tensor, not {type(tensor).__name__}")
    _C.pin(tensor)
    return tensor
