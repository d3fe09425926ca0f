"""Trainings by transformers' Trainer and by accelerate on several ranks; run by worker.py."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import torch
import torch.distributed as dist
from managing import digest, managed
from torch import nn

STEPS = 6


def _as_launched(rank: int) -> None:
    # As torchrun sets them; the group itself is there.
    world = str(dist.get_world_size())
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=world, LOCAL_WORLD_SIZE=world)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")


def trainer(rank: int, run: dict[str, Any] | None) -> Any:
    """A small Llama, with accumulated gradients."""
    import transformers

    _as_launched(rank)
    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=64,
    )
    model = transformers.LlamaForCausalLM(config)
    data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 128, (128, 48))]
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            save_strategy="no",
            use_cpu=True,
            ddp_backend="gloo",
            report_to=[],
            disable_tqdm=True,
            seed=5,
        )
        made = transformers.Trainer(model, arguments, train_dataset=data)
        with managed(run) as told:
            made.train()
    assert isinstance(made.model_wrapped, nn.parallel.DistributedDataParallel)
    return {"bits": digest(list(model.parameters())), **told.about}


def accelerated(rank: int, run: dict[str, Any] | None) -> Any:
    """accelerate's own loop: prepare, accumulate, gather_for_metrics."""
    import accelerate

    _as_launched(rank)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(160, 160), nn.GELU())])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    data = torch.utils.data.DataLoader(torch.randn(4 * STEPS * 256, 160), batch_size=256)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    found = []
    with managed(run) as told:
        for batch in data:
            with accelerator.accumulate(model):
                loss = model(batch).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            found.append(accelerator.gather_for_metrics(loss.detach()).tolist())
    return {"bits": digest(found, list(model.parameters())), **told.about}
