#!/usr/bin/env python3
"""Compares the processor time of `adaptive` and `online` in training loops that are no plain steps.

    python bench/loops.py [--loops NAME...] [--shares F...] [--pairs N] [--scale N]

Each loop is trained from its beginning by the one policy and by the other, in turn, within a share
of its unmanaged peak; `--scale` makes it that much longer. What a policy takes to learn counts.
Prints a Markdown table: the median of the pairs' ratios, and the ratio of the smallest times. One
thread. Needs transformers and pytorch_lightning for the first two.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import logging
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import delta_torch

SEED = 5
POLICIES = ("online", "adaptive")

# What is to be timed: makes its model, and gives what trains it.
Loop = Callable[[int, str], Callable[[], object]]


def trainer(scale: int, folder: str) -> Callable[[], object]:
    """transformers' Trainer on a small BERT, with an evaluation after every five steps."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=512,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=512,
    )
    rows = torch.randint(0, 512, (256, 64))
    data = [{"input_ids": row, "labels": row} for row in rows]
    arguments = transformers.TrainingArguments(
        output_dir=folder,
        max_steps=30 * scale,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=16,
        eval_strategy="steps",
        eval_steps=5,
        save_strategy="no",
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        seed=SEED,
    )
    trained = transformers.Trainer(
        transformers.BertForMaskedLM(config), arguments, train_dataset=data, eval_dataset=data[:32]
    )
    trained.remove_callback(transformers.PrinterCallback)
    return trained.train


def convolutions(width: int, classes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    before = 3
    for after in (width, 2 * width, 4 * width):
        for i in range(3):
            convolution = nn.Conv2d(before, after, 3, 2 if i == 0 and before > 3 else 1, 1)
            layers += [convolution, nn.BatchNorm2d(after), nn.LeakyReLU(0.2)]
            before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, classes))


def lightning(scale: int, folder: str) -> Callable[[], object]:
    """Lightning's loop: three epochs of ten steps, each with a validation of four."""
    import pytorch_lightning

    class Module(pytorch_lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = convolutions(8, 10)

        def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
            self.log("loss", F.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    def loader(batches: int) -> torch.utils.data.DataLoader:
        data = [(torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))) for _ in range(batches)]
        return torch.utils.data.DataLoader(data, batch_size=None)  # type: ignore[arg-type]

    trained = pytorch_lightning.Trainer(
        accelerator="cpu",
        max_epochs=3 * scale,
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module, train, validate = Module(), loader(10), loader(4)
    return lambda: trained.fit(module, train, validate)


def adversaries(scale: int, _: str) -> Callable[[], object]:
    """A GAN: two optimizers step in turn, and the second model is trained on the first one's output."""
    maker = nn.Sequential(
        nn.Linear(64, 64 * 64),
        nn.Unflatten(1, (64, 8, 8)),
        *(nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh()),
    )
    judge = convolutions(8, 1)
    optimizers = [torch.optim.Adam(m.parameters(), 2e-4) for m in (maker, judge)]
    real = torch.rand(32, 3, 32, 32)
    yes, no = torch.ones(32, 1), torch.zeros(32, 1)

    def train() -> None:
        for _ in range(30 * scale):
            made = maker(torch.randn(32, 64))
            optimizers[1].zero_grad()
            wrong = F.binary_cross_entropy_with_logits(judge(made.detach()), no)
            (wrong + F.binary_cross_entropy_with_logits(judge(real), yes)).backward()
            optimizers[1].step()
            optimizers[0].zero_grad()
            F.binary_cross_entropy_with_logits(judge(made), yes).backward()
            optimizers[0].step()

    return train


def accumulation(scale: int, _: str) -> Callable[[], object]:
    """Four backward passes to a step of the optimizer."""
    net = convolutions(8, 10)
    optimizer = torch.optim.AdamW(net.parameters())
    x, y = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))

    def train() -> None:
        for _ in range(20 * scale):
            optimizer.zero_grad()
            for _ in range(4):
                (F.cross_entropy(net(x), y) / 4).backward()
            optimizer.step()

    return train


LOOPS: dict[str, Loop] = {
    "Trainer, BERT": trainer,
    "Lightning": lightning,
    "GAN": adversaries,
    "accumulation of 4": accumulation,
}


def trained(
    loop: Loop, scale: int, budget: int | None, policy: str
) -> tuple[float, delta_torch.Report]:
    """Its processor time, seconds, and its report."""
    torch.manual_seed(SEED)
    gc.collect()
    with tempfile.TemporaryDirectory() as folder:
        with delta_torch.budget(budget, policy=policy, host="8GiB") as run:
            train = loop(scale, folder)
            begin = time.process_time()
            train()
            took = time.process_time() - begin
        return took, run.report()


def head() -> str:
    here = Path(__file__).parent
    done = subprocess.run(
        ["git", "-C", str(here), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--loops", nargs="+", default=list(LOOPS), choices=LOOPS)
    parser.add_argument("--shares", nargs="+", type=float, default=[0.6, 0.4])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--scale", type=int, default=1)
    flags = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)

    print(f"Commit {head()}, PyTorch {torch.__version__}, {datetime.date.today()},", end=" ")
    print(f"{flags.pairs} pairs, scale {flags.scale}.\n")
    print("| loop | peak, MiB | share | `online`, s | `adaptive` / `online` | of the smallest |")
    print("|---|---|---|---|---|---|")
    for name in flags.loops:
        peak = trained(LOOPS[name], 1, None, "unmanaged")[1].peak_bytes
        for share in flags.shares:
            times: dict[str, list[float]] = {policy: [] for policy in POLICIES}
            for i in range(flags.pairs):
                for policy in POLICIES if i % 2 == 0 else POLICIES[::-1]:
                    took, _ = trained(LOOPS[name], flags.scale, int(peak * share), policy)
                    times[policy].append(took)
            ratios = [a / o for o, a in zip(times["online"], times["adaptive"], strict=True)]
            smallest = min(times["adaptive"]) / min(times["online"])
            print(
                f"| {name} | {peak / 2**20:.0f} | {share:.0%} | {min(times['online']):.2f} "
                f"| {statistics.median(ratios):.3f} | {smallest:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
