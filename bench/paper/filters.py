"""Filters compared on three models: the paper's figure of heuristics, and delta's own beside them."""

from overheads_plot import draw
from page import SIMULATED, Section, table
from workbench import overhead

MODELS = ("ResNet-50", "EfficientNet-B0", "ResNeXt-50")
FILTERS = {"paper": "base, 1 / (m s)", "paper-lru": "LRU, 1 / s", "paper-greedy": "greedy, 1 / m",
           "online": "joint, with costs", "learned": "learned", "auto": "auto"}
PARTS = (0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15)
SHOWN = (0.8, 0.6, 0.5, 0.4, 0.3, 0.2)


def section(bench, out):
    lines, found, data = [], {}, {}
    for model in MODELS:
        found[model] = bench.replays(bench.trace(model), FILTERS, PARTS)
        for policy, name in FILTERS.items():
            cells = [overhead(found[model][policy, p]) for p in SHOWN]
            lines.append([SIMULATED, model, name, f"`{policy}`", *cells])
        data[model] = {f"{policy} {part}": overhead(r)
                       for (policy, part), r in found[model].items()}
    draw(found, FILTERS, PARTS, (1, len(found)), (9.6, 3.8), out / "paper_filters")
    return Section("Filters", [
        "The paper's last figure: its three heuristics on three models. It shows the memory that each "
        "took for a budget; here every policy keeps to the budget, and the time tells them apart. "
        "The first three are the paper's policy with another Filter. Time over unmanaged time, by the "
        "budget's part of the peak.",
        table(["row", "model", "Filter", "policy", *(f"{100 * p:.0f} %" for p in SHOWN)], lines),
        "![Time by budget and Filter](paper_filters.png)",
    ], data)
