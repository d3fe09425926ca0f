"""CUDA's part: what can be told without a GPU, and, on one, the same bits as without a budget.

The gate before PyTorch's allocator is tested between a fake of that and one of delta's.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import matrix_cases
import pytest
import torch
from training import check_same, measured, unmanaged

import delta_torch
from delta_torch import _C

PYTHON = Path(__file__).resolve().parents[1]
GATE = PYTHON / "csrc_cuda"
FAKE = PYTHON / "tests/cuda/fake_native.cpp"
FLAGS = ["-std=c++20", "-O0", "-Wall", "-Wextra", "-Wno-unknown-warning-option"]
BUILT = importlib.util.find_spec("delta_torch._cuda") is not None
needs_part = pytest.mark.skipif(
    not BUILT, reason="delta_torch is built without its CUDA part: it had no CUDA toolkit's headers"
)
needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="NOT RUN: there is no GPU that PyTorch can use"
)


@needs_part
def test_is_imported_and_used_without_a_gpu():
    """In a process of its own: PyTorch's allocator is the same before and after."""
    program = (
        "import delta_torch._cuda as cuda, torch\n"
        "cuda.use(), cuda.use()\n"
        "assert not torch.cuda.is_initialized()\n"
        "assert torch.cuda.get_allocator_backend() == 'native'\n"
        "print('used')\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "used\n", done.stderr


def test_a_part_is_a_capsule_of_ours():
    with pytest.raises(TypeError):
        _C.adopt_part(1, "cuda")
    datetime = importlib.import_module("datetime").datetime_CAPI
    with pytest.raises(RuntimeError, match="delta: this is no device's part"):
        _C.adopt_part(datetime, "cuda")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_budget_on_a_gpu_that_there_is_not():
    with pytest.raises(ValueError, match="there is no device 'cuda'") as raised:
        delta_torch.budget("1GiB", device="cuda")
    assert len(str(raised.value).splitlines()) == 1


# ----------------------------------------------------------------------------------------------
# The gate, between two fakes


def compiled_fake() -> ModuleType:
    """Compiles the gate and the fakes, once for these sources and this PyTorch."""
    from torch.utils import cpp_extension

    files = [*sorted(GATE.glob("gate.*")), *GATE.glob("*.hpp"), FAKE]
    text = hashlib.sha256(f"{torch.__version__} {sys.version} {FLAGS}".encode())
    for path in files:
        text.update(path.read_bytes())
    where = PYTHON / f"build/fake-native-{text.hexdigest()[:12]}"
    where.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("MAX_JOBS", "1")
    return cpp_extension.load(
        "delta_fake_native",
        [str(FAKE), str(GATE / "gate.cpp")],
        extra_cflags=FLAGS,
        extra_include_paths=[str(GATE), str(PYTHON / "csrc"), *cpp_extension.include_paths("cuda")],
        extra_ldflags=[
            *(f"-L{folder}" for folder in cpp_extension.library_paths("cuda")),
            "-lc10_cuda",
            "-lcudart",
        ],
        build_directory=str(where),
        with_cuda=False,  # which would ask for the architectures of kernels, and there are none
    )


@pytest.fixture(scope="module")
def module() -> ModuleType:
    if not BUILT:
        pytest.skip("delta_torch is built without its CUDA part: its gate can't be compiled here")
    if torch.cuda.is_available():
        pytest.skip("the fake would stand in for an allocator that is in use")
    return compiled_fake()


@pytest.fixture
def fake(module: ModuleType) -> Iterator[ModuleType]:
    """The fake native allocator is PyTorch's; what a test leaves out is an error."""
    module.begin()
    try:
        yield module
    finally:
        module.end()
        assert module.calls().get("native.out", 0) == 0
        assert module.calls().get("ours.out", 0) == 0


def test_allocations_are_ours_and_are_freed_once(fake: ModuleType) -> None:
    fake.install(0)
    assert fake.standing() == "gate"
    assert fake.own_is_native()
    p = fake.allocate(8)
    assert fake.calls() == {"ours.allocate": 1, "ours.out": 1}
    fake.free(p)
    assert fake.calls() == {"ours.allocate": 1, "ours.out": 0}
    fake.remove()
    assert fake.standing() == "native"
    fake.free(fake.allocate(8))
    assert fake.calls()["native.allocate"] == 1


def test_raw_allocations_are_ours_and_are_freed_once(fake: ModuleType) -> None:
    fake.install(0)
    first, second = fake.raw_alloc(8), fake.raw_alloc_with_stream(8, 0)
    assert fake.raw_alloc(0) == 0
    assert fake.calls() == {"ours.allocate": 3, "ours.out": 2}
    fake.raw_delete(first)
    fake.raw_delete(second)
    assert fake.calls() == {"ours.allocate": 3, "ours.out": 0}


def test_pointers_of_before_are_passed_on(fake: ModuleType) -> None:
    before, data = fake.raw_alloc(8), fake.allocate(8)
    fake.install(0)
    fake.raw_delete(before)
    fake.free(data)
    assert fake.calls() == {
        "native.raw_alloc": 1,
        "native.allocate": 1,
        "native.raw_delete": 1,
        "native.out": 0,
    }


def test_raw_pointers_outlive_the_run(fake: ModuleType) -> None:
    """PyTorch's own allocator comes back with the last of them; nothing more is ours meanwhile."""
    fake.install(0)
    first, second, data = fake.raw_alloc(8), fake.raw_alloc(8), fake.allocate(8)
    fake.remove()
    assert fake.standing() == "gate"
    fake.raw_delete(fake.raw_alloc(8))
    assert fake.calls()["native.raw_delete"] == 1
    fake.raw_delete(first)
    assert fake.standing() == "gate"
    fake.raw_delete(second)
    assert fake.standing() == "native"
    fake.free(data)  # by what owns it, wherever
    assert fake.calls()["ours.allocate"] == 3
    fake.install(0)
    assert fake.standing() == "gate"
    assert fake.own_is_native()


def test_what_passes_the_gate(fake: ModuleType) -> None:
    fake.install(1)
    fake.free(fake.allocate(8))  # on device 0
    fake.set_device(1)
    fake.set_capturing(True)
    fake.free(fake.allocate(8))
    fake.raw_delete(fake.raw_alloc(8))
    fake.set_capturing(False)
    fake.raw_delete(fake.raw_alloc_with_stream(8, 5))  # another stream's
    fake.allocate_uncounted(8)
    fake.free(0)
    calls = fake.calls()
    assert "ours.allocate" not in calls
    assert calls["native.allocate"] == 3
    assert calls["native.raw_alloc"] == calls["native.raw_alloc_with_stream"] == 1
    assert calls["native.raw_delete"] == 2
    fake.free(fake.allocate(8))
    assert fake.calls()["ours.allocate"] == 1


def test_private_pools_pass_the_gate(fake: ModuleType) -> None:
    fake.install(0)
    fake.begin_pool(0, 3)
    fake.free(fake.allocate(8))  # of another stream
    assert fake.calls()["ours.allocate"] == 1
    fake.set_stream(3)
    fake.free(fake.allocate(8))
    fake.raw_delete(fake.raw_alloc_with_stream(8, 3))
    assert fake.calls()["ours.allocate"] == 1
    assert fake.calls()["native.allocate"] == fake.calls()["native.raw_alloc_with_stream"] == 1
    fake.end_pool(0)
    fake.free(fake.allocate(8))
    assert fake.calls()["ours.allocate"] == 2
    assert fake.calls()["native.begin"] == fake.calls()["native.end"] == 1


def test_everything_else_is_the_native_ones(fake: ModuleType) -> None:
    fake.install(0)
    assert fake.others() == "native"
    assert fake.raw_deleter_is_none()
    asked = ("native.emptyCache", "native.setMemoryFraction", "native.recordStream")
    assert fake.calls() == dict.fromkeys(asked, 1)


def test_streams_are_recorded_where_the_bytes_are_from(fake: ModuleType) -> None:
    """For callers in C++, who come past PyTorch's operators."""
    before = fake.allocate(8)
    fake.install(0)
    during = fake.allocate(8)
    fake.record_stream(before)
    assert fake.calls()["native.recordStream"] == 2
    fake.record_stream(during)
    assert fake.calls()["ours.used_by"] == fake.calls()["native.recordStream"] == 2
    fake.remove()
    fake.record_stream(during)  # its own, as any allocator's
    assert fake.calls()["native.recordStream"] == 4
    fake.free(before), fake.free(during)


def test_expandable_segments_are_a_runs(
    fake: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    settings = torch._C._accelerator_getAllocatorSettings
    for runs in (1, 2):
        fake.segments(True)
        assert settings() == "expandable_segments:True"
        fake.segments(False)
        assert settings() == "expandable_segments:False"
        assert fake.calls()["native.emptyCache"] == runs
    torch._C._accelerator_setAllocatorSettings("expandable_segments:True,max_split_size_mb:64")
    fake.segments(True)
    fake.segments(False)  # the program's own
    assert settings().endswith(":64") and fake.calls()["native.emptyCache"] == 2


def test_what_pytorch_may_hold_in_a_run(fake: ModuleType) -> None:
    gib = 1 << 30
    share = functools.partial(fake.share_in_a_run, total=80 * gib, before=0.99)
    assert share(16 * gib, 0) * 80 == 16 + 0.25 + 1
    assert share(16 * gib, gib) * 80 == 18.25
    for budget in (78, 79, 80, 200):
        assert share(budget * gib, 0) * 80 == pytest.approx(78.5)  # launches need the rest
    assert share(1 << 46, 0) == 0.99  # there is no budget
    assert fake.share_in_a_run(80 * gib, 0, 80 * gib, 0.5) == 0.5


def test_no_memory_is_pytorchs_error(fake: ModuleType) -> None:
    fake.install(0)
    fake.set_full(True)
    for allocate in (fake.allocate, fake.raw_alloc):
        with pytest.raises((torch.OutOfMemoryError, RuntimeError), match="delta: full"):
            allocate(8)


# ----------------------------------------------------------------------------------------------
# On a GPU

STEPS = 4


@functools.cache
def without_a_budget(case: str):
    """What must come out, the peak, and what stays between steps."""
    make = functools.partial(matrix_cases.CASES[case], "cuda")
    expected = unmanaged(make, STEPS)
    report = measured(make, STEPS, device="cuda")
    return make, expected, report.peak_bytes, report.used_bytes


@pytest.fixture
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels that add in the same order each time; else no two runs are the same bits."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@needs_gpu
@needs_part
@pytest.mark.parametrize("share", [0.7, 0.4])
@pytest.mark.parametrize("policy", ["dtr", "online", "adaptive"])
@pytest.mark.parametrize("case", list(matrix_cases.CASES))
@pytest.mark.filterwarnings("ignore:delta_torch has not run on a GPU")
def test_same_bits_on_a_gpu(deterministic: None, case: str, policy: str, share: float) -> None:
    make, expected, peak, stays = without_a_budget(case)
    size = int(stays + (peak - stays) * share)
    host = 0 if policy == "dtr" else "4GiB"
    check_same(make, STEPS, size, expected, policy=policy, host=host, device="cuda")


@needs_gpu
@needs_part
@pytest.mark.filterwarnings("ignore:delta_torch has not run on a GPU")
def test_pytorchs_allocator_is_as_before_on_a_gpu():
    before = torch.cuda.get_per_process_memory_fraction()
    with delta_torch.budget("64MiB", device="cuda"):
        assert torch.cuda.get_per_process_memory_fraction() < before
        x = torch.ones(1 << 20, device="cuda")
        y = (x @ x).item()
    assert torch.cuda.get_per_process_memory_fraction() == before
    assert y == 1 << 20
    assert (x + 1).sum().item() == 2 << 20
    del x
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
