"""What a run refuses of torch.distributed, each by the sentence that says so; run by worker.py."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from ddp_cases import _built
from torch.testing._internal.distributed.fake_pg import FakeStore

import delta_torch


def _sentence(call: Callable[[], object]) -> str:
    try:
        with delta_torch.budget("64MiB", steps="manual"):
            call()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return "it runs"


def backend(rank: int) -> str:
    group = dist.ProcessGroup(FakeStore(), rank, 2)
    from torch._C._distributed_c10d import FakeProcessGroup

    fake = FakeProcessGroup._create_internal(rank, 2)
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, fake)
    return _sentence(lambda: group.allreduce([torch.ones(4)]))


def sparse(rank: int) -> str:
    x = torch.eye(4).to_sparse()
    return _sentence(lambda: dist.all_reduce(x))


def operator(rank: int) -> str:
    name = dist.group.WORLD.group_name
    return _sentence(lambda: torch.ops.symm_mem.one_shot_all_reduce(torch.ones(4), "sum", name))


def builtin_hook(rank: int) -> list[str]:
    found = []

    def inside() -> None:
        ddp = _built("mlp", "builtin_fp16", {})
        ddp(torch.randn(4, 160))

    found.append(_sentence(inside))
    before = _built("mlp", "builtin_fp16", {})
    found.append(_sentence(lambda: before(torch.randn(4, 160))))
    return found


def old_fsdp(rank: int) -> str:
    from torch.distributed.fsdp import FullyShardedDataParallel

    def inside() -> None:
        FullyShardedDataParallel(torch.nn.Linear(4, 4), device_id=torch.device("cpu"))(
            torch.randn(2, 4)
        )

    return _sentence(inside)


def unknown(rank: int) -> list[object]:
    """An operator of somebody else with a group's name: all its tensors count as written."""
    library = torch.library.Library("delta_test_group", "DEF")
    library.define("mix(Tensor x, Tensor y, str group_name) -> Tensor")

    def mix(x: torch.Tensor, y: torch.Tensor, group_name: str) -> torch.Tensor:
        y.add_(x)  # it does not declare that
        return y * 2

    library.impl("mix", mix, "CPU")
    found: list[object] = []
    for within in (False, True):
        run = delta_torch.budget("1MiB", host="1GiB", policy="online", steps="manual")
        with run if within else torch.no_grad():
            x, y = torch.arange(2.0**15), torch.arange(2.0**15) + 1
            z = torch.ops.delta_test_group.mix(x, y, "any")
            for _ in range(8):
                torch.ones(2**16) * 2
            delta_torch.step() if within else None
            others = [torch.ones(2**16) * 2 for _ in range(3)]
            found.append([y.sum().item(), z.sum().item(), others[0][0].item()])
    return found


def out_of_memory(rank: int) -> str:
    with delta_torch.budget("1MiB", steps="manual"):
        x = torch.ones(2**16)
        work = dist.isend(x, 1) if rank == 0 else dist.irecv(x, 0)
        try:
            torch.ones(2**18 - 4096)
        except torch.OutOfMemoryError as error:
            sentence = str(error)
        work.wait()
    return sentence
