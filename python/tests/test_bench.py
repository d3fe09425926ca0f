"""The benchmarks beside PyTorch's own means, and a GPU's first contact, tried out on tiny models."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
GPU = Path(__file__).resolve().parents[2] / "bench/gpu"

import compiled  # noqa: E402
import against_pytorch  # noqa: E402
import matrix_cases  # noqa: E402
from against_pytorch import Held, HostCopies, Subject  # noqa: E402


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


def tiny(_: bool):
    model = nn.Sequential(nn.Sequential(*[Block() for _ in range(4)]))
    x = torch.randn(512, 64)
    return model, lambda: F.mse_loss(model(x), x)


def test_host_copies_are_what_save_on_cpu_does() -> None:
    """Bytes and strides come back as they were, and nothing is held after the backward pass."""
    held = Held()
    a = torch.randn(5, 7, requires_grad=True)
    saved = {
        "dense": a,
        "transposed": a.t(),
        "sliced": a[:, 1:4],
        "expanded": torch.randn(5, 1).expand(5, 7),
        "empty": a[:0],
        "scalar": torch.tensor(2.5),
        "mask": torch.tensor([True, False]),
    }
    for name, tensor in saved.items():
        copied = against_pytorch._Copy(tensor.detach(), held)
        assert held.now == tensor.numel() * tensor.element_size(), name
        back = copied.back()
        assert torch.equal(back, tensor), name
        assert back.stride() == tensor.detach().clone().stride(), name
        del copied
        assert held.now == 0, name
    with HostCopies(held):
        loss = (a.exp() * a).sum()
    assert held.now == 3 * 35 * 4  # what exp gives, and both factors
    loss.backward()
    assert held.now == 0
    assert torch.equal(a.grad, a.exp() * a + a.exp())


def test_against_pytorch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setitem(against_pytorch.MODELS, "tiny", Subject(tiny, "4 blocks of 64"))
    out, plot = tmp_path / "out.json", tmp_path / "plot.png"
    flags = ["--models", "tiny", "--steps", "1", "--rounds", "1", "--out", str(out)]
    assert against_pytorch.main([*flags, "--plot", str(plot)]) == 0
    printed = capsys.readouterr().out
    assert "| tiny | `checkpoint` |" in printed
    assert "all losses are the unmanaged ones" in printed
    assert plot.read_bytes().startswith(b"\x89PNG")
    ways = json.loads(out.read_text())["models"]["tiny"]["ways"]
    plain, checkpoint, save_on_cpu, both = ways[:4]
    assert checkpoint["peak_bytes"] < plain["peak_bytes"]
    assert save_on_cpu["peak_bytes"] < plain["peak_bytes"]
    assert 0 < both["host_peak_bytes"] < save_on_cpu["host_peak_bytes"]
    assert all(way["same_state"] for way in (checkpoint, save_on_cpu, both))
    for way in ways[4:]:
        assert way["time"] is None or way["peak_bytes"] <= way["budget_bytes"]


def test_peaks_by_the_profiler_are_those_of_a_run() -> None:
    """Compiled code can't be measured in a run: its instrument has to agree with the run's."""
    subject = Subject(tiny, "4 blocks of 64")
    whole, _, _ = against_pytorch.measured(subject, "unmanaged")
    torch.manual_seed(against_pytorch.SEED)
    training, _ = subject.training(None)
    for i in range(2):
        training.step(i)
    training.optimizer.zero_grad()
    with compiled.Peak() as peak:
        training.step(2)
    state = training.optimizer.state_dict()["state"].values()
    kept = [*training.model.parameters(), *(t for part in state for t in part.values())]
    alive = sum(tensor.nbytes for tensor in kept) + 512 * 64 * 4  # and the input
    assert peak.bytes - peak.base + alive == pytest.approx(whole.peak_bytes, rel=0.01)


def first_contact(out: Path, device: str, rows: str) -> dict[str, dict]:
    """Tries out rows of bench/gpu/torch_contact.py; gives what they found."""
    flags = ["--device", device, "--delta-torch", "installed", "--rows", rows, "--out", str(out)]
    flags += ["--minutes", "60", "--row-seconds", "3600"]  # a busy machine is no failure
    command = [sys.executable, str(GPU / "torch_contact.py"), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No row has failed." in (out / "gpu-torch.md").read_text()
    return json.loads((out / "gpu-torch.json").read_text())["rows"]


def test_first_contact(tmp_path: Path) -> None:
    rows = "^(machine|contact|copies|streams|forked_loader|llama, (copied|unmanaged|check|delta, 40|predicted))"
    found = first_contact(tmp_path, "cpu", rows)
    assert found.pop("streams")["status"] == "skipped"
    assert {row["status"] for row in found.values()} == {"done"}
    assert "tensors left" in found["llama, copied too"]["line"]
    peak = found["llama, unmanaged"]["peak_bytes"]
    assert found["llama, checkpoint"]["peak_bytes"] < peak
    assert found["llama, delta, 40 %"]["peak_bytes"] <= 0.4 * peak
    assert found["llama, delta, 40 %"]["same"]
    assert found["llama, predicted"]["peak_bytes"] == pytest.approx(peak, rel=0.05)


def test_first_contact_links_what_a_toolkit_lacks(tmp_path: Path) -> None:
    """A toolkit that has nvcc alone, beside PyTorch's packages; and one that has all."""
    sys.path.insert(0, str(GPU))
    from torch_contact import toolkit

    given, package = tmp_path / "cuda", tmp_path / "nvidia/cu13"
    theirs = ("include/cublasLt.h", "include/cusolverDn.h", "lib/libcudart.so.13")
    for file in (given / "bin/nvcc", *(package / name for name in theirs)):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    for _ in range(2):
        home = toolkit(tmp_path, given, [package])
        found = {str(file.relative_to(home)) for file in home.glob("*/*")}
        assert found >= {"bin/nvcc", *theirs[:2], "lib64/libcudart.so"}
    assert toolkit(tmp_path, home, [package]) == home


def test_first_contact_has_all_trainings() -> None:
    sys.path.insert(0, str(GPU))
    import torch_cases

    for node in ast.parse((GPU / "torch_contact.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CASES":
            assert ast.literal_eval(node.value) == (
                *matrix_cases.CASES,
                "llama",
                *torch_cases.CASES,
            )
            return
    pytest.fail("there are no CASES")
