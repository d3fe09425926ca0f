"""A wheel in an environment of its own, where there is no compiler: ./run.sh wheel makes it, and
names it in DELTA_WHEEL. And what an extension says that was built for another PyTorch."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import delta_torch
from delta_torch import _version

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 3 * 10**6


class Took(NamedTuple):
    """Seconds of the clock, and of processors, which a busy machine does not add to."""

    wall: float
    processor: float


TOOK: dict[str, Took] = {}  # what pip install and a training took

# A training that knows nothing of delta: the launcher measures its peak in two steps.
PROGRAM = """
import torch
from torch import nn

layers = [part for _ in range(12) for part in (nn.Linear(256, 256), nn.GELU())]
model = nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    loss = model(torch.randn(4096, 256)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
"""


@pytest.fixture(scope="module")
def wheel() -> Path:
    if not os.environ.get("DELTA_WHEEL"):
        pytest.skip("there is no wheel: ./run.sh wheel makes one")
    return Path(os.environ["DELTA_WHEEL"])


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel. PyTorch is this one's, behind what is installed there."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "pytorch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    flags = ("install", "-q", "--no-index", "--no-deps")
    with timed("install"):
        installed = within(folder, "-m", "pip", *flags, wheel)
    assert installed.returncode == 0, installed.stderr
    return folder


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    """What the processes take that are started and ended in it."""
    wall, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    yield
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    TOOK[what] = Took(time.monotonic() - wall, processor)


def within(environment: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Runs the environment's Python, beside which nothing is on the PATH."""
    inherited = {k: v for k, v in os.environ.items() if k in ("HOME", "LANG", "TMPDIR")}
    return subprocess.run(
        [environment / "bin/python", "-W", "ignore", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        cwd=environment,
        env={**inherited, "PATH": str(environment / "bin"), "XDG_CACHE_HOME": str(environment)},
    )


def test_what_is_in_it(wheel: Path) -> None:
    assert wheel.stat().st_size < LARGEST
    assert "manylinux" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if ".libs/" in name], "no library of others"
    assert {"delta_torch/_built_for.py", "delta_torch/include/delta/delta.hpp"} <= set(names)
    (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    minor = ".".join(torch.__version__.split(".")[:2])
    assert f"\nRequires-Dist: torch=={minor}.*\n" in text
    assert f"\nVersion: {delta_torch.__version__}+torch{minor}\n" in text


def test_it_trains_two_models(environment: Path) -> None:
    where = within(environment, "-c", "import delta_torch; print(delta_torch.__file__)")
    assert where.stdout.startswith(str(environment)), where.stderr
    trained = within(environment, ROOT / "examples/train.py", "--steps", "3")
    assert trained.returncode == 0, trained.stderr
    same = re.findall(r"^(?:resnet18|gpt) .* the same$", trained.stdout, re.M)
    assert len(same) == 2, trained.stdout


def test_it_launches_a_program(environment: Path) -> None:
    lines = ("import torch", "print((torch.ones(1000) * 2).sum().item())")
    (environment / "program.py").write_text("\n".join(lines))
    done = within(environment, "-m", "delta_torch", "run", "--budget", "1MiB", "program.py")
    assert (done.returncode, done.stdout) == (0, "2000.0\n"), done.stderr
    assert "delta_torch: budget: 1.0 MiB" in done.stderr


def test_how_long_it_takes_to_the_first_report(
    environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From pip install to the report of a training under half of its peak. The seconds are printed,
    and nothing fails for them: a machine may be busy."""
    (environment / "train.py").write_text(PROGRAM)
    flags = ("--budget", "50%", "--report", "report.json")
    with timed("training"):
        done = within(environment, "-m", "delta_torch", "run", *flags, "train.py")
    assert done.returncode == 0, done.stderr
    report = json.loads((environment / "report.json").read_text())
    assert report["peak_bytes"] <= report["budget_bytes"] < 0.51 * report["unmanaged_peak_bytes"]
    saved = (report["unmanaged_peak_bytes"] - report["peak_bytes"]) / 2**20
    wall, processor = (sum(seconds) for seconds in zip(*TOOK.values(), strict=True))
    with capsys.disabled():
        print(
            f"\nfrom pip install to the report {wall:.1f} s, {processor:.1f} s of processors: "
            f"{TOOK['install'].wall:.1f} s to install, {TOOK['training'].wall:.1f} s to train 10 steps "
            f"with {saved:.0f} MiB less"
        )


def test_own_policies_say_what_they_need(environment: Path) -> None:
    program = "import delta_torch, sys; delta_torch.compile_policy(sys.argv[1], 'mostly_big')"
    done = within(environment, "-c", program, ROOT / "examples/own_policy.hpp")
    assert done.returncode == 1
    assert "there is no C++ compiler 'c++': install g++ 12 or newer" in done.stderr


@pytest.mark.parametrize("found", ["2.11.0+cpu", "3.15.0", "2.1", "2.150.0a0"])
def test_another_pytorch_is_said_at_import(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", found)
    with pytest.raises(ImportError) as raised:
        _version.check_torch()
    built = ".".join(sys.modules["delta_torch._built_for"].TORCH.split(".")[:2])
    assert f"was built for PyTorch {built}, and PyTorch {found} is installed" in str(raised.value)


def test_a_patch_of_pytorch_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    minor = sys.modules["delta_torch._built_for"].TORCH
    for patch in ("0", "7+cu132", "1a0+git"):
        monkeypatch.setattr(torch, "__version__", f"{minor}.{patch}")
        _version.check_torch()
