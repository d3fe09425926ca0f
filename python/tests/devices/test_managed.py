"""delta_torch on a simulated accelerator: late streams, memory that the host can't touch.

The same bits under every schedule, whatever leaves and comes back; and no wait for another stream
can be left out.
"""

from __future__ import annotations

import functools
import gc

import matrix_cases
import on_streams
import pytest
import torch
from snapshots import curve, read
from test_bench import first_contact
from training import check_same, managed, measured, unmanaged

import delta_torch
from delta_torch import _C

DEVICE = "simulated:0"
STEPS = 4
POLICIES = ("dtr", "online", "adaptive")
SHARES = (None, 0.7, 0.4)  # of what is above the parameters, gradients and optimizer state
SHORT = [("transformer", "online", 0.4), ("transformer", "adaptive", 0.4)]
# Who waits for whom between streams, and what would go wrong otherwise.
PARTIES = {"compute": 0, "copy out": 1, "copy in": 2, "program": 3}
# Who waits for whom between streams, and what would go wrong otherwise. A copy waits for another,
# and an operator for a copy out, where bytes are given up before their copy is over: this manager
# never does, so a training can't miss it. Those waits are left out in test/core/device_heap_test.
WAITS = {
    ("copy out", "compute"): "bytes are copied before they are written",
    ("copy in", "compute"): "bytes are copied over others that an operator still reads",
    ("compute", "copy in"): "an operator reads bytes that have not arrived",
    ("program", "compute"): "the program's stream reads or writes what is still in use",
    ("compute", "program"): "an operator reads what the program's stream has yet to write",
}


def on_device(case: str):
    return functools.partial(matrix_cases.CASES[case], DEVICE)


def parameters() -> list:
    return [
        pytest.param(
            *which, marks=() if which in SHORT else pytest.mark.long, id="-".join(map(str, which))
        )
        for which in [(c, p, s) for c in matrix_cases.CASES for p in POLICIES for s in SHARES]
    ]


@functools.cache
def without_a_budget(case: str):
    """What must come out, the peak, and what stays between steps."""
    expected = unmanaged(on_device(case), STEPS)
    report = measured(on_device(case), STEPS, device=DEVICE)
    return expected, report.peak_bytes, report.used_bytes


@pytest.mark.parametrize(("case", "policy", "share"), parameters())
def test_same_bits(sim, case: str, policy: str, share: float | None) -> None:
    expected, peak, stays = without_a_budget(case)
    size = None if share is None else int(stays + (peak - stays) * share)
    host = 0 if policy == "dtr" else "4GiB"
    sim.set_schedule(hash((case, policy, share)) % 1000, 0.95)
    report = check_same(
        on_device(case), STEPS, size, expected, policy=policy, host=host, device=DEVICE
    )
    print(report)
    if share is not None and report.budget_bytes < peak:
        assert report.evictions + report.offloads > 0


def test_the_profiler_has_a_range_for_each_copy(sim) -> None:
    """Named by its direction, and as many as the report counts."""
    case, (_, peak, stays) = on_device("transformer"), without_a_budget("transformer")
    with delta_torch.budget(
        int(stays + (peak - stays) * 0.4), policy="swap_lru", host="4GiB", device=DEVICE
    ) as run:
        training = case()
        with torch.profiler.profile() as profile:
            training.step(0)
        report = run.report()
    ranges = {e.key: e.count for e in profile.key_averages() if e.key.startswith("delta::copy_")}
    assert ranges["delta::copy_in"] == report.reloads + report.prefetches > 0
    assert ranges["delta::copy_out"] >= report.offloads > 0


# --- schedules ------------------------------------------------------------------------------------


chain = functools.partial(on_streams.chain, DEVICE)


@functools.cache
def chain_without_a_budget():
    return unmanaged(chain, 3), measured(chain, 3, device=DEVICE)


def trained_chain(share: float, policy: str):
    """Under a share of the peak, or of what the policy needs at least."""
    _, report = chain_without_a_budget()
    return managed(
        chain, 3, int(report.peak_bytes * share), policy=policy, host="1GiB", device=DEVICE
    )


@pytest.mark.parametrize("policy", ["online", "adaptive"])
def test_same_bits_under_every_schedule(sim, policy: str, everything: bool) -> None:
    expected, _ = chain_without_a_budget()
    moved = 0
    for seed in range(200 if everything else 20):
        sim.set_schedule(seed, 0.5 + 0.5 * (seed % 7) / 6)
        trained = trained_chain(0.75, policy)
        assert trained.outcome == expected, f"seed {seed}"
        moved += trained.report.offloads
    assert moved > 0


# --- streams of the program's own -------------------------------------------------------------------


prefetched = functools.partial(on_streams.prefetched, DEVICE)


def trained_prefetched(policy: str, size: int):
    return managed(prefetched, 3, size, policy=policy, host="1GiB", device=DEVICE)


@functools.cache
def prefetched_without_a_budget():
    return unmanaged(prefetched, 3), measured(prefetched, 3, device=DEVICE).peak_bytes


@pytest.mark.parametrize("policy", ["online", "adaptive"])
def test_streams_of_the_program(sim, policy: str) -> None:
    expected, peak = prefetched_without_a_budget()
    for seed in range(10):
        sim.set_schedule(seed, 0.95)
        assert unmanaged(prefetched, 3) == expected, f"seed {seed}: the program itself"
        trained = trained_prefetched(policy, int(peak * 0.75))
        assert trained.outcome == expected, f"seed {seed}"


@pytest.mark.parametrize(("waiter", "awaited"), WAITS)
def test_each_wait_that_is_left_out_is_missed(sim, waiter: str, awaited: str) -> None:
    """Wrong bits under some schedule: WAITS says of what."""
    expected, peak = prefetched_without_a_budget()
    _C.leave_out_wait(PARTIES[waiter], PARTIES[awaited], True)
    try:
        for seed in range(100):
            sim.set_schedule(seed, 0.95)
            trained = trained_prefetched("adaptive", int(peak * 0.75))
            assert trained.outcome is not None
            if trained.outcome != expected:
                return
    finally:
        _C.leave_out_wait(PARTIES[waiter], PARTIES[awaited], False)
    pytest.fail(f"nobody misses that {waiter} waits for {awaited}: {WAITS[waiter, awaited]}")


def shown_to_another_stream(sim, recorded: bool) -> bool:
    """Work that no operator shows reads a tensor on its own stream; then the tensor goes."""
    with delta_torch.budget("4MiB", device=DEVICE, policy="online", host="4MiB"):
        main, side = torch.accelerator.current_stream(), torch.Stream(DEVICE)
        source = torch.full((4096,), 3.0, device=DEVICE) + 0
        got = torch.zeros(4096, device=DEVICE)
        for tensor in (source, got):
            tensor.data_ptr()  # stays until the end of the step
        side.wait_stream(main)
        _C.attach(False)  # as a library's own kernel would be: past the run
        torch.accelerator.set_stream(side)
        got.copy_(source)
        torch.accelerator.set_stream(main)
        _C.attach(True)
        if recorded:
            source.record_stream(side)
        delta_torch.step()
        del source, tensor
        others = [torch.full((4096,), 5.0, device=DEVICE) + i for i in range(8)]
        main.wait_stream(side)
        right = bool((got == 3).all().item())
        del others
    return right


def test_record_stream(sim) -> None:
    outcomes = {True: set(), False: set()}
    for seed in range(50):
        for recorded in (True, False):
            sim.set_schedule(seed, 0.95)
            outcomes[recorded].add(shown_to_another_stream(sim, recorded))
    assert outcomes == {True: {True}, False: {True, False}}


# --- the budget -------------------------------------------------------------------------------------


def test_the_device_never_holds_more_than_the_budget(sim) -> None:
    """As the device's own allocator counts, temporaries of kernels and of replays included."""
    expected, report = chain_without_a_budget()
    for policy in ("online", "adaptive"):
        gc.collect()
        sim.synchronize()
        before = sim.memory_allocated()
        training = chain()
        with delta_torch.budget(
            int(report.peak_bytes * 0.75), policy=policy, host="1GiB", device=DEVICE
        ) as run:
            training.step(0)  # what was there before the run counts when it is used first
            for i in range(3):
                sim.synchronize()
                sim.reset_peak_memory_stats()
                training.step(i)
                assert sim.max_memory_allocated() - before <= report.peak_bytes * 0.75
        assert run.report().evictions + run.report().offloads > 0
        del training


def test_a_snapshot_is_the_devices_memory(sim, tmp_path) -> None:
    _, report = chain_without_a_budget()
    training = chain()
    # The host holds some of what has to leave: whatever operators take, both ways are gone.
    with delta_torch.budget(
        int(report.peak_bytes * 0.75), policy="online", host="200KiB", device=DEVICE
    ) as run:
        for i in range(3):
            training.step(i)
    run.snapshot(tmp_path / "m.pickle")
    snapshot = read(tmp_path / "m.pickle")
    assert run.report().recomputes > 0 and run.report().offloads > 0
    used = curve(snapshot)
    assert used[0] == 0 and max(used) == run.report().peak_bytes
    assert used[-1] == run.report().used_bytes


@pytest.mark.long
def test_first_contact(tmp_path) -> None:
    """As a GPU will be asked, in processes of its own."""
    found = first_contact(tmp_path, "simulated", "^(contact|copies|driver|streams|llama, copied)")
    assert {row["status"] for row in found.values()} == {"done"}
