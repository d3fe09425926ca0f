"""The tables of docs/results/optimum.md, from the rows of compare.py."""

import json
import pathlib
import statistics
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from artefacts import artefact  # noqa: E402

LABELS = ("summary", "recompute", "both", "programs")
SHOWN = ("60%", "40%", "near")  # budgets; the JSON and the summary have all


def number(x, digits=3):
    return "-" if x is None else f"{x:.{digits}f}"


def optimum(o):
    """An optimum that is proven by itself; else what is found, and in brackets what is proven."""
    if o["status"] == "infeasible":
        return "none"
    if o["status"] == "optimal":
        return number(o["time"])
    return f"{number(o['time'])} (≥ {number(o['at_least'])})"


def line(row):
    """A row in words, for whoever waits."""
    r, b = row["recompute"], row["both"]
    took = r["optimum"]["seconds"] + b["barrier"]["seconds"] + b["loose"]["seconds"]
    return (f"{row['program']:14} {row['label']:>5}  recompute {optimum(r['optimum'])}, adaptive "
            f"{number(r['adaptive'])}, bound {number(r['bound'])}; both {number(b['loose']['at_least'])} "
            f"to {number(b['best_known'])}, adaptive {number(b['adaptive'])}, bound "
            f"{number(b['bound'])}; {took:.0f} s")


def table(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head),
                      *("| " + " | ".join(r) + " |" for r in rows)])


def recompute_table(result):
    """Without the cells in which nothing is possible."""
    head = ["program", "budget", "of peak", "optimum", "bound", *result["policies"]]
    return table(head, [[r["program"], r["label"], f"{r['part']:.1%}",
                         optimum(r["recompute"]["optimum"]), number(r["recompute"]["bound"]),
                         *(number(r["recompute"][p]) for p in result["policies"])]
                        for r in result["rows"]
                        if r["label"] in SHOWN and r["recompute"]["optimum"]["status"] != "infeasible"])


def both_table(result):
    """Without the cells in which nothing that gets through is known."""
    head = ["program", "budget", "at least", "at most", "with barriers", "bound",
            *result["policies"]]
    return table(head, [[r["program"], r["label"], number(r["both"]["loose"]["at_least"]),
                         number(r["both"]["best_known"]), number(r["both"]["barrier"]["time"]),
                         number(r["both"]["bound"]),
                         *(number(r["both"][p]) for p in result["policies"])]
                        for r in result["rows"]
                        if r["label"] in SHOWN and r["both"]["best_known"] is not None])


def programs_table(result):
    head = ["program", "operators", "peak, MiB", "step, ms", "least budget, of peak",
            "largest operator, of peak", "copies, MB/s"]
    return table(head, [[a["program"], str(a["operators"]), f"{a['peak'] / 2**20:.1f}",
                         f"{a['time_ns'] / 1e6:.1f}", f"{a['least_found'] / a['peak']:.3f}",
                         f"{a['floor'] / a['peak']:.3f}", f"{a['rate'] / 1e6:.0f}"]
                        for a in result["about"]])


def spread(values, failed=0):
    """Mean and worst of how far above 1, as percentages."""
    if not values:
        return ["-", "-", "0", str(failed)]
    return [f"{statistics.mean(values) - 1:.1%}", f"{max(values) - 1:.1%}", str(len(values)),
            str(failed)]


def above_recompute(result, what):
    """Time over the optimum, where both are there; and how often there is an optimum alone."""
    values, failed = [], 0
    for r in result["rows"]:
        o = r["recompute"]["optimum"]
        if o["status"] != "optimal":
            continue
        x = r["recompute"][what]
        if what == "bound":
            values.append(o["time"] / x)
        elif x is None:
            failed += 1
        else:
            values.append(x / o["time"])
    return values, failed


def above_both(result, what, reference):
    values, failed = [], 0
    for r in result["rows"]:
        b = r["both"]
        low, high = b["loose"]["at_least"], b["best_known"]
        if low is None or high is None:
            continue
        by = low if reference == "at least" else high
        if what == "bound":
            if b["bound"] is not None:
                values.append(by / b["bound"])
        elif b[what] is None:
            failed += 1
        else:
            values.append(b[what] / by)
    return values, failed


def summary(result):
    rows = []
    for p in (*result["policies"], "bound"):
        name = "optimum over `bound`" if p == "bound" else f"`{p}` over the optimum"
        rows.append(["recompute", name, *spread(*above_recompute(result, p))])
    for p in (*result["policies"], "bound"):
        low, high = above_both(result, p, "at least"), above_both(result, p, "at most")
        if p == "bound":
            rows.append(["both", "what is proven over `bound`", *spread(*low)])
            rows.append(["both", "best known over `bound`", *spread(*high)])
        else:
            rows.append(["both", f"`{p}` over the best known", *spread(*high)])
            rows.append(["both", f"`{p}` over what is proven", *spread(*low)])
    return table(["machine", "what", "mean", "worst", "cells", "failed"], rows)


def put(text, label, content):
    """Replaces what stands between the two comments of that label."""
    begin, end = f"<!-- {label} -->\n", f"<!-- end of {label} -->"
    if begin not in text or end not in text:
        raise ValueError(f"the page has no {begin.strip()} and {end}")
    head, rest = text.split(begin, 1)
    return head + begin + content + "\n" + end + rest.split(end, 1)[1]


def write(out, result):
    made = (summary(result), recompute_table(result), both_table(result), programs_table(result))
    artefact(out, out.name + ".json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    path = out.with_suffix(".md")
    text = path.read_text(encoding="utf-8")
    for label, content in zip(LABELS, made):
        text = put(text, label, content)
    path.write_text(text, encoding="utf-8")
