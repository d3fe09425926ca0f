"""Time against memory: curves of all models, and the smallest budgets for given times."""

from overheads_plot import draw
from page import SIMULATED, Section, percent, table
from workbench import MODELS, smallest

POLICIES = ("dtr", "paper", "adaptive")
PARTS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1)
LIMITS = (1.05, 1.2, 2.0)


def section(bench, out):
    found, lines, data = {}, [], {}
    for model in MODELS:
        trace = bench.trace(model)
        found[model] = bench.replays(trace, POLICIES, PARTS)
        curves, peak = bench.curves(trace, list(POLICIES)), bench.peak(trace)
        for policy in POLICIES:
            least = [smallest(curves[policy], limit) for limit in LIMITS]
            data.setdefault(model, {})[policy] = [percent(b and b / peak) for b in least]
        lines.append([SIMULATED, model, *(" / ".join(data[model][p]) for p in POLICIES)])
    draw(found, {p: p for p in POLICIES}, PARTS, (2, 3), (9.6, 6.0), out, "curves")
    return Section("Time against memory", [
        "Not in the paper. The smallest budget, as a part of the unmanaged peak, in which a step takes "
        "at most 1.05, 1.2 and 2 times the unmanaged time, of some 64 that were tried:",
        table(["row", "model", *(f"`{p}`" for p in POLICIES)], lines),
    ], data)
