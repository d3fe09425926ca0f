"""What an accelerator's kernels and allocators do that PyTorch's interfaces do not show.

The kernels and faults here stand in for those of a GPU.
"""

from __future__ import annotations

import gc
import os

import pytest
import torch

import delta_torch
from delta_torch import _C

DEVICE = "simulated:0"
SIZE = 4096


def budget(size: str = "128KiB", **options):
    """A run of eight tensors that can only be made again; or with other options."""
    options = {"policy": "dtr", "host": 0, **options}
    return delta_torch.budget(size, device=DEVICE, **options)


def filled(value: float, size: int = SIZE) -> torch.Tensor:
    return torch.full((size,), value, device=DEVICE)


def crowd() -> None:
    """All else has to leave; where something can't, there is no room."""
    kept = [filled(float(i)) for i in range(7)]
    for t in kept:
        delta_torch.pin(t)
    assert all(bool((t == i).all().item()) for i, t in enumerate(kept))


def nothing_leaves() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        crowd()


def kernel_of(name: str, kernel) -> torch.library.Library:
    library = torch.library.Library("aten", "IMPL")
    library.impl(name, kernel, "PrivateUse1")
    return library


@pytest.mark.parametrize("scan", ["cumsum", "cumprod", "_logcumsumexp"])
@pytest.mark.parametrize("deterministic", [False, True])
def test_scans_in_any_order_are_not_made_again(sim, scan: str, deterministic: bool) -> None:
    """Unless PyTorch's deterministic algorithms fix their order."""
    calls = [0]

    def kernel(x: torch.Tensor, *_: object) -> torch.Tensor:
        calls[0] += 1
        return x + (1 if deterministic else calls[0])

    library = kernel_of(scan, kernel)
    torch.use_deterministic_algorithms(deterministic)
    try:
        with budget() as run:
            y = getattr(torch, scan)(filled(0.0), 0)
            crowd() if deterministic else nothing_leaves()
            assert bool((y == 1).all().item())
        assert (calls[0] > 1) == deterministic, run.report()
    finally:
        torch.use_deterministic_algorithms(False)
        library._destroy()


def test_a_replay_is_no_new_seed(sim) -> None:
    """What a library has made from the seed, as cuDNN its dropout state, goes on."""
    torch.manual_seed(7)
    x = filled(1.0)
    expected, then = torch.nn.functional.dropout(x).cpu(), torch.rand(8, device=DEVICE).cpu()
    torch.manual_seed(7)
    assert sim.is_seeded_anew()
    with budget() as run:
        y = torch.nn.functional.dropout(filled(1.0))
        crowd()
        assert torch.equal(y.cpu(), expected)
        assert run.report().recomputes > 0
        assert not sim.is_seeded_anew()
        assert torch.equal(torch.rand(8, device=DEVICE).cpu(), then)


# --- workspaces -----------------------------------------------------------------------------------


def choosy(*, at_first: int, again: int) -> torch.library.Library:
    """An operator that takes its second best way where it is refused so many bytes."""
    calls = [0]

    def kernel(x: torch.Tensor, *_: object) -> torch.Tensor:
        calls[0] += 1
        try:
            torch.empty(at_first if calls[0] == 1 else again, dtype=torch.uint8, device=DEVICE)
        except torch.OutOfMemoryError:
            return x + 2
        return x + 1

    return kernel_of("digamma", kernel)


def test_what_was_refused_memory_is_not_made_again(sim) -> None:
    library = choosy(at_first=1 << 20, again=1 << 20)
    try:
        with budget() as run:
            y = torch.digamma(filled(0.0))
            nothing_leaves()
            assert bool((y == 2).all().item())
        assert run.report().refused == 1
        assert "1 operators did with less memory" in str(run.report())
    finally:
        library._destroy()


def test_a_replay_that_is_refused_memory_fails(sim) -> None:
    """In place of other bits."""
    library = choosy(at_first=0, again=1 << 20)
    try:
        with budget() as run:
            y = torch.digamma(filled(0.0))
            crowd()
            sim.set_capacity(sim.memory_allocated() + (1 << 18))
            with pytest.raises(RuntimeError, match="the system has none for 1048576 bytes"):
                y.sum()
            sim.set_capacity(4 << 30)
            assert bool((y == 1).all().item())
        assert run.report().refused == 0
    finally:
        sim.set_capacity(4 << 30)
        library._destroy()


# --- kernels that are launched by an address ------------------------------------------------------


@pytest.mark.parametrize("read_first", [False, True])
def test_a_copy_waits_for_a_kernel_that_nobody_saw(sim, read_first: bool) -> None:
    """Whether the tensor is let go by its first operator or by the end of the step."""
    wrong = []
    for seed in range(20):
        sim.set_schedule(seed, 0.95)
        with budget(policy="online", host="1GiB", steps="manual") as run:
            kept = [filled(float(i)) for i in range(6)]
            for t in kept:
                delta_torch.pin(t)
            x = torch.empty(SIZE, device=DEVICE)
            if not read_first:
                x.zero_()
            address = x.data_ptr()
            for _ in range(9):  # behind these a copy could find a mark of an operator
                filled(0.0, 16)
            for value in range(30):
                sim.fill(address, SIZE, float(value))
            if read_first:
                x.view(-1)[:1].clone()
            else:
                run.step()
            del kept[0]
            filled(0.0, 3 * SIZE)  # all but x is pinned
            if not bool((x == 29).all().item()):
                wrong.append(seed)
        assert run.report().offloads > 0
    assert not wrong, f"wrong under the seeds {wrong}"


# --- errors of a device ---------------------------------------------------------------------------


def test_a_lost_device_is_not_out_of_memory(sim) -> None:
    x = filled(1.0)
    with budget():
        y = x + 1
        sim.set_failure("an illegal memory access was encountered")
        try:
            with pytest.raises(RuntimeError, match="an illegal memory access") as raised:
                x + 2
        finally:
            sim.set_failure("")
        assert not isinstance(raised.value, torch.OutOfMemoryError)
        assert bool((y == 2).all().item())


def test_a_forked_process_frees_nothing(sim) -> None:
    with budget():
        managed = _C.attach(False)
        x = filled(1.0)
        _C.attach(managed)
        before = sim.memory_allocated()
        child = os.fork()
        if child == 0:
            del x
            os._exit(0 if sim.memory_allocated() == before else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert bool((x == 1).all().item())


def test_events_are_used_again(sim) -> None:
    """However long a run is: those that measure operators as well."""
    events = []
    with budget("8MiB"):
        x = filled(1.0, 16)
        for i in range(4000):
            x = x * 1
            if i % 64 == 63:
                sim.synchronize()
                events.append(sim.statistics()["events"])
        # Those that only order tell no times, and cost less.
        assert sim.statistics()["timed_events"] < events[-1]
    assert events[-1] < max(events[:30]) + 8, events


# --- what kernels are chosen by -------------------------------------------------------------------


def test_no_kernels_are_tried_while_a_run_is_on(sim) -> None:
    torch.backends.cudnn.benchmark = True
    try:
        with pytest.warns(UserWarning, match="cudnn.benchmark is off"), budget():
            assert not torch.backends.cudnn.benchmark
        assert torch.backends.cudnn.benchmark
        with delta_torch.budget("1MiB", device="cpu"):
            assert torch.backends.cudnn.benchmark
    finally:
        torch.backends.cudnn.benchmark = False


# --- memory of the host ---------------------------------------------------------------------------


def test_pinned_memory_is_shared_by_all_sizes(sim) -> None:
    """What tensors of one size have had others get, and all goes back with the run."""
    gc.collect()
    before = sim.statistics()["pinned"]
    with budget("8MiB", policy="online", host="1GiB") as run:
        for size in range(100_000, 1_000_000, 100_000):
            kept = [torch.full((size,), float(i)).to(DEVICE) for i in range(20)]
            assert all(bool((t == i).all().item()) for i, t in enumerate(kept))
            del kept
        most = sim.statistics()["pinned"] - before
    assert run.report().offloads > 50
    assert most <= 2 * run.report().host_peak_bytes + (32 << 20)
    assert sim.statistics()["pinned"] == before


# --- after a run ----------------------------------------------------------------------------------


def test_streams_are_recorded_after_the_run(sim) -> None:
    """Of tensors that the run has made: they are PyTorch's own by then."""

    def shown(seed: int) -> bool:
        sim.set_schedule(seed, 0.95)
        side = torch.Stream(DEVICE)
        with budget("1MiB"):
            x = filled(3.0)
        side.wait_stream(torch.accelerator.current_stream())
        before = torch.accelerator.current_stream()
        torch.accelerator.set_stream(side)
        y = x + 0
        torch.accelerator.set_stream(before)
        x.record_stream(side)
        del x
        others = [filled(float(i)) for i in range(8)]
        del others
        before.wait_stream(side)
        return bool((y == 3).all().item())

    wrong = [seed for seed in range(40) if not shown(seed)]
    assert not wrong, f"wrong under the seeds {wrong}"
