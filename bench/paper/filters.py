"""Filters compared on three models: the paper's figure of heuristics, and delta's own beside them."""

from overheads_plot import draw
from page import SIMULATED, Section, table
from workbench import keep_picture, overhead  # which adds bench to the path

import memory_over_time

MODELS = ("ResNet-50", "EfficientNet-B0", "ResNeXt-50")
FILTERS = {"paper": "base, 1 / (m s)", "paper-lru": "LRU, 1 / s", "paper-greedy": "greedy, 1 / m",
           "online": "joint, with costs", "adaptive": "planned"}
PARTS = (0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15)
SHOWN = (0.8, 0.6, 0.5, 0.4, 0.3, 0.2)

TIMELINES = ("paper", "paper-lru", "paper-greedy")  # the paper's three
AT = 0.4


def draw_timelines(bench, out):
    """Memory over the last step of each, in the same budget."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 6.0), dpi=150, layout="constrained")
    grid = figure.subplots(len(TIMELINES), len(MODELS), squeeze=False)
    for column, model in enumerate(MODELS):
        budget = AT * bench.peak(bench.trace(model))
        for row, policy in enumerate(TIMELINES):
            axes = grid[row][column]
            *_, last = memory_over_time.steps_of(bench.timeline(bench.trace(model), policy, AT))
            seconds, device, host = zip(*last, strict=True)
            axes.fill_between(seconds, [b / 1e9 for b in device], step="post", color="#0072B2",
                              alpha=0.6, lw=0, label="on the device")
            axes.plot(seconds, [b / 1e9 for b in host], color="#D55E00", lw=1, label="on the host",
                      drawstyle="steps-post")
            axes.axhline(budget / 1e9, color="k", lw=0.8, ls=":", label="budget")
            axes.set_title(f"{model}, {FILTERS[policy].split(',')[0]}, simulated", fontsize=8)
            axes.tick_params(labelsize=7)
        grid[-1][column].set_xlabel("s", fontsize=8)
        grid[0][column].set_ylabel("GB", fontsize=8)
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3,
                  frameon=False, fontsize=8)
    keep_picture(figure, out, "filter_timelines")


def section(bench, out):
    lines, found, data = [], {}, {}
    for model in MODELS:
        found[model] = bench.replays(bench.trace(model), FILTERS, PARTS)
        for policy, name in FILTERS.items():
            if policy not in TIMELINES:
                continue  # in the picture alone
            cells = [overhead(found[model][policy, p]) for p in SHOWN]
            lines.append([SIMULATED, model, name, f"`{policy}`", *cells])
        data[model] = {f"{policy} {part}": overhead(r)
                       for (policy, part), r in found[model].items()}
    draw_timelines(bench, out)
    draw(found, FILTERS, PARTS, (1, len(found)), (9.6, 3.8), out, "filters")
    return Section("Filters", [
        "The paper's last figure: its three heuristics on three models. It shows the memory that each "
        "took for a budget; here every policy keeps to the budget, and the time tells them apart. "
        "They are the paper's policy with another Filter. Time over unmanaged time, by the "
        "budget's part of the peak.",
        table(["row", "model", "Filter", "policy", *(f"{100 * p:.0f} %" for p in SHOWN)], lines),
    ], data)
