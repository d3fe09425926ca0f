"""What more of the host's memory would bring to a run: its last step, replayed in virtual time."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from typing import Any

from .plan import HOST_PEAKS, replayed

_SECONDS = 1.0  # for all replays; a replay is begun only where it should end within them
_OPERATORS = 8_000  # a step of more is not replayed: each takes some 50 us
_BETTER = 0.97  # of the predicted time: what is less is worth a word


@dataclass(frozen=True)
class Outlook:
    """What a run's last step says of the host's memory, within the same budget and by the same
    policy. Overheads are predicted: of the step's time without a budget."""

    same_memory: bool  # copies lie in the memory that tensors are in, that of a CPU
    copy_ns: int  # that copies took there, by their rates; 0: operators ran beside them
    host_bytes: int = 0  # that would bring something; 0: none, or it would take long to know
    overhead: float | None = None  # where they would, with what there was; None: it does not fit
    host_overhead: float | None = None  # with them; None: there are none


def outlook(
    last: dict[str, Any],
    *,
    policy: str,
    budget: int,
    host: int,
    bytes_out: int,
    bytes_in: int,
    same_memory: bool,
) -> Outlook:
    """Replays a run's last step, as _C.last_step() gives it: at most a second.

    budget, host: of the run, in bytes. bytes_out, bytes_in: that were copied in it. same_memory: it
        was on a CPU.
    """
    program, rates = last["program"], {name: last[name] for name in _RATES}
    copies = bytes_out / last["rate_out"] + bytes_in / last["rate_in"] if same_memory else 0.0
    known = functools.partial(Outlook, same_memory, round(copies * 1e9))
    if program.operators > _OPERATORS:
        return known()
    began = time.perf_counter()

    def predicted(host: int) -> tuple[float | None, int]:
        got = replayed(program, policy=policy, budget=budget, host=host, **rates)
        times = got["time_ns"] / max(1, got["unmanaged_ns"])
        return times if got["verdict"] == "fits" else None, got["host_peak_bytes"]

    ample, used = predicted(max(host, HOST_PEAKS * program.peak_bytes))
    took = time.perf_counter() - began
    enough = _round_up(used)
    if ample is None or enough <= host or 3 * took > _SECONDS:
        return known()
    now, _ = predicted(host)
    if time.perf_counter() - began + took > _SECONDS:
        return known()
    then, _ = predicted(enough)
    if then is None or (now is not None and then > _BETTER * now):
        return known()
    return known(enough, now, then)


_RATES = ("rate_out", "rate_in", "latency", "burden")


def _round_up(size: int) -> int:
    """To one or two digits that people write: 1, 1.5, 2, 3, 4, 6, 8, ... times a power of two."""
    step = 1 << max(size.bit_length() - 2, 0)
    return -(-size // step) * step
