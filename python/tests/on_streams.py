"""Small trainings on an accelerator whose activations leave often, on one stream or on several."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from training import Training


def chain(device: str) -> Training:
    """Layers whose activations leave and come back several times in a step."""
    model = nn.Sequential(
        *(
            nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 64))
            for _ in range(5)
        )
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = torch.randn(96, 64, device=device)

    def step(_: int) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return Training(model, optimizer, step)


def prefetched(device: str, delay: Callable[[], None] = lambda: None) -> Training:
    """Batches come on a stream of the program's own, and losses leave on it, as in data loaders.

    delay: holds the current stream up, or does not; called before what another stream waits for.
    """
    training = chain(device)
    side = torch.Stream(device)
    main = torch.accelerator.current_stream()
    batches = [torch.randn(96, 64).pin_memory() for _ in range(4)]

    def step(i: int) -> torch.Tensor:
        training.optimizer.zero_grad()
        torch.accelerator.set_stream(side)
        delay()
        batch = batches[i % 4].to(device, non_blocking=True)
        scaled = batch * 2
        torch.accelerator.set_stream(main)
        main.wait_stream(side)
        scaled.record_stream(main)
        delay()
        made = training.model(scaled)
        loss = made.square().mean()
        loss.backward()
        side.wait_stream(main)
        torch.accelerator.set_stream(side)
        delay()
        shown = made.detach().abs().mean()
        shown.record_stream(main)
        made.record_stream(side)
        torch.accelerator.set_stream(main)
        training.optimizer.step()
        main.wait_stream(side)
        return loss + shown

    return Training(training.model, training.optimizer, step)
