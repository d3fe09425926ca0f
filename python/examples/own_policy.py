#!/usr/bin/env python3
"""Trains a small GPT under a budget by a heuristic of its own, and compares bit for bit.

    python own_policy.py [--budget SHARE] [--steps N] [--host SIZE]

The heuristic is the struct mostly_big in own_policy.hpp; delta's `online` is run beside it. Ends
with 1 where any bit differs from the training without delta_torch.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

import delta_torch
from train import MIB, train


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=0.5, help="share of the peak; default 0.5")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--host", default="4GiB", help="memory to copy out to; default 4GiB")
    options = parser.parse_args()
    if not 0 < options.budget <= 1:
        parser.error("--budget is a share between 0 and 1")
    if options.steps < 1:
        parser.error("--steps is at least 1")

    began = time.perf_counter()
    own = delta_torch.compile_policy(Path(__file__).with_name("own_policy.hpp"), "mostly_big")
    print(f"{own}: compiled, or found in the cache, in {time.perf_counter() - began:.1f} s")

    plain = train("gpt", options.steps, None)
    peak = train("gpt", 2, None, policy="unmanaged")["report"].peak_bytes
    size = int(peak * options.budget)
    print(f"unmanaged peak {peak / MIB:.1f} MiB, budget {size / MIB:.1f} MiB")
    print(f"{'policy':12} {'peak, MiB':>9} {'time':>6} {'left':>7}  bits")
    good = True
    for policy in (own, "online"):
        try:
            managed = train("gpt", options.steps, size, policy=policy, host=options.host)
        except torch.OutOfMemoryError as error:
            print(f"own_policy.py: {policy}: {error}", file=sys.stderr)
            return 1
        report, same = managed["report"], managed["bits"] == plain["bits"]
        good = good and same and report.peak_bytes <= size
        print(
            f"{policy:12} {report.peak_bytes / MIB:9.1f} {managed['time'] / plain['time']:6.2f} "
            f"{report.evictions + report.offloads:7,}  {'the same' if same else 'DIFFERENT'}",
            flush=True,
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
