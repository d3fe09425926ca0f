"""A run from its beginning to its end: what is refused, what is left behind, and its report."""

from __future__ import annotations

import gc
import json
import resource

import pytest
import torch
import torch.nn.functional as F

import delta_torch
from delta_torch import _C


@pytest.mark.parametrize(
    "size", ["", "4 GigaBytes", "-1MiB", 0, -5, 0.0, 1.5, float("nan"), True, "0%", "140%", []]
)
def test_a_size_that_is_none(size) -> None:
    with pytest.raises((ValueError, TypeError)):
        delta_torch.budget(size)
    assert not _C.active()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"policy": "best"}, "there is no policy 'best'; there are unmanaged"),
        ({"steps": "each"}, "steps is"),
        ({"host": "much"}, "much"),
    ],
)
def test_bad_options(options, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        delta_torch.budget("1GiB", **options)


def test_one_run_at_a_time() -> None:
    with delta_torch.budget("1GiB") as run:
        with pytest.raises(RuntimeError, match="run"):
            delta_torch.budget("1GiB").__enter__()
        assert _C.active()
    with pytest.raises(RuntimeError, match="once"):
        run.__enter__()
    assert not _C.active()


def test_within_a_forward_pass() -> None:
    class Inner(torch.nn.Module):
        def forward(self, x):
            with delta_torch.budget("1GiB"):
                return x + 1

    with pytest.raises(RuntimeError):
        Inner()(torch.ones(3))
    assert not _C.active()


def small_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    F.cross_entropy(model(torch.randn(16, 64)), torch.randint(0, 8, (16,))).backward()
    optimizer.step()


def small_model() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Sequential(
        *[torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(6)],
        torch.nn.Linear(64, 8),
    )
    return model, torch.optim.AdamW(model.parameters())


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_exceptions_leave_everything_usable(error: type[BaseException]) -> None:
    model, optimizer = small_model()

    def fail(*_):
        raise error

    with pytest.raises(error), delta_torch.budget("1MiB", policy="online", host="1GiB"):
        small_step(model, optimizer)
        hook = model[3].register_forward_hook(fail)
        small_step(model, optimizer)
    hook.remove()
    assert not _C.active()
    small_step(model, optimizer)
    with delta_torch.budget("1MiB", policy="online", host="1GiB") as run:
        small_step(model, optimizer)
    assert run.report().peak_bytes <= 1 << 20


def test_a_kernel_that_fails() -> None:
    with delta_torch.budget("8MiB", policy="online"):
        x = torch.ones(4, 5)
        with pytest.raises(RuntimeError, match="shape"):
            x @ x
        with pytest.raises(RuntimeError):
            x.add_(torch.ones(3))
        assert float((x + 1).sum()) == 40


@pytest.mark.parametrize("policy", ["dtr", "online", "adaptive"])
def test_no_leak(policy: str, everything: bool) -> None:
    model, optimizer = small_model()
    seen = []
    steps = 300 if everything else 60
    with delta_torch.budget("600KiB", policy=policy, host="1GiB") as run:
        for step in range(steps):
            small_step(model, optimizer)
            if step in (steps // 2, steps - 1):
                gc.collect()
                stats = _C.stats()
                seen.append(
                    (stats["live_tensors"], stats["live_records"], stats["used"] + stats["host_used"])
                )
                rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                seen[-1] += (rss,)
    assert run.report().steps == steps
    assert seen[0][:2] == seen[1][:2]
    assert seen[1][2] <= 2 * seen[0][2]
    assert seen[1][3] - seen[0][3] < 32 << 10  # KiB


def test_report(tmp_path) -> None:
    model, optimizer = small_model()
    with delta_torch.budget("400KiB", policy="online", host="1GiB", timeline=tmp_path / "t") as run:
        for _ in range(3):
            small_step(model, optimizer)
    report = run.report()
    assert report.steps == 3
    assert 0 < report.peak_bytes <= report.budget_bytes == 400 << 10
    assert report.evictions + report.offloads > 0
    text = str(report)
    assert "400 KiB" in text
    assert json.loads(report.to_json())["peak_bytes"] == report.peak_bytes
    events = json.loads((tmp_path / "t").read_text())
    assert any("Linear" in e["name"] or "addmm" in e["name"] for e in events)
    pytest.importorskip("matplotlib")
    report.plot(tmp_path / "memory.png")
    assert (tmp_path / "memory.png").stat().st_size > 10_000


def test_manual_steps_and_pins() -> None:
    model, optimizer = small_model()
    with delta_torch.budget("1MiB", policy="online", host="1GiB", steps="manual") as run:
        delta_torch.pin(model[0][0].weight)
        for _ in range(2):
            small_step(model, optimizer)
            delta_torch.step()
    assert run.report().steps == 2
    with pytest.raises(RuntimeError):
        delta_torch.step()
