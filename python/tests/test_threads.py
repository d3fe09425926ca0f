"""Memory that other threads take, and free while a run ends."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

import delta_torch

# Takes memory by PyTorch's allocator, and frees it piece by piece on a thread of its own.
FREES = """
#include <c10/core/Allocator.h>
#include <chrono>
#include <thread>
#include <vector>
static std::vector<c10::DataPtr>& taken = *new std::vector<c10::DataPtr>;
static std::thread& freeing = *new std::thread;
extern "C" void take(int count) {
  for (int i = 0; i < count; ++i) taken.push_back(c10::GetAllocator(c10::kCPU)->allocate(256));
}
extern "C" void begin_to_free() {
  freeing = std::thread([] {
    for (; !taken.empty(); taken.pop_back())
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  });
}
extern "C" void all_freed() { freeing.join(); }
"""

PROGRAM = """
    import ctypes, sys, torch, delta_torch
    library = ctypes.CDLL(sys.argv[1])
    for _ in range(4):
        with delta_torch.budget("8MiB", policy="online", host="1GiB"):
            away = [torch.full((2**18,), float(i)) * 2 for i in range(64)]
            library.take(2000)
            library.begin_to_free()
        library.all_freed()
        assert [t[7].item() for t in away] == [2.0 * i for i in range(64)]
    print("four runs")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frees")
    (folder / "frees.cpp").write_text(FREES)
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-shared", "-fPIC", "-pthread"]
    command += [f"-isystem{path}" for path in cpp_extension.include_paths()]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
    command += ["frees.cpp", "-o", "frees.so", *(f"-L{p}" for p in cpp_extension.library_paths())]
    subprocess.run([*command, "-lc10"], cwd=folder, check=True)
    return folder / "frees.so"


def test_memory_is_freed_while_a_run_ends(library: Path) -> None:
    # What was counted, and is freed while the run that ends has the lock, is not counted by then.
    program = textwrap.dedent(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-c", program, str(library)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "four runs\n"), done.stderr


def test_what_a_thread_of_its_own_makes_counts_at_once_be_it_as_small_as_a_number() -> None:
    # The 1 of `x + 1` is made outside operators, by a managed thread, and is not counted.
    with (
        delta_torch.budget("1MiB", policy="dtr", steps="manual") as run,
        concurrent.futures.ThreadPoolExecutor(1) as thread,
    ):
        number = thread.submit(torch.ones, 4).result()
        assert run.report().used_bytes == 64
        sums = [number + n for n in range(3)]
        assert run.report().used_bytes == 4 * 64
    assert [s.tolist() for s in sums] == [[n + 1.0] * 4 for n in range(3)]
