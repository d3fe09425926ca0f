"""record(): a step as a trace. Fake tensors show the operators and the peak of a real run."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

import delta_torch
from delta_torch.planning.kinds import look_up
from delta_torch.planning.machines import EFFICIENCY
from delta_torch.planning.recording import EFFECT_ONCE, NEVER_REPLAY, RANDOM, RUN
from real_models import MODELS
from training import SEED, measured

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_OTHERS = ("unet", "mixture_of_experts")  # models that need no other package


def fake_step_of(model: str):
    """A maker, as record(fake=True) wants it."""

    def make():
        training = MODELS[model]()
        return lambda: training.step(0)

    return make


def convolutions(batch: int = 4):
    """Builds a small model with batch norm and operators in place, and gives its step."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(8 * 64, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images, labels = torch.randn(batch, 3, 8, 8), torch.randint(0, 10, (batch,))

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


def named(recording: delta_torch.Recording, name: str):
    """The first operation of that name."""
    return next(o for o in recording.operations if o.name == name)


def check_fake_is_real(model: str) -> None:
    torch.manual_seed(SEED)
    training = MODELS[model]()
    real = delta_torch.record(lambda: training.step(0))
    fake = delta_torch.record(fake_step_of(model), fake=True, nonzero=0.25)
    assert fake.operators == real.operators
    peak = measured(MODELS[model], 3).peak_bytes
    print(f"{model}: {fake.peak_bytes / peak:.4f} of the measured peak")
    assert abs(fake.peak_bytes / peak - 1) < 0.01
    assert abs(real.peak_bytes / peak - 1) < 0.01


@pytest.mark.parametrize("model", WITHOUT_OTHERS)
def test_fake_is_real(model: str) -> None:
    check_fake_is_real(model)


@pytest.mark.long
@pytest.mark.parametrize("model", [m for m in MODELS if m not in WITHOUT_OTHERS])
def test_fake_is_real_of_others(model: str) -> None:
    check_fake_is_real(model)


def test_what_operators_are() -> None:
    step = delta_torch.record(convolutions, fake=True)
    norm = named(step, "aten::native_batch_norm")
    assert (len(norm.updates), norm.traits) == (2, EFFECT_ONCE)
    relu = named(step, "aten::relu_")  # of what can be made again: a new version
    assert (relu.replaced, relu.updates, relu.traits) == (1, [], 0)
    assert step.sizes[relu.outputs[0]] == step.sizes[relu.inputs[0]]
    counter = named(step, "aten::add_")  # of batch norm's number of batches
    assert (len(counter.updates), counter.traits) == (1, NEVER_REPLAY)
    dropped = named(step, "aten::bernoulli_")  # draws into an empty tensor
    assert (dropped.replaced, dropped.traits) == (1, RANDOM)
    assert named(step, "aten::convolution").traits == 0
    roles = Counter(step.roles)
    assert roles["parameters"] == roles["optimizer state"] == 5
    assert roles["gradients"] >= 5
    assert {"parameters", "optimizer state"} <= set(step.at_peak)
    assert sum(step.at_peak.values()) == step.peak_bytes


def test_what_all_operators_are() -> None:
    """Planning asks the extension, by the schema: what it is told keeps to that, for every one."""
    priced = {kind: 0 for kind in (*EFFICIENCY, "nothing")}
    for known in torch._C._dispatch_get_all_op_names():
        name, _, overload = known.partition(".")
        if not name.startswith("aten::") or name.endswith("::"):
            continue
        func = getattr(getattr(torch.ops.aten, name[6:]), overload or "default")
        op = look_up(func)
        priced[op.kind] += 1
        says = [a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments]
        hidden = [a in ("reserve", "running_mean", "running_var") for a in op.arguments]
        for argument, (w, r, h) in enumerate(zip(op.written, op.running, hidden, strict=True)):
            assert w == (says[argument] or r or (h and op.advances)), known
        assert any(op.running) <= (op.statistics or op.advances), known
        conditions = {op.arguments[c] for c in op.conditions}
        assert conditions <= {"train", "training", "dropout"}, known
        assert op.random == (torch.Tag.nondeterministic_seeded in func.tags), known
        assert op.unseen or not op.composite, known
        assert op.composite or not (op.unseen and any(op.written)), known
    assert not priced.pop("grouped convolution") and all(priced.values()), priced
    prim = look_up(torch.ops.prim.device.default)
    assert prim.unseen and not prim.composite


def test_copies_in_inference_mode() -> None:
    with torch.inference_mode():  # where operators that are made of others arrive whole
        step = delta_torch.record(lambda: torch.ones(8, 8).t().reshape(-1))
    assert step.operators[-2:] == ["aten::clone", "aten::_unsafe_view"]


def test_replay_is_the_recording() -> None:
    step = delta_torch.record(convolutions, fake=True, device="h100")
    got = step.program.replay(
        policy="unmanaged",
        budget=2**40,
        host=0,
        rate_out=1e9,
        rate_in=1e9,
        latency=0,
        burden=0.0,
        steps=3,
        limit=10.0,
    )
    assert got["verdict"] == "fits"
    assert got["time_ns"] == step.step_ns > 0
    assert got["peak_bytes"] == step.peak_bytes


def test_too_small_a_budget_names_one() -> None:
    step = delta_torch.record(convolutions, fake=True)
    how = {"host": 0, "rate_out": 1e9, "rate_in": 1e9, "latency": 0, "burden": 0.0}
    how |= {"steps": 2, "limit": 10.0}
    got = step.program.replay(policy="dtr", budget=4096, **how)
    assert got["verdict"] == "out of memory"
    assert "needs" in got["error"]
    assert got["smallest_budget"] > 4096
    with pytest.raises(RuntimeError, match="no policy 'none'"):
        step.program.replay(policy="none", budget=4096, **how)


def test_measured_costs_and_recorded_again() -> None:
    step = convolutions()
    measured_step = delta_torch.record(step, repeats=3)
    assert all(o.cost_ns > 0 for o in measured_step.operations)
    priced = delta_torch.record(step, device="a100-80")
    again = delta_torch.record(step, device="a100-80")
    assert priced.step_ns == again.step_ns
    assert priced.operators == measured_step.operators
    assert delta_torch.record(convolutions, fake=True, device="h100", args=(8,)).peak_bytes > 0


def test_file(tmp_path: Path) -> None:
    step = delta_torch.record(convolutions, tmp_path / "step.log", fake=True, device="h100")
    lines = [json.loads(line) for line in (tmp_path / "step.log").read_text().splitlines()]
    assert lines[0]["delta_trace"] == 1
    assert lines[0]["device"] == "h100"
    assert lines[0]["events"] == len(lines) - 1 == len(step.events)
    assert lines[-1] == {"mark": "end_of_step"}
    assert {"mark": "backward"} in lines
    runs = [line for line in lines if "run" in line]
    assert [line["run"] for line in runs] == step.operators
    assert sum(line["cost"] for line in runs) == step.step_ns
    replaced = [line.get("replaces", 0) for line in runs]
    assert replaced == [o.replaced for o in step.operations] and sum(replaced) > 0
    step.save(tmp_path / "step.log.gz")
    assert (
        gzip.decompress((tmp_path / "step.log.gz").read_bytes())
        == (tmp_path / "step.log").read_bytes()
    )


def test_delta_replay_reads_it(tmp_path: Path) -> None:
    places = [*ROOT.glob("build/*/bin/delta-replay"), shutil.which("delta-replay")]
    tool = os.environ.get("DELTA_REPLAY") or next((p for p in places if p), None)
    if tool is None:
        pytest.skip("there is no delta-replay")
    file = tmp_path / "step.log.gz"
    step = delta_torch.record(convolutions, file, fake=True, device="h100")
    done = subprocess.run(
        [tool, file, "--policy", "adaptive", "--budget", "80%", "--iterations", "3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "pass" in done.stdout
    assert step.device == "h100"


def test_nothing_is_left_behind() -> None:
    before = torch.get_rng_state()
    normal, apply = nn.init.normal_, nn.Module._apply
    adam = importlib.import_module("torch.optim.adam")
    foreach = adam._default_to_fused_or_foreach
    delta_torch.record(convolutions, fake=True, device="h100")
    assert torch.equal(torch.get_rng_state(), before)
    assert (nn.init.normal_, nn.Module._apply) == (normal, apply)
    assert adam._default_to_fused_or_foreach is foreach
    assert type(torch.ones(2)) is torch.Tensor


def test_larger_than_memory_and_in_bfloat16() -> None:
    def make():
        model = nn.Linear(1 << 18, 1 << 18).to(torch.bfloat16)  # 128 GiB
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.randn(2, 1 << 18, dtype=torch.bfloat16)

        def step():
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

        return step

    assert delta_torch.record(make, fake=True, device="h200").peak_bytes > 256 * 2**30


def test_foreach_as_on_a_gpu() -> None:
    def make():
        model = nn.Linear(4, 4)
        optimizer = torch.optim.Adam(model.parameters())

        def step():
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()

        return step

    assert any(
        "_foreach" in n for n in delta_torch.record(make, fake=True, device="h100").operators
    )
    assert not any("_foreach" in n for n in delta_torch.record(make, fake=True).operators)


def masked(values: torch.Tensor) -> torch.Tensor:
    (rows,) = torch.where(values > 0)
    return values[rows] * values[values > 0]


def maker_of(work):
    def make():
        x = torch.randn(64, requires_grad=True)
        return lambda: work(x)

    return make


def test_values_that_fake_tensors_do_not_have() -> None:
    with pytest.raises(RuntimeError, match=r"nonzero=0\.5"):
        delta_torch.record(maker_of(masked), fake=True)
    step = delta_torch.record(maker_of(masked), fake=True, nonzero=0.5)
    product = named(step, "aten::mul")
    assert [step.sizes[t] for t in product.outputs] == [32 * 4]
    with pytest.raises(RuntimeError, match="reads a value"):
        delta_torch.record(maker_of(lambda x: x.sum().int().item()), fake=True)
    read = []
    delta_torch.record(maker_of(lambda x: read.append((x * 2).sum().item())), fake=True)
    assert read[-1] == 0.0


@pytest.mark.parametrize(
    ("arguments", "kind", "sentence"),
    [
        ({"step": 3}, TypeError, "a step is a function, not int"),
        ({"warmup": 0}, ValueError, "at least one step comes before"),
        ({"repeats": 0}, ValueError, "at least one step is recorded"),
        ({"nonzero": 2}, ValueError, "nonzero is a share from 0 to 1"),
        ({"device": "tpu"}, ValueError, "there is no device 'tpu'; there are a100-80, h100"),
        ({"fake": True, "step": lambda: None}, TypeError, "returns the step is needed"),
        ({"step": lambda: None}, RuntimeError, "has no operators"),
    ],
)
def test_refusals(arguments: dict, kind: type, sentence: str) -> None:
    step = arguments.pop("step", lambda: torch.ones(3) + 1)
    with pytest.raises(kind, match=sentence):
        delta_torch.record(step, **arguments)


def test_refused_elsewhere(tmp_path: Path) -> None:
    with delta_torch.budget(None), pytest.raises(RuntimeError, match="not for within a run"):
        delta_torch.record(lambda: torch.ones(3) + 1)
    sparse = torch.eye(2).to_sparse()
    with pytest.raises(RuntimeError, match="sparse or quantized"):
        delta_torch.record(lambda: sparse * 2)
    with pytest.raises(OSError, match="missing"):
        delta_torch.record(lambda: torch.ones(3) + 1, tmp_path / "missing" / "step.log")


def test_drops_come_when_storages_die() -> None:
    def step():
        a = torch.ones(1 << 10) + 1
        view = a[:8]
        del a
        b = view + 1
        del view
        return b + 1

    recorded = delta_torch.record(step)
    happened = [
        recorded.operations[n].name if what == RUN else f"drop {recorded.sizes[n]}"
        for what, n in recorded.events[:-1]
    ]
    assert happened == [
        "aten::ones",
        "aten::add",
        "drop 4096",  # the ones
        "aten::add",  # of the view
        "drop 4096",  # what it is a view of
        "aten::add",
        "drop 32",
        "drop 32",  # what the step has returned
    ]
