#!/usr/bin/env python3
"""What a budget costs in time: three policies at 60, 50 and 40 % of the unmanaged peak.

    python3 bench/gpu/saving.py [--float32]

Convolutions and products in TF32, as docs/results/gpu_predicted.md has them; --float32: in float32,
to gpu-saving-float32.
Beside each step over the unmanaged one stands what delta-replay predicts from one recorded step at
the calibrated copy rates, and the bound that no policy can beat. A second table has the same with
copies on the stream that computes (--no-overlap), and the share of the time of copies during which
an operator ran."""

import pathlib
import sys
import tempfile
import time

from common import Part, json_of, number, options, replay, table, train

POLICIES, PARTS = ("adaptive", "online", "dtr"), (60, 50, 40)
EXPLAINED = ("adaptive",)  # whose overlap is looked into


def hidden_share(path):
    """Of the time in which a copy ran, the part in which an operator did, too. None: no copies."""
    work = {0: [], 1: [], 2: []}
    for event in json_of(path, "the timeline"):
        if event.get("ph") == "X" and event["tid"] in work:
            work[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))

    def union(spans):
        merged = []
        for begin, end in sorted(spans):
            if merged and begin <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([begin, end])
        return merged

    compute, copies = union(work[0]), union(work[1] + work[2])
    both, at = 0.0, 0
    for begin, end in copies:
        while at < len(compute) and compute[at][1] <= begin:
            at += 1
        for first, last in compute[at:]:
            if first >= end:
                break
            both += min(end, last) - max(begin, first)
    whole = sum(end - begin for begin, end in copies)
    return both / whole if whole else None


def cells(policies=POLICIES):
    return [(policy, percent) for policy in policies for percent in PARTS]


def rows_of(o):
    """Pairs of a row's name and what runs it: all budgets first, then what explains them."""
    part = None
    # The same kernels in every budget: else workspaces, and so kernels, follow the budget.
    same = ["--workspace-cap", "1GiB"] if o.on_gpu else []
    if o.also.get("products") == "TF32":
        same.append("--tf32")

    def predicted(limit):
        """The unmanaged peak, and what a replay of one recorded step says of every budget."""
        end = time.monotonic() + limit
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder, "step.jsonl.gz")
            peak = train(o, *same, "--steps", 2, "--record", trace,
                         limit=limit)["peak_bytes"]
            said = replay(o, trace, "--policy", ",".join(POLICIES), "--budget",
                          ",".join(str(p / 100) for p in PARTS), "--iterations", min(o.steps, 8),
                          "--host-budget", peak, "--thrash-limit", 20,
                          limit=end - time.monotonic())
        return {"peak_bytes": peak,
                "predicted": {f"{r['policy']} {round(100 * r['ratio'])} %":
                              {"overhead": r["overhead"], "bound": r["bound_overhead"]}
                              for r in said if r["result"] == "pass"}}

    def unmanaged(limit):
        return {"step_seconds": train(o, *same, limit=limit)["step_seconds"]}

    def budget(policy, percent):
        return [*same, "--budget", part.need("predicted")["peak_bytes"] * percent // 100,
                "--policy", policy]

    def managed(policy, percent, *flags):
        def row(limit):
            alone = part.need("unmanaged")["step_seconds"]
            report = train(o, *budget(policy, percent), *flags, limit=limit)
            report.pop("losses", None)
            return {"overhead": report["step_seconds"] / alone,
                    "saving": 1 - report["peak_bytes"] / part.need("predicted")["peak_bytes"],
                    "report": report}
        return row

    def hidden(policy, percent):
        def row(limit):
            with tempfile.TemporaryDirectory() as folder:
                lanes = pathlib.Path(folder, "lanes.json")
                train(o, *budget(policy, percent), "--timeline", lanes, limit=limit)
                return {"hidden": hidden_share(lanes)}
        return row

    rows = [("unmanaged", unmanaged), ("predicted", predicted)]
    rows += [(f"{p} {n} %", managed(p, n)) for p, n in cells()]
    rows += [(f"{p} {n} %, copies hidden", hidden(p, n)) for p, n in cells(EXPLAINED)]
    if o.on_gpu:
        rows += [(f"{p} {n} %, one stream", managed(p, n, "--no-overlap"))
                 for p, n in cells(EXPLAINED)]
    title = f"Steps under a budget, {o.also.get('products', 'float32')}"
    # The table in float32 leaves that in TF32 as it is.
    name = "saving-float32" if o.on_gpu and o.float32 else "saving"
    part = Part(o, name, title, tables, anew=("unmanaged",))
    return part, rows


def tables(part):
    said = (part.data("predicted") or {}).get("predicted", {})

    def figure(name, key, digits=3):
        return number((part.data(name) or {}).get(key), digits)

    costs, overlap = [], []
    for policy, percent in cells():
        name = f"{policy} {percent} %"
        replayed = said.get(name, {})
        costs.append([policy, f"{percent} %", figure(name, "saving"), figure(name, "overhead"),
                      number(replayed.get("overhead")), number(replayed.get("bound"))])
    for policy, percent in cells(EXPLAINED):
        name = f"{policy} {percent} %"
        overlap.append([policy, f"{percent} %", figure(name, "overhead"),
                        figure(f"{name}, one stream", "overhead"),
                        figure(f"{name}, copies hidden", "hidden")])
    return [table(["policy", "budget", "saving", "step / unmanaged", "predicted", "bound"], costs),
            ["## Overlap"],
            table(["policy", "budget", "overlapped", "one stream", "copy time hidden"], overlap)]


def main():
    def more(parser):
        parser.add_argument("--float32", action="store_true", help="no TF32")

    o = options(__doc__, more, steps=10)
    if o.on_gpu:
        o.also = {"products": "float32" if o.float32 else "TF32"}
    part, rows = rows_of(o)
    sys.exit(part.run(rows, needed=("unmanaged", "predicted")))


if __name__ == "__main__":
    main()
