"""Small trainings of torch_contact.py that a GPU alone decides: each kernel of attention, float16 with a
scaler of gradients, batches that forked processes load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from matrix_cases import SmallResNet, Transformer, case, images, moved, sgd, words
from torch.nn.attention import SDPBackend, sdpa_kernel
from training import Training


def attention(kernel: SDPBackend) -> Callable[..., Training]:
    """A transformer with dropout in bfloat16, whose attention is computed by this kernel alone."""

    def loss(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(kernel), torch.autocast(x.device.type, dtype=torch.bfloat16):
            scores = model(x)
        value = F.cross_entropy(scores.float().flatten(0, 1), y.flatten())
        value.backward()
        return value

    return case(Transformer, words, loss, lambda p: torch.optim.AdamW(p, lr=1e-3))


def scaled(device: str = "cpu") -> Training:
    """Convolutions in float16 (on a CPU in bfloat16), gradients scaled by what does not overflow."""
    kind = torch.device(device).type
    dtype = torch.bfloat16 if kind == "cpu" else torch.float16
    net = SmallResNet()
    batches = [tuple(part.to(device) for part in batch) for batch in images()]
    moved(net, device)
    optimizer, scaler = sgd(net.parameters()), torch.amp.GradScaler(kind)

    def step(i: int) -> torch.Tensor:
        x, y = batches[i % 2]
        optimizer.zero_grad()
        with torch.autocast(kind, dtype=dtype):
            loss = F.cross_entropy(net(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return Training(net, optimizer, step)


def forked_loader(device: str = "cpu") -> Training:
    """A loader whose two workers are forked anew for every two steps, within the run."""
    net, batches = SmallResNet(), images()
    moved(net, device)
    optimizer = sgd(net.parameters())
    options: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": "fork"}
    loader = torch.utils.data.DataLoader(batches, batch_size=None, **options)
    left: list[Any] = []

    def step(i: int) -> torch.Tensor:
        if not left:
            left.extend(loader)
        x, y = (part.to(device) for part in left.pop(0))
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return Training(net, optimizer, step)


CASES: dict[str, Callable[..., Training]] = {
    "attention_flash": attention(SDPBackend.FLASH_ATTENTION),
    "attention_efficient": attention(SDPBackend.EFFICIENT_ATTENTION),
    "attention_cudnn": attention(SDPBackend.CUDNN_ATTENTION),
    "float16_scaled": scaled,
    "forked_loader": forked_loader,
}
