"""Published peers on one page, on all models: each a policy, those that plan by solvers as such plans.

Traces of its models, and the plans for 40 % of the peak, are kept in test/reference/paper_traces, as
figures_test computes cells of these tables anew from them."""

import gzip
import json
import shutil
import sys

from page import SIMULATED, Section, table
from workbench import COPIES, MODELS, ROOT, STEPS, Failed, overhead, say, stamp

OPTIMUM = ROOT / "bench/optimum"
sys.path.insert(0, str(OPTIMUM))
import digests  # noqa: E402

PEERS = {
    "vdnn": "vDNN (Rhu et al. 2016)",
    "superneurons": "SuperNeurons (Wang et al. 2018)",
    "capuchin": "Capuchin (Peng et al. 2020)",
    "chameleon": "Chameleon (2025)",
    "chen": "Chen et al. 2016",
    "dtr": "DTR (Kirisame et al. 2021)",
    "zero_offload": "ZeRO-Offload (Ren et al. 2021)",
    "l2l": "L2L (Pudipeddi et al. 2020)",
    "swapadvisor": "SwapAdvisor (Huang et al. 2020)",
    "swap_lru": "swapping, least recently used",
    "paper": "DELTA (Tang et al. 2022)",
    "online": "delta, per tensor",
    "adaptive": "delta, adaptive",
}
PARTS = (0.6, 0.4, 0.3)
KEPT = ROOT / "test/reference/paper_traces"
KEPT_MODELS = [m for m in MODELS if m != "ResNet-101"]  # ResNet-50's blocks, and more of them


def keep_traces(bench):
    """Replaces those that differ from what is recorded now."""
    for model in KEPT_MODELS:
        now, kept = bench.trace(model), KEPT / f"{model}.jsonl.gz"
        if not kept.exists() or kept.read_bytes() != now.read_bytes():
            shutil.copyfile(now, kept)


# Peers that plan the whole step before it runs, by a solver (bench/optimum/planners.py).
PLANNED = {
    "checkmate": "Checkmate (Jain et al. 2020), over blocks",
    "beaumont": "Beaumont et al. 2021",
    "torchtitan": "torchtitan, two levels (2026)",
}
SECONDS = 20  # for a solver; most take less than one
SOLVED_FOR = 0.98  # of the budget: what is in pieces, and what a block's bytes do not say, has the rest
RAISED_BY = 0.02  # of the peak, where there is no plan of whole blocks


def plan_file(bench, model, name, part):
    return bench.keep / f"{model.lower()}_{name}_{part}.jsonl"


def solved(bench, model):
    """By (planner, part of the peak): the last step's row of delta-replay, what the solver said the step
    would take, and for which part of the peak it found a plan."""
    trace = bench.trace(model)

    def run():
        from blocks import chain_of
        from planners import PLANNERS, NoPlan, write
        from program import read

        program = read(trace, most=1_000_000, effects_repeat=True)
        chain, peak = chain_of(program), program.peak()
        found = {}
        for name in PLANNED:
            for part in PARTS:
                say(f"{model}: {name} in {100 * part:.0f} % of the peak")
                share = SOLVED_FOR * part
                while True:
                    try:
                        plan = PLANNERS[name](chain, int(share * peak), COPIES, SECONDS)
                        break
                    except NoPlan:
                        share += RAISED_BY
                        if share > 1:
                            raise Failed(f"{name} has no plan for {model}") from None
                file = plan_file(bench, model, name, part)
                write(plan, chain, file)
                rows = bench.keep / "planned_rows.json"
                bench.call("delta-replay", trace, "--plan", file, "--budget", part, "--iterations",
                           STEPS, "--thrash-limit", 10, "--json", rows)
                row = json.loads(rows.read_text(encoding="utf-8"))[-1]
                found[f"{name} {part}"] = {
                    "row": row, "expected": plan.time / program.time, "share": share,
                    "raised": share > part, "optimal": plan.time <= plan.bound * 1.0001}
        return found

    sources = [(OPTIMUM / f"{m}.py").read_text(encoding="utf-8")
               for m in ("blocks", "milp", "planners", "program", "stages", "walk")]
    return bench.kept(["planned", *stamp(trace), PARTS, SECONDS, SOLVED_FOR, RAISED_BY, sources], run)


def planned_lines(bench):
    lines, data = [], {}
    found = {m: solved(bench, m) for m in MODELS}
    # As the traces: figures_test carries these out again.
    for model in KEPT_MODELS:
        for name in PLANNED:
            plan = plan_file(bench, model, name, PARTS[1]).read_bytes()
            (KEPT / f"{model}_{name}.jsonl.gz").write_bytes(gzip.compress(plan, mtime=0))
    for name, title in PLANNED.items():
        cells = []
        for model in MODELS:
            at = [found[model][f"{name} {part}"] for part in PARTS]
            cells.append(" / ".join(overhead(x["row"]) + ("*" if x["raised"] else "") for x in at))
            data.setdefault(name, {})[model] = {str(p): {k: v for k, v in x.items() if k != "row"}
                                                | {"overhead": x["row"].get("overhead")}
                                                for p, x in zip(PARTS, at)}
        lines.append([SIMULATED, f"`{name}`", title, *cells])
    return lines, data


def section(bench, out):
    lines, data = [], {}
    keep_traces(bench)
    found = {m: bench.replays(bench.trace(m), PEERS, PARTS) for m in MODELS}
    for policy, name in PEERS.items():
        cells = []
        for model in MODELS:
            cells.append(" / ".join(overhead(found[model][policy, p]) for p in PARTS))
            data.setdefault(policy, {})[model] = cells[-1]
        lines.append([SIMULATED, f"`{policy}`", name, *cells])
    bounds = []
    for model in MODELS:
        rows = [found[model]["paper", p]["bound_overhead"] for p in PARTS]
        bounds.append(" / ".join("-" if b is None else f"{b:.3f}" for b in rows))
    lines.append([SIMULATED, "bound", "lower bound", *bounds])
    plans, data["plans"] = planned_lines(bench)
    try:
        digest = digests.recomputed_line(bench.build, ".", "paper")
    except digests.Missing as fault:
        raise Failed(str(fault)) from None
    return Section("Peers", [
        "What the paper cites, and two of today, each as a policy of delta ([policies](../policies.md)): "
        "its rule, on the same manager, prices and copies. Time over unmanaged time at "
        + ", ".join(f"{100 * p:.0f}" for p in PARTS)
        + " % of the peak. `oom`: its rule does not bring an operator's tensors together; `thrash`: "
        "more than ten times the time.",
        table(["row", "policy", "rule", *MODELS], lines),
        "Those below plan the whole step before it runs, by a solver (HiGHS), on the step as it was "
        f"recorded, for {100 * SOLVED_FOR:.0f} % of the budget. delta's manager carries the plan out "
        "(`delta-replay --plan`); what it does not cover leaves as under `online`, or under `dtr` where "
        "nothing is offloaded. [How they are made](../optimum.md#plans-of-whole-steps), and what is kept "
        "of each. An asterisk: no plan of whole blocks fits that budget, so it is the plan for the "
        f"smallest that has one, tried in steps of {100 * RAISED_BY:.0f} % of the peak.",
        table(["row", "plan", "of", *MODELS], plans),
        verdict(found, data["plans"]),
        digest,
    ], data)


def verdict(found, plans):
    """How often, and by how much, a plan is faster than the default policy."""
    better = []
    for name, by_model in plans.items():
        for model, by_part in by_model.items():
            for part in PARTS:
                ours, theirs = found[model]["adaptive", part], by_part[str(part)]["overhead"]
                if theirs is not None and ours["result"] == "pass" and theirs < ours["overhead"]:
                    better.append((ours["overhead"] - theirs, name, model, part))
    if not better:
        return "None of them is faster than `adaptive` anywhere here."
    cells = len(plans) * len(MODELS) * len(PARTS)
    gain, name, model, part = max(better)
    return (f"In {len(better)} of {cells} cells such a plan is faster than `adaptive`, which plans by the "
            f"step before, while the program runs; by {gain:.3f} of the unmanaged time at most "
            f"({name}, {model}, {100 * part:.0f} %).")
