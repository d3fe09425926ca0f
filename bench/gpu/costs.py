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
import tempfile

from common import MIB, number, options, table, train, where, write

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


def main():
    o = options(__doc__, steps=3)
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder, "step.jsonl")
        train(o, "--record", trace)
        head, *events = [json.loads(line) for line in open(trace, encoding="utf-8")]
    per_byte = 1e9 / head["rate_out"] + 1e9 / head["rate_in"]
    ends = [i for i, event in enumerate(events) if event.get("mark") == "end_of_step"]
    last = events[ends[-2] if len(ends) > 1 else 0 :]
    found = collections.defaultdict(list)
    for event in last:
        kind = kind_of(event.get("run", ""))
        if kind:
            size = sum(event["outputs"])
            found[kind].append((event["cost"], size, size * per_byte + 2 * head["latency"]))
    rows = []
    for kind in dict.fromkeys(kind for kind, _ in KINDS):
        if kind in found:
            again, size, swap = (statistics.median(x) for x in zip(*found[kind]))
            rows.append({"kind": kind, "operators": len(found[kind]), "bytes": size,
                         "c_r_ns": again, "c_s_ns": swap, "ratio": again / swap})
    result = {"where": where(o, "costs"), "rate_out": head["rate_out"], "rate_in": head["rate_in"],
              "latency_ns": head["latency"], "device": head["device"], "rows": rows}
    lines = table(["operator", "how many", "MiB", "c_r, us", "c_s, us", "c_r / c_s"],
                  [[r["kind"], r["operators"], number(r["bytes"] / MIB, 1),
                    number(r["c_r_ns"] / 1e3, 1), number(r["c_s_ns"] / 1e3, 1),
                    number(r["ratio"], 3)] for r in rows])
    rates = f"Rates: {head['rate_out'] / 1e9:.1f} GB/s out, {head['rate_in'] / 1e9:.1f} GB/s in."
    write(o, "costs", result, "What recomputing and swapping cost", [rates], lines)


if __name__ == "__main__":
    main()
