"""compare_policies(): policies beside each other on one recorded step, with the bound of them all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..options import Options
from ..sizes import format_bytes
from .machines import Machine, machine
from .plan import SHARES, plan
from .plans import Point, format_time
from .record import record
from .recording import Recording


@dataclass(frozen=True)
class Comparison:
    """A step under budgets by policy. str() is a table of times, over the unmanaged one."""

    device: str
    peak_bytes: int  # unmanaged
    step_ns: int  # unmanaged
    operators: int
    points: dict[str, list[Point]]  # by policy, from the largest budget to the smallest

    def __str__(self) -> str:
        widths = {name: max(len(name), 7) + 2 for name in self.points}
        head = "".join(f"{name:>{width}}" for name, width in widths.items())
        lines = [
            f"{self.device}: peak {format_bytes(self.peak_bytes)}, step "
            f"{format_time(self.step_ns)}, {self.operators:,} operators (predicted)",
            f"{'budget':>11} of peak{head}    bound",
        ]
        for row in zip(*self.points.values(), strict=True):
            line = f"{format_bytes(row[0].budget_bytes):>11} {row[0].share:>7.0%}"
            for point, width in zip(row, widths.values(), strict=True):
                line += f"{point.overhead:>{width}.3f}" if point.fits else f"{'-':>{width}}"
            bound = row[0].bound
            lines.append(line + (f"{bound:>9.3f}" if math.isfinite(bound) else f"{'-':>9}"))
        return "\n".join([*lines, "-: out of memory, or ten times as slow"])


def compare_policies(
    step: Callable[[], Any] | Recording,
    policies: Sequence[str] = ("adaptive", "online", "dtr"),
    *,
    device: str | Machine = "a100-80",
    host: int | str | None = None,
    shares: Sequence[float] = SHARES,
    tf32: bool = False,
    nonzero: float | None = None,
) -> Comparison:
    """What a step takes under each policy, at each budget. Nothing is computed.

    policies: names of policies(), or what compile_policy() has compiled.
    step, device, host, shares, tf32, nonzero: as of plan().

    Raises TypeError and ValueError for arguments that make no sense, RuntimeError where the step
    can't be recorded.
    """
    if isinstance(policies, str) or not policies:
        raise ValueError(f"policies is a list of names, not {policies!r}")
    for name in policies:
        Options(policy=name)  # before anything is recorded
    on = machine(device)
    if not isinstance(step, Recording):
        step = record(step, device=on, fake=True, tf32=tf32, nonzero=nonzero)
    made = {
        name: plan(step, device=on, policy=name, host=host, shares=shares).batches[0]
        for name in policies
    }
    first = next(iter(made.values()))
    points = {name: found.points for name, found in made.items()}
    return Comparison(on.name, first.peak_bytes, first.step_ns, first.operators, points)
