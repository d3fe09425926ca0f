"""What programs do beside training, on an accelerator: reads, copies, saving, errors, the end of a run."""

from __future__ import annotations

import copy
import gc
import io

import pytest
import torch
from torch import nn

import delta_torch
from delta_torch import _C

DEVICE = "simulated:0"
MANY = 24


def budget(size: str = "256KiB", **options):
    options = {"policy": "online", "host": "64MiB", **options}
    return delta_torch.budget(size, device=DEVICE, **options)


def crowd(size: int = 4096) -> list[torch.Tensor]:
    """More than the budget holds, and nothing that can be computed again: most of it is away."""
    return [torch.full((size,), 2.0 * i).to(DEVICE) for i in range(MANY)]


READS = {
    "cpu": lambda t: t.cpu(),
    "item": lambda t: torch.tensor([t[5].item()] * 4096),
    "tolist": lambda t: torch.tensor(t.tolist()),
    "numpy": lambda t: torch.from_numpy(t.cpu().numpy().copy()),
    "saved": lambda t: saved(t).cpu(),
    "deepcopy": lambda t: copy.deepcopy(t).cpu(),
    "clone": lambda t: t.clone().cpu(),
    "storage": lambda t: t.untyped_storage().cpu() and t.cpu(),
    "pinned": lambda t: pinned(t),
    "index": lambda t: t[torch.arange(4096, device=DEVICE)].cpu(),
    "index on the CPU": lambda t: t[torch.arange(4096)].cpu(),
    "out": lambda t: torch.add(t, 0, out=torch.empty(4096, device=DEVICE)).cpu(),
}


def saved(t: torch.Tensor) -> torch.Tensor:
    file = io.BytesIO()
    torch.save(t, file)
    file.seek(0)
    return torch.load(file)


def pinned(t: torch.Tensor) -> torch.Tensor:
    host = torch.empty(4096, pin_memory=True)
    host.copy_(t, non_blocking=True)
    torch.accelerator.synchronize()
    return host


@pytest.mark.parametrize("name", READS)
def test_the_bytes_come_back(sim, name: str) -> None:
    for seed in range(3):
        sim.set_schedule(seed, 0.95)
        with budget() as run:
            tensors = crowd()
            for i, t in enumerate(tensors):
                assert torch.equal(READS[name](t).cpu(), torch.full((4096,), 2.0 * i)), (seed, i)
                run.step()  # whose address was shown stays until then
        assert run.report().offloads > 0
        assert run.report().peak_bytes <= 256 << 10


def test_after_the_run_tensors_are_plain(sim) -> None:
    with budget() as run:
        tensors = crowd()
    assert run.report().offloads > 0
    gc.collect()
    for i, t in enumerate(tensors):
        assert torch.equal(t.cpu(), torch.full((4096,), 2.0 * i))
    before = sim.memory_allocated()
    del tensors, t
    gc.collect()
    sim.synchronize()
    assert sim.memory_allocated() <= before - MANY * 16384
    # And another run knows them again.
    kept = crowd()[:4]
    with budget("1MiB"):
        assert torch.equal((kept[3] + 1).cpu(), torch.full((4096,), 7.0))


def test_what_a_run_leaves_is_freed(sim) -> None:
    before = sim.memory_allocated()
    for _ in range(3):
        with budget():
            tensors = crowd()
            torch.accelerator.synchronize()
        del tensors
        gc.collect()
    sim.synchronize()
    assert sim.memory_allocated() == before


def test_other_devices_are_left_alone(sim) -> None:
    with budget() as run:
        here = torch.ones(1 << 20)
        assert float((here + here).sum()) == 2 << 20
    assert run.report().peak_bytes == 0


def test_a_run_on_the_cpu_leaves_the_accelerator_alone(sim) -> None:
    with delta_torch.budget("64KiB", device="cpu", policy="dtr") as run:
        tensors = [torch.full((4096,), 2.0 * i, device=DEVICE) for i in range(MANY)]
        assert torch.equal(tensors[7].cpu(), torch.full((4096,), 14.0))
    assert run.report().evictions == 0


def test_runs_share_two_streams(sim) -> None:
    for _ in range(3):
        with budget("1MiB"):
            pass
        taken = torch.Stream(device=DEVICE).stream_id
    with budget("1MiB"):
        pass
    assert torch.Stream(device=DEVICE).stream_id == taken + 1


def test_the_accelerator_is_the_default(sim) -> None:
    assert delta_torch.budget("1MiB").device == torch.device(DEVICE)


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        ("simulated:3", "there is no device 'simulated:3' here: PyTorch has 1 of them"),
        ("cuda", "there is no device 'cuda' here: PyTorch has the CPU and simulated"),
        ("no", "there is no device 'no'"),
    ],
)
def test_a_device_that_is_not_there(sim, device: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        delta_torch.budget("1MiB", device=device)


def test_too_small_a_budget(sim) -> None:
    with budget("32KiB") as run:
        with pytest.raises(torch.OutOfMemoryError, match="delta: .*smallest budget"):
            torch.ones(1 << 20, device=DEVICE)
        assert run.error["kind"] == "budget_exceeded"
        assert torch.ones(16, device=DEVICE).sum().item() == 16


@pytest.mark.parametrize("policy", ["online", "dtr"])
def test_what_the_hosts_memory_would_do(sim, policy: str) -> None:
    values = [torch.full((1 << 18,), float(i)) for i in range(8)]
    with budget("3MiB", policy=policy, host=0) as run:
        with pytest.raises(torch.OutOfMemoryError) as caught:
            kept = [value.to(DEVICE) for value in values]
    other = 'policy="online" with ' if policy == "dtr" else ""
    assert f'; {other}host="3MiB" would make this budget enough; no step' in str(caught.value)
    with budget("3MiB", policy="online", host="8MiB"):
        kept = [value.to(DEVICE) for value in values]
        assert all(torch.equal(a.cpu(), b) for a, b in zip(kept, values, strict=True))


def test_host_memory_where_nobody_says_how_much() -> None:
    with delta_torch.budget("64MiB") as run:
        pass
    assert run.report().host_budget_bytes > 1 << 30


def test_a_device_that_is_full(sim) -> None:
    """The budget is more than the device has: something leaves all the same."""
    gc.collect()
    sim.synchronize()
    sim.empty_cache()
    sim.set_capacity(sim.memory_allocated() + (16 << 20))  # it takes 8 MiB at a time
    size = (1 << 20) // 4
    with budget("64MiB", host="64MiB") as run:
        tensors = crowd(size)
        for i, t in enumerate(tensors):
            assert torch.equal(t.cpu(), torch.full((size,), 2.0 * i))
        del tensors, t
        gc.collect()
    assert run.report().offloads > 0


def test_replays_are_checked(sim) -> None:
    with budget("1MiB", verify=True, host=0, policy="dtr") as run:
        x = torch.randn(64, 64, device=DEVICE, requires_grad=True)
        y = nn.functional.dropout(torch.relu(x @ x), 0.5)
        y.sum().backward()
        assert torch.isfinite(x.grad).all().item()
    assert run.report().operators > 0
    assert _C.stats()["replays_checked"] > 3


def test_hashes_are_for_the_cpu(sim) -> None:
    with pytest.raises(ValueError, match="hashes what the host can read: tensors of the CPU, and"):
        budget("1MiB", verify="tensors")


def test_find_budget_waits_for_the_device(sim) -> None:
    """What a step queues is part of its time, and the wall's clock decides."""
    weights = torch.randn(256, 256, device=DEVICE, requires_grad=True)

    def step() -> None:
        x = torch.ones(256, 256, device=DEVICE)
        for _ in range(6):
            x = torch.tanh(x @ weights)
        x.sum().backward()
        weights.grad = None

    sim.set_schedule(0, 1.0)  # nothing runs before it must
    found = delta_torch.find_budget(
        step, 3.0, policy="online", host="64MiB", steps=2, trials=3, device=DEVICE
    )
    assert found.clock == "wall"
    assert found.unmanaged_peak_bytes > 6 * 256 * 256 * 4


def test_a_recorded_operator_is_waited_for(sim) -> None:
    weights = torch.randn(256, 256, device=DEVICE)
    sim.set_schedule(0, 1.0)
    recording = delta_torch.record(lambda: torch.tanh(weights @ weights), repeats=1)
    product = next(o for o in recording.operations if "mm" in o.name)
    assert product.cost_ns > 50_000  # 33 million operations: no launch is as slow
