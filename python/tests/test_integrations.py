"""delta_torch.integrations within the trainers that they are for: the same bits and files as without.

Each runs where its library is installed: transformers, trl, pytorch_lightning, accelerate. The
trainings are those of test_recipes.py.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import delta_torch
import test_recipes as recipes
from bits import bits_of, difference
from delta_torch.integrations import logged

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]

SHARES = ("60%", "40%")
HOST = "1GiB"


def integration(library: str, package: str | None = None) -> Any:
    pytest.importorskip(package or library)
    return importlib.import_module(f"delta_torch.integrations.{library}")


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def check_same(recipe: Callable[..., Any], folder: Path, **options: Any) -> None:
    """Runs a recipe without and with what puts it within a run: all that it gives and leaves."""
    right = recipes.seeded(recipe, folder / "right")
    given = recipes.seeded(functools.partial(recipe, **options), folder / "given")
    assert difference(bits_of(right), bits_of(given)) is None
    assert files(folder / "right") == files(folder / "given")
    assert delta_torch.stop() is None


def check_managed(run: delta_torch.Run, share: str) -> None:
    report = run.report()
    most = report.unmanaged_peak_bytes * int(share[:-1]) // 100
    assert most - 64 < report.budget_bytes <= most
    assert report.peak_bytes <= report.budget_bytes
    assert report.evictions + report.offloads > 0, "nothing has left"


@pytest.mark.parametrize("share", SHARES)
def test_transformers(share: str, tmp_path: Path) -> None:
    """Accumulated gradients, evaluation and checkpoints, then a trainer that resumes."""
    callback = integration("transformers").BudgetCallback(share, host=HOST)
    check_same(recipes.trainer, tmp_path, callbacks=[callback])
    check_managed(callback.run, share)
    assert callback.run.report().steps == 2, "of the one that resumed"


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, torch.OutOfMemoryError])
def test_transformers_after_an_exception(
    error: type[BaseException], share: str, tmp_path: Path
) -> None:
    """No run is left on, and the same trainer and callback train again."""
    module = integration("transformers")
    transformers = importlib.import_module("transformers")

    class Fails(transformers.TrainerCallback):
        def __init__(self) -> None:
            self.numbers: list[Any] = []
            self.fails = True

        def on_log(self, *_args: Any, logs: dict[str, Any], **_kwargs: Any) -> None:
            self.numbers.append({key: n for key, n in logs.items() if key.startswith("delta/")})

        def on_substep_end(self, _args: Any, state: Any, *_: Any, **_kwargs: Any) -> None:
            if self.fails and state.global_step == 2:
                self.fails = False
                raise error

    def recipe(folder: Path, callbacks: Any = ()) -> Any:
        fails = Fails()
        with pytest.raises(error):
            recipes.trainer(folder, [fails, *callbacks])
        assert delta_torch.stop() is None
        if callbacks:
            assert not callbacks[0].run.on
        given = recipes.trainer(folder / "again", [fails, *callbacks])
        first = fails.numbers[0]
        assert bool(first) == bool(callbacks), "they are there for all that log"
        return given

    callback = module.BudgetCallback(share, host=HOST)
    check_same(recipe, tmp_path, callbacks=[callback])
    check_managed(callback.run, share)


def test_transformers_finds_a_batch_size(tmp_path: Path) -> None:
    """Each smaller batch begins a run anew; what steps of larger ones have changed stays."""
    module = integration("transformers")
    transformers = importlib.import_module("transformers")

    class Attempts(transformers.TrainerCallback):
        """Counts the steps of each attempt, and ends an attempt after as many as it is told."""

        def __init__(self, ends: Sequence[int] = ()) -> None:
            self.steps: list[int] = []
            self.ends = ends

        def on_train_begin(self, *_args: Any, **_kwargs: Any) -> None:
            self.steps.append(0)

        def on_step_begin(self, *_args: Any, **_kwargs: Any) -> None:
            attempt = len(self.steps) - 1
            if attempt < len(self.ends) and self.steps[-1] == self.ends[attempt]:
                raise torch.OutOfMemoryError("delta: out of memory. In a test.")

        def on_step_end(self, *_args: Any, **_kwargs: Any) -> None:
            self.steps[-1] += 1

    def trained(name: str, *callbacks: Any) -> Any:
        recipe = functools.partial(recipes.auto_batch_size, callbacks=callbacks)
        given = recipes.seeded(recipe, tmp_path / name)
        assert delta_torch.stop() is None
        return given

    measures = module.BudgetCallback(None, policy="unmanaged")
    assert trained("peak", measures)[0] == 64
    budget = measures.run.report().peak_bytes // 3
    callback, attempts = module.BudgetCallback(budget, policy="dtr"), Attempts()
    given = trained("managed", callback, attempts)
    report = callback.run.report()
    assert (report.steps, report.budget_bytes) == (3, budget)
    *short, last = attempts.steps
    assert short and last == 3 and 4 <= given[0] < 64
    right = trained("right", Attempts(short))
    assert difference(bits_of(right), bits_of(given)) is None


@pytest.mark.parametrize("share", SHARES)
def test_trl_in_a_slot(share: str, tmp_path: Path) -> None:
    pytest.importorskip("trl")
    run = delta_torch.budget(share, host=HOST)

    def recipe(folder: Path, run: delta_torch.Run | None = None) -> Any:
        given = recipes.sft_trainer(folder, run)
        delta_torch.stop()
        return given

    check_same(recipe, tmp_path, run=run)
    check_managed(run, share)
    assert run.report().steps == run.report().batches == 4


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("recipe", [recipes.lightning_automatic, recipes.lightning_manual_gan])
def test_lightning(recipe: Callable[..., Any], share: str, tmp_path: Path) -> None:
    """Accumulated gradients, validation, a scheduler, a checkpoint and one that resumes; two
    optimizers by hand."""
    callback = integration("lightning", "pytorch_lightning").BudgetCallback(share, host=HOST)
    check_same(recipe, tmp_path, callbacks=[callback])
    check_managed(callback.run, share)
    steps = 2 if recipe is recipes.lightning_automatic else 8  # of the one that resumed; two epochs
    assert callback.run.report().steps == steps


@pytest.mark.parametrize("share", SHARES)
def test_lightning_logs_and_after_an_exception(share: str, tmp_path: Path) -> None:
    module = integration("lightning", "pytorch_lightning")
    lightning = importlib.import_module("pytorch_lightning")
    callback = module.BudgetCallback(share, host=HOST)

    class Fails(lightning.Callback):
        def on_train_batch_start(self, trainer: Any, *_args: Any) -> None:
            assert callback.run.on == (callback in trainer.callbacks)
            if trainer.global_step == 3:
                raise ValueError

    def recipe(folder: Path, callbacks: Sequence[Any] = ()) -> Any:
        with pytest.raises(ValueError):
            recipes.lightning_automatic(folder / "fails", callbacks=[*callbacks, Fails()])
        assert delta_torch.stop() is None and not (callbacks and callback.run.on)
        return recipes.lightning_automatic(folder / "again", callbacks=callbacks)

    check_same(recipe, tmp_path, callbacks=[callback])
    check_managed(callback.run, share)
    logger = lightning.loggers.CSVLogger(tmp_path / "logs")
    recipes.lightning_automatic(tmp_path / "logged", callbacks=[callback], logger=logger)
    (metrics,) = (tmp_path / "logs").rglob("metrics.csv")
    assert set(logged(callback.run)) <= set(metrics.read_text().splitlines()[0].split(","))


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("fails_at", [None, 5])
def test_accelerate(share: str, fails_at: int | None, tmp_path: Path) -> None:
    """Accumulated gradients, clipping, a saved state that is loaded again, and a tracker; and a loop
    that ends with an exception, before one that does not."""
    module = integration("accelerate")
    accelerate = importlib.import_module("accelerate")

    class Tracker(accelerate.tracking.GeneralTracker):
        name, requires_logging_directory, tracker = "memory", False, None

        def __init__(self, fails_at: int | None = None) -> None:
            super().__init__()
            self.rows: list[dict[str, Any]] = []
            self.fails_at = fails_at

        def store_init_configuration(self, values: Any) -> None:
            pass

        def log(self, values: dict[str, Any], step: int | None = None, **_options: Any) -> None:
            self.rows.append(values)
            if len(self.rows) == self.fails_at:
                raise ValueError

    runs: list[delta_torch.Run] = []

    @contextlib.contextmanager
    def around(accelerator: Any) -> Iterator[None]:
        with module.budget(accelerator, share, host=HOST) as run:
            runs.append(run)
            yield

    def recipe(folder: Path, around: Any = None) -> Any:
        if fails_at is not None:
            with pytest.raises(ValueError):
                recipes.accelerated(folder / "fails", around, [Tracker(fails_at)])
            assert delta_torch.stop() is None
        tracker = Tracker()
        given = recipes.accelerated(folder, around, [tracker])
        assert len(tracker.rows) == 12
        assert all("loss" in row for row in tracker.rows)
        assert all(("delta/peak_bytes" in row) == (around is not None) for row in tracker.rows)
        return given

    check_same(recipe, tmp_path, around=around)
    check_managed(runs[-1], share)
