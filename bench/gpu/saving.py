#!/usr/bin/env python3
"""What a budget costs in time: adaptive and auto at 60, 50 and 40 % of the unmanaged peak.

    python3 bench/gpu/saving.py

Beside each step over the unmanaged one stands what delta-replay predicts from one recorded step at
the calibrated copy rates, and the bound that no policy can beat. A second table has the same with
copies on the stream that computes (--no-overlap), and the share of the time of copies during which
an operator ran."""

import json
import pathlib
import tempfile

from common import number, options, replay, table, train, where, write

POLICIES, PARTS = ("adaptive", "auto"), (60, 50, 40)


def hidden_share(path):
    """Of the time in which a copy ran, the part in which an operator did, too. None: no copies."""
    work = {0: [], 1: [], 2: []}
    for event in json.loads(pathlib.Path(path).read_text(encoding="utf-8")):
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


def main():
    o = options(__doc__, steps=10)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        trace, lanes = pathlib.Path(folder, "step.jsonl.gz"), pathlib.Path(folder, "lanes.json")
        recording = train(o, "--steps", 2, "--record", trace)
        peak = recording["peak_bytes"]
        unmanaged = train(o)["step_seconds"]
        predicted = {(r["policy"], round(100 * r["ratio"])): r for r in replay(
            o, trace, "--policy", ",".join(POLICIES), "--budget",
            ",".join(str(p / 100) for p in PARTS), "--iterations", min(o.steps, 8),
            "--host-budget", peak, "--thrash-limit", 20)}
        for policy in POLICIES:
            for part in PARTS:
                flags = ["--budget", peak * part // 100, "--policy", policy]
                run = train(o, *flags, may_fail=True)
                row = {"policy": policy, "percent": part, "overhead": None, "bound": None,
                       "predicted": None, "saving": None, "serial": None, "hidden": None}
                said = predicted.get((policy, part))
                if said and said["result"] == "pass":
                    row |= {"predicted": said["overhead"], "bound": said["bound_overhead"]}
                if run:
                    row |= {"overhead": run["step_seconds"] / unmanaged, "report": run,
                            "saving": 1 - run["peak_bytes"] / peak}
                    train(o, *flags, "--timeline", lanes)
                    row["hidden"] = hidden_share(lanes)
                    if o.device == "cuda":
                        serial = train(o, *flags, "--no-overlap", may_fail=True)
                        row["serial"] = serial and serial["step_seconds"] / unmanaged
                rows.append(row)
    for row in rows:
        row.get("report", {}).pop("losses", None)
    result = {"where": where(o, "saving"), "peak_bytes": peak, "unmanaged_seconds": unmanaged,
              "rows": rows}
    costs = table(["policy", "budget", "saving", "step / unmanaged", "predicted", "bound"],
                  [[r["policy"], f"{r['percent']} %", number(r["saving"]), number(r["overhead"]),
                    number(r["predicted"]), number(r["bound"])] for r in rows])
    overlap = table(["policy", "budget", "overlapped", "one stream", "copy time hidden"],
                    [[r["policy"], f"{r['percent']} %", number(r["overhead"]),
                      number(r["serial"]), number(r["hidden"])] for r in rows])
    write(o, "saving", result, "Steps under a budget", costs, ["## Overlap"], overlap)


if __name__ == "__main__":
    main()
