"""Searches for the smallest budget under which a training step keeps to a given overhead."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import torch

from . import group
from .devices import finish
from .options import MAX_OVERHEAD, Options
from .progress import tell
from .run import Run, budget, give_way
from .sizes import format_bytes

# Steps that are not measured: without a budget, those in which the optimizer makes its state and
# kernels are cold; under one, those in which a policy learns what operators cost and in what order
# they come, and `adaptive` tries the others that it may choose (docs/adaptive.md).
WARM_UP = 2
LEARNING = 5
_BLOCK = 64  # budgets are multiples of it
_MORE = 20  # of the peak, as a divisor: tried next where a budget is not confirmed


@dataclass(frozen=True)
class Times:
    """What a step took, in seconds: the middle one of those that were measured."""

    processor: float  # of all threads of the process
    wall: float

    def by(self, clock: str) -> float:
        """By the clock of that name."""
        return self.wall if clock == "wall" else self.processor


@dataclass(frozen=True)
class Trial:
    """A budget that was tried."""

    budget_bytes: int
    share: float  # of the unmanaged peak
    times: Times | None  # None: out of memory
    overhead: float  # its time over that of the unmanaged steps before it, by the clock
    keeps: bool  # to what was asked for
    confirms: bool = False  # tried again beside unmanaged steps of the same minute
    error: str = ""  # of torch.OutOfMemoryError

    @property
    def result(self) -> str:
        """In a word or two."""
        if self.times is None:
            return "out of memory"
        return ("confirmed" if self.confirms else "keeps") if self.keeps else "too slow"


@dataclass(frozen=True)
class FoundBudget:
    """What find_budget has found. Times are medians of `steps` steps."""

    budget_bytes: int
    overhead: float  # as the last trial under this budget measured it
    unmanaged_peak_bytes: int
    unmanaged: Times  # of steps without delta_torch
    trials: tuple[Trial, ...]  # in the order in which they were made
    policy: str
    host_bytes: int
    max_overhead: float
    clock: str  # whose time decides: "processor" or "wall"
    steps: int

    def __str__(self) -> str:
        share = self.budget_bytes / self.unmanaged_peak_bytes
        return "\n".join(
            [
                f"budget: {format_bytes(self.budget_bytes)}, {share:.0%} of the unmanaged peak of "
                f"{format_bytes(self.unmanaged_peak_bytes)}; policy {self.policy}",
                f"overhead: {self.overhead:.2f} by the {self.clock}'s time, "
                f"at most {self.max_overhead:g} was asked for",
                "",
                *table(self.unmanaged_peak_bytes, self.unmanaged, self.trials),
            ]
        )


class NoBudgetFound(RuntimeError):
    """Not even the unmanaged peak as a budget keeps to the overhead. `trials` has what was tried."""

    def __init__(self, message: str, trials: tuple[Trial, ...]) -> None:
        super().__init__(message)
        self.trials = trials


def find_budget(
    step: Callable[[], Any],
    max_overhead: float = MAX_OVERHEAD,
    policy: str = Options.policy,
    *,
    host: int | str = Options.host,
    clock: Literal["processor", "wall"] | None = None,
    steps: int = 5,
    trials: int = 7,
    device: torch.device | str | None = None,
) -> FoundBudget:
    """The smallest budget under which a step takes at most `max_overhead` times as long as without.

        found = delta_torch.find_budget(step, 1.2)
        with delta_torch.budget(found.budget_bytes) as run: ...

    It runs real steps on this machine: first without delta_torch, measuring peak and time, then
    under up to `trials` budgets, halving the range between what is too small and what will do.
    At last the one found runs again, beside unmanaged steps of the same minute; where it does not
    keep to the overhead this time, the next larger one that did, or 5 % of the peak more, is to
    be confirmed in its place, and so on.

    step: a function without arguments that runs one training step, its optimizer's step included.
        It trains: what is not to change is to be copied before, and made anew after, as a step
        that runs out of memory may have changed a part of the weights. What it returns is ignored.
    max_overhead: above 1.
    policy, host, device: as for budget().
    clock: whose time decides: the processor's, of all threads of the process, which other programs
        on the machine hardly disturb; or the wall's, in which copies beside the computing cost
        nothing, until the device is idle. Both are in the result. None: the processor's for the
        CPU, the wall's for an accelerator.
    steps: that are measured each time; their median counts. Before them come steps that are not
        measured: 2 without a budget, 5 under each, in which the policy learns.
    trials: budgets that are tried before the one found is confirmed; each halves what is not
        known, so that 7 leave 2 % of the peak.

    Where several processes train together each calls it, and all try the same budgets: what the
    slowest rank takes counts, and the largest peak. A rank that is short of memory goes on without
    a limit until the trial is over.

    Raises ValueError for arguments that make no sense, RuntimeError where a run is on or the step
    uses no memory that can be managed, NoBudgetFound where no budget will do, and what `step`
    raises, but for torch.OutOfMemoryError under a budget, which counts as too small.
    """
    asked = Options(policy=policy, host=host, device=device)
    on = asked.device
    clock = clock or ("processor" if on.type == "cpu" else "wall")
    _check(step, max_overhead, clock, steps, trials)
    give_way()

    def without() -> Times:
        tell("measuring steps without a budget")
        return _slowest(measured(step, WARM_UP, steps))

    def under(size: int) -> Times | str:
        options = {"policy": policy, "host": asked.host, "device": on}
        return _slowest(_measured_under(step, size, steps, **options))

    unmanaged = without()
    with budget(None, policy="unmanaged", device=on) as run:
        for _ in range(WARM_UP):
            step()
    peak = group.largest(run.report().peak_bytes)
    if peak < _BLOCK:
        raise RuntimeError(
            f"find_budget needs a step that uses tensors on {on}, and this uses none: see device="
        )
    tried = Search(peak, max_overhead, clock, under, without, unmanaged)
    found = tried.run(trials)
    return FoundBudget(
        budget_bytes=found.budget_bytes,
        overhead=found.overhead,
        unmanaged_peak_bytes=peak,
        unmanaged=tried.unmanaged,
        trials=tuple(tried.trials),
        policy=policy,
        host_bytes=asked.host,
        max_overhead=max_overhead,
        clock=clock,
        steps=steps,
    )


class Search:
    """The search itself. How steps are measured is handed to it.

    under: of a budget in bytes, gives the times or the text of an error. without: of no budget.
    unmanaged: what `without` has given at first.
    """

    def __init__(
        self,
        peak: int,
        max_overhead: float,
        clock: str,
        under: Callable[[int], Times | str],
        without: Callable[[], Times],
        unmanaged: Times,
    ) -> None:
        self.peak = peak
        self.max_overhead = max_overhead
        self.clock = clock
        self.unmanaged = unmanaged
        self.trials: list[Trial] = []
        self._count = 0  # that are made before one is confirmed, at most
        self._under = under
        self._without = without

    def run(self, count: int) -> Trial:
        """The smallest budget that keeps to the overhead, confirmed. Raises NoBudgetFound."""
        self._count = count
        low, high = 0, -(-self.peak // _BLOCK) * _BLOCK
        whole = self._try(high)
        if not whole.keeps:
            raise self._none(whole)
        for _ in range(count - 1):
            middle = (low + high) // 2 // _BLOCK * _BLOCK
            if not low < middle < high:
                break
            if self._try(middle).keeps:
                high = middle
            else:
                low = middle
        kept = sorted({t.budget_bytes for t in self.trials if t.keeps})
        size = kept[0]
        while True:
            self.unmanaged = self._without()
            trial = self._try(size, confirms=True)
            if trial.keeps:
                return trial
            if size == kept[-1]:
                raise self._none(trial)
            more = size + self.peak // _MORE // _BLOCK * _BLOCK + _BLOCK
            size = min([more, *(k for k in kept if k > size)])

    def _try(self, size: int, confirms: bool = False) -> Trial:
        if confirms:
            tell(f"trying {format_bytes(size)} again, to confirm it")
        else:
            number = len(self.trials) + 1
            tell(f"trying {format_bytes(size)} ({number} of at most {self._count})")
        got = self._under(size)
        if isinstance(got, str):
            trial = Trial(size, size / self.peak, None, math.inf, False, confirms, got)
        else:
            overhead = got.by(self.clock) / max(self.unmanaged.by(self.clock), 1e-9)
            keeps = overhead <= self.max_overhead
            trial = Trial(size, size / self.peak, got, overhead, keeps, confirms)
        self.trials.append(trial)
        return trial

    def _none(self, whole: Trial) -> NoBudgetFound:
        what = (
            f"ran out of memory: {whole.error}"
            if whole.times is None
            else f"took {whole.overhead:.2f} times as long"
        )
        return NoBudgetFound(
            f"no budget keeps to {self.max_overhead:g} times the unmanaged step: under "
            f"{format_bytes(whole.budget_bytes)}, the unmanaged peak, a step {what}: "
            "allow more by max_overhead=",
            tuple(self.trials),
        )


def measured(step: Callable[[], Any], before: int, steps: int) -> Times:
    """The medians of steps, after `before` others."""
    for _ in range(before):
        step()
    processor, wall = [], []
    for _ in range(steps):
        finish()
        began = time.process_time(), time.perf_counter()
        step()
        finish()
        processor.append(time.process_time() - began[0])
        wall.append(time.perf_counter() - began[1])
    return Times(median(processor), median(wall))


def _slowest(mine: Times | str) -> Any:
    """What all ranks take for theirs: the longest times, or the first error. So each of them tries
    the same budgets. Raises RuntimeError where a rank says nothing while collectives would wait."""
    ranks = group.current()
    if ranks is None:
        return mine
    all_ = ranks.exchange("trial", mine, ranks.timeout_s)
    if None in all_:
        raise RuntimeError(
            f"find_budget: rank {all_.index(None)} has not ended the same steps in the time that "
            "collectives wait: every rank has to call it, with steps of the same collectives"
        )
    errors = [text for text in all_ if isinstance(text, str)]
    if errors:
        return errors[0]
    return Times(max(t.processor for t in all_), max(t.wall for t in all_))


def _measured_under(step: Callable[[], Any], size: int, steps: int, **options: Any) -> Times | str:
    # A rank whose step ends early would leave the others waiting in theirs: of several each goes on
    # without a limit, to be told of it.
    try:
        with Run(size, lifts_limit=group.current() is not None, **options) as run:
            times = measured(step, LEARNING, steps)
        return times if run.error is None else run.error["message"]
    except torch.OutOfMemoryError as error:
        text = str(error)
    gc.collect()  # graphs that the error's traceback has kept
    return text


def _check(step: object, max_overhead: float, clock: str, steps: int, trials: int) -> None:
    if not callable(step):
        raise ValueError(f"step is a function that runs one training step: not {step!r}")
    if not isinstance(max_overhead, (int, float)) or not 1 < max_overhead < math.inf:
        raise ValueError(f"max_overhead is a number above 1, such as 1.2: not {max_overhead!r}")
    if clock not in ("processor", "wall"):
        raise ValueError(f"clock is 'processor' or 'wall', not {clock!r}")
    for name, value in (("steps", steps), ("trials", trials)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} is a whole number, 1 or more: not {value!r}")


def table(peak: int, unmanaged: Times, trials: tuple[Trial, ...]) -> list[str]:
    """Lines of a table of trials, in the order in which they were made."""
    rows = [("budget", "of the peak", "processor", "wall", "overhead", "")]
    rows.append(("none", format_bytes(peak), _ms(unmanaged.processor), _ms(unmanaged.wall), "", ""))
    for t in trials:
        times = ("", "", "") if t.times is None else _cells(t.times, t.overhead)
        rows.append((format_bytes(t.budget_bytes), f"{t.share:.0%}", *times, t.result))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join([*(c.rjust(w) for c, w in zip(row[:-1], widths[:-1], strict=True)), row[-1]])
        .rstrip()
        for row in rows
    ]


def _cells(times: Times, overhead: float) -> tuple[str, str, str]:
    return _ms(times.processor), _ms(times.wall), f"{overhead:.2f}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
