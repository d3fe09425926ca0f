#!/usr/bin/env python3
"""Trains models compiled under torch._functorch.config.activation_memory_budget, beside eager ones.

    python bench/compiled.py [--models NAME...] [--ratios R...] [--pairs N] [--out FILE.json]

The models are those of against_pytorch.py. Each ratio has a process of its own, as PyTorch would
take what was compiled for one ratio for another; there an eager and a compiled training step in
turn, on one thread, and times are the processor's. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import multiprocessing
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from against_pytorch import MODELS, SEED, Training, digest, keep_memory  # noqa: E402

RATIOS = (1.0, 0.5, 0.2, 0.1, 0.05)
COMPARED = 3  # the first steps, whose losses, and the state behind them, are compared


@dataclass
class Row:
    """What a model took, compiled under one ratio; bytes of eager and compiled, seconds of steps."""

    model: str
    ratio: float
    graphs: int = 0
    peaks: list[int] = field(default_factory=list)
    losses: list[list[str]] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    seconds: list[list[float]] = field(default_factory=list)


class Peak:
    """The most bytes of tensors and kernels within `with`, by the profiler of PyTorch's allocator.

    It sees what compiled code allocates, too. `base`: what lives before; what is freed within it
    has to be allocated within it.
    """

    def __init__(self) -> None:
        gc.collect()
        plain = (torch.Tensor, torch.nn.Parameter)  # the compiler's fake ones have no bytes
        tensors = (t for t in gc.get_objects() if type(t) in plain)
        storages = {s.data_ptr(): s.nbytes() for s in (t.untyped_storage() for t in tensors)}
        self.base = sum(storages.values())
        self.bytes = self.base
        self._profile = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        )

    def __enter__(self) -> Peak:
        self._profile.__enter__()
        return self

    def __exit__(self, *what: Any) -> None:
        self._profile.__exit__(*what)
        now = 0
        events = self._profile.profiler.kineto_results.events()
        for event in sorted(events, key=lambda e: e.start_ns()):
            if event.name() == "[memory]":
                now += event.nbytes()
                self.bytes = max(self.bytes, self.base + now)


def started(model: str, compiles: bool) -> tuple[Training, list[str], str]:
    """A training behind its first steps, their losses, and a digest of what they leave."""
    torch.manual_seed(SEED)
    training, _ = MODELS[model].training(None)
    if compiles:
        training.model.compile()
    losses = [training.step(i).item().hex() for i in range(COMPARED)]
    return training, losses, digest([training.model.state_dict(), training.optimizer.state_dict()])


def measured(row: Row, pairs: int) -> Row:
    """Both trainings of a row, in this process."""
    import torch._functorch.config as config
    from torch._dynamo.utils import counters

    torch.set_num_threads(1)
    keep_memory()
    config.activation_memory_budget = row.ratio
    trainings, before = [], 0
    for compiles in (False, True):
        training, losses, state = started(row.model, compiles)
        training.optimizer.zero_grad()
        with Peak() as peak:
            training.step(0)
        training.optimizer.zero_grad()
        trainings.append(training)
        row.peaks.append(peak.bytes - before)
        row.losses.append(losses)
        row.states.append(state)
        before = peak.base
    row.graphs = counters["stats"]["unique_graphs"]
    for i in range(pairs):
        took = [0.0, 0.0]
        for which in (0, 1) if i % 2 == 0 else (1, 0):
            begin = time.process_time()
            trainings[which].step(i).item()
            took[which] = time.process_time() - begin
        row.seconds.append(took)
    return row


def said(row: Row, first: Row) -> str:
    """A line of the table. first: the row of the same model whose ratio is the largest."""
    eager, compiled = row.peaks
    ratio = statistics.median(c / e for e, c in row.seconds)
    bits = [(losses, state) for losses, state in zip(row.losses, row.states, strict=True)]
    same = "eager's" if bits[1] == bits[0] else "others"
    if same == "others" and row is not first:
        alike = (row.losses[1], row.states[1]) == (first.losses[1], first.states[1])
        same = f"those of {first.ratio:g}" if alike else f"neither eager's nor those of {first.ratio:g}"
    return f"| {row.model} | {row.ratio:g} | {compiled / eager:.1%} | {ratio:.2f} | {same} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["llama"], choices=MODELS)
    parser.add_argument("--ratios", nargs="+", type=float, default=list(RATIOS))
    parser.add_argument("--pairs", type=int, default=9, help="steps of each, in turn")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write all numbers there")
    flags = parser.parse_args()
    print(f"PyTorch {torch.__version__}, {datetime.date.today()}, {flags.pairs} pairs.\n")
    print("| model | ratio | peak, of eager's | time, of eager's | bits |\n|---|---|---|---|---|")
    rows: list[Row] = []
    context = multiprocessing.get_context("spawn")
    for model in flags.models:
        first = None
        for ratio in sorted(flags.ratios, reverse=True):
            with context.Pool(1) as process:
                row = process.apply(measured, (Row(model, ratio), flags.pairs))
            first = first or row
            rows.append(row)
            print(said(row, first), flush=True)
    if flags.out is not None:
        flags.out.parent.mkdir(parents=True, exist_ok=True)
        flags.out.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
