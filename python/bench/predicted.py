#!/usr/bin/env python3
"""Compares the overhead that delta_torch.plan predicts for this machine with what is measured.

    python bench/predicted.py [--models NAME...] [--shares F...] [--host SIZE] [--rounds N]

Budgets are shares of the unmanaged peak, the policy is `adaptive`. Measured as in
time_for_memory.py; predicted from a recording whose operators were timed (`times`), and from fake
tensors priced for `cpu` (`roofline`). `-`: it does not fit. One thread.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import delta_torch  # noqa: E402
from real_models import MODELS  # noqa: E402
from time_for_memory import fastest, under  # noqa: E402
from training import SEED, Maker, measured  # noqa: E402


def recordings(make: Maker) -> dict[str, delta_torch.Recording]:
    """Of a step that has run, and of one that has not."""
    torch.manual_seed(SEED)
    training = make()
    timed = delta_torch.record(lambda: training.step(0), repeats=5)

    def maker():
        fake = make()
        return lambda: fake.step(0)

    # One of four experts sees a token: shapes depend on it.
    priced = delta_torch.record(maker, fake=True, device="cpu", nonzero=0.25)
    return {"times": timed, "roofline": priced}


def predicted(recording: delta_torch.Recording, shares: list[float], host: str) -> dict:
    """Time over the unmanaged one by share; None: it does not fit."""
    (plan,) = delta_torch.plan(recording, device="cpu", shares=shares, host=host).batches
    said = {share: min(plan.points, key=lambda p: abs(p.share - share)) for share in shares}
    return {share: p.overhead if p.fits else None for share, p in said.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--shares", nargs="+", type=float, default=[0.6, 0.4])
    parser.add_argument("--host", default="8GiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8, help="that are timed; the fastest counts")
    parser.add_argument(
        "--learning", type=int, default=8, help="steps before them, in which the policy learns"
    )
    flags = parser.parse_args()
    torch.set_num_threads(1)

    print(f"host {flags.host}")
    heads = [f"{s:.0%}: measured | times | roofline" for s in flags.shares]
    print(f"| model | {' | '.join(heads)} |\n|{'---|' * (1 + 3 * len(heads))}")
    off: dict[str, list[float]] = {"times": [], "roofline": []}
    for model in flags.models:
        make = MODELS[model]
        peak = measured(make, 2).peak_bytes
        plain: list[float] = []
        managed: dict[float, list[float | None]] = {share: [] for share in flags.shares}
        for _ in range(flags.rounds):
            plain.append(fastest(make, flags.steps, flags.learning))
            for share in flags.shares:
                managed[share].append(
                    under(
                        make,
                        flags.steps,
                        int(peak * share),
                        "adaptive",
                        host=flags.host,
                        learning=flags.learning,
                    )
                )
        said = {
            name: predicted(recording, flags.shares, flags.host)
            for name, recording in recordings(make).items()
        }
        cells = []
        for share in flags.shares:
            took = [t for t in managed[share] if t is not None]
            real = min(took) / min(plain) if took else None
            cells.append("-" if real is None else f"{real:.2f}")
            for name, of_share in said.items():
                told = of_share[share]
                cells.append("-" if told is None else f"{told:.2f}")
                if real is not None and told is not None:
                    off[name].append(told - real)
        print(f"| {model} | {' | '.join(cells)} |", flush=True)
    for name, differences in off.items():
        if differences:
            size = sorted(abs(d) for d in differences)
            print(
                f"{name}: predicted minus measured {sum(differences) / len(differences):+.3f} in "
                f"the mean; off by {size[len(size) // 2]:.3f} (median), {size[-1]:.3f} (most)"
            )


if __name__ == "__main__":
    main()
