"""Trainings by DistributedDataParallel and on top of it; run by worker.py."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from managing import digest, managed
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

BUCKET_MB = 0.25
# What oneDNN's convolutions hold besides their tensors depends on the processor: budgets here are tight.
torch.backends.mkldnn.set_flags(False)


def mlp() -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(6):
        layers += [nn.Linear(160, 160), nn.GELU()]
    return nn.Sequential(*layers)


def uneven() -> nn.Module:
    """Early layers with large activations, late ones with large weights, as a CNN."""
    return nn.Sequential(
        nn.Conv1d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv1d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv1d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv1d(8, 8, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 80, 128),
        nn.ReLU(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, 160),
    )


class Batch(nn.Module):
    """With batch norm, whose buffers are broadcast."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(160, 160)
        self.norm = nn.BatchNorm1d(160)
        self.rest = mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rest(torch.relu(self.norm(self.first(x))))


class Partly(nn.Module):
    """A layer that every other batch leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = mlp(), nn.Linear(160, 160)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        x = self.first(x)
        return self.second(x) if self.calls % 2 else x


MODELS = {"mlp": mlp, "uneven": uneven, "batch": Batch, "partly": Partly}
HOOKS = {
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
    "allreduce": default_hooks.allreduce_hook,
}


def _batch(model: str, rank: int, step: int) -> torch.Tensor:
    torch.manual_seed(100 * step + rank)
    return torch.randn(192, 1, 160) if model == "uneven" else torch.randn(1024, 160)


def _built(model: str, hook: str | None, options: dict[str, Any]) -> DistributedDataParallel:
    torch.manual_seed(3)
    made = DistributedDataParallel(
        MODELS[model](), **{"bucket_cap_mb": BUCKET_MB, **options}
    )
    if hook == "builtin":
        made._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    elif hook == "builtin_fp16":
        made._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    elif hook is not None:
        made.register_comm_hook(dist.group.WORLD, HOOKS[hook])
    return made


def train(
    rank: int,
    run: dict[str, Any] | None,
    model: str = "mlp",
    hook: str | None = None,
    inside: bool = False,
    steps: int = 5,
    accumulate: bool = False,
    joined: bool = False,
    optimizer: str = "AdamW",
    **options: Any,
) -> Any:
    """Bits of losses, gradients of each step, weights and buffers."""
    found: list[str] = []
    ddp = None if inside else _built(model, hook, options)
    made = None if ddp is None else _optimizer(optimizer, ddp)
    with managed(run) as told:
        if ddp is None or made is None:
            ddp = _built(model, hook, options)
            made = _optimizer(optimizer, ddp)
        more = rank if joined else 0
        with ddp.join() if joined else nullcontext():
            for step in range(steps + more):
                found.append(_step(ddp, made, _batch(model, rank, step), model, accumulate))
    found.append(digest(list(ddp.parameters()), list(ddp.buffers())))
    return {"bits": found, **told.about}


def _optimizer(kind: str, ddp: nn.Module) -> Any:
    if kind == "AdamW":
        return torch.optim.AdamW(ddp.parameters(), lr=1e-3, foreach=False)
    if kind == "local":
        from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

        return PostLocalSGDOptimizer(
            torch.optim.SGD(ddp.parameters(), lr=1e-2), PeriodicModelAverager(period=2)
        )
    return ZeroRedundancyOptimizer(
        ddp.parameters(),
        optimizer_class=torch.optim.AdamW,
        lr=1e-3,
        foreach=False,
        parameters_as_bucket_view=kind == "zero_view",
    )


def _step(ddp: Any, made: Any, x: torch.Tensor, model: str, accumulate: bool) -> str:
    losses = []
    if accumulate:
        with ddp.no_sync():
            loss = ddp(x * 0.5).square().mean()
            loss.backward()
            losses.append(loss.item())
    loss = ddp(x).square().mean()
    loss.backward()
    losses.append(loss.item())
    gradients = digest([p.grad for p in ddp.parameters()])
    made.step()
    made.zero_grad()
    return digest(losses) + gradients
