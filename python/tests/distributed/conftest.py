"""The groups of processes that tests of a module share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from launched import Ranks


@pytest.fixture(scope="session")
def group_support() -> None:
    """Skips where groups of gloo can't run within a run."""
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        pytest.skip("without torch.distributed and gloo")
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 15):
        pytest.skip("collectives are refused before PyTorch 2.15")


def _kept(world: int) -> Callable[..., Iterator[Ranks]]:
    def ranks(group_support: None, request: pytest.FixtureRequest) -> Iterator[Ranks]:
        group = Ranks(world, repetitions=10 if request.config.getoption("--all") else 1)
        yield group
        group.end()

    return ranks


ranks = pytest.fixture(_kept(2), scope="session", name="ranks")
four_ranks = pytest.fixture(_kept(4), scope="module", name="four_ranks")
