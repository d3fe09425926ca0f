"""Tests on the simulated accelerator, in a process of their own: it becomes PyTorch's accelerator."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "accelerator")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if all(HERE in item.path.parents for item in items):
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="in a process of its own: pytest devices"))


@pytest.fixture(scope="session")
def sim():
    import accelerator

    return accelerator.load()


@pytest.fixture(autouse=True)
def drained(sim) -> Iterator[None]:
    """Each test starts from the same schedule, and its work is done when it ends."""
    sim.set_schedule(0)
    yield
    gc.collect()
    sim.synchronize()
    sim.set_capacity(4 << 30)
    sim.empty_cache()
