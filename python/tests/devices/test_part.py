"""A device's part from an extension of its own: when it is told what.

In a process of its own, as a device has one part for good.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = HERE.parents[1]

PROGRAM = """
import sys, threading, warnings
sys.path[:0] = sys.argv[1:3]
import accelerator, torch
from torch.utils import cpp_extension
warnings.simplefilter("ignore")
sim = accelerator.load()
part = cpp_extension.load(
    "recording_part",
    [sys.argv[3]],
    extra_cflags=["-std=c++20", "-O0"],
    extra_include_paths=[sys.argv[4]],
    build_directory=sys.argv[5],
)
import delta_torch
part.use()
MIB = 1 << 20
kept = [torch.ones(MIB, device="simulated") for _ in range(3)]
with delta_torch.budget(20 * MIB, policy="online", host="1GiB", device="simulated") as run:
    begun = part.told()
    for i in range(8):
        kept.append(kept[-1] + 1)
    worker = threading.Thread(target=lambda: delta_torch.attach().__enter__() and kept[0] + 1)
    worker.start()
    worker.join()
    during = part.told()
    for _ in range(2):
        sum(float(x.sum()) for x in kept)
ended = part.told()
assert [float(x[0]) for x in kept] == [1.0] * 3 + [float(i) for i in range(2, 10)]
assert "limit simulated:0 20971520" in begun, begun
assert begun.index("limit simulated:0 20971520") < begun.index("install simulated:0"), begun
assert during[0] == "prepare simulated:0" and "out" in during, during
assert "in" in ended, ended
last = ended.index("unlimit simulated:0")
assert ended.index("remove") < last, ended
# What was away comes back when there is no limit any more.
assert "in" in ended[last:], ended
with delta_torch.budget(0.9, policy="online", host="1GiB", device="simulated", steps="manual") as r:
    for _ in range(3):
        y = kept[0] + 1
        r.step()
ended = part.told()
limits = [line for line in ended if line.startswith("limit")]
assert len(limits) == 2 and limits[1].endswith(" of some"), limits
assert "unlimit simulated:0" in ended, ended
# A replay that is refused memory at the limit is given it past that.
takes = iter([0])
def kernel(x, *_):
    torch.empty(next(takes, MIB), dtype=torch.uint8, device="simulated")
    return x + 1
library = torch.library.Library("aten", "IMPL")
library.impl("digamma", kernel, "PrivateUse1")
with delta_torch.budget("128KiB", policy="dtr", host=0, device="simulated", steps="manual") as r:
    y = torch.digamma(torch.zeros(4096, device="simulated"))
    full = [torch.ones(4096, device="simulated") for _ in range(7)]
    for x in full:
        delta_torch.pin(x)
    full[0] + 1
    del full
    part.told()
    sim.empty_cache()
    sim.set_capacity(sim.memory_allocated() + MIB // 4)
    try:
        y.sum()
    except RuntimeError as error:
        assert "the system has none for 1048576 bytes" in str(error), error
    sim.set_capacity(4 << 30)
    limits = [line.split()[0] for line in part.told() if "limit" in line]
    assert limits == ["limit", "limit"], limits
    assert float(y.sum()) == 4096
print("told as it should be")
"""


def test_when_a_part_is_told_what(tmp_path: Path, sim) -> None:
    folders = [HERE / "accelerator", HERE.parent, HERE / "part/recording_part.cpp"]
    command = [sys.executable, "-c", PROGRAM, *folders, PYTHON / "csrc", tmp_path]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, timeout=600
    )
    assert done.stdout.endswith("told as it should be\n"), done.stdout + done.stderr
