"""Snapshots: what a run's memory was, as PyTorch's own memory viewer reads it."""

from __future__ import annotations

import pickletools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.cuda import _memory_viz

import delta_torch
from matrix_cases import CASES
from snapshots import curve, read
from training import SEED, measured

MIB = 2**20


def trained(size: int, steps: int = 4, **options: Any) -> delta_torch.Run:
    torch.manual_seed(SEED)
    training = CASES["resnet_sgd"]()
    with delta_torch.budget(size, **options) as run:
        for i in range(steps):
            training.step(i)
    return run


@pytest.fixture(scope="module")
def run() -> delta_torch.Run:
    """A training in which tensors leave and come back."""
    torch.set_num_threads(1)
    peak = measured(CASES["resnet_sgd"], 2).peak_bytes
    return trained(int(0.6 * peak), host=16 * MIB)


@pytest.fixture(scope="module")
def file(run: delta_torch.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("snapshot") / "m.pickle"
    run.snapshot(file)
    return file


def test_sums_are_the_reports(run: delta_torch.Run, file: Path) -> None:
    report, used = run.report(), curve(read(file))
    assert report.evictions + report.offloads > 0, "nothing has left: the test shows nothing"
    assert used[0] == 0, "what was freed was taken before"
    assert max(used) == report.peak_bytes
    assert used[-1] == report.used_bytes


def test_blocks_never_overlap(file: Path) -> None:
    here: dict[int, int] = {}
    for e in read(file)["device_traces"][0]:
        if e["action"] == "alloc":
            assert e["addr"] not in here
            here[e["addr"]] = e["size"]
        elif e["action"] == "free_completed":
            assert here.pop(e["addr"]) == e["size"]
    ends = sorted((at, at + size) for at, size in here.items())
    assert all(a[1] <= b[0] for a, b in zip(ends, ends[1:], strict=False))
    blocks = [b for s in read(file)["segments"] for b in s["blocks"] if b["state"] != "inactive"]
    assert {b["address"]: b["size"] for b in blocks} == here


def test_frames_name_operator_and_module(file: Path) -> None:
    lines = {_memory_viz._frame_fmt(f) for e in read(file)["device_traces"][0] for f in e["frames"]}
    assert any("SmallResNet.stem" in x and "aten::convolution" in x for x in lines), lines
    assert any(x.endswith(":parameter") and "weight" in x for x in lines), lines
    assert any(x.startswith("(no module):") and "backward" in x for x in lines), lines


def test_pytorchs_own_functions_take_it(file: Path) -> None:
    summary = _memory_viz.segsum(read(file))
    used = curve(read(file))[-1]
    assert f"total_allocated: {_memory_viz.Bytes(used)}" in summary
    listed = _memory_viz.trace(read(file))
    assert f"{len(read(file)['device_traces'][0])} entries" in listed
    flames: list[str] = []
    _memory_viz.memory(read(file), flames.append)
    held = [x for x in flames[0].splitlines() if "inactive" not in x]
    assert sum(int(x.rpartition(" ")[2]) for x in held) == used
    left = _memory_viz.filter_alloc_free_pairs(read(file))["device_traces"][0]
    assert {e["action"] for e in left} == {"alloc"}
    assert sum(e["size"] for e in left) == used


def test_the_viewers_page_can_read_it(file: Path) -> None:
    """Its own reader of pickles, in JavaScript, knows these alone."""
    known = (
        "PROTO FRAME STOP MARK MEMOIZE BINGET LONG_BINGET EMPTY_DICT SETITEM SETITEMS EMPTY_LIST "
        "APPEND APPENDS NEWFALSE NEWTRUE NONE BININT BININT1 BININT2 LONG1 BINFLOAT "
        "SHORT_BINUNICODE BINUNICODE EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3"
    ).split()
    operations = list(pickletools.genops(file.read_bytes()))
    assert {code.name for code, *_ in operations} <= set(known)
    assert operations[0][1] == 4  # the protocol
    numbers = [value for _, value, _ in operations if isinstance(value, int)]
    assert max(numbers) < 2**53, "it counts in doubles"


@pytest.mark.parametrize("kind", ["trace_plot", "segment_plot"])
def test_the_viewer_opens_it(file: Path, tmp_path: Path, kind: str) -> None:
    page = tmp_path / "m.html"
    command = [sys.executable, "-m", "torch.cuda._memory_viz", kind, str(file), "-o", str(page)]
    subprocess.run(command, check=True, capture_output=True)
    assert "snapshot.pickle" in page.read_text()


def test_during_the_run(tmp_path: Path) -> None:
    file = tmp_path / "m.pickle"
    with delta_torch.budget("64MiB") as run:
        x = torch.ones(2 * MIB)
        run.snapshot(file)
        first = curve(read(file))
        y = x * 2
        run.snapshot(file)
        second = curve(read(file))
        assert second[-1] == run.report().used_bytes
    assert second[-1] == first[-1] + 8 * MIB
    del y


def test_of_a_run_that_is_over_when_another_is_on(run: delta_torch.Run, file: Path) -> None:
    again = file.with_name("again.pickle")
    with delta_torch.budget("64MiB"):
        torch.ones(MIB).sum()
        run.snapshot(again)
    assert again.read_bytes() == file.read_bytes()


def test_a_long_run_keeps_the_last_changes(tmp_path: Path) -> None:
    most = 1 << 17
    file = tmp_path / "m.pickle"
    with delta_torch.budget("64MiB") as run:
        x = torch.ones(1000)
        for _ in range(most // 2 + 1000):
            x + x
        run.snapshot(file)
        used = run.report().used_bytes
    snapshot = read(file)
    trace = snapshot["device_traces"][0]
    assert sum(e["action"] != "free_requested" for e in trace) == most
    assert min(curve(snapshot)) >= 4000 and curve(snapshot)[-1] == used
    assert all(a["time_us"] <= b["time_us"] for a, b in zip(trace, trace[1:], strict=False))


def test_refuses_what_has_not_begun(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="has not begun"):
        delta_torch.budget("1GiB").snapshot(tmp_path / "m.pickle")


def test_says_where_it_cant_be_written(run: delta_torch.Run, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run.snapshot(tmp_path / "no" / "m.pickle")
