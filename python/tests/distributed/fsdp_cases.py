"""FSDP2, tensor parallel and pipelines; run by worker.py."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from managing import digest, managed
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

WIDTH, ROWS = 96, 512


class Block(nn.Module):
    """Two layers beside a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def _blocks(count: int = 5) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(*[Block() for _ in range(count)])


def _full(model: nn.Module) -> list[torch.Tensor]:
    return [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]


def _trained(rank: int, model: Any, optimizer: Any, steps: int, same: bool = False) -> list[str]:
    found = []
    for step in range(steps):
        torch.manual_seed(100 * step + (0 if same else rank))
        loss = model(torch.randn(ROWS, WIDTH)).square().mean()
        loss.backward()
        gradients = [p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad
                     for p in model.parameters()]
        found.append(digest(loss.item(), gradients))
        optimizer.step()
        optimizer.zero_grad()
    return found


def fsdp(
    rank: int,
    run: dict[str, Any] | None,
    reshard: bool | int = True,
    inside: bool = False,
    mixed: bool = False,
    steps: int = 5,
) -> Any:
    def made() -> tuple[Any, Any]:
        model = _blocks()
        options: dict[str, Any] = {"reshard_after_forward": reshard}
        if mixed:
            options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
        mesh = init_device_mesh("cpu", (2,))
        for block in model:
            fully_shard(block, mesh=mesh, **options)
        fully_shard(model, mesh=mesh, **options)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)

    built = None if inside else made()
    with managed(run) as told:
        model, optimizer = built or made()
        found = _trained(rank, model, optimizer, steps)
        full = digest(_full(model))
    return {"bits": [*found, full], **told.about}


def tensor_parallel(rank: int, run: dict[str, Any] | None, steps: int = 5) -> Any:
    mesh = init_device_mesh("cpu", (2,))
    model = _blocks()
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    with managed(run) as told:
        found = _trained(rank, model, optimizer, steps, same=True)
        full = digest(_full(model))
    return {"bits": [*found, full], **told.about}


def pipeline(rank: int, run: dict[str, Any] | None, schedule: str, steps: int = 5) -> Any:
    blocks = _blocks(6)
    module = blocks[:3] if rank == 0 else blocks[3:]
    stage = PipelineStage(module, rank, 2, torch.device("cpu"))
    kind = {"1F1B": Schedule1F1B, "GPipe": ScheduleGPipe}[schedule]
    plan = kind(stage, 4, loss_fn=lambda y, t: (y - t).square().mean())
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, foreach=False)
    found = []
    with managed(run) as told:
        for step in range(steps):
            torch.manual_seed(step)
            x, target = torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)
            losses: list[torch.Tensor] = []
            if rank == 0:
                plan.step(x)
            else:
                plan.step(target=target, losses=losses)
            found.append(digest(losses, [p.grad for p in module.parameters()]))
            optimizer.step()
            optimizer.zero_grad()
        found.append(digest(list(module.parameters())))
    return {"bits": found, **told.about}
