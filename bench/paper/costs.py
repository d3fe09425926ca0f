"""What swapping and recomputing cost, per kind of operator: the paper's table of c_s and c_r."""

import collections
import gzip
import json
import re
import statistics

from page import MEASURED, PUBLISHED, SIMULATED, Section, not_run, table
from published import COSTS_US
from workbench import NotMeasured

# By PyTorch's names, and by the layers' of delta's own executor.
KINDS = {
    "convolution": (r"aten::convolution", ("conv", "downsample.0")),
    "batch norm": (r"aten::\w*batch_norm", ("bn", "downsample.1")),
    "pooling": (r"aten::\w*pool\w*", ("maxpool", "avgpool")),
    "ReLU": (r"aten::relu_?", ("relu",)),
    "addition": (r"aten::add", ("add",)),
}


def kind_of(name, ours):
    if "backward" in name or "update" in name or "gradient" in name:
        return None
    if ours:
        layer = name.removesuffix(".forward").split(".")
        name = ".".join(layer[-2:]) if layer[-1].isdigit() else layer[-1]
        return next((k for k, (_, marks) in KINDS.items() if name.startswith(marks)), None)
    return next((k for k, (pattern, _) in KINDS.items() if re.fullmatch(pattern, name)), None)


RECORDED = 2  # steps on this machine: in the first one memory is touched for the first time


def costs(trace, ours, steps=1):
    """By kind: how many operators a step, medians of c_r and c_s in us and of MiB."""
    read = gzip.open if trace.suffix == ".gz" else open
    with read(trace, "rt", encoding="utf-8") as text:
        head, *events = [json.loads(line) for line in text]
    per_byte = 1e6 / head["rate_out"] + 1e6 / head["rate_in"]
    found = collections.defaultdict(list)
    for event in events:
        kind = kind_of(event.get("run", "backward"), ours)
        size = sum(event.get("outputs", ()))
        if kind:
            found[kind].append((event["cost"] / 1e3, size * per_byte + 2 * head["latency"] / 1e3,
                                size / 2**20))
    return head, {k: (len(v) // steps, *(statistics.median(x) for x in zip(*v, strict=True)))
                  for k, v in found.items()}


def rows_of(kind, where, by_kind):
    return [[kind, where, k, n, f"{mib:.1f}", f"{swap:.0f}", f"{again:.0f}", f"{again / swap:.3f}"]
            for k, (n, again, swap, mib) in by_kind.items()]


def section(bench, out):
    lines = [[PUBLISHED, "A100", name, 1, "-", swap, again, f"{again / swap:.4f}"]
             for name, (swap, again) in COSTS_US.items()]
    _, simulated = costs(bench.trace("ResNet-50"), ours=False)
    lines += rows_of(SIMULATED, "A100", simulated)
    measured, rates = {}, []
    try:
        recorded = bench.keep / f"resnet50_on_{bench.device}.jsonl"
        report = bench.train("--model", "resnet50", "--image", bench.pick(64, 224), "--batch",
                             bench.pick(32, 128), "--lr", 0.005,
                             "--steps", RECORDED, file=("--record", recorded))
        head, measured = costs(recorded, ours=True, steps=RECORDED)
        lines += rows_of(MEASURED, bench.device.upper(), measured)
        rates = [f"Measured: copies at {head['rate_out'] / 1e9:.1f} GB/s out and "
                 f"{head['rate_in'] / 1e9:.1f} in ({report['device_name']})."]
    except NotMeasured:
        lines.append(not_run("costs", 8))
    return Section("What swapping and recomputing cost", [
        "The paper's table of c_s, a copy out and one back, and c_r, for some tensors of ResNet-50; us. "
        "Ours are medians over all operators of a kind.",
        table(["row", "device", "operator", "how many", "MiB", "c_s", "c_r", "c_r / c_s"], lines),
        "The paper's cells of batch norm and convolution are not plausible as times of kernels: at its "
        "22.4 GB/s a copy out and back of 96 ms is of 1 GB, which no batch norm writes in 6 us "
        "(at 2 TB/s it takes half a millisecond); 4 to 69 us are what launches take on the host while "
        "the GPU runs on. With times of kernels recomputing is still the cheaper way for most, but "
        "by a factor of ten to fifty, not of five thousand; a convolution's copies can be the cheaper "
        "ones where they hide behind operators. On a CPU, where copies are copies within memory and "
        "kernels are slow, it is the other way round for all but the ReLU.",
        *rates,
    ], {"simulated": simulated, "measured": measured})
