"""What torch_contact.py times, of PyTorch's own modules: ResNet-50, GPT-2, blocks of Llama."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

PYTHON = Path(__file__).resolve().parents[2] / "python"
sys.path[:0] = [str(PYTHON / folder) for folder in ("tests", "bench", "examples")]

import train  # noqa: E402
from against_pytorch import Loss, Subject  # noqa: E402
from torch_step import bottleneck_net  # noqa: E402

Made = tuple[nn.Module, Loss]


class LlamaBlock(nn.Module):
    """Attention, positions by rotation, and a gated perceptron (Touvron et al. 2023)."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.attention_norm(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Pairs of numbers turned by angles that grow with the place (Su et al. 2021)."""
    length, half = x.shape[-2], x.shape[-1] // 2
    speeds = 10000.0 ** -(torch.arange(half, device=x.device) / half)
    angles = torch.arange(length, device=x.device)[:, None] * speeds
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


# Batch, tokens, words, width, layers, heads.
GPT = {True: (8, 1024, 50304, 1024, 24, 16), False: (2, 64, 512, 64, 3, 2)}
# Batch, tokens, width, heads, the perceptron's width, blocks.
LLAMA = {True: (16, 2048, 4096, 32, 11008, 2), False: (2, 64, 64, 2, 128, 2)}


def sgd(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.005, momentum=0.9)


def resnet50(image: int, batch: int, _: bool) -> Made:
    model = bottleneck_net(10).to(memory_format=torch.channels_last)
    x = torch.randn(batch, 3, image, image).to(memory_format=torch.channels_last)
    y = torch.randint(0, 10, (batch,))
    return model, lambda: F.cross_entropy(model(x), y)


def gpt2(batch: int, length: int, words: int, width: int, layers: int, heads: int, _: bool) -> Made:
    model = train.GPT(words, width, layers, length, heads)
    text = torch.randint(0, words, (batch, length + 1))
    return model, lambda: F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


def llama(
    batch: int, length: int, width: int, heads: int, hidden: int, blocks: int, _: bool
) -> Made:
    model = nn.Sequential(*[LlamaBlock(width, heads, hidden) for _ in range(blocks)])
    model.to(torch.bfloat16)
    x = torch.randn(batch, length, width, dtype=torch.bfloat16)
    return model, lambda: F.mse_loss(model(x), x)


def subjects(full: bool, image: int, batch: int, device: str) -> dict[str, Subject]:
    """By name; `full` on a GPU, else small. Image and batch are ResNet-50's."""
    made: dict[str, tuple[Callable[[bool], Made], str]] = {
        "resnet50": (
            functools.partial(resnet50, image, batch),
            f"ResNet-50, {batch} images of {image}x{image}",
        ),
        "gpt2": (
            functools.partial(gpt2, *GPT[full]),
            "GPT-2 medium, 8 texts of 1024 tokens" if full else "GPT-2, tiny",
        ),
        "llama": (
            functools.partial(llama, *LLAMA[full]),
            "2 blocks of Llama-7B, 16 texts of 2048 tokens, bfloat16" if full else "2 tiny blocks",
        ),
    }
    optimizers: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "gpt2": lambda p: torch.optim.AdamW(p, lr=1e-3)
    }
    return {
        name: Subject(make, what, optimizers.get(name, sgd), device=device)
        for name, (make, what) in made.items()
    }
