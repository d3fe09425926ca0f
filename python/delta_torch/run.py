"""A run: the part of a program whose eager training stays within a budget of bytes."""

from __future__ import annotations

import gc
import os
import threading
from types import TracebackType
from typing import Any, Literal

import torch

from . import _C, group
from .active import Active
from .calling import refuse_within_a_pass
from .group_report import GroupReport
from .options import Options
from .report import Report
from .sizes import Share, format_bytes
from .snapshot import write_snapshot

_lock = threading.RLock()
_current: Active | None = None  # that is on, or was last


def budget(
    size: int | float | str | None,
    *,
    policy: str = Options.policy,
    host: int | str = Options.host,
    verify: bool | Literal["tensors"] = False,
    timeline: str | os.PathLike[str] | None = None,
    steps: Literal["optimizer", "manual"] = "optimizer",
    share_after: int = Options.share_after,
    on_oom: Literal["raise", "abort"] = "raise",
    device: torch.device | str | None = None,
) -> Run:
    """A context manager: what is trained within it takes at most `size` bytes for its tensors.

    size: "4GiB", "1.5 GB", a whole number of bytes, or a share of the peak ("40%", 0.4): then some
        steps run without a limit first and are measured; where the program takes more later, a
        larger batch say, the share is of that from then on. None: no limit, to measure only.
    policy: what decides which tensors leave; see policies().
    host: how many bytes may be copied out to other memory of the host, "16GiB"; 0: tensors are
        only dropped and computed again. "auto": beside an accelerator half of the memory that is
        free when the run is made, by LOCAL_WORLD_SIZE processes; on a CPU, where a copy would lie
        in the same memory, 0.
    verify: True computes every operator twice and compares the bytes, to find one that cannot be
        repeated; slow. "tensors" hashes every tensor when it is made, and compares after each
        reload, recompute and operator that reads it: the first that differs raises TensorDiffers.
        It takes some tenths of the step's time, and is for tensors of the CPU.
    timeline: a file for a trace of all that happens, to be opened in Perfetto (ui.perfetto.dev);
        of several processes each has its own, "trace.rank1.json", for merge_timelines().
    steps: what ends a training step: each step() of an optimizer, of those within a backward pass
        the pass's end; or only run.step() ("manual").
    share_after: how many steps are measured where the budget is a share: all kinds that there are
        in a training should be among them.
    on_oom: what follows where memory is short. "raise": an error; of several processes that train
        together the others wait for this one until it ends, or for their group's timeout. "abort":
        of several processes this one ends at once, even where something would catch the error, so
        that the others' collectives fail at once.
    device: whose memory it is about, "cuda:1"; None: the accelerator that PyTorch uses, or the CPU
        where there is none. Tensors of other devices are left alone.

    Raises ValueError for arguments that make no sense, at once. Entering raises RuntimeError where
    a run cannot begin. Within it, torch.OutOfMemoryError says that the budget is too small; the
    run can go on afterwards, and `error` has the details. Where several processes train together,
    an error that leaves the run has a note which says whose rank it is, and which failed first.
    """
    return Run(
        size,
        policy=policy,
        host=host,
        verify=verify,
        timeline=timeline,
        steps=steps,
        share_after=share_after,
        on_oom=on_oom,
        device=device,
    )


class TensorDiffers(RuntimeError):
    """A tensor has other bytes than it had, found by verify="tensors": results are wrong from here.

    operator: PyTorch's name of what ran: what needed the tensor, was run again, or had it as an
        argument; "" for none.
    module: that it ran in, as the report names it; "" for none.
    cause: "reload", "recompute" or "undeclared write".
    step: the step that the operator ran in, from 1 on.
    number: the operator's in the run, from 1 on; 0: not known.
    """

    def __init__(self, message: str, label: str, cause: str, step: int, number: int) -> None:
        super().__init__(message)
        self.module, _, self.operator = label.rpartition(" ")
        self.cause, self.step, self.number = cause, step, number


class Run:
    """What budget() gives: see there. One run at a time is on in a process.

    It can be entered again after it was left: as a new run with the same arguments, where a share
    that was measured holds from the start.
    """

    def __init__(
        self, size: int | float | str | None, *, lifts_limit: bool = False, **options: Any
    ) -> None:
        self._options = Options(size=size, **options)
        self._lifts_limit = lifts_limit  # find_budget's: where memory is short, from then on
        self._active: Active | None = None  # since it was entered last

    @property
    def policy(self) -> str:
        """The policy's name."""
        return self._options.policy

    @property
    def on(self) -> bool:
        """Has it been entered, and not been left?"""
        return self._active is not None and self._active.on

    @property
    def device(self) -> torch.device:
        """The device whose memory it is about."""
        return self._options.device

    def __enter__(self) -> Run:
        global _current
        refuse_within_a_pass()
        with _lock:
            give_way()
            known = self._active.report if self._active is not None else None
            peak = known.unmanaged_peak_bytes if known else None
            active = Active(self._options, self, peak, self._lifts_limit)
            active.begin()
            self._active = _current = active
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._active is None:
            return
        if isinstance(error, Exception):
            group.explain(error)  # at once: the others may be waiting
        _end(self._active)
        if isinstance(error, torch.OutOfMemoryError):
            self._advise(error)

    def _advise(self, error: torch.OutOfMemoryError) -> None:
        """Notes on the run's own error, which ends it, what more of the host's memory would do."""
        report = self.report()
        if report.error is None or report.error["message"] not in str(error):
            return
        if report.outlook is not None and report.outlook.host_bytes and hasattr(error, "add_note"):
            error.add_note(f"delta: {report.past_error()}")

    def each_step(self) -> EachStep:
        """A context manager for each training step: enters the run where it is not on, and ends the
        step when it is left; the run stays on, until delta_torch.stop() or until it is left.

            run = delta_torch.budget("60%")
            trainer.maybe_activation_offload_context = run.each_step()  # of TRL's trainers

        For programs that have a place for a context manager around a step, and none around the
        training. It can be entered again and again. From the first time on optimizers end no step,
        as those that step behind it, as TRL's do, would end each a second time.
        """
        return EachStep(self)

    def step(self) -> None:
        """Ends a training step, where no optimizer does, or where steps="manual".

        Raises RuntimeError where the run is not on, torch.OutOfMemoryError as an operator would.
        """
        if self._active is None or not self._active.on:
            raise RuntimeError("step() needs a run that is on: call it within 'with run:'")
        self._active.step()

    def report(self) -> Report:
        """What has happened so far, or, after the run, until its end.

        After the run its last step is replayed in virtual time, once, for the advice: that takes a
        second at most. An error about memory that ends the run has it in a note.

        Raises RuntimeError where the run has not begun.
        """
        return self._report()

    def _report(self, details: bool = True) -> Report:
        active = self._active
        report = None
        if active is not None:
            if active.on:
                report = active.reported(details)
            else:
                report = active.explained() if details else active.report
        if report is None:
            raise RuntimeError("there is no report yet, as the run has not begun: enter it by 'with'")
        return report

    def stats(self) -> dict[str, int | float]:
        """The report's numbers alone, by their names, as TensorBoard and wandb take them:

            writer.add_scalar("delta/peak_bytes", run.stats()["peak_bytes"], step)
            wandb.log(run.stats())

        Raises RuntimeError where the run has not begun.
        """
        return self._report(details=False).stats()

    def snapshot(self, file: str | os.PathLike[str]) -> None:
        """Writes the memory over time for PyTorch's memory viewer, as
        torch.cuda.memory._dump_snapshot does; of a CPU, too:

            run.snapshot("m.pickle")
            $ python -m torch.cuda._memory_viz trace_plot m.pickle -o m.html

        Of each block that counted in the budget: when it came and went, what made its tensor, and
        the operator that ran then, each with its module. The last 131,072 changes are kept. Until
        now, or, after the run, until its end.

        Raises RuntimeError where the run has not begun, OSError where the file can't be written.
        """
        log = self._active.log if self._active is not None else None
        if log is None:
            raise RuntimeError("there is no snapshot yet, as the run has not begun: enter it by 'with'")
        write_snapshot(log, self.device, file)

    def gather_report(self) -> GroupReport | None:
        """The reports of all ranks that train together, on rank 0; None on the others.

        Every rank calls it, at any time, in the run or after. It is no collective: rank 0 alone
        waits, until all have reported, at most as long as their group waits for a collective, and
        GroupReport.missing names those that have not. A process that is alone is rank 0.
        """
        mine, ranks = self.report(), group.current()
        if ranks is None:
            return GroupReport((mine,))
        keys = ranks.tell("report", mine)
        return GroupReport(tuple(ranks.hear(keys, ranks.timeout_s))) if ranks.rank == 0 else None

    @property
    def error(self) -> dict[str, Any] | None:
        """The last torch.OutOfMemoryError that this run has raised; None: there was none.

        Its message, the operation, bytes that were `requested`, `capacity`, what was in use and
        why by `holders`, and `smallest_budget`: a budget in bytes that is known to come past what
        failed (0: unknown). Later operators may need more. A holder's `label` is the name of a
        parameter or buffer, as its `role` says, or the operator that made the tensor.
        """
        active = self._active
        if active is None:
            return None
        if active.on:
            return _C.last_error()
        return active.report.error if active.report is not None else None

    def __repr__(self) -> str:
        size = self._options.size
        limit = (
            "no limit"
            if size is None
            else f"{size.of_peak:.0%} of the peak"
            if isinstance(size, Share)
            else format_bytes(size)
        )
        active = self._active
        state = "not begun" if active is None else "on" if active.on else "ended"
        return f"<delta_torch.Run: {limit}, policy {self.policy!r}, {state}>"


class EachStep:
    """What Run.each_step() gives: see there."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._entered: list[Active] = []  # one for each `with` that it is in

    def __enter__(self) -> Run:
        if not self._run.on:
            self._run.__enter__()
        active = self._run._active
        assert active is not None
        active.step_contexts = (active.step_contexts or 0) + 1
        self._entered.append(active)
        return self._run

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            group.explain(error)
        active = self._entered.pop()
        active.step_contexts -= 1
        if active.on and not active.step_contexts:
            active.step()


def give_way() -> None:
    """Makes sure that no run is on: ends one whose Run is gone, which nobody can leave any more.

    Raises RuntimeError where a run is on that somebody has.
    """
    if _current is None or not _current.on:
        return
    if _current.owner() is not None:
        gc.collect()  # it may be in a cycle of objects, of an error's traceback perhaps
    if _current.owner() is not None:
        raise RuntimeError(
            "there is a run already: leave it, or end it by delta_torch.stop(), before the next "
            "one begins"
        )
    _end(_current)


def _end(active: Active) -> None:
    global _current
    try:
        active.end()
    except KeyboardInterrupt:
        active.end()  # whatever was interrupted: nothing may stay managed
        raise
    finally:
        with _lock:
            if _current is active and not active.on:
                _current = None


def current(function: str) -> Active:
    """The run that is on. Raises RuntimeError, naming the function that needs it."""
    active = _current
    if active is None or not active.on:
        raise RuntimeError(f"{function}() needs a run: 'with delta_torch.budget(...)'")
    return active


def stop() -> Report | None:
    """Ends the run that is on, whoever has begun it, as leaving it does; gives its report.

    For what can enter a run, but has no place to leave it when something raises: a callback, a
    notebook. None where no run is on.
    """
    active = _current
    if active is None or not active.on:
        return None
    _end(active)
    return active.explained()


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
