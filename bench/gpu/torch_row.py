#!/usr/bin/env python3
"""One row of torch_contact.py, in a process of its own: prints one line of JSON.

    python3 bench/gpu/torch_row.py ROW [--device D] [--full] [--model M] [--way W] ...

"failed" in it is what was wrong, in a line. Exit code 77 where there is no PyTorch."""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import random
import re
import resource
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

try:
    import torch
except ImportError:
    print("SKIPPED: there is no PyTorch")
    sys.exit(77)

import delta_torch

from torch_models import PYTHON, subjects  # noqa: I001 - puts python/tests on the path

import matrix_cases
import on_streams
import torch_cases
from against_pytorch import Way, measured, timed
from training import check_same, managed, unmanaged
from training import measured as report_of

STEPS = 4  # of a training whose bits are compared
HOST = {True: 16 << 30, False: 1 << 30}  # that copies may take, at full size and tried out
Found = dict[str, Any]


class Wrong(Exception):
    """What is not as it must be."""


def expect(right: bool, line: str) -> None:
    if not right:
        raise Wrong(line)


# -------------------------------------------------------------------------------------------------
# Is it right?


def machine(o: argparse.Namespace) -> Found:
    """What is here, and is CUDA's part of delta_torch?"""
    found = {
        "PyTorch": torch.__version__,
        "delta_torch": delta_torch.__version__,
        "Python": sys.version.split()[0],
    }
    if o.cuda:
        expect(torch.cuda.is_available(), "PyTorch can use no GPU here")
        expect(
            importlib.util.find_spec("delta_torch._cuda") is not None,
            "delta_torch is built without its CUDA part: it had no CUDA toolkit's headers",
        )
        found["CUDA"] = str(torch.version.cuda)
        found["cuDNN"] = str(torch.backends.cudnn.version())
    # What copies may take of the host, and of that what may be pinned.
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    found["free host memory"] = f"{free / 2**30:.0f} GiB"
    if locked != resource.RLIM_INFINITY:
        found["that may be locked"] = f"{locked / 2**20:.0f} MiB"
    return {"line": ", ".join(f"{name} {value}" for name, value in found.items())}


def contact(o: argparse.Namespace) -> Found:
    """A few operators without pressure; then the process ends inside of a run."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with delta_torch.budget("1GiB", device=o.device) as run:
            x = torch.ones(256, 256, device=o.device)
            value = ((x + x) @ x).sum().item()
            del x
    expect(value == 2 * 256**3, f"a sum is {value}, not {2 * 256**3}")
    said = [str(w.message) for w in told]
    expect(len(said) <= 1, f"{len(said)} warnings, where one is right: {' | '.join(said)}")
    found: Found = {"peak_bytes": run.report().peak_bytes, "warnings": len(said)}
    if o.cuda:
        segments = torch.cuda.memory._snapshot()["segments"]
        expandable = any(s["is_expandable"] for s in segments)
        found["line"] = f"expandable segments: {'yes' if expandable else 'no'}"
    delta_torch.budget("1GiB", device=o.device).__enter__()
    found["left"] = torch.ones(256, device=o.device).sum().item()
    return found


def allocator(o: argparse.Namespace) -> Found:
    """Is PyTorch's allocator behind a run as it was before? As the tests ask it."""
    if not o.cuda:
        return {"skipped": "of CUDA's part"}
    try:
        import pytest
    except ImportError:
        return {"skipped": "there is no pytest"}

    class Seen:
        passed = 0

        def pytest_runtest_logreport(self, report: Any) -> None:
            self.passed += report.when == "call" and report.passed

    seen, test = Seen(), PYTHON / "tests/test_cuda_part.py"
    which = "test_pytorchs_allocator_is_as_before_on_a_gpu"
    code = pytest.main(["-q", "-p", "no:cacheprovider", f"{test}::{which}"], [seen])
    expect(code == 0 and seen.passed == 1, f"{which} has not passed")
    return {}


def copies(o: argparse.Namespace) -> Found:
    """Copies alone: 40 tensors that can't be computed again, in a budget for ten."""
    unit = (1 << 20 if o.full else 1 << 14) // 4
    sizes = [unit * (1 + 63 * i // 39) for i in range(40)]
    budget = sum(sizes)  # of four bytes each
    # There nothing is brought from a host: `online` may compute them again, by the times it measures.
    policy = "swap_lru" if o.device == "cpu" else "online"
    with delta_torch.budget(budget, device=o.device, policy=policy, host=HOST[o.full]) as run:
        tensors = [torch.full((n,), i, dtype=torch.int32).to(o.device) for i, n in enumerate(sizes)]
        began = time.perf_counter()
        for touch in range(5):
            for i, tensor in enumerate(tensors):
                found = tensor.sum().item()
                expect(found == i * sizes[i], f"round {touch}: tensor {i} has other bytes")
        seconds = time.perf_counter() - began
        report = run.report()
    del tensors
    expect(report.offloads > 0, "nothing was copied out")
    expect(report.peak_bytes <= budget, f"peak {report.peak_bytes}, over the budget {budget}")
    moved = report.bytes_out + report.bytes_in
    return {
        "bytes": moved,
        "waits": report.waits,
        "line": f"{moved / seconds / 1e9:.1f} GB/s both ways, {report.waits} waits for copies",
    }


def bits(o: argparse.Namespace) -> Found:
    """A training at 60 and 40 % of what can leave, compared bit for bit."""

    def make() -> Any:
        for cases in (matrix_cases.CASES, torch_cases.CASES):
            if o.case in cases:
                return cases[o.case](o.device)
        return subjects(False, 32, 4, o.device)[o.case].training(None)[0]

    torch.use_deterministic_algorithms(True, warn_only=True)
    warnings.simplefilter("ignore")  # of operators that have no deterministic kernel
    try:
        expected = unmanaged(make, STEPS)
    except RuntimeError as error:
        if not re.search("No (available kernel|viable backend)", str(error)):
            raise
        return {"skipped": f"PyTorch has no such kernel for {o.device}"}
    if unmanaged(make, STEPS) != expected:
        return {"skipped": "two runs without a budget differ: nothing to compare with"}
    plain = report_of(make, STEPS, device=o.device)
    host = 0 if o.policy == "dtr" else HOST[o.full]
    said, refused = [], 0
    can_leave = plain.peak_bytes - plain.used_bytes
    for share in (0.6, 0.4):
        size = int(plain.used_bytes + can_leave * share)
        try:
            report = check_same(
                make, STEPS, size, expected, policy=o.policy, host=host, device=o.device
            )
        except AssertionError as error:
            line = str(error).partition("\n")[0] or "other bits than without a budget, or over it"
            raise Wrong(f"at {share:.0%}: {line}") from error
        told = f"{share:.0%}"
        if report.budget_bytes > size + 512:  # the error named one that does
            told += f" too small, {(report.budget_bytes - plain.used_bytes) / can_leave:.0%}"
        said.append(f"{told}: {report.evictions + report.offloads} tensors left")
        refused += report.refused
    said += [f"{refused} operators were refused a workspace"] * (refused > 0)
    return {"line": "; ".join(said)}


def streams(o: argparse.Namespace) -> Found:
    """A training whose batches and losses have a stream of their own; a seed draws its delays."""
    if not o.cuda and not o.sim:
        return {"skipped": "a CPU has no streams"}
    drawn = random.Random()

    def delay() -> None:
        if o.cuda and drawn.random() < 0.5:
            torch.cuda._sleep(int(drawn.expovariate(1e-6)))  # a millisecond or so

    def make() -> Any:
        return on_streams.prefetched(o.device, delay)

    torch.use_deterministic_algorithms(True, warn_only=True)
    warnings.simplefilter("ignore")
    expected = unmanaged(make, STEPS)
    peak = report_of(make, STEPS, device=o.device).peak_bytes
    wrong, alone = [], []
    for seed in range(o.seeds):
        drawn.seed(seed)
        if o.sim:
            o.sim.set_schedule(seed, 0.95)
        if seed % 10 == 0 and unmanaged(make, STEPS) != expected:
            alone.append(seed)
        policy = ("adaptive", "online")[seed % 2]
        trained = managed(
            make, STEPS, int(peak * 0.75), policy=policy, host=HOST[o.full], device=o.device
        )
        if trained.outcome != expected:
            wrong.append(seed)
    expect(not alone, f"two runs without a budget differ (seeds {alone})")
    expect(not wrong, f"other bits under the seeds {wrong}")
    return {"line": f"{o.seeds} seeds"}


def driver(o: argparse.Namespace) -> Found:
    """What PyTorch's allocator and the driver say that a budget of 40 % takes."""
    if not o.cuda and not o.sim:
        return {"skipped": "a CPU has no allocator that counts"}
    subject = subjects(o.full, o.image, o.batch, o.device)["resnet50" if o.full else "llama"]
    plain, _, _ = measured(subject, "unmanaged", 2)  # which loads the kernels, too
    budget = int(0.4 * plain.peak_bytes)
    device = torch.get_device_module(o.device)

    def used() -> int:
        torch.accelerator.synchronize()
        if not o.cuda:
            return device.memory_allocated()
        free, total = torch.cuda.mem_get_info(o.device)
        return total - free

    gc.collect()
    device.empty_cache()
    before, of_driver, most = device.memory_allocated(), used(), 0
    held = device.memory_reserved() if o.cuda else 0
    training, _ = subject.training(None)
    with delta_torch.budget(budget, device=o.device, host=HOST[o.full]) as run:
        training.step(0)  # what was there before the run counts from its first use on
        torch.accelerator.synchronize()
        device.reset_peak_memory_stats()
        for i in range(6):
            training.step(i).item()
            most = max(most, used() - of_driver)
    found = {
        "budget_bytes": budget,
        "peak_bytes": run.report().peak_bytes,
        "allocated_bytes": device.max_memory_allocated() - before,
        "driver_bytes": most,
    }
    if o.cuda:
        found["reserved_bytes"] = device.max_memory_reserved() - held
    # What cuBLAS keeps, and the allocator's rounding: docs/accelerators.md.
    slack = (256 << 20) + budget // 16 if o.cuda else 0
    mib = {name: f"{count / 2**20:.1f}" for name, count in found.items()}
    line = ", ".join(f"{name.removesuffix('_bytes')} {size}" for name, size in mib.items()) + " MiB"
    expect(found["peak_bytes"] <= budget, f"over the budget: {line}")
    expect(found["allocated_bytes"] <= budget + slack, f"PyTorch allocated more: {line}")
    expect(found.get("reserved_bytes", 0) <= budget + slack, f"PyTorch holds more: {line}")
    return {**found, "line": line}


# -------------------------------------------------------------------------------------------------
# What does it cost?


def way(o: argparse.Namespace) -> Found:
    """A step of a model: as it is, by PyTorch's own means, or under a budget."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    subject = subjects(o.full, o.image, o.batch, o.device)[o.model]
    tried = Way("adaptive", o.budget, HOST[o.full]) if o.budget else Way(o.way)
    timed(subject, tried, o.steps, o.losses)
    if tried.error:
        return {"small": tried.error.partition("\n")[0]}
    found: Found = {"step_seconds": tried.wall[0], "same": tried.same_losses}
    found["host_peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if o.cuda:
        stats = torch.cuda.memory_stats(o.device)
        counts = ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_free")
        found["counts"] = {name: stats.get(name, 0) for name in counts}
        found["allocated_bytes"] = torch.cuda.max_memory_allocated(o.device)
    if not o.budget:
        gc.collect()
        plain, found["losses"], _ = measured(subject, o.way)
        tried.peak_bytes = plain.peak_bytes
    return {**found, "peak_bytes": tried.peak_bytes}


def predicted(o: argparse.Namespace) -> Found:
    """What delta_torch.plan says of the same, without running it."""
    subject = subjects(o.full, o.image, o.batch, "cpu")[o.model]

    def maker(rival: str | None) -> Callable[[], Any]:
        # Fake tensors have no state of a generator to preserve.
        training, _ = subject.training(rival, **({"preserve_rng_state": False} if rival else {}))
        return lambda: training.step(0)

    (plan,) = delta_torch.plan(
        lambda: maker(None),
        device=o.machine,
        shares=[0.4],
        host=HOST[o.full],
        tf32=True,
        compare=lambda: maker("checkpoint"),
    ).batches
    point = min(plan.points, key=lambda p: abs(p.share - 0.4))
    return {
        "what": subject.what,
        "step_seconds": plan.step_ns / 1e9,
        "peak_bytes": plan.peak_bytes,
        "ways": {
            "delta, 40 %": {
                "overhead": point.overhead if point.fits else None,
                "peak": point.peak_bytes / plan.peak_bytes,
            },
            "checkpoint": {
                "overhead": (plan.checkpoint_ns or 0) / plan.step_ns,
                "peak": (plan.checkpoint_bytes or 0) / plan.peak_bytes,
            },
        },
    }


FUNCTIONS = (machine, contact, allocator, copies, bits, streams, driver, way, predicted)
ROWS = {f.__name__: f for f in FUNCTIONS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--full", action="store_true", help="sizes for a GPU")
    parser.add_argument("--image", type=int, default=32)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--case", default="resnet_sgd")
    parser.add_argument("--policy", default="adaptive")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--way", default="unmanaged", help="or checkpoint, save_on_cpu")
    parser.add_argument("--budget", type=int, default=0, help="in bytes; 0: without delta_torch")
    parser.add_argument("--losses", type=lambda text: text.split(",") if text else [], default=[])
    parser.add_argument("--machine", default="h100")
    o = parser.parse_args()
    o.cuda, o.sim = o.device.startswith("cuda"), None
    if o.device == "simulated":
        sys.path.insert(0, str(PYTHON / "tests/devices/accelerator"))
        import accelerator

        o.sim = accelerator.load()
        o.device = "simulated:0"
    elif not o.cuda:
        torch.set_num_threads(1)
    elif ":" in o.device:
        torch.cuda.set_device(o.device)
    try:
        found = ROWS[o.row](o)
    except Wrong as why:
        found = {"failed": str(why)}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
