"""A context manager for a training loop of accelerate, within a budget.

    with budget(accelerator, "50%", host="16GiB") as run:
        for batch in loader:
            with accelerator.accumulate(model): ...
    accelerator.print(run.report())
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import run as runs
from ..patching import Patches
from . import logged


@contextmanager
def budget(accelerator: Any, size: int | float | str | None, **options: Any) -> Iterator[runs.Run]:
    """A run on the accelerator's device; all else is as of delta_torch.budget.

    What accelerator.log() gives to trackers within it has numbers of the run, too:
    delta/peak_bytes and others.
    """
    options.setdefault("device", accelerator.device)
    patches = Patches()
    with runs.budget(size, **options) as run:
        log = accelerator.log

        def with_numbers(values: dict[str, Any], *args: Any, **kwargs: Any) -> None:
            log({**values, **logged(run)}, *args, **kwargs)

        patches.replace(accelerator, "log", with_numbers)
        try:
            yield run
        finally:
            patches.undo()
