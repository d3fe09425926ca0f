"""What is said while shares are measured and budgets are sought, and where."""

from __future__ import annotations

import io
import logging

import pytest
import torch

import delta_torch
from delta_torch import progress

KIB = 1024


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Its `messages` are the lines of the log."""
    caplog.set_level(logging.INFO, "delta_torch")
    return caplog


def step() -> None:
    x = torch.ones(64 * KIB, requires_grad=True)
    (x * 2 * x).sum().backward()
    if delta_torch._C.active():
        delta_torch.step()


def test_a_share_is_measured_once(
    said: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    run = delta_torch.budget("90%", steps="manual")
    assert not said.messages
    for _ in range(2):  # the second time it is known
        with run:
            for _ in range(3):
                step()
        assert said.messages == ["measuring the first 2 steps to turn 90% into bytes"]
    with delta_torch.budget(0.5, share_after=1):
        assert said.messages[1:] == ["measuring the first step to turn 50% into bytes"]
    with delta_torch.budget("64MiB"):
        step()
    assert len(said.messages) == 2
    assert capfd.readouterr().err == ""


def test_budgets_that_are_tried(
    said: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    found = delta_torch.find_budget(step, 1000.0, trials=3, steps=1)
    lines = said.messages
    assert lines[0] == "measuring steps without a budget"
    sizes = [delta_torch.sizes.format_bytes(t.budget_bytes) for t in found.trials]
    tries = [x for x in lines if "of at most" in x]
    assert tries == [
        f"trying {size} ({i} of at most 3)" for i, size in enumerate(sizes[: len(tries)], 1)
    ]
    assert len(tries) == sum(not t.confirms for t in found.trials) == 3
    again = [f"trying {size} again, to confirm it" for size in sizes[len(tries) :]]
    assert lines[1 + len(tries) :] == [x for a in again for x in (lines[0], a)]
    assert capfd.readouterr().err == ""


def test_on_a_terminal(said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with delta_torch.budget("40%"):
        pass
    assert terminal.getvalue() == "delta: measuring the first 2 steps to turn 40% into bytes\n"
    assert not said.messages


def test_without_stderr(said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    progress.tell("trying")
    assert said.messages == ["trying"]


@pytest.mark.parametrize(("rank", "lines"), [(None, 1), (0, 1), (1, 0)])
def test_of_several_processes_the_first(
    said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, rank: int | None, lines: int
) -> None:
    monkeypatch.setattr(progress.group, "rank", lambda: rank)
    progress.tell("trying")
    assert len(said.messages) == lines
