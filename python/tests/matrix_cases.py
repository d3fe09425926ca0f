"""Eleven small trainings, on any device, that differ in what PyTorch does: in place, foreach, autocast, ..."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from training import Training

WORDS = 50


class Residual(nn.Module):
    """Two convolutions, and their input added to what they give."""

    def __init__(self, before: int, after: int, stride: int, in_place: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=in_place)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(y))
        y += self.shortcut(x)
        return self.relu(y)


class SmallResNet(nn.Module):
    """A ResNet of eight residual blocks, with dropout before its last layer."""

    def __init__(self, width: int = 12, in_place: bool = True) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=in_place),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks: list[nn.Module] = []
        before = width
        for level in range(4):
            after = width * 2**level
            blocks.append(Residual(before, after, 2 if level else 1, in_place))
            blocks.append(Residual(after, after, 1, in_place))
            before = after
        self.body = nn.Sequential(*blocks)
        self.dropout = nn.Dropout(0.1)
        self.classes = nn.Linear(before, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.adaptive_avg_pool2d(self.body(self.stem(x)), 1).flatten(1)
        return self.classes(self.dropout(x))


class Transformer(nn.Module):
    """Three encoder layers; the embedding's weights are the last layer's, too."""

    def __init__(self, checkpointed: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 64)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, activation="gelu")
            for _ in range(3)
        )
        self.words = nn.Linear(64, WORDS)
        self.words.weight = self.embedding.weight
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True) if self.checkpointed else layer(x)
        return self.words(x)


class Lstm(nn.Module):
    """Two layers of LSTM over words."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 32)
        self.lstm = nn.LSTM(32, 64, 2, batch_first=True, dropout=0.2)
        self.words = nn.Linear(64, WORDS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.words(self.lstm(self.embedding(x))[0])


def smooth_convolutions() -> nn.Module:
    """Convolutions that can be differentiated twice."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.Softplus(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.Softplus(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )


def images(channels_last: bool = False) -> list[tuple[torch.Tensor, torch.Tensor]]:
    batches = [(torch.randn(8, 3, 80, 80), torch.randint(10, (8,))) for _ in range(2)]
    if channels_last:
        batches = [(x.to(memory_format=torch.channels_last), y) for x, y in batches]
    return batches


def words() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randint(WORDS, (8, 48)), torch.randint(WORDS, (8, 48))) for _ in range(2)]


def sgd(parameters, **options) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-4, **options)


# --- losses: what a step computes between zero_grad() and step() ----------------------------------


def _image_loss(model, x, y):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return loss


def _word_loss(model, x, y):
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    return loss


def _accumulated(model, x, y):
    total = torch.zeros((), device=x.device)
    for half in (slice(0, 4), slice(4, 8)):
        loss = F.cross_entropy(model(x[half]), y[half])
        loss.backward()
        total = total + loss.detach()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return total


def _autocast(model, x, y):
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        scores = model(x)
    loss = F.cross_entropy(scores.float(), y)
    loss.backward()
    return loss


def _gradient_penalty(model, x, y):
    x = x.clone().requires_grad_(True)
    loss = F.cross_entropy(model(x), y)
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    loss = loss + slope.pow(2).sum() * 10
    loss.backward()
    return loss


def moved(net: nn.Module, device: str) -> None:
    """`net.to(device)` that leaves parameters tied that are one tensor.

    PyTorch makes one new parameter for each place that names it, where it does not know the device.
    """
    future = torch.__future__
    before = future.get_swap_module_params_on_conversion()
    future.set_swap_module_params_on_conversion(True)
    try:
        net.to(device)
    finally:
        future.set_swap_module_params_on_conversion(before)


def case(
    model: Callable[[], nn.Module], data, loss, optimizer: Callable[..., torch.optim.Optimizer]
) -> Callable[..., Training]:
    def make(device: str = "cpu") -> Training:
        net = model()
        batches = [tuple(part.to(device) for part in batch) for batch in data()]
        if device != "cpu":
            moved(net, device)
        chosen = optimizer(net.parameters())

        def step(i: int) -> torch.Tensor:
            x, y = batches[i % 2]
            # Once the old gradients are overwritten with zeros, in place.
            chosen.zero_grad(set_to_none=i != 2)
            value = loss(net, x, y)
            chosen.step()
            return value

        return Training(net, chosen, step)

    return make


CASES: dict[str, Callable[..., Training]] = {
    "resnet_sgd": case(SmallResNet, images, _image_loss, lambda p: sgd(p, foreach=False)),
    "resnet_sgd_foreach": case(
        lambda: SmallResNet(in_place=False), images, _image_loss, lambda p: sgd(p, foreach=True)
    ),
    "resnet_adamw": case(
        SmallResNet, images, _image_loss, lambda p: torch.optim.AdamW(p, lr=1e-3)
    ),
    "resnet_adam_foreach": case(
        SmallResNet, images, _image_loss, lambda p: torch.optim.Adam(p, lr=1e-3, foreach=True)
    ),
    "resnet_accumulated": case(SmallResNet, images, _accumulated, sgd),
    "resnet_autocast": case(SmallResNet, images, _autocast, sgd),
    "resnet_channels_last": case(
        lambda: SmallResNet().to(memory_format=torch.channels_last),
        lambda: images(channels_last=True),
        _image_loss,
        sgd,
    ),
    "transformer": case(Transformer, words, _word_loss, lambda p: torch.optim.AdamW(p, lr=1e-3)),
    "transformer_checkpointed": case(
        lambda: Transformer(checkpointed=True),
        words,
        _word_loss,
        lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    ),
    "lstm": case(Lstm, words, _word_loss, lambda p: torch.optim.Adam(p, lr=1e-3)),
    "double_backward": case(smooth_convolutions, images, _gradient_penalty, sgd),
}
