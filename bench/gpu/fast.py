#!/usr/bin/env python3
"""Images per second of an unmanaged ResNet-50 step, float32 and TF32, beside PyTorch's.

    python3 bench/gpu/fast.py

PyTorch runs right behind each of ours, in channels_last: with deterministic algorithms and the same
TF32 setting, and as it is by default. Without PyTorch its columns are empty. delta's step includes
the copy of the batch to the device; PyTorch's images are there already."""

import importlib.metadata
import json
import pathlib
import sys

from common import Failed, Part, Skipped, last_line, number, options, run, table, train

TORCH = pathlib.Path(__file__).with_name("torch_step.py")


def ours(o, *flags):
    def row(limit):
        report = train(o, *flags, limit=limit)
        return {"rate": o.batch / report["step_seconds"], "device": report["device_name"]}
    return row


def torchs(o, mode):
    """In a process of its own: what it takes on the device is gone with it."""
    def row(limit):
        code, said = run([sys.executable, TORCH, o.device, o.image, o.batch, o.steps, mode], limit)
        if code == 77:
            raise Skipped("there is no PyTorch")
        try:
            if code == 0:
                return json.loads(last_line(said))
        except ValueError:
            pass
        raise Failed(f"PyTorch, exit code {code}: {last_line(said)}")
    return row


def rate(part, name):
    row = part.data(name)
    return row and row["rate"]


def tables(part):
    lines = []
    for numbers in ("float32", "TF32"):
        if f"delta, {numbers}" not in part.rows:
            continue
        own, same = rate(part, f"delta, {numbers}"), rate(part, f"PyTorch, {numbers}")
        default = rate(part, "PyTorch, by default") if numbers == "TF32" else None
        lines.append([numbers, number(own, 1), number(same, 1),
                      number(own / same if own and same else None, 2), number(default, 1)])
    versions = {row["torch"] for row in part.rows.values() if "torch" in row}
    return [[f"PyTorch {', '.join(sorted(versions)) or 'is not at hand: not measured'}."],
            table(["numbers", "delta, images/s", "PyTorch deterministic", "delta / PyTorch",
                   "PyTorch default"], lines)]


def pytorch():
    """The version that this Python has, which also runs torch_step.py."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "none"


def main():
    o = options(__doc__, steps=30)
    o.also = {"torch": pytorch()}
    rows = [("delta, float32", ours(o)), ("PyTorch, float32", torchs(o, "float32"))]
    if o.on_gpu:
        rows = [("delta, TF32", ours(o, "--tf32")), ("PyTorch, TF32", torchs(o, "tf32")), *rows,
                ("PyTorch, by default", torchs(o, "default"))]
    sys.exit(Part(o, "fast", "Unmanaged steps beside PyTorch", tables).run(rows))


if __name__ == "__main__":
    main()
