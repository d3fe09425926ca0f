"""Memory of ResNet-50 against the batch size: the paper's figure and its table."""

from page import MEASURED, PUBLISHED, SIMULATED, Section, gb, not_run, number, table
from published import RESNET50_MB
from workbench import NotMeasured, fastest, overhead, picture

BATCHES = (128, 256, 512, 1024, 2048)
POLICIES = ("dtr", "paper", "adaptive")


def budget_part(batch):
    """The part of the baseline that DELTA took; where the baseline did not fit, of the line through
    those that did."""
    base = RESNET50_MB["baseline"]
    slope = (base[512] - base[128]) / (512 - 128)
    expected = base[batch] or base[512] + slope * (batch - 512)
    return RESNET50_MB["DELTA"][batch] / expected


def simulated(bench):
    rows, points = [], []
    for batch in BATCHES:
        part = round(budget_part(batch), 3)
        found = bench.replays(bench.trace("ResNet-50", batch), POLICIES, [part])
        by_policy = {p: found[p, part] for p in POLICIES}
        peak = by_policy["paper"]["unmanaged_peak_bytes"]
        published = [RESNET50_MB[m][batch] for m in ("baseline", "DTR", "DELTA")]
        rows.append([PUBLISHED, batch, *("out of memory" if mb is None else f"{mb / 1000:.1f}"
                                         for mb in published), "-", "-", "-"])
        rows.append([SIMULATED, batch, gb(peak), "-", gb(part * peak),
                     *(overhead(by_policy[p]) for p in POLICIES)])
        points.append({"batch": batch, "peak": peak, "part": part,
                       "overheads": {p: overhead(by_policy[p]) for p in POLICIES}})
    return rows, points


def image_of(bench):
    """Of the measured runs, pixels."""
    return bench.pick(32, 224)


def measured(bench):
    """Each policy in the same budget, so that its peak is the same. Unmanaged before
    and after, as the machine drifts; the fastest step of each."""
    rows, points = [], []
    for batch in bench.pick((16, 64, 256), (128, 256, 512)):
        common = ["--model", "resnet50", "--image", image_of(bench), "--batch", batch, "--lr", 0.005,
                  "--steps", 8]
        plain = bench.train(*common, "--seed", 1)
        budget = int(plain["peak_bytes"] * 0.5)
        runs = {p: bench.train(*common, "--budget", budget, "--policy", p, may_fail=True)
                for p in POLICIES}
        base = min(fastest(plain), fastest(bench.train(*common, "--seed", 2)))
        times = {p: run and fastest(run) / base for p, run in runs.items()}
        row = [number(times[p], 2) for p in POLICIES]
        rows.append([MEASURED, batch, gb(plain["peak_bytes"], 2), gb(budget, 2), *row])
        points.append({"batch": batch, "peak": plain["peak_bytes"], "budget": budget,
                       "overheads": times})
    return rows, points


def draw(points, out):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), dpi=150, layout="constrained")
    axes = figure.subplots()
    for method, style in (("baseline", "s--"), ("DTR", "^--"), ("DELTA", "o--")):
        known = {b: mb for b, mb in RESNET50_MB[method].items() if mb}
        axes.plot(known.keys(), [mb / 1000 for mb in known.values()], style, alpha=0.6, ms=4,
                  label=f"paper: {method}")
    axes.plot([p["batch"] for p in points], [p["peak"] / 1e9 for p in points], "k-", lw=1,
              label="simulated: unmanaged")
    axes.plot([p["batch"] for p in points], [p["part"] * p["peak"] / 1e9 for p in points], "-",
              color="#0072B2", lw=1, label="simulated: budget of the three policies")
    axes.set_xlabel("batch size, ResNet-50")
    axes.set_ylabel("GB")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(BATCHES, BATCHES)
    axes.set_yticks([4, 8, 16, 32, 64, 128], [4, 8, 16, 32, 64, 128])
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=7)
    picture(figure, out / "paper_memory.png")


def section(bench, out):
    lines, points = simulated(bench)
    try:
        here, runs = measured(bench)
    except NotMeasured:
        here, runs = [not_run("memory", 7)], []
    draw(points, out)
    return Section("Memory against batch size, ResNet-50", [
        "The paper's figure of memory consumption, GB. Ours in the part of the baseline that DELTA took; "
        "all three policies keep to it, so their peaks are equal, and what differs is time over "
        "unmanaged time. DTR's own memory in the paper is what its implementation reserved; a budget "
        "was no limit for it.",
        table(["row", "batch", "baseline", "DTR", "DELTA / budget", "time of `dtr`", "`paper`",
               "`adaptive`"], lines),
        "![Memory against batch size](paper_memory.png)",
        f"On this machine's {bench.pick('CPU', 'GPU')}, images of {image_of(bench)} x "
        f"{image_of(bench)}, delta's own executor, in half of the unmanaged peak:",
        table(["row", "batch", "unmanaged GB", "budget GB", "time of `dtr`", "`paper`", "`adaptive`"],
              here),
    ], {"simulated": points, "measured": runs})
