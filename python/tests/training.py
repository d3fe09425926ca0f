"""Trainings that are run with and without a budget and compared bit for bit."""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

import delta_torch

SEED = 11
IN_A_KERNEL = "what this kernel takes after that is not known"


@dataclass
class Training:
    """A model, its optimizer, and one step that gives a loss and ends with optimizer.step()."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    step: Callable[[int], torch.Tensor]
    end_of_step: Callable[[], None] = field(default=lambda: None)


Maker = Callable[[], Training]


@dataclass(frozen=True)
class Outcome:
    """What must be the same bits: losses, parameters and buffers, optimizer state, generator."""

    losses: tuple[str, ...]
    parameters: str
    optimizer: str
    generator: str


@dataclass(frozen=True)
class Trained:
    """The end of a training under a budget. Without an outcome it ran out of memory."""

    outcome: Outcome | None
    report: delta_torch.Report
    error: dict[str, Any] | None


def unmanaged(make: Maker, steps: int) -> Outcome:
    """Trains without delta_torch."""
    torch.manual_seed(SEED)
    training = make()
    losses = [training.step(i).item().hex() for i in range(steps)]
    return outcome_of(training, losses)


def managed(make: Maker, steps: int, size: int | float | str | None, **options: Any) -> Trained:
    """Trains in a run; only running out of memory is no error here."""
    torch.manual_seed(SEED)
    training = make()
    losses: list[str] | None = []
    with delta_torch.budget(size, **options) as run:
        try:
            for i in range(steps):
                losses.append(training.step(i).item().hex())
        except torch.OutOfMemoryError:
            losses = None
    if losses is None:
        return Trained(None, run.report(), run.error)
    return Trained(outcome_of(training, losses), run.report(), run.error)


def measured(make: Maker, steps: int, **options: Any) -> delta_torch.Report:
    """The peak, and what is left at the end, where nothing leaves."""
    return managed(make, steps, None, policy="unmanaged", **options).report


def outcome_of(training: Training, losses: list[str]) -> Outcome:
    return Outcome(
        tuple(losses),
        digest(training.model.state_dict()),
        digest(training.optimizer.state_dict()),
        digest(torch.get_rng_state()),
    )


def digest(value: Any) -> str:
    """A hash of all tensors and numbers in nested dicts, lists and tuples, by their bytes."""
    sha = hashlib.sha256()
    for part in _parts(value):
        sha.update(part)
    return sha.hexdigest()[:16]


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        dense = value.to_dense() if value.layout != torch.strided else value
        yield repr((tuple(dense.shape), dense.dtype)).encode()
        yield dense.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(value, dict):
        for key, item in value.items():
            yield repr(key).encode()
            yield from _parts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _parts(item)
    else:
        yield repr(value).encode()


def check_same(make: Maker, steps: int, size: int | None, expected: Outcome, **options: Any):
    """Trains under a budget, and compares; gives the report.

    Where that is too small, a budget that errors name must do: the first one, or, where a kernel
    has failed in the middle of what it takes, one that a later error names.
    """
    trained = managed(make, steps, size, **options)
    _check_peak(trained.report)
    for _ in range(5):
        if trained.outcome is not None:
            break
        message = trained.error["message"]
        print(f"out of memory at {size}: {message}")
        named = trained.error["smallest_budget"]
        assert named > 0, "the error names no budget that is known to do"
        assert size is not None and named > size
        size = named
        gc.collect()
        trained = managed(make, steps, size, **options)
        _check_peak(trained.report)
        assert trained.outcome is not None or IN_A_KERNEL in message, (
            f"the named budget {named} does not do: {trained.error['message']}"
        )
    assert trained.outcome == expected
    return trained.report


def _check_peak(report: delta_torch.Report) -> None:
    if report.budget_bytes is not None:
        assert report.peak_bytes <= report.budget_bytes
