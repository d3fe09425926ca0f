"""plan(): predictions under budgets, and the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from torch import nn

import delta_torch
from delta_torch import Machine
from delta_torch.__main__ import main
from delta_torch.planning.kinds import look_up
from delta_torch.planning.machines import EFFICIENCY, machine
from delta_torch.planning.makers import checkpoint_blocks
from delta_torch.planning.roofline import Roofline

SMALL = Machine("small", {"float32": 1e12}, bandwidth=1e11, memory=2**21, copy=1e10, reserved=0)


def deep(batch: int = 64):
    """Builds a perceptron of many layers, and gives its step."""
    layers = [part for _ in range(12) for part in (nn.Linear(32, 32), nn.Tanh())]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(batch, 32)

    def step():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return step


def test_machines() -> None:
    assert delta_torch.machines() == ["a100-80", "h100", "h200", "rtx4090", "cpu"]
    for name in delta_torch.machines():
        found = machine(name)
        assert found.source
        assert 0 < found.usable <= found.memory
    assert machine("h100").flops_of(torch.float32, tf32=True) == 494.5e12
    assert machine("h100").flops_of(torch.float32, tf32=False) == 67e12
    assert SMALL.flops_of(torch.bfloat16, tf32=True) == 1e12
    with pytest.raises(ValueError, match="bandwidth of the machine 'x' is above 0"):
        Machine("x", {"float32": 1e12}, bandwidth=0, memory=2**40, copy=1)
    with pytest.raises(ValueError, match="needs flops of float32"):
        Machine("x", {}, bandwidth=1, memory=2**40, copy=1)
    with pytest.raises(ValueError, match=r"of the memory of the machine 'x' .* can't be reserved"):
        delta_torch.Machine("x", {"float32": 1e12}, 1e11, 2**30, 1e10)


@pytest.mark.parametrize(
    ("work", "kind", "flops", "moved"),
    [
        (lambda a: a @ a, "matmul", 2 * 512**3, 3 * 512 * 512 * 4),
        (lambda a: a + 1, "elementwise", 512 * 512, 2 * 512 * 512 * 4),
        (lambda a: a.add_(1), "elementwise", 512 * 512, 2 * 512 * 512 * 4),
        (lambda a: a[:1].expand(512, 512) * 1, "elementwise", 512 * 512, 513 * 512 * 4),
        (lambda a: a.sum(), "reduction", 512 * 512, 512 * 512 * 4 + 4),
        (lambda a: a[torch.zeros(7, dtype=torch.int64)], "embedding", 0, 56 + 2 * 7 * 512 * 4),
        # Its running statistics are changed in place, what it normalised is new.
        (
            lambda a: nn.functional.batch_norm(a, torch.zeros(512), torch.ones(512), training=True),
            "normalisation",
            512 * 512,
            2 * 512 * 512 * 4 + 6 * 512 * 4,
        ),
    ],
)
def test_roofline(work, kind: str, flops: int, moved: int) -> None:
    def make():
        a = torch.randn(512, 512)
        return lambda: work(a)

    last = delta_torch.record(make, fake=True, device=SMALL).operations[-1]
    assert last.kind == kind
    for_flops, for_bytes = EFFICIENCY[kind]
    seconds = SMALL.launch + max(flops / (1e12 * for_flops), moved / (1e11 * for_bytes))
    assert last.cost_ns == pytest.approx(seconds * 1e9, abs=1)


def test_convolutions_count_their_groups() -> None:
    def cost(groups: int, backward: bool) -> float:
        image, weight = torch.randn(2, 8, 16, 16), torch.randn(8, 8 // groups, 3, 3)
        rest = ([1, 1], [1, 1], [1, 1], False, [0, 0], groups)
        price = Roofline(Machine("x", {"float32": 1.0}, bandwidth=1e30, memory=2**40, copy=1))
        made = torch.ops.aten.convolution(image, weight, None, *rest)
        func, arguments = torch.ops.aten.convolution.default, (image, weight, None, *rest)
        if backward:
            func = torch.ops.aten.convolution_backward.default
            arguments = (made, image, weight, None, *rest, [True, True, False])
        op = look_up(func)
        return price._flops(op, func, arguments, {}, made, [], [])

    for groups in (1, 8):
        assert cost(groups, True) == 2 * cost(groups, False)
    assert cost(1, False) == 8 * cost(8, False) == 2 * (2 * 8 * 256) * 8 * 9


def test_plan() -> None:
    told = []
    found = delta_torch.plan(
        deep,
        device=SMALL,
        batches=[64, 256],
        host="1GiB",
        progress=lambda text, share: told.append((text, share)),
    )
    assert told[0] == ("batch 64: recording", 0.0)
    assert told[-1] == ("done", 1.0)
    small, large = found.batches
    assert (small.batch, large.batch) == (64, 256)
    assert small.peak_bytes < large.peak_bytes
    for b in found.batches:
        first = b.points[0]
        assert (first.share, first.overhead, first.verdict) == (1.0, 1.0, "fits")
        assert sum(b.at_peak.values()) == b.peak_bytes
        for p in b.points:
            if p.fits:
                assert p.peak_bytes <= p.budget_bytes
                assert p.overhead >= p.bound - 1e-6 >= 1 - 1e-6
        # Less overhead takes more memory.
        assert b.smallest[1.05] >= b.smallest[1.2] >= b.smallest[2.0] > 0
    assert any(p.recomputes + p.offloads > 0 for p in large.points)
    text = str(found)
    assert "small, 2.0 MiB for tensors, policy adaptive (predicted)" in text
    assert "smallest budget for 1.2 times the time: " in text
    back = json.loads(found.to_json())
    assert back["batches"][1]["points"][0]["budget_bytes"] == large.points[0].budget_bytes
    assert back["batches"][0]["smallest"]["1.2"] == small.smallest[1.2]


def test_only_recomputed_without_a_host() -> None:
    found = delta_torch.plan(deep, device=SMALL, batches=[256], host=0, policy="dtr")
    points = [p for p in found.batches[0].points if p.fits]
    assert sum(p.recomputes for p in points) > 0
    assert sum(p.offloads for p in points) == 0


def test_a_real_recording() -> None:
    step = delta_torch.record(deep(), repeats=3)
    found = delta_torch.plan(step, device="cpu", shares=[0.6])
    assert found.batches[0].points[0].share == 1.0
    assert found.batches[0].step_ns == step.step_ns
    assert found.batches[0].host_bytes == 0


def test_largest_batch() -> None:
    found = delta_torch.plan(deep, device=SMALL, batches=[64], largest=True, max_overhead=1.5)

    def peak(batch: int) -> int:
        return delta_torch.record(deep, fake=True, device=SMALL, args=(batch,)).peak_bytes

    most = found.largest_unmanaged
    assert peak(most) <= SMALL.usable < peak(int(most * 1.03) + 1)
    assert found.largest_managed > most
    assert f"largest batch that fits: {most} unmanaged" in str(found)


def test_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = delta_torch.plan(deep, device=SMALL, batches=[64, 256], host=0)
    found.plot(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").stat().st_size > 10_000


def test_which_modules_are_blocks() -> None:
    def block() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    assert checkpoint_blocks(nn.Sequential(Block(), nn.ReLU(), Block()), use_reentrant=False) == 2
    assert checkpoint_blocks(nn.Sequential(block(), block()), use_reentrant=False) == 0
    assert checkpoint_blocks(Block(), use_reentrant=False) == 0


def test_checkpoint_per_block() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 32))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.layers(x)

    def make(checkpointed: bool, batch: int):
        model = nn.Sequential(*[Block() for _ in range(6)])
        whole = nn.Sequential(nn.Linear(32, 32), model)
        if checkpointed:
            how = {"use_reentrant": False, "preserve_rng_state": False}
            assert checkpoint_blocks(nn.ModuleDict({"body": model}), **how) == 6
        x = torch.randn(batch, 32)
        return lambda: whole(x).sum().backward()

    found = delta_torch.plan(
        lambda batch: make(False, batch),
        device=SMALL,
        batches=[512],
        compare=lambda batch: make(True, batch),
    )
    b = found.batches[0]
    assert b.checkpoint_bytes < 0.6 * b.peak_bytes
    assert b.checkpoint_ns > 1.1 * b.step_ns
    assert "torch.utils.checkpoint per block: peak" in str(found)
    assert b.at_checkpoint.budget_bytes == b.checkpoint_bytes


@pytest.mark.parametrize(
    ("arguments", "kind", "sentence"),
    [
        ({"step": 3}, TypeError, "plan() takes a function that builds the model"),
        ({"policy": "best"}, ValueError, "there is no policy 'best'"),
        ({"device": "b200"}, ValueError, "there is no device 'b200'"),
        ({"shares": [1.5]}, ValueError, "shares are above 0 and at most 1"),
        ({"batches": []}, ValueError, "no batch size among batches"),
        ({"batches": [0]}, ValueError, "a batch size is a whole number above 0, not 0"),
        ({"host": "lots"}, ValueError, "host memory is a number with a unit"),
        ({"max_overhead": 0.5}, ValueError, "max_overhead is from 1 to 10"),
        ({"largest": True}, ValueError, "only be searched where batches are given"),
        ({"step": lambda: None}, TypeError, "returns the step is needed"),
    ],
)
def test_refusals(arguments: dict, kind: type, sentence: str) -> None:
    arguments = {"step": deep, "device": SMALL, **arguments}
    with pytest.raises(kind, match=re.escape(sentence)):
        delta_torch.plan(arguments.pop("step"), **arguments)


def command(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs python -m delta_torch."""
    package = str(Path(delta_torch.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-m", "delta_torch", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": package},
    )


MODEL = """
import torch
def make(batch):
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(8)])
    x = torch.randn(batch, 64)
    return lambda: model(x).sum().backward()
"""


def test_command_line(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "a_model_of_mine.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    model = ["--model", "a_model_of_mine:make", "--device", "h100"]
    assert main(["plan", *model, "--batch", "128", "--json", "p.json"]) == 0
    printed = capsys.readouterr()
    assert "batch 128: peak" in printed.out
    assert "] batch 128: recording" in printed.err
    assert json.loads((tmp_path / "p.json").read_text())["device"] == "h100"
    done = command("record", *model, "--out", "p.log.gz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("p.log.gz: ")
    assert (tmp_path / "p.log.gz").stat().st_size > 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--model", "resnet50"], "a model is torchvision:NAME, transformers:NAME or module:f"),
        (["--model", "no_such_module:make"], "there is no module 'no_such_module'"),
        (["--model", "json:make"], "the module json has no function 'make'"),
        (["--model", "json:loads", "--device", "tpu"], "there is no device 'tpu'"),
        (["--model", "json:loads", "--batch", "0"], "a batch size is a whole number above 0"),
        (["--model", "json:loads", "--config", "layers"], "--config is KEY=N"),
        (["--model", "json:loads", "--config", "layers=2"], "--config is for transformers' models"),
        (["--model", "json:loads", "--lora", "-1"], "--lora is a rank above 0, not -1"),
        (["--model", "json:loads", "--lora", "8"], "--lora is for transformers' models"),
        (["--model", "json:loads", "--size", "0"], "--size is above 0, not 0"),
        (["--model", "json:loads", "--checkpoint"], "--checkpoint is for models of torchvision"),
    ],
)
def test_command_line_refuses(words: list[str], sentence: str, capsys) -> None:
    assert main(["plan", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith(f"delta_torch: {sentence}")


def test_configurations_have_no_other_keys(monkeypatch, capsys, tmp_path: Path) -> None:
    class Config:
        model_type = "tiny"
        attribute_map = {"num_hidden_layers": "n_layer"}

        def to_dict(self) -> dict:
            return {"n_layer": 12, "_name_or_path": ""}

    library = types.ModuleType("transformers")
    library.models = library.auto = library.configuration_auto = library
    library.CONFIG_MAPPING = {"tiny": Config}
    monkeypatch.setitem(sys.modules, "transformers", library)
    monkeypatch.chdir(tmp_path)
    Path("tiny").mkdir()  # no configuration, though it has the name of a model
    words = ["plan", "--model", "transformers:tiny", "--config", "n_layer=2", "num_hidden_layer=2"]
    assert main(words) == 2
    assert capsys.readouterr().err.splitlines() == [
        "delta_torch: --config: tiny has no 'num_hidden_layer'; there are "
        "n_layer, num_hidden_layers"
    ]


def test_policies_beside_each_other() -> None:
    """Each has the figures of a plan of its own; and the bound is that of all."""
    shares = (0.7, 0.4)
    found = delta_torch.compare_policies(deep, ["dtr", "adaptive"], device=SMALL, shares=shares)
    for name, points in found.points.items():
        (alone,) = delta_torch.plan(deep, device=SMALL, policy=name, shares=shares).batches
        assert points == alone.points
    head, *rows = str(found).splitlines()[1:-1]
    assert head.split() == ["budget", "of", "peak", "dtr", "adaptive", "bound"]
    assert len(rows) == 3
    for row in rows:
        bound = float(row.split()[-1])
        assert all(float(time) >= bound - 1e-3 for time in row.split()[3:-1] if time != "-")
    for policies in ("dtr", [], ["no_such_policy"]):
        with pytest.raises(ValueError, match="policies is a list|policy"):
            delta_torch.compare_policies(deep, policies, device=SMALL)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is no configuration in JSON: Expecting property name"),
        ("[]", "is no model's configuration: it has no model_type"),
        ('{"hidden_size": 8}', "is no model's configuration: it has no model_type"),
        ('{"model_type": "huge"}', "transformers has no model of the type 'huge'"),
    ],
)
def test_files_of_configurations_that_are_none(
    text: str, sentence: str, monkeypatch, capsys, tmp_path: Path
) -> None:
    library = types.ModuleType("transformers")
    library.models = library.auto = library.configuration_auto = library
    library.CONFIG_MAPPING = {}
    monkeypatch.setitem(sys.modules, "transformers", library)
    file = tmp_path / "config.json"
    file.write_text(text)
    for path in (file, tmp_path):
        assert main(["plan", "--model", f"transformers:{path}"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("delta_torch: ") and sentence in line and str(tmp_path) in line


@pytest.mark.long
def test_a_model_by_its_file_and_its_adapters(tmp_path: Path) -> None:
    """As the file says, with changes; its own weights are frozen, and are parameters nevertheless."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("peft")
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        vocab_size=500,
    )
    config.save_pretrained(tmp_path)
    weights = sum(p.numel() for p in transformers.LlamaForCausalLM(config).parameters()) * 4

    def roles(*words: str) -> dict[str, int]:
        flags = ["--batch", "2", "--tokens", "32", "--quiet", "--json", str(tmp_path / "p.json")]
        assert main(["plan", "--model", f"transformers:{tmp_path}", *words, *flags]) == 0
        return json.loads((tmp_path / "p.json").read_text())["batches"][0]["at_peak"]

    whole, adapted = roles(), roles("--lora", "4")
    assert whole["parameters"] == pytest.approx(weights, rel=0.01)
    assert weights < adapted["parameters"] < 1.2 * weights
    assert adapted["optimizer state"] < 0.2 * whole["optimizer state"]
    assert roles("--config", "num_hidden_layers=1")["parameters"] < 0.8 * weights


@pytest.mark.long
@pytest.mark.parametrize("model", ["torchvision:resnet18", "transformers:bert"])
def test_models_of_others(model: str, tmp_path: Path) -> None:
    words = ("--model", model, "--batch", "4", "--checkpoint", "--plot", "p.png")
    done = command("plan", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "torch.utils.checkpoint per block" in done.stdout
    assert (tmp_path / "p.png").stat().st_size > 10_000
