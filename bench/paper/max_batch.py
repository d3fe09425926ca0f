"""The largest batch that fits: the paper's tables of ResNet-50 and ResNet-101."""

from page import MEASURED, PUBLISHED, SIMULATED, Section, gb, not_run, number, table
from published import MAX_BATCH
from workbench import Failed, NotMeasured, fastest

POLICIES = ("dtr", "paper", "adaptive")
CAPACITY = 71_540_000_000 // 512 * 512  # what the paper's baseline took at its largest batch, bytes
GROWTHS = (1.2, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 8)
LIMIT = 1.5  # of the time per image: the target's, at four times the batch


def largest_unmanaged(bench, model):
    """Peaks are linear in the batch: two traces give the line, a third is the proof."""
    small, large = 128, 512
    a, b = (bench.peak(bench.trace(model, n)) for n in (small, large))
    slope = (b - a) / (large - small)
    batch = int((CAPACITY - a) / slope) + small
    while bench.peak(bench.trace(model, batch)) > CAPACITY:
        batch -= 1
    return batch


def simulated(bench, model):
    base = largest_unmanaged(bench, model)
    published = MAX_BATCH[model]
    rows, found = [], {}
    for method, (batch, took) in published.items():
        rows.append([PUBLISHED, model, method, batch, f"{batch / published['baseline'][0]:.2f}x", "-",
                     took])
    rows.append([SIMULATED, model, "unmanaged", base, "1x", "1",
                 gb(bench.peak(bench.trace(model, base)))])
    for growth in GROWTHS:
        trace = bench.trace(model, int(base * growth))
        last = bench.replays(trace, POLICIES, [CAPACITY])
        for policy in POLICIES:
            r = last[policy, CAPACITY]
            if r["result"] == "pass" and r["overhead"] <= LIMIT:
                found[policy] = (int(base * growth), growth, r["overhead"], r["peak_bytes"])
    for policy in POLICIES:
        if policy in found:
            batch, growth, time, peak = found[policy]
            rows.append([SIMULATED, model, f"`{policy}`", batch, f"{growth:g}x", number(time, 2),
                         gb(peak)])
        else:
            rows.append([SIMULATED, model, f"`{policy}`", "-", f"under {GROWTHS[0]}x", "-", "-"])
    return rows, {"base": base, **found}


def image_of(bench):
    return bench.pick(64, 224)


def capacity_of(bench):
    """Of the measured runs, bytes."""
    return bench.pick(2 << 30, 70 << 30)


def measured(bench):
    """Runs that really ran, ResNet-50 in a fixed memory: the unmanaged one as large as fits, each
    policy at growing batches until it fails or takes more than LIMIT; a row for the largest of each."""
    here = capacity_of(bench)

    def run(batch, *flags, steps=4):
        return bench.train("--model", "resnet50", "--image", image_of(bench), "--batch", batch, "--lr", 0.005,
                           "--steps", steps, *flags, may_fail=True)

    # Peaks are linear in the batch.
    at_32, at_64 = (run(n, steps=1)["peak_bytes"] for n in (32, 64))
    base = 64 + int(32 * (here - at_64) / (at_64 - at_32)) + 2
    while (plain := run(base, steps=3)) is None or plain["peak_bytes"] > here:
        base -= 2
    per_image = fastest(plain) / base
    rows = [[MEASURED, "ResNet-50", "unmanaged", base, "1x", "1", gb(plain["peak_bytes"], 2), "-"]]
    data = {"base": base}
    for policy, growths in (("dtr", (1.5, 2, 3)), ("paper", (1.5, 2, 3)), ("adaptive", (2, 3, 4))):
        largest = []
        for growth in growths:
            batch = int(base * growth)
            r = run(batch, "--budget", here, "--policy", policy)
            if r is None:
                largest.append([MEASURED, "ResNet-50", f"`{policy}`", batch, f"{growth:g}x",
                                "refused, with the smallest budget that works", "-", "-"])
                break
            time = fastest(r) / batch / per_image
            largest = [[MEASURED, "ResNet-50", f"`{policy}`", batch, f"{growth:g}x", number(time, 2),
                        gb(r["peak_bytes"], 2), number(here / r["peak_bytes"])]]
            data[f"{policy} {growth}"] = time
            if time > LIMIT:
                break
        rows += largest
    if len(rows) < 2:
        raise Failed("no run of a larger batch came to its end")
    return rows, data


def section(bench, out):
    rows, data = [], {}
    for model in MAX_BATCH:
        lines, data[model] = simulated(bench, model)
        rows += lines
    try:
        here, data["measured"] = measured(bench)
    except NotMeasured:
        here = [not_run("max_batch", 8)]
    return Section("The largest batch", [
        "The paper's tables of the largest batch on one A100. Its baseline took 71.54 GB of the 80: that "
        f"is the capacity here. Batches are {', '.join(f'{g:g}' for g in GROWTHS)} times the largest "
        f"unmanaged one; the largest at which a step takes at most {LIMIT} times the unmanaged time "
        "of the same images.",
        table(["row", "model", "method", "batch", "growth", "time per image", "GB"], rows),
        f"Runs that really ran, in {capacity_of(bench) >> 30} GiB of this machine's memory, images of "
        f"{image_of(bench)} x {image_of(bench)}. The "
        "arena is taken once, as large as the budget: what is reserved over what tensors took at "
        "their peak is the last column. What they took is what they asked for, each rounded up to 64 bytes "
        "(512 on a GPU), which is less than 0.01 % here. What lies in pieces is moved together, not "
        "reserved.",
        table(["row", "model", "method", "batch", "growth", "time per image", "GB",
               "reserved / taken"], here),
    ], data)
