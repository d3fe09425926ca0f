"""A run while it is on: what is put around PyTorch's functions, where steps end, what is measured."""

from __future__ import annotations

import functools
import sys
import time
import weakref
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from . import _C, access, distributed, group, optimizer_state, profiling, sharing, timelines
from .compiled import Uncompiled
from .devices import keep_kernels, prepare
from .higher_order import pass_through
from .modules import ModuleNames
from .options import Options
from .patching import Patches
from .planning.outlook import outlook
from .progress import tell
from .report import Report, made_report
from .sizes import Share


class Active:
    """A run from its beginning to its end. Hooks hold it, and nothing here holds `owner`, the Run.

    unmanaged_peak: in bytes, where the budget is a share and the peak is known already.
    """

    def __init__(
        self, options: Options, owner: object, unmanaged_peak: int | None, lifts_limit: bool
    ) -> None:
        self.options = options
        self._lifts_limit = lifts_limit
        self.owner = weakref.ref(owner)
        self.on = False
        self.report: Report | None = None  # at its end
        self.log: _C.MemoryLog | None = None  # its memory over time; None: it has not begun
        self.step_contexts: int | None = None  # of each_step() that are entered; None: never one
        self._measures = isinstance(options.size, Share) and unmanaged_peak is None
        self._known_peak = unmanaged_peak
        self._measured_ns = 0
        self._began = 0.0
        self._undo = ExitStack()  # what Python was given
        self._last_step: dict[str, Any] | None = None  # at its end, until it was looked at
        self._modules: ModuleNames | None = None
        self._backward = False  # was there a backward pass since the last step?
        self._due = False  # does a step end when the backward pass under way is over?
        self._steps_alone = 0  # that ended without a backward pass

    def begin(self) -> None:
        """Begins it. Raises RuntimeError where that can't be, and leaves nothing behind then."""
        try:
            self._begin()
        except BaseException:
            with self._undo:
                if _C.active():
                    _C.stop()
            raise
        self.on = True

    def end(self) -> None:
        """Ends it, and keeps its report. Nothing where it is over already."""
        if not self.on:
            return
        try:
            with self._undo:  # in any case, also where the report fails
                self.report = self.reported()
                self._last_step = _C.last_step()
        finally:
            try:
                _C.stop()
            finally:
                self.on = False

    def forked(self) -> None:
        """In a forked process. The run and its tensors are the parent's; only what Python was given
        is undone here."""
        self.on = False
        _C.attach(False)
        self._undo.close()

    def step(self) -> None:
        """Ends a training step. Raises torch.OutOfMemoryError as an operator would."""
        if self._modules is not None:
            self._modules.outside()
        self._backward = self._due = False
        _C.end_of_step()
        if not self._measures:
            return
        if _C.stats()["steps"] >= self.options.share_after:
            self._measures = False
            self._measured_ns = _C.samples()[-1][0]
            _C.hold_share(self.options.size.of_peak, group.largest(_C.stats()["peak"]))

    def reported(self, details: bool = True) -> Report:
        """What has happened so far; without details, no modules and no samples."""
        return made_report(
            details=details,
            policy=self.options.policy,
            host_budget=self.options.host,
            measured_ns=self._measured_ns,
            steps_alone=self._steps_alone,
            seconds=time.perf_counter() - self._began,
        )

    def explained(self) -> Report | None:
        """Its report at its end, with an outlook, which may take a second; None: it is on."""
        known, last = self.report, self._last_step
        if known is None or last is None or known.budget_bytes is None:
            return known
        self._last_step = None
        seen = outlook(
            last,
            policy=known.policy,
            budget=known.budget_bytes,
            host=known.host_budget_bytes,
            bytes_out=known.bytes_out,
            bytes_in=known.bytes_in,
            same_memory=self.options.device.type == "cpu",
        )
        self.report = replace(known, outlook=seen)
        return self.report

    def _begin(self) -> None:
        asked, undo = self.options, self._undo
        prepare(asked.device)
        undo.callback(keep_kernels(asked.device))
        pass_through()
        limit = asked.size if isinstance(asked.size, int) else None
        if self._known_peak is not None:
            limit = asked.size.bytes_of(self._known_peak)
        _C.start(
            asked.policy,
            limit,
            asked.host,
            check_replays=asked.verify is True,
            verify_tensors=asked.verify == "tensors",
            lifts_limit=self._lifts_limit,
            timeline=self._timeline(),
            device=str(asked.device),
        )
        self.log = _C.memory_log()
        if self._known_peak is not None:
            _C.hold_share(asked.size.of_peak, self._known_peak)
        undo.callback(sharing.in_a_forked_process(self.forked))
        undo.callback(access.install().undo)
        undo.callback(sharing.install().undo)
        undo.callback(profiling.install().undo)
        undo.callback(optimizer_state.install().close)
        uncompiled = Uncompiled()
        undo.callback(uncompiled.undo)
        uncompiled.install()
        undo.callback(distributed.install().undo)
        undo.callback(group.unwatch)
        group.watch()
        if asked.on_oom == "abort":
            undo.callback(_C.on_shortage, None)
            _C.on_shortage(group.abort)

        def entered(module: torch.nn.Module) -> None:
            uncompiled.entered(module)
            distributed.entered(module)

        self._modules = ModuleNames(entered)
        undo.callback(self._modules.undo)
        self._modules.install()
        if asked.steps == "optimizer":
            passes = Patches()
            undo.callback(passes.undo)
            run_backward = self._watched(torch.autograd._engine_run_backward)
            passes.replace(torch.autograd, "_engine_run_backward", run_backward)
            handle = register_optimizer_step_post_hook(self._optimizer_stepped)
            undo.callback(handle.remove)
        if self._measures:
            first = "step" if asked.share_after == 1 else f"{asked.share_after} steps"
            tell(f"measuring the first {first} to turn {asked.size.of_peak:.0%} into bytes")
        self._began = time.perf_counter()

    def _timeline(self) -> str:
        file = self.options.timeline
        return timelines.of_rank(file, group.rank()) if file else ""

    def _watched(self, original: Any) -> Any:
        @functools.wraps(original)
        def run_backward(*args: Any, **options: Any) -> Any:
            within_another = torch._C._current_graph_task_id() != -1  # as a checkpoint's
            result = original(*args, **options)
            if not within_another:
                self._backward = True
                if self._due:
                    self._step_by_optimizer()
            return result

        return run_backward

    def _optimizer_stepped(self, _optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if distributed.steps_within_another(sys._getframe()):
            return
        # Within a backward pass, a hook of a parameter steps an optimizer of its own: what the rest
        # of the pass needs is still to be recomputed.
        if torch._C._current_graph_task_id() != -1:
            self._due = True
        else:
            self._step_by_optimizer()

    def _step_by_optimizer(self) -> None:
        if self.step_contexts is not None:
            return
        self._steps_alone += not self._backward
        self.step()
