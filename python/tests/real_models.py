"""Ten small trainings of published models: torchvision's, transformers', a U-Net, a mixture of experts.

Weights are random, so nothing is downloaded. Each trains with AdamW on one batch of made data.
torchvision and transformers are imported only where a model of theirs is asked for.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from training import Maker, Training

Parts = tuple[nn.Module, Callable[[], torch.Tensor]]  # a model, and what computes its loss


class Twice(nn.Module):
    """Two convolutions with normalisation, as at each level of a U-Net."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class UNet(nn.Module):
    """A U-Net of four levels (Ronneberger et al. 2015), whose long skips live until the end."""

    def __init__(self, width: int = 16, classes: int = 3) -> None:
        super().__init__()
        widths = [width << level for level in range(4)]
        self.down = nn.ModuleList(
            Twice(before, after) for before, after in zip([3, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(below, above, 2, 2)
            for above, below in zip(widths, widths[1:], strict=False)
        )
        self.merge = nn.ModuleList(Twice(2 * above, above) for above in widths[:-1])
        self.classes = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips: list[torch.Tensor] = []
        for level, layer in enumerate(self.down):
            x = layer(F.max_pool2d(x, 2) if level else x)
            skips.append(x)
        for level in reversed(range(len(self.up))):
            x = self.merge[level](torch.cat([skips[level], self.up[level](x)], 1))
        return self.classes(x)


class Experts(nn.Module):
    """A perceptron for each token, the one that a gate chooses; shapes depend on the data."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(experts)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, 1)
        share, chosen = self.gate(tokens).softmax(-1).max(-1)
        y = torch.zeros_like(tokens)
        for which, expert in enumerate(self.experts):
            (rows,) = torch.where(chosen == which)
            y = y.index_add(0, rows, expert(tokens[rows]) * share[rows, None])
        return y.view_as(x)


class MixtureLayer(nn.Module):
    """Attention, then experts, each behind a norm."""

    def __init__(self, width: int, heads: int, experts: int) -> None:
        super().__init__()
        self.first_norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.second_norm = nn.LayerNorm(width)
        self.experts = Experts(width, experts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first_norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.experts(self.second_norm(x))


class Mixture(nn.Module):
    """A small transformer with four experts in every layer (Fedus et al. 2021)."""

    def __init__(self, words: int = 500, width: int = 96, layers: int = 3) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.Sequential(*[MixtureLayer(width, 4, 4) for _ in range(layers)])
        self.head = nn.Linear(width, words)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.words(text)))


def torchvision_model(name: str, pixels: int, batch: int) -> Parts:
    """That model of torchvision's, on made images of ten classes."""
    import torchvision

    model = torchvision.models.get_model(name, weights=None, num_classes=10)
    return model, _image_loss(model, pixels, batch)


def _image_loss(model: nn.Module, pixels: int, batch: int) -> Callable[[], torch.Tensor]:
    x, y = torch.randn(batch, 3, pixels, pixels), torch.randint(0, 10, (batch,))
    return lambda: F.cross_entropy(model(x), y)


def _vit() -> Parts:
    import torchvision

    model = torchvision.models.VisionTransformer(
        64, 8, 4, 4, 128, 512, dropout=0.1, num_classes=10
    )
    return model, _image_loss(model, 64, 16)


def _gpt2() -> Parts:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(
        GPT2Config(n_layer=4, n_head=4, n_embd=128, vocab_size=1000, n_positions=128)
    )
    text = torch.randint(0, 1000, (4, 128))
    return model, lambda: model(input_ids=text, labels=text).loss


def _bert() -> Parts:
    from transformers import BertConfig, BertForSequenceClassification

    model = BertForSequenceClassification(
        BertConfig(
            num_hidden_layers=4,
            hidden_size=128,
            num_attention_heads=4,
            intermediate_size=512,
            vocab_size=1000,
        )
    )
    text, labels = torch.randint(0, 1000, (8, 128)), torch.randint(0, 2, (8,))
    return model, lambda: model(input_ids=text, labels=labels).loss


def _llama() -> Parts:
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(
        LlamaConfig(
            num_hidden_layers=4,
            hidden_size=128,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=256,
            vocab_size=1000,
        )
    )
    text = torch.randint(0, 1000, (4, 128))
    return model, lambda: model(input_ids=text, labels=text).loss


def _unet() -> Parts:
    model = UNet()
    x, y = torch.randn(4, 3, 96, 96), torch.randint(0, 3, (4, 96, 96))
    return model, lambda: F.cross_entropy(model(x), y)


def _mixture() -> Parts:
    model = Mixture()
    text, y = torch.randint(0, 500, (8, 96)), torch.randint(0, 500, (8 * 96,))
    return model, lambda: F.cross_entropy(model(text).flatten(0, 1), y)


def training_of(parts: Callable[[], Parts]) -> Maker:
    """What makes such a model, and its training with AdamW."""

    def make() -> Training:
        model, loss_of = parts()
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

        def step(_: int) -> torch.Tensor:
            loss = loss_of()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return Training(model, optimizer, step)

    return make


# Eight models of others, then two of our own.
MODELS: dict[str, Maker] = {
    name: training_of(parts)
    for name, parts in {
        "resnet50": lambda: torchvision_model("resnet50", 64, 8),
        "mobilenet_v3_small": lambda: torchvision_model("mobilenet_v3_small", 96, 16),
        "densenet121": lambda: torchvision_model("densenet121", 64, 4),
        "vit": _vit,
        "convnext_tiny": lambda: torchvision_model("convnext_tiny", 64, 4),
        "gpt2": _gpt2,
        "bert": _bert,
        "llama": _llama,
        "unet": _unet,
        "mixture_of_experts": _mixture,
    }.items()
}
