#!/usr/bin/env python3
"""What it costs to compute a tensor again (c_r) and to copy it out and back (c_s), per kind of
operator: medians over one recorded step.

    python3 bench/gpu/costs.py

c_r is what the operator took on the device, c_s the bytes of its outputs at the calibrated rates of
both directions."""

import collections
import json
import pathlib
import statistics
import sys
import tempfile

from common import MIB, Failed, Part, number, options, table, train

KINDS = (("convolution", "conv"), ("convolution", "downsample.0"), ("batch norm", "bn"),
         ("batch norm", "downsample.1"), ("max pool", "maxpool"), ("average pool", "avgpool"),
         ("ReLU", "relu"), ("add", "add"), ("linear", "fc"))


def kind_of(name):
    """By the layer's name, forward operators only: others are rarely computed again."""
    layer, _, step = name.rpartition(".")
    if step != "forward":
        return None
    last = layer.split(".")
    tail = ".".join(last[-2:]) if last[-1].isdigit() else last[-1]
    return next((kind for kind, mark in KINDS if tail.startswith(mark)), None)


def step_of(path):
    """The head of a recorded run, and the events of its last step."""
    try:
        head, *events = [json.loads(line) for line in open(path, encoding="utf-8")]
        ends = [i for i, event in enumerate(events) if event.get("mark") == "end_of_step"]
        return head, events[ends[-2] if len(ends) > 1 else 0 :]
    except (OSError, ValueError) as error:
        raise Failed(f"the recorded step is not whole: {error}") from error


def medians(path):
    head, events = step_of(path)
    per_byte = 1e9 / head["rate_out"] + 1e9 / head["rate_in"]
    found = collections.defaultdict(list)
    for event in events:
        kind = kind_of(event.get("run", ""))
        if kind:
            size = sum(event["outputs"])
            found[kind].append((event["cost"], size, size * per_byte + 2 * head["latency"]))
    kinds = []
    for kind in dict.fromkeys(kind for kind, _ in KINDS):
        if kind in found:
            again, size, swap = (statistics.median(x) for x in zip(*found[kind]))
            kinds.append({"kind": kind, "operators": len(found[kind]), "bytes": size,
                          "c_r_ns": again, "c_s_ns": swap, "ratio": again / swap})
    return {"rate_out": head["rate_out"], "rate_in": head["rate_in"],
            "latency_ns": head["latency"], "device": head["device"], "kinds": kinds}


def tables(part):
    found = part.data("recorded step")
    if found is None:
        return []
    rates = f"Rates: {found['rate_out'] / 1e9:.1f} GB/s out, {found['rate_in'] / 1e9:.1f} GB/s in."
    return [[rates], table(["operator", "how many", "MiB", "c_r, us", "c_s, us", "c_r / c_s"],
                           [[r["kind"], r["operators"], number(r["bytes"] / MIB, 1),
                             number(r["c_r_ns"] / 1e3, 1), number(r["c_s_ns"] / 1e3, 1),
                             number(r["ratio"], 3)] for r in found["kinds"]])]


def main():
    o = options(__doc__, steps=3, row_seconds=300)

    def recorded(limit):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder, "step.jsonl")
            train(o, "--record", trace, limit=limit)
            return medians(trace)

    sys.exit(Part(o, "costs", "What recomputing and swapping cost", tables).run(
        [("recorded step", recorded)]))


if __name__ == "__main__":
    main()
