"""plan(): how fast a step would be under budgets, which budget is enough, and which batch fits.

Each answer is a replay of the recorded step in virtual time, by the manager and the policy that
would train.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from .. import _C
from ..options import MAX_OVERHEAD, Options
from .machines import Machine, machine
from .plans import BatchPlan, Plan, Point
from .ranks import COLLECTIVES, NETWORK, NETWORK_LATENCY, PARALLEL, UNIT, Ranks, ranks_of
from .record import record
from .recording import Recording

SHARES = (1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2)
TARGETS = (1.05, 1.2, 2.0)
STEPS = 4  # of a replay: a policy that learns does so in the first; the last is reported
LIMIT = 10.0  # a step that takes more than that times its own time is given up; the first, 4 times that
RESOLUTION = 0.01  # of the peak: how close a budget that is searched for is to one that won't do
HOST_PEAKS = 4  # the host's memory, where nothing is said of it

Progress = Callable[[str, float], None]


def plan(
    step: Callable[..., Any] | Recording,
    *,
    device: str | Machine = "a100-80",
    batches: Sequence[int] | None = None,
    policy: str = Options.policy,
    host: int | str | None = None,
    shares: Sequence[float] = SHARES,
    max_overhead: float = MAX_OVERHEAD,
    largest: bool = False,
    tf32: bool = False,
    nonzero: float | None = None,
    compare: Callable[..., Any] | None = None,
    progress: Progress | None = None,
    ranks: int = 1,
    parallel: str = PARALLEL[0],
    collectives: str = COLLECTIVES[0],
    network: str | float = NETWORK,
    network_latency: float = NETWORK_LATENCY,
    one_link: bool = False,
    jitter: float = 0.0,
    unit: int | str = UNIT,
) -> Plan:
    """Predicts a training step on a device, under budgets. Nothing is computed.

    step: builds the model and returns the step, as record(fake=True) wants it; called with the
        batch size where there are `batches`. Or a Recording, whose times are taken as they are.
    device: "a100-80", "h100", "h200", "rtx4090", "cpu" (this one), or a Machine.
    policy: what decides which tensors leave; see policies().
    host: memory that tensors may be copied out to, "64GiB"; 0: they are only computed again.
        None: four times the peak, on "cpu" 0, as in budget().
    shares: of the unmanaged peak, that are tried as budgets.
    max_overhead: what a managed step may take, times the unmanaged one, to count as one that fits.
    largest: also searches the largest batch that fits the device, unmanaged and managed.
    tf32, nonzero: as of record().
    compare: builds the same training with torch.utils.checkpoint, to be shown beside.
    progress: is called with what is being done and how much of all is done, from 0 to 1.
    ranks: devices that train together, each on a batch of its own; the step is one's, and ends with
        its optimizer.
    parallel: "ddp": DistributedDataParallel: gradients go into buckets, which are reduced beside
        the backward pass; "fsdp": parameters, gradients and optimizer state are sharded, and
        parameters gathered for each pass. unit: of fsdp, bytes gathered together, "100MiB".
    collectives: "ring", or of ddp "tree". network: of each rank, in and out at once: bytes per
        second, or "25GB/s". network_latency: of each hop, seconds.
    one_link: collectives and copies to the host take turns on one link.
    jitter: sigma of the lognormal factor by which each rank's operators are slower or faster, from
        0 to 3: all wait for the slowest, which is taken to be as slow as it is on average.

    Raises TypeError and ValueError for arguments that make no sense, RuntimeError where the step
    can't be recorded.
    """
    asked = Options(policy=policy, host=0 if host is None else host, device="cpu")
    return _Planner(
        step=step,
        on=machine(device),
        policy=policy,
        host=None if host is None else asked.host,
        shares=shares,
        max_overhead=max_overhead,
        tf32=tf32,
        nonzero=nonzero,
        compare=compare,
        progress=progress or (lambda text, share: None),
        ranks=ranks_of(
            ranks, parallel, collectives, network, network_latency, one_link, jitter, unit
        ),
    ).plan(batches, largest)


@dataclass
class _Planner:
    """One call of plan()."""

    step: Callable[..., Any] | Recording
    on: Machine
    policy: str
    host: int | None
    shares: Sequence[float]
    max_overhead: float
    tf32: bool
    nonzero: float | None
    compare: Callable[..., Any] | None
    progress: Progress
    ranks: Ranks
    recordings: dict[int | None, Recording] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.step, Recording) and not callable(self.step):
            raise TypeError(
                "plan() takes a function that builds the model and returns the step, or a "
                f"Recording, not {type(self.step).__name__}"
            )
        if not self.shares or not all(0 < s <= 1 for s in self.shares):
            raise ValueError(f"shares are above 0 and at most 1, not {list(self.shares)!r}")
        if not 1 <= self.max_overhead <= LIMIT:
            raise ValueError(f"max_overhead is from 1 to {LIMIT:g}, not {self.max_overhead!r}")
        self.shares = sorted({*self.shares, 1.0}, reverse=True)

    def plan(self, batches: Sequence[int] | None, largest: bool) -> Plan:
        sizes: list[int | None] = list(batches) if batches is not None else [None]
        self._check(sizes, largest)
        made = []
        for i, batch in enumerate(sizes):
            made.append(self._of_batch(batch, i / len(sizes), 1 / len(sizes)))
        result = Plan(
            device=self.on.name,
            memory_bytes=self.on.usable,
            policy=self.policy,
            max_overhead=self.max_overhead,
            source=self.on.source,
            batches=made,
            ranks=self.ranks if self.ranks.ranks > 1 else None,
        )
        if largest:
            first = [b for b in sizes if b is not None]
            self.progress("largest batch, unmanaged", 0.0)
            result.largest_unmanaged = self._largest(self._fits_unmanaged, max(first))
            self.progress("largest batch, managed", 0.5)
            start = max(result.largest_unmanaged or 1, 1)
            result.largest_managed = self._largest(self._fits_managed, start)
        self.progress("done", 1.0)
        return result

    def _check(self, sizes: list[int | None], largest: bool) -> None:
        if not sizes:
            raise ValueError("there is no batch size among batches")
        for size in sizes:
            if size is not None and (not isinstance(size, int) or size < 1):
                raise ValueError(f"a batch size is a whole number above 0, not {size!r}")
        if isinstance(self.step, Recording) and sizes != [None]:
            raise ValueError("a Recording has a batch size already: batches are for a maker")
        if largest and sizes == [None]:
            raise ValueError("the largest batch can only be searched where batches are given")

    def _record(self, batch: int | None, maker: Any = None) -> Recording:
        if isinstance(self.step, Recording):
            return self.step
        known = self.recordings.get(batch) if maker is None else None
        if known is not None:
            return known
        made = record(
            maker or self.step,
            device=self.on,
            fake=True,
            args=() if batch is None else (batch,),
            tf32=self.tf32,
            nonzero=self.nonzero,
        )
        if maker is None:
            self.recordings[batch] = made
        return made

    def _of_batch(self, batch: int | None, done: float, part: float) -> BatchPlan:
        name = "" if batch is None else f"batch {batch}: "
        self.progress(f"{name}recording", done)
        replays = self._replays_of(batch)
        step = replays.program
        self.progress(f"{name}replaying", done + part * 0.3)
        budgets = {int(step.peak_bytes * s) for s in self.shares}
        if self.on.usable < step.peak_bytes:
            budgets.add(self.on.usable)
        curve = replays.all(budgets)
        self.progress(f"{name}searching budgets", done + part * 0.6)
        smallest = {target: replays.smallest(target) for target in TARGETS}
        made = BatchPlan(
            batch=batch,
            peak_bytes=step.peak_bytes,
            step_ns=step.unmanaged_ns,
            operators=step.operators,
            host_bytes=replays.host,
            at_peak=self.ranks.at_peak(self._record(batch), step),
            points=sorted(curve, key=lambda p: -p.budget_bytes),
            smallest=smallest,
        )
        if self.compare is not None:
            self.progress(f"{name}checkpointing", done + part * 0.9)
            other = self._on_ranks(self._record(batch, self.compare))
            made.checkpoint_bytes, made.checkpoint_ns = other.peak_bytes, other.unmanaged_ns
            made.at_checkpoint = replays.point(other.peak_bytes)
        return made

    def _on_ranks(self, step: Recording) -> _C.RecordedStep:
        _, part = self.on.efficiency_of("elementwise")
        # A copy within the device reads and writes.
        return self.ranks.program_of(step, self.on.bandwidth * part / 2)

    def _replays_of(self, batch: int | None) -> _Replays:
        program = self._on_ranks(self._record(batch))
        host = self.host
        if host is None:
            host = 0 if self.on.name == "cpu" else HOST_PEAKS * program.peak_bytes
        return _Replays(program, self.on, self.policy, host, self.ranks.one_link)

    def _fits_unmanaged(self, batch: int) -> bool:
        return self._on_ranks(self._record(batch)).peak_bytes <= self.on.usable

    def _fits_managed(self, batch: int) -> bool:
        replays = self._replays_of(batch)
        if replays.program.peak_bytes <= self.on.usable:
            return True
        point = replays.point(self.on.usable)
        return point.fits and point.overhead <= self.max_overhead

    def _largest(self, fits: Callable[[int], bool], start: int) -> int:
        """Within 2 % of it, below 50 exactly; 0: not even one. Taken to be monotone."""
        low, high = 0, start
        while fits(high):
            low, high = high, 2 * high
            if high > 2**20:
                return low
        while high - low > max(1, low // 50):
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low


def replayed(program: _C.RecordedStep, **on: Any) -> dict[str, Any]:
    """A step's replay, as predictions are made of it: what the extension says of it.

    on: the policy and the machine, as RecordedStep.replay takes them.
    """
    return program.replay(steps=STEPS, limit=LIMIT, **on)


class _Replays:
    """Replays of one step under budgets, each made once, on all cores."""

    def __init__(
        self, program: _C.RecordedStep, on: Machine, policy: str, host: int, one_link: bool
    ) -> None:
        self.program = program
        self._on = on
        self._policy = policy
        self.host = host
        self._one_link = one_link
        self._known: dict[int, Point] = {}

    def all(self, budgets: set[int]) -> list[Point]:
        """In no order."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(self.point, sorted(budgets)))

    def point(self, budget: int) -> Point:
        if budget not in self._known:
            self._known[budget] = self._replayed(budget)
        return self._known[budget]

    def smallest(self, target: float) -> int | None:
        """The smallest budget that was found to keep to an overhead; None: not even the peak does.

        Between those that were tried anything may happen: a policy may do worse with more.
        """
        tried = sorted(self._known)
        keeping = [b for b in tried if self._keeps(b, target)]
        if not keeping:
            return None
        high = keeping[0]
        low = max((b for b in tried if b < high), default=0)
        while high - low > RESOLUTION * self.program.peak_bytes:
            middle = (low + high) // 2
            low, high = (low, middle) if self._keeps(middle, target) else (middle, high)
        return high

    def _keeps(self, budget: int, target: float) -> bool:
        point = self.point(budget)
        return point.fits and point.overhead <= target

    def _replayed(self, budget: int) -> Point:
        rates = {"rate_out": self._on.copy, "rate_in": self._on.copy}
        if self.host == 0:
            rates = dict.fromkeys(rates, 0.0)
        got = replayed(
            self.program,
            policy=self._policy,
            budget=budget,
            host=self.host,
            rate_out=self._on.copy,
            rate_in=self._on.copy,
            latency=round(self._on.latency * 1e9),
            burden=self._on.burden,
            one_link=self._one_link,
        )
        managing = round(self._on.managing * 1e9 * self.program.operators)
        took = got["time_ns"] + managing
        return Point(
            budget_bytes=budget,
            share=budget / self.program.peak_bytes,
            verdict=got["verdict"],
            step_ns=took,
            overhead=took / max(1, got["unmanaged_ns"]),
            bound=self.program.lower_bound(budget=budget, **rates),
            peak_bytes=got["peak_bytes"],
            host_peak_bytes=got["host_peak_bytes"],
            recomputes=got["recomputes"],
            offloads=got["offloads"],
            stall_ns=got["stall_ns"],
            recompute_ns=got["recompute_ns"],
            network_ns=got["network_ns"],
            error=got["error"],
        )
