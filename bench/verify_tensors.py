#!/usr/bin/env python3
"""Times delta-train's steps with --verify-tensors beside those without, by turns, step by step.

    python3 bench/verify_tensors.py [--train PROGRAM] [--steps N] [--model NAME] [--budget MIB]

Prints the ratio of the medians, and how often a tensor was compared in a step. Exit code 1: the two
gave other bits.
"""

import argparse
import json
import random
import statistics
import sys

from live import Run, WARM_UP


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--train", default="build/release/bin/delta-train")
    p.add_argument("--steps", type=int, default=14)
    p.add_argument("--model", default="resnet50")
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--budget", type=int, default=180, help="MiB")
    p.add_argument("--policy", default="online")
    a = p.parse_args()
    cell = {"model": a.model, "batch": a.batch, "threads": 2, "rate": "memory"}
    runs = {}
    for name, flags in (("plain", []), ("hashed", ["--verify-tensors"])):
        what = argparse.Namespace(wrap="", train=a.train, steps=a.steps, flags=flags)
        runs[name] = Run(what, cell, a.policy, a.budget << 20)
    for _ in range(a.steps):
        for name in random.sample(list(runs), len(runs)):
            runs[name].step()
    results = {name: run.result() for name, run in runs.items()}
    report = json.load(open(runs["hashed"].report.name, encoding="utf-8"))
    plain, hashed = (results[name]["step"] for name in ("plain", "hashed"))
    pairs = zip(results["hashed"]["seconds"], results["plain"]["seconds"])
    print(f"{a.model}, batch {a.batch}, {a.policy} in {a.budget} MiB, {a.steps - WARM_UP} steps: "
          f"{plain:.3f} s, hashed {hashed:.3f} s, {hashed / plain:.2f} times as long (median of the "
          f"pairs {statistics.median(h / p for h, p in pairs):.2f}); "
          f"{report['tensors_compared'] / a.steps:.0f} comparisons a step")
    sys.exit(results["plain"]["digests"] != results["hashed"]["digests"])


if __name__ == "__main__":
    main()
