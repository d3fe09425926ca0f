#!/usr/bin/env python3
"""Trains two models without a budget and under half of their memory, and compares bit for bit.

    python train.py [--model resnet18|gpt] [--policy NAME] [--budget SHARE] [--steps N] [--host SIZE]
                    [--plot FOLDER]

ResNet-18 sees MNIST images where the environment variable DELTA_DATA names a folder with
data/mnist, else made ones; the GPT sees made text. Ends with 1 where any bit differs.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import hashlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import delta_torch

MIB = 1 << 20


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = None
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(y))
        y += x if self.shortcut is None else self.shortcut(x)
        return self.relu(y)


class ResNet18(nn.Module):
    """ResNet-18 for images of one colour (He et al. 2016)."""

    def __init__(self, width: int = 64, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        blocks, before = [], width
        for stage in range(4):
            after = width << stage
            for i in range(2):
                blocks.append(Block(before, after, 2 if stage > 0 and i == 0 else 1))
                before = after
        self.body = nn.Sequential(*blocks)
        self.head = nn.Linear(before, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.stem(x)).mean((2, 3)))


class Layer(nn.Module):
    """Attention and a perceptron, each behind a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
            nn.Dropout(0.1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.attention(self.norm(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.perceptron(x)


class GPT(nn.Module):
    """A small GPT whose input and output share their table (Radford et al. 2019)."""

    def __init__(
        self,
        words: int = 512,
        width: int = 192,
        layers: int = 6,
        length: int = 256,
        heads: int = 6,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width)
        self.layers = nn.Sequential(*[Layer(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.words(text) + self.places(torch.arange(text.shape[1], device=text.device))
        return self.head(self.norm(self.layers(x)))


def mnist(count: int) -> tuple[torch.Tensor, torch.Tensor, str]:
    """Images and labels: MNIST's first ones, or made ones, and which of the two."""
    folder = Path(os.environ.get("DELTA_DATA", "")) / "data" / "mnist"
    contents = []
    for name, head, size in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
        for part in ("train", "t10k"):
            file = folder / f"{part}-{name}-ubyte.gz"
            if os.environ.get("DELTA_DATA") and file.is_file():
                with gzip.open(file, "rb") as f:
                    contents.append(f.read(head + count * size)[head:])
                break
    if len(contents) < 2 or len(contents[1]) < count:
        return torch.randn(count, 1, 28, 28), torch.randint(0, 10, (count,)), "made images"
    images = torch.tensor(list(contents[0]), dtype=torch.float32).view(count, 1, 28, 28) / 255
    return images, torch.tensor(list(contents[1])), "MNIST"


Step = Callable[[int], torch.Tensor]


def resnet18() -> tuple[nn.Module, Step, str]:
    """The model, the loss of its step number `i`, and what it sees."""
    model, batch = ResNet18(width=32), 32
    images, labels, what = mnist(4 * batch)

    def loss(i: int) -> torch.Tensor:
        at = slice(i % 4 * batch, (i % 4 + 1) * batch)
        return F.cross_entropy(model(images[at]), labels[at])

    return model, loss, what


def gpt() -> tuple[nn.Module, Step, str]:
    model = GPT()
    texts = torch.randint(0, 512, (4, 8, 129))

    def loss(i: int) -> torch.Tensor:
        text = texts[i % 4]
        return F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())

    return model, loss, "made text"


MODELS = {"resnet18": resnet18, "gpt": gpt}


def train(name: str, steps: int, size: int | str | None, **options) -> dict:
    """Trains from the same seed; gives the bits of all that training leaves, times and the report.

    size: the budget; None: no limit. Without options: without delta_torch.
    """
    torch.manual_seed(1)
    model, loss, what = MODELS[name]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, times, report = [], [], None

    def loop() -> None:
        for i in range(steps):
            began = time.perf_counter()
            optimizer.zero_grad()
            value = loss(i)
            value.backward()
            optimizer.step()
            losses.append(value.item())
            times.append(time.perf_counter() - began)

    if options:
        with delta_torch.budget(size, **options) as run:
            loop()
        report = run.report()
    else:
        loop()
    bits = hashlib.sha256(repr(losses).encode())
    state = copy.deepcopy(optimizer.state_dict()["state"])
    tensors = [*model.state_dict().values(), torch.get_rng_state()]
    tensors += [value for one in state.values() for value in one.values()]
    for tensor in tensors:
        bits.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return {
        "bits": bits.hexdigest(),
        "loss": losses[-1],
        "time": min(times[1:] or times),
        "report": report,
        "what": what,
    }


def compare(name: str, options: argparse.Namespace) -> bool:
    """Trains one model in three ways, and prints a line."""
    plain = train(name, options.steps, None)
    peak = train(name, 2, None, policy="unmanaged")["report"].peak_bytes
    size = int(peak * options.budget)
    managed = train(name, options.steps, size, policy=options.policy, host=options.host)
    report, same = managed["report"], managed["bits"] == plain["bits"]
    if options.plot is not None:
        # As a share: the first steps run without a limit, which shows beside those under it.
        share = f"{options.budget:.0%}"
        drawn = train(name, options.steps, share, policy=options.policy, host=options.host)
        same = same and drawn["bits"] == plain["bits"]
        options.plot.mkdir(parents=True, exist_ok=True)
        drawn["report"].plot(options.plot / f"{name}.png")
    print(
        f"{name:10} {plain['what']:12} {peak / MIB:9.1f} {size / MIB:9.1f} "
        f"{report.peak_bytes / MIB:9.1f} {managed['time'] / plain['time']:7.2f} "
        f"{report.evictions + report.offloads:9,} {plain['loss']:7.4f}  "
        f"{'the same' if same else 'DIFFERENT'}",
        flush=True,
    )
    return same and report.peak_bytes <= size


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=[*MODELS], action="append", help="default: both")
    parser.add_argument("--policy", choices=delta_torch.policies(), default="adaptive")
    parser.add_argument("--budget", type=float, default=0.5, help="share of the peak; default 0.5")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--host", default="4GiB", help="memory to copy out to; default 4GiB")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="draw memory over time there")
    options = parser.parse_args()
    if not 0 < options.budget <= 1:
        parser.error("--budget is a share between 0 and 1")
    if options.steps < 1:
        parser.error("--steps is at least 1")
    print(f"policy {options.policy}, {options.steps} steps; memory in MiB, time as a ratio")
    print(
        f"{'model':10} {'data':12} {'unmanaged':>9} {'budget':>9} {'peak':>9} {'time':>7} "
        f"{'left':>9} {'loss':>7}  bits"
    )
    try:
        results = [compare(name, options) for name in options.model or MODELS]
    except torch.OutOfMemoryError as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 1
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
