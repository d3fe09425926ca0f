"""pytest's options and what holds for every test: one thread, a printed seed, no run left on."""

from __future__ import annotations

import gc

import pytest
import torch

import delta_torch
from delta_torch import _C

SEED = 20261116


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also the tests that take minutes each")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: takes minutes; runs with --all only")


def pytest_report_header(config: pytest.Config) -> str:
    return f"delta_torch {delta_torch.__version__}, torch {torch.__version__}, key {_C.key()}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all"):
        return
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason="takes minutes: --all"))


@pytest.fixture
def everything(request: pytest.FixtureRequest) -> bool:
    """Is this with --all?"""
    return request.config.getoption("--all")


@pytest.fixture(autouse=True, scope="module")
def imported() -> None:
    """What imports have made, a million objects, stays: collections need not look through it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def reproducible(imported: None):
    """The same bits every time: one thread, a seed. A run that a test leaves on is an error."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    print(f"seed {SEED}")  # pytest shows it where a test fails
    torch.manual_seed(SEED)
    yield
    left_on = delta_torch.stop() is not None
    torch.set_num_threads(threads)
    gc.collect()
    assert not left_on, "the test has left a run on"
