"""Several devices that train together: what plan() is told of them, and the step of one."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from .. import _C
from ..sizes import parse_budget
from .recording import ACTIVATION, BUCKETS, GATHERED, ROLES, Recording

COLLECTIVES = ("ring", "tree")
PARALLEL = ("ddp", "fsdp")
UNIT = 100 * 2**20
NETWORK = "25GB/s"
NETWORK_LATENCY = 5e-6
_MOST = 1_000_000


@dataclass(frozen=True)
class Ranks:
    """How many devices there are, and what is between them; see plan()."""

    ranks: int
    parallel: str
    collectives: str
    network: float  # bytes per second, of each rank, in and out at once
    latency: float  # seconds, of each hop
    one_link: bool
    jitter: float
    unit: int  # bytes: sharded parameters are gathered together once they have so many

    def __str__(self) -> str:
        link = ", on the link of the copies" if self.one_link else ""
        slowest = _C.expected_slowest(self.ranks, self.jitter)
        jitter = f", the slowest {slowest:.3f} times the mean" if self.jitter else ""
        return (
            f"{self.ranks:,} devices, {self.parallel}, {self.collectives} at "
            f"{self.network / 1e9:.3g} GB/s, latency {self.latency * 1e6:.3g} us{link}{jitter}"
        )

    def program_of(self, step: Recording, copy_rate: float) -> _C.RecordedStep:
        """The step of one of them, the slowest.

        copy_rate: bytes per second at which gradients are copied to buckets and back. Raises
        ValueError where the step's gradients are not known.
        """
        if self.ranks == 1:
            return step.program
        if not step.gradients:
            raise ValueError(
                f"ranks={self.ranks}: the step's gradients are not known, as no optimizer has "
                "stepped; let the step end with optimizer.step()"
            )
        return step.program.on_ranks(
            ranks=self.ranks,
            tree=self.collectives == "tree",
            network=self.network,
            latency=round(self.latency * 1e9),
            copy_rate=copy_rate,
            jitter=self.jitter,
            sharded=self.parallel == "fsdp",
            unit=self.unit,
        )

    def at_peak(self, step: Recording, program: _C.RecordedStep) -> dict[str, int]:
        """What the bytes at the peak are, by role, of `program_of(step)`."""
        if self.ranks == 1:
            return step.at_peak
        if self.parallel == "fsdp":
            return _by_role(program.at_peak())
        # Buckets are there throughout.
        return {**step.at_peak, BUCKETS: program.peak_bytes - step.peak_bytes}


def _by_role(sizes: dict[str, int]) -> dict[str, int]:
    """Gradients that are not sharded yet are among what is temporary."""
    roles = {
        "": ACTIVATION,
        "all_gather": GATHERED,
        "to_bucket": BUCKETS,
        "reduce_scatter": "gradients",
    }
    counted: Counter[str] = Counter()
    for name, size in sizes.items():
        counted[roles.get(name, name)] += size
    return {role: counted[role] for role in ROLES if counted[role]}


def ranks_of(
    ranks: int,
    parallel: str,
    collectives: str,
    network: str | float,
    network_latency: float,
    one_link: bool,
    jitter: float,
    unit: int | str,
) -> Ranks:
    """What plan() was told, checked. Raises ValueError, which names the argument."""
    if not isinstance(ranks, int) or isinstance(ranks, bool) or not 1 <= ranks <= _MOST:
        raise ValueError(f"ranks is a whole number from 1 to {_MOST}, not {ranks!r}")
    for name, value, known in (
        ("parallel", parallel, PARALLEL),
        ("collectives", collectives, COLLECTIVES),
    ):
        if value not in known:
            raise ValueError(f"{name} is {' or '.join(known)}, not {value!r}")
    for name, number, most in (
        ("network_latency", network_latency, 1.0),
        ("jitter", jitter, 3.0),
    ):
        if not 0 <= number <= most:
            raise ValueError(f"{name} is from 0 to {most:g}, not {number!r}")
    if parallel == "fsdp" and collectives != COLLECTIVES[0]:
        raise ValueError(f"collectives of fsdp are rings, not {collectives!r}")
    size = parse_budget(unit)
    if not isinstance(size, int):
        raise ValueError(f"unit is bytes, such as '100MiB', and no share: not {unit!r}")
    rate = parse_rate(network)
    return Ranks(ranks, parallel, collectives, rate, network_latency, bool(one_link), jitter, size)


def parse_rate(network: str | float) -> float:
    """Bytes per second, of a number or of a text such as "25GB/s". Raises ValueError."""
    try:
        if isinstance(network, str):
            size, per, second = network.partition("/")
            if not per or second.strip() != "s" or not re.search("[a-zA-Z]", size):
                raise ValueError
            rate = parse_budget(size)
        else:
            rate = float(network)
    except (TypeError, ValueError):
        rate = 0.0
    if not isinstance(rate, (int, float)) or not rate >= 1e6:
        raise ValueError(f"network is a rate of at least 1MB/s, such as '25GB/s': not {network!r}")
    return float(rate)
