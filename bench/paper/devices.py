"""Eight devices: the paper's own training, with gradients reduced beside the backward pass."""

from page import PUBLISHED, SIMULATED, Section, table
from workbench import MODELS, overhead

PART = 0.4
NETWORK = "25GB/s"  # of each device, in and out
EIGHT = ["--ranks", 8, "--network", NETWORK]
WAYS = {
    "one device": [],
    "8, a link each": EIGHT,
    "8, copies on the same link": [*EIGHT, "--one-link"],
    "8, jitter of 3 %": [*EIGHT, "--jitter", 0.03],
    "8, memory of pages": [*EIGHT, "--memory", "pages"],
}


def section(bench, out):
    lines = [[PUBLISHED, "ResNet-50", "DELTA", *["-"] * len(WAYS)]]
    data = {}
    for model in MODELS:
        trace = bench.trace(model)
        policies = ("paper", "adaptive") if model == "ResNet-50" else ("adaptive",)
        found = [bench.replays(trace, policies, [PART], flags) for flags in WAYS.values()]
        for policy in policies:
            cells = [overhead(rows.get((policy, PART))) for rows in found]
            lines.append([SIMULATED, model, f"`{policy}`", *cells])
            data[f"{model} {policy}"] = cells
    return Section("Eight devices", [
        "The paper trains ResNet-50 on 8 GPUs, and gives no time of it. Time in 40 % of the peak over the unmanaged "
        f"time of as many devices: data parallel, gradients in PyTorch's buckets, reduced in a ring at {NETWORK}. "
        "With jitter each operation of each device takes a lognormal factor longer, and all wait for the slowest. "
        "In memory with places, as elsewhere on this page, a plan's rehearsal does not keep what a collective uses, so "
        "blocks come to lie otherwise than was planned; in memory of pages that costs nothing.",
        table(["row", "model", "policy", *WAYS], lines),
    ], data)
