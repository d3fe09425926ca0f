"""A callback that trains transformers' Trainer, and those of TRL, within a budget.

    callback = BudgetCallback("50%", host="16GiB")
    Trainer(..., callbacks=[callback]).train()
    print(callback.run.report())
"""

from __future__ import annotations

import functools
from typing import Any

from transformers import Trainer, TrainerCallback

from ..run import budget
from . import logged


class BudgetCallback(TrainerCallback):
    """Keeps each train() within a run, `run`; its arguments are those of delta_torch.budget, but
    for `steps`: a step is the Trainer's, with all batches whose gradients it accumulates.

    Numbers of the run, delta/peak_bytes and others, are in the logs. An exception of train() ends
    the run, too. A smaller batch of auto_find_batch_size begins it again, with the same bytes where
    the budget is a share.
    """

    def __init__(self, size: int | float | str | None, **options: Any) -> None:
        self.run = budget(size, steps="manual", **options)

    def on_train_begin(self, *_args: Any, **_kwargs: Any) -> None:
        """Begins the run, anew where the loop of train() has begun again."""
        self.leave()
        self.run.__enter__()

    def on_step_end(self, *_args: Any, **_kwargs: Any) -> None:
        """Ends the step."""
        self.run.step()

    def on_log(self, *_args: Any, logs: dict[str, Any] | None = None, **_kwargs: Any) -> None:
        """Adds the run's numbers."""
        if logs is not None and self.run.on:
            logs.update(logged(self.run))

    def on_train_end(self, *_args: Any, **_kwargs: Any) -> None:
        """Ends the run."""
        self.leave()

    def leave(self) -> None:
        """Ends the run, where it is on."""
        if self.run.on:
            self.run.__exit__(None, None, None)


def _with_an_end(train: Any) -> Any:
    # No callback is told of an exception, and those of TensorBoard and others come before ours.
    @functools.wraps(train)
    def wrapper(trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
        callbacks = trainer.callback_handler.callbacks
        callbacks.sort(key=lambda callback: not isinstance(callback, BudgetCallback))
        try:
            return train(trainer, *args, **kwargs)
        finally:
            for callback in callbacks:
                if isinstance(callback, BudgetCallback):
                    callback.leave()

    return wrapper


Trainer.train = _with_an_end(Trainer.train)
