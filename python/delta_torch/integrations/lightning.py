"""A callback that trains Lightning's Trainer within a budget.

    callback = BudgetCallback("50%", host="16GiB")
    Trainer(..., callbacks=[callback]).fit(module)
    print(callback.run.report())
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from ..run import budget
from . import logged

# Both names of Lightning's package, whose classes are not each other's: the one that is in use.
_NAMES = ("lightning.pytorch", "pytorch_lightning")
_name = next((name for name in _NAMES if name in sys.modules), None)
if _name is None:
    _name = next((n for n in _NAMES if importlib.util.find_spec(n.partition(".")[0])), _NAMES[0])
_lightning: Any = importlib.import_module(_name)


class BudgetCallback(_lightning.Callback):
    """Keeps each fit() within a run, `run`; its arguments are those of delta_torch.budget, but for
    `steps`: a step ends with the batch in which optimizers have stepped, however many.

    The loggers are given numbers of the run, delta/peak_bytes and others. An exception ends the
    run, too.
    """

    def __init__(self, size: int | float | str | None, **options: Any) -> None:
        self.run = budget(size, steps="manual", **options)
        self._steps = self._optimizer_steps = 0

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins the run."""
        self._leave()
        self.run.__enter__()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Remembers how many steps a checkpoint has brought."""
        self._optimizer_steps = trainer.global_step

    def on_train_batch_end(self, trainer: Any, *_args: Any) -> None:
        """Ends the step, where gradients are not being accumulated."""
        if trainer.global_step == self._optimizer_steps:
            return
        self._optimizer_steps = trainer.global_step
        self.run.step()
        self._steps += 1
        for logger in trainer.loggers if self._steps % trainer.log_every_n_steps == 0 else ():
            logger.log_metrics(logged(self.run), step=trainer.global_step)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Ends the run."""
        self._leave()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Ends the run."""
        self._leave()

    def _leave(self) -> None:
        if self.run.on:
            self.run.__exit__(None, None, None)
