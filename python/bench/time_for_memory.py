#!/usr/bin/env python3
"""Times training steps of ten models under budgets, beside the same steps without one.

    python bench/time_for_memory.py [--models NAME...] [--policies NAME...] [--shares F...]
                                    [--steps N] [--rounds N]

A budget is a share of the unmanaged peak. A round trains each way in turn, from the same weights;
what is printed is the processor time of the fastest step of all rounds, steps that a policy learns
in left out, as a ratio to the fastest without a budget, and what the budget was. One thread.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import delta_torch  # noqa: E402
from real_models import MODELS  # noqa: E402
from training import SEED, Maker, measured  # noqa: E402

LEARNING = 3  # the first steps, in which costs and the order of operators become known


def fastest(make: Maker, steps: int, learning: int = LEARNING) -> float:
    """Processor time of a step, seconds, after `learning` others."""
    torch.manual_seed(SEED)
    training = make()
    times = []
    for i in range(learning + steps):
        begin = time.process_time()
        training.step(i)
        times.append(time.process_time() - begin)
    return min(times[learning:])


def under(
    make: Maker,
    steps: int,
    size: int,
    policy: str,
    host: int | str = "8GiB",
    learning: int = LEARNING,
) -> float | None:
    """The same in a run; None: out of memory."""
    try:
        with delta_torch.budget(size, policy=policy, host=host):
            return fastest(make, steps, learning)
    except torch.OutOfMemoryError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--policies", nargs="+", default=["online", "adaptive"])
    parser.add_argument("--shares", nargs="+", type=float, default=[0.6, 0.4])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    flags = parser.parse_args()
    torch.set_num_threads(1)

    ways = [(policy, share) for policy in flags.policies for share in flags.shares]
    ratios: dict[tuple[str, float], list[float]] = {way: [] for way in ways}
    print("| model | peak, MiB | step, ms | " + " | ".join(f"`{p}` {s:.0%}" for p, s in ways) + " |")
    print("|---|---|---|" + "---|" * len(ways))
    for model in flags.models:
        make = MODELS[model]
        peak = measured(make, 2).peak_bytes
        plain: list[float] = []
        managed: dict[tuple[str, float], list[float]] = {way: [] for way in ways}
        failed: set[tuple[str, float]] = set()
        for _ in range(flags.rounds):
            plain.append(fastest(make, flags.steps))
            for way in ways:
                took = under(make, flags.steps, int(peak * way[1]), way[0])
                if took is None:
                    failed.add(way)
                else:
                    managed[way].append(took)
        cells = []
        for way in ways:
            if way in failed:
                cells.append("too small")
                continue
            ratios[way].append(min(managed[way]) / min(plain))
            cells.append(f"{ratios[way][-1]:.2f}")
        print(
            f"| {model} | {peak / 2**20:.0f} | {min(plain) * 1e3:.0f} | {' | '.join(cells)} |",
            flush=True,
        )
    means = [f"{statistics.geometric_mean(r):.2f}" if r else "" for r in ratios.values()]
    print(f"| geometric mean | | | {' | '.join(means)} |")


if __name__ == "__main__":
    main()
