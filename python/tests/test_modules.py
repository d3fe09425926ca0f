"""Modules: their names in reports, keep() and pin()."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

import delta_torch
from away import is_away

TENSOR = 2**18  # elements of a MiB



def test_names_of_modules() -> None:
    class Loss(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, x):
            return nn.ReLU()(self.model(x) * 2).sum() + self.model[0](x).sum()

    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Tanh()))
    with delta_torch.budget("64MiB") as run:
        Loss(model)(torch.ones(2, 4))
    names = {m.name for m in run.report().modules if m.made_bytes}
    assert {"Loss", "Loss.model.0", "Loss.model.1.0", "Loss.ReLU"} <= names


def test_many_modules_of_a_moment() -> None:
    with delta_torch.budget("64MiB") as run:
        for _ in range(50):
            nn.ReLU()(torch.ones(8))
        other = nn.ReLU(), nn.ReLU()
        for relu in other:
            relu(torch.ones(8))
    names = {m.name for m in run.report().modules}
    assert "ReLU" in names and "ReLU#2" in names and len(names) < 6, names


def test_keep() -> None:
    model = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Sequential(nn.Linear(256, 256)))
    assert delta_torch.keep(model[2]) is model[2]
    with delta_torch.budget("9MiB", policy="online", host="64MiB"):
        y = [model[2](torch.ones(1024, 256)) for _ in range(6)]
        away = [is_away(t) for t in y]
        x = [torch.ones(TENSOR) * 2 for _ in range(3)]
        assert not any(away) and not any(is_away(t) for t in y)
        with pytest.raises(torch.OutOfMemoryError):
            y += [model[2](torch.ones(1024, 256)) for _ in range(6)]
        del x, y
        delta_torch.keep(model[2], False)
        y = [model[2](torch.ones(1024, 256)) for _ in range(12)]
        assert any(is_away(t) for t in y)
    with pytest.raises(TypeError, match=r"keep\(\) takes a torch\.nn\.Module, not Tensor"):
        delta_torch.keep(torch.ones(1))


def test_pin() -> None:
    with delta_torch.budget("6MiB", policy="online", host="64MiB"):
        x = torch.ones(TENSOR) * 2
        assert delta_torch.pin(x) is x
        others = [torch.ones(TENSOR) * i for i in range(12)]
        assert not is_away(x) and any(is_away(t) for t in others)
        with pytest.raises(TypeError, match=r"pin\(\) takes a torch\.Tensor, not list"):
            delta_torch.pin([x])


def test_a_module_that_a_run_ends_within_is_not_the_next_runs() -> None:
    entered, go_on = threading.Event(), threading.Event()

    class Waiting(nn.Module):
        def forward(self, x):
            entered.set()
            go_on.wait(60)
            with delta_torch.attach():
                return x * 2

    model = delta_torch.keep(Waiting())
    made = []

    def other() -> None:
        with delta_torch.attach():
            made.append(model(torch.ones(TENSOR)))

    thread = threading.Thread(target=other)
    with delta_torch.budget("64MiB"):
        thread.start()
        assert entered.wait(60)
    with delta_torch.budget("64MiB") as run:
        go_on.set()
        thread.join()
    assert made[0].sum() == 2 * TENSOR
    assert {m.name for m in run.report().modules if m.made_bytes} == {""}
