#!/usr/bin/env python3
"""Times what delta_torch adds to an operator where nothing has to leave, and to whole steps.

    python bench/overhead.py [--rounds N] [--policy NAME...] [--steps-only | --operators-only]

Operators: processor time of one call, microseconds, without a run and within one, in turn in the
same process; the smallest of the rounds, and their difference. Steps: processor time of a training
step of ResNet-18 at 64x64 and of GPT-2, the same way, and the ratio. One thread.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import delta_torch  # noqa: E402
from real_models import MODELS, Maker, Training  # noqa: E402

POLICIES = ("online", "adaptive", "dtr")


def operators() -> dict[str, tuple[Callable[[], object], int]]:
    """What is timed: a function, and how many operators it runs."""
    few, more = torch.ones(4), torch.ones(4096)
    other_few, other_more = torch.ones(4), torch.ones(4096)
    changed, matrix = torch.ones(4096), torch.ones(64, 64)
    weight, factor = torch.ones(4096, requires_grad=True), torch.ones(4096)

    def chain() -> None:
        h = weight
        for _ in range(10):
            h = h * factor
        h.sum().backward()
        weight.grad = None

    return {
        "a + b, 4 elements": (lambda: few + other_few, 1),
        "a + 1, 4 elements": (lambda: few + 1, 1),
        "a + b, 4,096 elements": (lambda: more + other_more, 1),
        "a.add_(b), 4,096 elements": (lambda: changed.add_(other_more), 1),
        "a.view(64, 64)": (lambda: more.view(64, 64), 1),
        "a @ b, 64x64": (lambda: matrix @ matrix, 1),
        "ten products and their gradients": (chain, 23),
    }


def once(function: Callable[[], object], count: int) -> float:
    """Processor time of a call, nanoseconds."""
    begin = time.process_time_ns()
    for _ in range(count):
        function()
    return (time.process_time_ns() - begin) / count


def operator_table(policies: list[str], rounds: int) -> None:
    print("| operator | PyTorch, us | " + " | ".join(f"`{p}` adds, us" for p in policies) + " |")
    print("|---|---|" + "---|" * len(policies))
    for name, (function, size) in operators().items():
        count = 20000 // size
        plain: list[float] = []
        managed: dict[str, list[float]] = {policy: [] for policy in policies}
        for _ in range(rounds):
            plain.append(once(function, count) / size)
            for policy in policies:
                with delta_torch.budget(None, policy=policy, steps="manual"):
                    for _ in range(2):  # in a first step tensors become known
                        function()
                        delta_torch.step()
                    managed[policy].append(once(function, count) / size)
        cells = [f"{min(plain) / 1e3:.2f}"]
        cells += [f"{(min(managed[p]) - min(plain)) / 1e3:+.2f}" for p in policies]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def resnet18() -> Training:
    import torchvision

    model = torchvision.models.resnet18(weights=None, num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(8, 3, 64, 64), torch.randint(0, 10, (8,))

    def step(_: int) -> torch.Tensor:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return Training(model, optimizer, step)


def step_table(policies: list[str], rounds: int) -> None:
    print("| model | step, ms | " + " | ".join(f"`{p}`" for p in policies) + " |")
    print("|---|---|" + "---|" * len(policies))
    models: dict[str, Maker] = {"ResNet-18, 64x64, batch 8": resnet18, "GPT-2, small": MODELS["gpt2"]}
    for name, make in models.items():
        training = make()
        plain: list[float] = []
        managed: dict[str, list[float]] = {policy: [] for policy in policies}
        for _ in range(rounds):
            training.step(0)
            plain.append(min(once(lambda: training.step(0), 1) for _ in range(5)))  # noqa: B023
            for policy in policies:
                with delta_torch.budget(None, policy=policy):
                    for _ in range(3):
                        training.step(0)
                    managed[policy].append(
                        min(once(lambda: training.step(0), 1) for _ in range(5))  # noqa: B023
                    )
        cells = [f"{min(plain) / 1e6:.1f}", *(f"{min(managed[p]) / min(plain):.3f}" for p in policies)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--policy", nargs="+", default=list(POLICIES))
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--steps-only", action="store_true")
    only.add_argument("--operators-only", action="store_true")
    flags = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if not flags.steps_only:
        operator_table(flags.policy, flags.rounds)
        print()
    if not flags.operators_only:
        step_table(flags.policy, flags.rounds)


if __name__ == "__main__":
    main()
