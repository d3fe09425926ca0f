"""FSDP2, tensor parallel and pipelines; run by worker.py."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from managing import Heap, digest, managed
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

WIDTH, ROWS = 96, 512


class Block(nn.Module):
    """Two layers beside a shortcut."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

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
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
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


def generations(rank: int, run: dict[str, Any] | None, frozen: bool, steps: int = 3) -> Any:
    """Many blocks whose weights are far more than what is computed from them; frozen: only biases
    are trained. Without a run also the bytes that FSDP takes at most, as malloc counts them."""
    width, rows = 192, 16
    torch.manual_seed(3)
    model = nn.Sequential(*[Block(width) for _ in range(24)])
    for p in model.parameters():
        p.requires_grad_(not frozen or p.dim() == 1)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for part in (*model, model):
        fully_shard(part, mesh=mesh, reshard_after_forward=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, foreach=False)
    of_before = sum(p.to_local().untyped_storage().nbytes() for p in model.parameters())

    def trained(count: int) -> list[float]:
        losses = []
        for step in range(count):
            torch.manual_seed(100 * step + rank)
            loss = model(torch.randn(rows, width)).square().mean()
            loss.backward()
            losses.append(loss.item())
            del loss
            # NumPy takes no bytes for it; and its arrays are there when the gradients go.
            gradients = [p.grad.to_local().numpy() for p in model.parameters() if p.requires_grad]
            losses += [float(g.sum()) for g in gradients]
            optimizer.step()
            optimizer.zero_grad()
            del gradients
        return losses

    trained(1)  # what is made once, by PyTorch and by Python
    about: dict[str, Any]
    if run is None:
        heap = Heap()
        with heap.watched():
            losses = trained(steps)
        about = {"own": heap.most - heap.first + of_before}
    else:
        with managed(run) as told:
            losses = trained(steps)
        about = told.about
    groups = [block._get_fsdp_state()._fsdp_param_group for block in model]
    gathered = [t for g in groups for p in g.fsdp_params for t in p.all_gather_outputs]
    about["unsharded"] = [t.untyped_storage().nbytes() for t in gathered]
    return {"bits": [digest(losses), digest(_full(model))], **about}


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
    world, last = dist.get_world_size(), dist.get_world_size() - 1
    of_rank = 2 if schedule == "interleaved" else 1
    count = world * of_rank
    each = 3 if count == 2 else 2
    blocks = _blocks(each * count)
    parts = {i: blocks[i * each : (i + 1) * each] for i in range(rank, count, world)}
    stages = [PipelineStage(part, i, count, torch.device("cpu")) for i, part in parts.items()]
    module = nn.ModuleList(parts.values())

    def loss_of(y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (y - target).square().mean()

    plan: Any
    if schedule == "interleaved":
        plan = ScheduleInterleaved1F1B(stages, 4, loss_fn=loss_of)
    else:
        kind = {"1F1B": Schedule1F1B, "GPipe": ScheduleGPipe}[schedule]
        plan = kind(stages[0], 4, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, foreach=False)
    found = []
    with managed(run) as told:
        for step in range(steps):
            torch.manual_seed(step)
            x, target = torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)
            losses: list[torch.Tensor] = []
            if rank == 0:
                plan.step(x)
            elif rank == last:
                plan.step(target=target, losses=losses)
            else:
                plan.step()
            found.append(digest(losses, [p.grad for p in module.parameters()]))
            optimizer.step()
            optimizer.zero_grad()
        found.append(digest(list(module.parameters())))
    return {"bits": found, **told.about}
