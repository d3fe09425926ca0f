"""plan() and record() of several devices that train together."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import delta_torch
from delta_torch import Machine
from delta_torch.__main__ import main
from delta_torch.planning.ranks import parse_rate

SMALL = Machine("small", {"float32": 1e12}, bandwidth=1e11, memory=2**30, copy=1e10, reserved=0)
LAYERS = 12
WIDTH = 256


def deep(batch: int = 64, microbatches: int = 1):
    """Builds a perceptron of many layers, and gives its step."""
    layers = [part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(batch, WIDTH)

    def step():
        optimizer.zero_grad()
        for _ in range(microbatches):
            model(x).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def recorded(**arguments) -> delta_torch.Recording:
    return delta_torch.record(lambda: deep(**arguments), fake=True, device=SMALL)


@pytest.mark.parametrize("microbatches", [1, 3])
@pytest.mark.parametrize("fake", [True, False])
def test_gradients_are_known(microbatches: int, fake: bool) -> None:
    if fake:
        step = recorded(microbatches=microbatches)
    else:
        step = delta_torch.record(deep(microbatches=microbatches))
    sizes = [step.sizes[tensor] for tensor, _ in step.gradients]
    assert sorted(sizes) == sorted([WIDTH * 4, WIDTH * WIDTH * 4] * LAYERS)
    after = [operation for _, operation in step.gradients]
    assert after == sorted(after)
    # Of the last microbatch, and none is what clipping made of it.
    clipping = next(i for i, o in enumerate(step.operations) if "norm" in o.name)
    assert after[-1] < clipping
    assert after[0] > clipping * (microbatches - 1) / microbatches
    for tensor, operation in step.gradients:
        made = [i for i, o in enumerate(step.operations) if tensor in o.outputs]
        assert made and made[0] <= operation


def test_the_file_names_them(tmp_path: Path) -> None:
    step = recorded()
    step.save(tmp_path / "step.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "step.jsonl").read_text().splitlines()[1:]]
    runs = [line for line in lines if "run" in line]
    named = [(t, i) for i, line in enumerate(runs) for t in line.get("gradients", ())]
    assert named == step.gradients


def of_ranks(step: delta_torch.Recording, ranks: int, **arguments):
    plan = delta_torch.plan(step, device=SMALL, ranks=ranks, shares=[0.6], host="8GiB", **arguments)
    assert plan.ranks is None or plan.ranks.ranks == ranks
    (batch,) = plan.batches
    return plan, batch


def test_ranks() -> None:
    step = recorded()
    gradients = sum(step.sizes[tensor] for tensor, _ in step.gradients)
    plain, alone = of_ranks(step, 1)
    assert alone.step_ns == step.step_ns
    assert plain.ranks is None
    times = []
    for ranks in (8, 64, 1024):
        plan, batch = of_ranks(step, ranks)
        assert batch.peak_bytes == alone.peak_bytes + gradients
        assert batch.at_peak["buckets of gradients"] == gradients
        assert sum(batch.at_peak.values()) == batch.peak_bytes
        room, tight = batch.points
        assert (room.overhead, room.step_ns) == (1.0, batch.step_ns)
        assert tight.overhead >= max(1.0, tight.bound - 1e-9)
        assert room.network_ns > 0
        assert batch.step_ns >= step.step_ns + room.network_ns  # and the buckets' copies
        assert f"{ranks:,} devices, ddp, ring at 25 GB/s" in str(plan)
        assert json.loads(plan.to_json())["ranks"]["ranks"] == ranks
        times.append(batch.step_ns)
    assert times == sorted(times)
    # One bucket, as all of it is below 25 MiB but for the first of 1 MiB: by the ring's formula,
    # what is last is not hidden by anything.
    first = 0
    for tensor, _ in step.gradients:
        first += step.sizes[tensor]
        if first >= 2**20:
            break
    _, batch = of_ranks(step, 1024)
    ring = 2 * 1023 / 1024 * (gradients - first) / 25e9 + 2 * 1023 * 5e-6
    assert batch.points[0].network_ns >= ring * 1e9
    _, tree = of_ranks(step, 1024, collectives="tree")
    assert tree.step_ns < batch.step_ns
    _, slower = of_ranks(step, 8, network="1GB/s")
    assert slower.step_ns > times[0]
    _, jittered = of_ranks(step, 8, jitter=0.1)
    # All but the network takes as much longer as the slowest of eight; the network may hide some.
    expected = delta_torch._C.expected_slowest(8, 0.1)
    assert 1.13 < expected < 1.16  # 1 + 0.1 * 1.424, and somewhat more as it is lognormal
    assert times[0] < jittered.step_ns < times[0] * expected
    _, shared = of_ranks(step, 8, one_link=True)
    assert shared.step_ns == times[0]  # without copies


def test_free_collectives_cost_no_more_than_the_memory_of_buckets() -> None:
    step = recorded()
    _, batch = of_ranks(step, 8, network=1e18, network_latency=0)
    copies = 2 * 2 * sum(step.sizes[tensor] for tensor, _ in step.gradients) / (1e11 * 0.8)
    assert batch.step_ns == pytest.approx(step.step_ns + copies * 1e9, abs=10)


def test_fully_sharded() -> None:
    step = recorded()
    _, alone = of_ranks(step, 1)
    peaks = []
    for ranks in (2, 8, 64):
        plan, batch = of_ranks(step, ranks, parallel="fsdp", unit="1MiB")
        assert sum(batch.at_peak.values()) == batch.peak_bytes
        for role in ("parameters", "optimizer state"):
            # Blocks are rounded up.
            least = alone.at_peak[role] / ranks
            assert least <= batch.at_peak[role] <= least + 512 * 4 * LAYERS
        room, tight = batch.points
        assert (room.overhead, room.step_ns) == (1.0, batch.step_ns)
        assert room.peak_bytes == batch.peak_bytes
        assert tight.overhead >= max(1.0, tight.bound - 1e-9)
        assert room.network_ns > 0
        assert f"{ranks} devices, fsdp, ring at" in str(plan)
        peaks.append(batch.peak_bytes)
    assert alone.peak_bytes > peaks[0] > peaks[1] > peaks[2]
    # Units that are larger take more memory, and fewer hops.
    _, one = of_ranks(step, 64, parallel="fsdp", unit="1GiB")
    assert one.peak_bytes > peaks[2]
    _, batch = of_ranks(step, 64, parallel="fsdp", unit="1MiB", network=1e18)
    _, hops = of_ranks(step, 64, parallel="fsdp", unit="1GiB", network=1e18)
    assert hops.step_ns < batch.step_ns


def test_peaks_are_those_of_the_extension() -> None:
    step = recorded(microbatches=2)  # with new versions in old blocks
    assert any(o.replaced for o in step.operations)
    assert step.program.peak_bytes == step.peak_bytes


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"ranks": 0}, "ranks is a whole number from 1 to 1000000, not 0"),
        ({"ranks": 2.0}, "ranks is a whole number from 1 to 1000000, not 2.0"),
        ({"parallel": "pipeline"}, "parallel is ddp or fsdp, not 'pipeline'"),
        ({"collectives": "star"}, "collectives is ring or tree, not 'star'"),
        ({"parallel": "fsdp", "collectives": "tree"}, "collectives of fsdp are rings, not 'tree'"),
        ({"unit": 0.5}, "unit is bytes, such as '100MiB', and no share: not 0.5"),
        ({"network": "25GB"}, "network is a rate of at least 1MB/s, such as '25GB/s': not '25GB'"),
        ({"network": "50%/s"}, "network is a rate of at least 1MB/s"),
        ({"network": 3}, "network is a rate of at least 1MB/s"),
        ({"network": float("nan")}, "network is a rate of at least 1MB/s"),
        ({"network_latency": -1}, "network_latency is from 0 to 1, not -1"),
        ({"jitter": 4}, "jitter is from 0 to 3, not 4"),
    ],
)
def test_refusals(arguments: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        delta_torch.plan(deep, device=SMALL, **{"ranks": 8, **arguments})


def test_a_step_without_an_optimizer_is_refused() -> None:
    def make():
        model, x = nn.Linear(8, 8), torch.randn(4, 8)
        return lambda: model(x).sum().backward()

    with pytest.raises(ValueError, match="ranks=2: the step's gradients are not known"):
        delta_torch.plan(make, device=SMALL, ranks=2)


def test_rates() -> None:
    assert parse_rate("25GB/s") == parse_rate(25e9) == 25e9
    assert parse_rate("1.5 GiB/s") == 1.5 * 2**30


MODEL = """
import torch
def make(batch):
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(8)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(batch, 64)
    def step():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    return step
"""


def test_command_line(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "a_model_of_ranks.py").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    words = ["plan", "--model", "a_model_of_ranks:make", "--device", "h100", "--quiet"]
    words += ["--ranks", "64", "--collectives", "tree", "--network", "10GB/s", "--one-link"]
    assert main([*words, "--jitter", "0.02", "--network-latency", "2e-6"]) == 0
    printed = capsys.readouterr().out
    assert (
        "64 devices, ddp, tree at 10 GB/s, latency 2 us, on the link of the copies, the slowest 1.0"
    ) in printed
    assert main([*words, "--network", "fast"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("delta_torch: network is a rate of at least 1MB/s")


@pytest.mark.parametrize("flag", ["--jitter 0.1", "--one-link", "--network-latency 0"])
def test_flags_of_several_devices_need_ranks(flag: str, capsys) -> None:
    assert main(["plan", "--model", "nowhere:make", "--quiet", *flag.split()]) == 2
    assert f"{flag.split()[0]} is of several devices: add --ranks N" in capsys.readouterr().err


def test_buckets_are_those_of_ddp(tmp_path: Path) -> None:
    """How many there are, and of which gradients, is what PyTorch's reducer says of itself."""
    widths = [64, 1500, 700, 2600, 2600, 900, 64]

    def layers() -> nn.Sequential:
        return nn.Sequential(*[nn.Linear(a, b) for a, b in zip(widths, widths[1:])])

    def make(net: nn.Module):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        x = torch.randn(8, widths[0])

        def step():
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()

        return step

    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        net = nn.parallel.DistributedDataParallel(layers())
        step = make(net)
        for _ in range(3):
            step()
        said = net._get_ddp_logging_data()
    finally:
        torch.distributed.destroy_process_group()
    real = [int(size) for size in said["rebuilt_bucket_sizes"].split(",")]
    assert len(real) > 2

    recording = delta_torch.record(lambda: make(layers()), fake=True, device=SMALL)
    sizes, filled, limit = [], 0, 2**20
    for tensor, _ in recording.gradients:
        filled += recording.sizes[tensor]
        if filled >= limit:
            sizes.append(filled)
            filled, limit = 0, 25 * 2**20
    assert sizes + [filled] * (filled > 0) == real
    # All of it is latency: two hops of a second for each bucket, but for what goes on beside.
    plan = delta_torch.plan(
        recording, device=SMALL, ranks=2, network=1e18, network_latency=1.0, shares=[1.0]
    )
    seconds = plan.batches[0].step_ns / 1e9
    assert 2 * len(real) <= seconds < 2 * len(real) + 1
