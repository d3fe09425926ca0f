"""A program run without delta_torch and within a run that drives all out, compared bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

import delta_torch
from bits import Bits, bits_of, difference
from delta_torch import _C

SEED = 20261125
# Tried one after the other, so that a budget is nearly always far less than the machine has, and
# driving out is cheap.
BUDGETS = (2**20, 2**24, 2**28)

# A program is given what drives everything out, calls it where it likes, and gives its results.
Program = Callable[[Callable[[], None]], Any]


@dataclass(frozen=True)
class Way:
    """How a program is run within delta_torch."""

    policy: str
    host: int | str
    # At the program's first call of its argument nothing is driven out.
    resident: bool = False

    def __str__(self) -> str:
        return f"{self.policy} host={self.host}{' resident' if self.resident else ''}"


@dataclass
class Outcome:
    """What a program has given, or raised, and how the default generator was left."""

    bits: list[Bits] = field(default_factory=list)
    error: BaseException | None = None
    generator: bytes = b""


def drive_out() -> None:
    """Runs an operator that takes all the budget that can be freed."""
    budget = _C.stats()["budget"]
    size = budget // 64 * 64
    while size > 0:
        try:
            torch.empty(size, dtype=torch.uint8)
            return
        except torch.OutOfMemoryError:
            error = _C.last_error()
            free = budget - error["immovable"] - error["foreign"]
            size = min(size - 64, free // 64 * 64)


def without(program: Program) -> Outcome:
    """What it gives without delta_torch."""
    outcome = Outcome()
    torch.manual_seed(SEED)
    try:
        outcome.bits = bits_of(program(lambda: None))
    except Exception as error:  # noqa: BLE001: whatever PyTorch says
        outcome.error = error
    outcome.generator = bytes(torch.get_rng_state().numpy())
    return outcome


def within(program: Program, way: Way, budget: int = BUDGETS[0]) -> Outcome:
    """What it gives within a run. Results are driven out before they are read."""
    outcome = Outcome()
    torch.manual_seed(SEED)
    calls = 0

    def out() -> None:
        nonlocal calls
        calls += 1
        if calls > 1 or not way.resident:
            drive_out()

    kept: Any = None
    try:
        with delta_torch.budget(budget, policy=way.policy, host=way.host, steps="manual"):
            kept = program(out)
            outcome.generator = bytes(torch.get_rng_state().numpy())
            drive_out()
            if not way.resident:
                outcome.bits = bits_of(kept)
        if way.resident:  # all that is away is brought back as the run ends
            outcome.bits = bits_of(kept)
    except Exception as error:  # noqa: BLE001
        outcome.error = error
        if not outcome.generator:
            outcome.generator = bytes(torch.get_rng_state().numpy())
    return outcome


def compare(right: Outcome, program: Program, way: Way, contents: bool = True) -> str | None:
    """What differs within a run from `right`, in a line; None: nothing.

    `contents` False: the bytes of the results do not count. A budget that was too small is no
    difference: a larger one is tried.
    """
    got = Outcome()
    for budget in BUDGETS:
        got = within(program, way, budget)
        if not _too_small(got.error) or _too_small(right.error):
            break
    if got.error is not None and right.error is None:
        return f"error: {in_a_line(got.error)}"
    if right.error is not None:
        if got.error is None:
            return f"no error for {in_a_line(right.error)}"
        if type(got.error) is not type(right.error):
            return f"error: {in_a_line(got.error)} for {in_a_line(right.error)}"
        return None
    wrong = difference(right.bits, got.bits, contents)
    if wrong is None and right.generator != got.generator:
        wrong = "the generator's state differs"
    return wrong


def same_twice(program: Program, contents: bool = True) -> tuple[Outcome, str | None]:
    """What it gives without delta_torch, and what differs the second time."""
    first, second = without(program), without(program)
    if (first.error is None) != (second.error is None):
        return first, f"once {first.error!r}, then {second.error!r}"
    return first, difference(first.bits, second.bits, contents)


def in_a_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _too_small(error: BaseException | None) -> bool:
    return isinstance(error, torch.OutOfMemoryError)


