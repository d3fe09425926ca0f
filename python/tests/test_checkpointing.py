"""PyTorch's own ways to spare memory within a run: each gives the same bits, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as wrappers
from torch.utils import checkpoint as checkpoints

from training import Training, check_same, measured, unmanaged

STEPS = 5


class Block(nn.Module):
    """An MLP with dropout and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Linear(48, 192), nn.GELU(), nn.Dropout(0.1), nn.Linear(192, 48)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


Layer = Callable[[nn.Module, torch.Tensor], torch.Tensor]


def plainly(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return block(x)


def checkpointed(**options: Any) -> Layer:
    return lambda block, x: checkpoints.checkpoint(block, x, **options)


def selectively() -> Any:
    """Of a block the products stay, the rest is computed again."""
    kept = [torch.ops.aten.addmm.default, torch.ops.aten.mm.default]
    return checkpoints.create_selective_checkpoint_contexts(kept)


def made(
    layer: Layer = plainly,
    around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    wrap: Callable[[nn.Module], None] = lambda _: None,
    forward: Callable[[nn.ModuleList, torch.Tensor], torch.Tensor] | None = None,
) -> Callable[[], Training]:
    """A training of six blocks. layer: calls one; around: the forward pass; wrap: the model."""

    def make() -> Training:
        blocks = nn.ModuleList(Block() for _ in range(6))
        wrap(blocks)
        optimizer = torch.optim.SGD(blocks.parameters(), lr=0.05, momentum=0.9)
        batches = [(torch.randn(384, 48), torch.randn(384, 48)) for _ in range(2)]

        def step(i: int) -> torch.Tensor:
            x, y = batches[i % 2]
            x = x.detach().requires_grad_()  # reentrant checkpoints need an input that has
            optimizer.zero_grad()
            with around():
                if forward is not None:
                    x = forward(blocks, x)
                else:
                    for block in blocks:
                        x = layer(block, x)
                loss = F.mse_loss(x, y)
            loss.backward()
            optimizer.step()
            return loss

        return Training(blocks, optimizer, step)

    return make


def wrapped(kind: Any) -> Callable[[nn.Module], None]:
    """What FSDP's users write."""
    return lambda model: wrappers.apply_activation_checkpointing(
        model, checkpoint_wrapper_fn=kind, check_fn=lambda m: isinstance(m, Block)
    )


def in_two_segments(blocks: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    return checkpoints.checkpoint_sequential(list(blocks), 2, x, use_reentrant=False)


@contextmanager
def copied_and_checkpointed_early() -> Iterator[None]:
    with torch.autograd.graph.save_on_cpu(), checkpoints.set_checkpoint_early_stop(False):
        yield


WAYS: dict[str, Callable[[], Training]] = {
    "none": made(),
    "checkpoint": made(checkpointed(use_reentrant=False)),
    "reentrant": made(checkpointed(use_reentrant=True)),
    "without its generator": made(checkpointed(use_reentrant=False, preserve_rng_state=False)),
    "selective": made(checkpointed(use_reentrant=False, context_fn=selectively)),
    "checkpoint_sequential": made(forward=in_two_segments),
    "save_on_cpu": made(around=torch.autograd.graph.save_on_cpu),
    "both": made(checkpointed(use_reentrant=False), copied_and_checkpointed_early),
    "FSDP's wrapper": made(wrap=wrapped(wrappers.checkpoint_wrapper)),
    "FSDP's offload_wrapper": made(wrap=wrapped(wrappers.offload_wrapper)),
}


@pytest.mark.parametrize("way", WAYS)
def test_within_a_run(way: str) -> None:
    """What a way leaves on the device can leave, too."""
    make = WAYS[way]
    expected, whole = unmanaged(make, STEPS), measured(make, STEPS)
    above = whole.peak_bytes - whole.used_bytes
    report = check_same(make, STEPS, whole.used_bytes + above * 3 // 4, expected, host="16MiB")
    assert report.evictions + report.offloads > 0, "nothing has left"
    # Recomputing alone, a named budget may be one under which nothing leaves.
    check_same(make, STEPS, whole.used_bytes + above * 9 // 10, expected, policy="dtr", host=0)


def test_in_place_of_checkpoint() -> None:
    """Without it, a budget of the peak that it reaches gives the same bits."""
    peaks = {way: measured(WAYS[way], 2).peak_bytes for way in ("none", "checkpoint")}
    assert peaks["checkpoint"] < 0.7 * peaks["none"]
    expected = unmanaged(WAYS["checkpoint"], STEPS)
    assert unmanaged(WAYS["none"], STEPS) == expected
    report = check_same(WAYS["none"], STEPS, peaks["checkpoint"], expected, host="16MiB")
    assert report.peak_bytes <= peaks["checkpoint"]
    assert report.evictions + report.offloads > 0


def test_transformers_switch() -> None:
    transformers = pytest.importorskip("transformers")

    def make(switched: bool) -> Callable[[], Training]:
        def training() -> Training:
            config = transformers.GPT2Config(
                vocab_size=64, n_positions=32, n_embd=48, n_layer=3, n_head=2, use_cache=False
            )
            model = transformers.GPT2LMHeadModel(config)
            if switched:
                model.gradient_checkpointing_enable()
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            text = torch.randint(0, 64, (4, 32))

            def step(_: int) -> torch.Tensor:
                optimizer.zero_grad()
                loss = model(input_ids=text, labels=text).loss
                loss.backward()
                optimizer.step()
                return loss

            return Training(model.train(), optimizer, step)

        return training

    expected, whole = unmanaged(make(False), STEPS), measured(make(True), STEPS)
    assert unmanaged(make(True), STEPS) == expected
    report = check_same(make(True), STEPS, int(0.85 * whole.peak_bytes), expected, host="16MiB")
    assert report.evictions + report.offloads > 0
    without = check_same(make(False), STEPS, whole.peak_bytes, expected, host="16MiB")
    assert without.evictions + without.offloads > 0
