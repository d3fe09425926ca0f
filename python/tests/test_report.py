"""Reports: numbers, the table, JSON and the figure."""

from __future__ import annotations

import builtins
import dataclasses
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import delta_torch
from delta_torch.planning.outlook import Outlook
from delta_torch.report import ModuleUse
from matrix_cases import CASES
from training import SEED

MIB = 2**20


@pytest.fixture(scope="module")
def run() -> delta_torch.Run:
    """A training of six steps under a share of its peak."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    training = CASES["resnet_sgd"]()
    with delta_torch.budget("75%", policy="adaptive", host="1GiB") as run:
        for i in range(6):
            training.step(i)
    return run


def test_numbers(run: delta_torch.Run) -> None:
    report = run.report()
    assert report is run.report()
    assert report.policy == "adaptive"
    share = 0.75 * report.unmanaged_peak_bytes
    assert share - 64 < report.budget_bytes <= share  # whole blocks of 64 bytes
    assert 0 < report.used_bytes <= report.peak_bytes <= report.budget_bytes
    assert report.host_budget_bytes == 2**30
    assert report.host_peak_bytes >= report.host_bytes
    assert report.steps == 6
    assert report.operators > 6 * 100
    assert report.evictions + report.offloads > 0
    assert report.error is None and run.error is None
    assert report.seconds > 0


def test_stats_are_the_numbers_alone(run: delta_torch.Run) -> None:
    report, stats = run.report(), run.stats()
    assert all(type(n) in (int, float) for n in stats.values())
    assert {"steps", "peak_bytes", "unmanaged_peak_bytes", "recompute_ns", "seconds"} <= set(stats)
    assert stats == {name: getattr(report, name) for name in stats}
    with delta_torch.budget("1MiB") as other:
        torch.ones(1000) * 2
        now = other.stats()
        assert now["operators"] == 2 and "unmanaged_peak_bytes" not in now
        assert now.keys() == other.report().stats().keys()
    with pytest.raises(RuntimeError, match="has not begun"):
        delta_torch.budget("1MiB").stats()


def test_is_frozen(run: delta_torch.Run) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.report().steps = 7  # type: ignore[misc]


def test_modules(run: delta_torch.Run) -> None:
    modules = {m.name: m for m in run.report().modules}
    assert modules["SmallResNet.body.0.first"].made_bytes > 0
    assert modules[""].made_bytes > 0  # the backward pass
    assert sum(m.at_peak_bytes for m in modules.values()) <= 1.05 * run.report().peak_bytes
    assert sum(m.left for m in modules.values()) > 0


def test_samples(run: delta_torch.Run) -> None:
    samples = run.report().samples
    assert 100 < len(samples) < 10_000
    assert all(a.time_ns <= b.time_ns for a, b in zip(samples, samples[1:], strict=False))
    under = [s for s in samples if s.time_ns > run.report().measured_ns > 0]
    assert under and max(s.used_bytes for s in under) <= run.report().budget_bytes
    assert samples[-1].offloads <= run.report().offloads


def test_table(run: delta_torch.Run) -> None:
    text = str(run.report())
    assert "policy adaptive" in text
    assert "6 steps" in text
    assert "MiB" in text
    assert "SmallResNet.stem" in text
    table = text.split("\n\n")[1].splitlines()
    assert len(table) <= 12  # a head, ten modules, the rest
    assert len({len(line) for line in table}) == 1
    assert max(map(len, text.splitlines())) <= 120


def test_json(run: delta_torch.Run, tmp_path) -> None:
    text = run.report().to_json(tmp_path / "report.json")
    read = json.loads(text)
    assert json.loads((tmp_path / "report.json").read_text()) == read
    assert read["peak_bytes"] == run.report().peak_bytes
    names = {field.name for field in dataclasses.fields(ModuleUse)}
    assert read["modules"][0].keys() == names
    assert read["samples"][0]["used_bytes"] == run.report().samples[0].used_bytes


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_plot(run: delta_torch.Run, tmp_path, kind: str) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / f"memory.{kind}"
    run.report().plot(file)
    content = file.read_bytes()
    assert len(content) > 10_000
    assert content.startswith(b"\x89PNG" if kind == "png" else b"<?xml")


def test_plot_without_matplotlib(run: delta_torch.Run, tmp_path, monkeypatch) -> None:
    known = builtins.__import__

    def without(name: str, *rest):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return known(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="needs Matplotlib: pip install matplotlib"):
        run.report().plot(tmp_path / "memory.png")


def test_plot_of_nothing(tmp_path) -> None:
    with delta_torch.budget("1GiB") as run:
        pass
    with pytest.raises(ValueError, match="nothing to plot"):
        run.report().plot(tmp_path / "memory.png")


def test_during_the_run() -> None:
    with delta_torch.budget("64MiB", policy="online") as run:
        x = torch.ones(2 * MIB)
        first = run.report()
        y = x * 2
        second = run.report()
    assert first.used_bytes >= 8 * MIB
    assert second.used_bytes >= first.used_bytes + 8 * MIB
    assert second.operators > first.operators
    assert run.report().operators >= second.operators
    del y


def test_stays_after_the_next_run() -> None:
    with delta_torch.budget("64MiB", policy="online") as one:
        torch.ones(MIB).sum()
    operators = one.report().operators
    with delta_torch.budget("32MiB", policy="dtr") as two:
        for _ in range(50):
            torch.ones(10).sum()
    assert one.report().operators == operators < two.report().operators
    assert one.report().policy == "online"


def test_timeline(tmp_path) -> None:
    file = tmp_path / "timeline.json"
    with delta_torch.budget("64MiB", policy="online", timeline=file):
        torch.nn.Linear(64, 64)(torch.ones(8, 64)).sum().backward()
    events = json.loads(file.read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    assert any("Linear" in e.get("name", "") for e in events), "events carry module names"


def advice(report: delta_torch.Report, **changed: object) -> str | None:
    text = str(dataclasses.replace(report, **changed))
    assert text.count("advice: ") <= 1
    before, found, last = text.rpartition("\n\nadvice: ")
    assert "\n" not in last or not found
    return last if found else None


def test_advice_is_the_last_line(run: delta_torch.Run) -> None:
    report = run.report()
    quick = {"seconds": 10.0, "measured_ns": 2 * 10**9}
    assert advice(report, recompute_ns=10**8, **quick) is None
    slow = {"recompute_ns": 4 * 10**9, "host_budget_bytes": 0, **quick}
    most = max(report.modules, key=lambda m: m.recompute_ns).name or "operators outside of modules"
    again = f"50% of the time went into computing again, most of it for {most}: "
    assert advice(report, **slow) == again + "a larger budget takes less"
    with_host = Outlook(False, 0, host_bytes=3 * 2**30, overhead=1.391, host_overhead=1.08)
    assert advice(report, **slow, outlook=with_host) == (
        again + 'a larger budget takes less; host="3.0 GiB" would take 1.08 times the unmanaged '
        "step, not 1.39 (predicted)"
    )
    same = dataclasses.replace(with_host, same_memory=True, overhead=None)
    assert advice(report, **slow, outlook=same).endswith(
        "step (predicted), though on a CPU copies take the same RAM"
    )
    copies = Outlook(True, copy_ns=6 * 10**9)
    assert advice(report, **slow, outlook=copies) == (
        "75% of the time went into copies to the host and back: a larger budget takes less"
    )
    ample = {"evictions": 0, "offloads": 0, "clean_drops": 0, "peak_bytes": 3 * MIB}
    assert advice(report, **ample) == "nothing had to leave: a budget of 3.0 MiB is enough"
    assert advice(report, **{**ample, "budget_bytes": None}) is None
    error = {"message": "", "smallest_budget": 5 * MIB}
    enough = "a budget of 5.0 MiB comes past the last error"
    assert advice(report, error=error) == enough
    assert advice(report, error=error, outlook=with_host) == enough  # it is not what was short
    fits = dataclasses.replace(with_host, overhead=None)
    host = 'host="3.0 GiB" would let the last whole step fit, at 1.08 times the unmanaged step '
    assert advice(report, error=error, outlook=fits) == f"{enough}; {host}(predicted)"
    assert advice(report, **ample, error={**error, "smallest_budget": 0}) is None


def test_a_budget_that_is_advised_is_enough() -> None:
    def step() -> None:
        x = torch.ones(MIB // 4, requires_grad=True)
        (x * 2 * x).sum().backward()
        delta_torch.step()

    with delta_torch.budget("64MiB") as ample:
        step()
    report = ample.report()
    assert "a budget of" in advice(report)
    with delta_torch.budget(report.peak_bytes) as enough:
        step()
    assert enough.report().evictions == 0


def perceptron() -> tuple[torch.nn.Module, torch.Tensor]:
    """A chain of activations, and its input."""
    torch.manual_seed(SEED)
    net = torch.nn.Sequential(
        *[m for _ in range(6) for m in (torch.nn.Linear(256, 256), torch.nn.Tanh())]
    )
    return net, torch.randn(2048, 256)


def test_the_profiler_has_a_range_for_what_runs_again() -> None:
    """Together they take what the report says, and each names its operator."""
    net, x = perceptron()
    with delta_torch.budget("14MiB", policy="dtr", host=0, steps="manual") as run:
        for _ in range(2):  # the second one is profiled
            before = run.report()
            with torch.profiler.profile() as profile:
                net(x).square().mean().backward()
            run.step()
            after = run.report()
    again = [e for e in profile.key_averages() if e.key.startswith("delta::recompute aten::")]
    assert {e.key.removeprefix("delta::recompute aten::") for e in again} >= {"addmm", "tanh"}
    assert sum(e.count for e in again) == after.recomputes - before.recomputes > 0
    took = sum(e.cpu_time_total for e in again) * 1e3  # ns
    assert took == pytest.approx(after.recompute_ns - before.recompute_ns, rel=0.05)


@pytest.mark.parametrize("policy", ["dtr", "adaptive"])
def test_the_profiler_sees_the_memory(policy: str, tmp_path: Path) -> None:
    """To the byte, as the report: the peak, and by operator what each has taken and given."""
    net, x = perceptron()
    before = [x, *net.parameters()]
    with delta_torch.budget("14MiB", policy=policy, host=0) as run:
        with torch.profiler.profile(profile_memory=True) as profile:
            for _ in range(2):
                net(x).square().mean().backward()
        report = run.report()
    assert report.recomputes > 0
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    total = [e["args"]["Total Allocated"] for e in events if e["name"] == "[memory]"]
    assert max(total) == report.peak_bytes
    taken = sum(e.self_cpu_memory_usage for e in profile.key_averages())
    assert taken == report.used_bytes - sum(t.nbytes for t in before)  # these are whole blocks


def test_the_profiler_says_nothing_more_than_without_a_run() -> None:
    """PyTorch's own profiler has lines on stderr where there is no GPU: as many as without delta."""
    text = """
        import contextlib, sys, torch, delta_torch
        run = delta_torch.budget("1MiB") if sys.argv[1:] else contextlib.nullcontext()
        with run, torch.profiler.profile(profile_memory=True):
            torch.ones(1000, requires_grad=True).exp().sum().backward()
    """
    lines = []
    for words in ([], ["managed"]):
        command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(text), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        lines.append(len(done.stderr.splitlines()))
    assert lines[0] == lines[1], done.stderr
