"""Published peers on one page: each a policy, on all models; those that plan by solvers, in words.

Its traces are kept beside the page, as figures_test computes cells of this table anew from them."""

import shutil
import sys

from page import SIMULATED, Section, table
from workbench import MODELS, ROOT, Failed, overhead

sys.path.insert(0, str(ROOT / "bench"))
import digests  # noqa: E402

PEERS = {
    "vdnn": "vDNN (Rhu et al. 2016)",
    "superneurons": "SuperNeurons (Wang et al. 2018)",
    "capuchin": "Capuchin (Peng et al. 2020)",
    "chen": "Chen et al. 2016",
    "dtr": "DTR (Kirisame et al. 2021)",
    "zero_offload": "ZeRO-Offload (Ren et al. 2021)",
    "l2l": "L2L (Pudipeddi et al. 2020)",
    "swapadvisor": "SwapAdvisor (Huang et al. 2020)",
    "swap_lru": "swapping, least recently used",
    "paper": "DELTA (Tang et al. 2022)",
    "online": "delta, per tensor",
    "adaptive": "delta, adaptive",
    "auto": "delta, auto",
}
PARTS = (0.6, 0.4, 0.3)
RESULTS = ROOT / "docs/results"


def keep_traces(bench):
    """Replaces those beside the page that differ from what is recorded now."""
    folder = RESULTS / "paper_traces"
    folder.mkdir(exist_ok=True)
    for model in MODELS:
        now, kept = bench.trace(model), folder / f"{model}.jsonl.gz"
        if not kept.exists() or kept.read_bytes() != now.read_bytes():
            shutil.copyfile(now, kept)


# Peers whose rule is no policy that could be replayed: who, what their plan is, what stands for it here.
PLANNED = [
    ("Checkmate (Jain et al. 2020)", "an integer program over the whole step, recomputation alone",
     "its program solved, for steps of up to 60 operators: [optimum.md](optimum.md). With T operators "
     "it has some T^2 / 2 columns of whole numbers; the steps above have 2,000 to 4,000 operators, "
     "which is more than was tried"),
    ("Beaumont et al. 2021", "an exact search for chains, recomputation and offloading",
     "the same integer program with copies, between two bounds: [optimum.md](optimum.md)"),
    ("Chameleon (2025)", "swapping, planned from the sequence of operators that eager mode was seen to run",
     "nothing: its plan is swapping from one observed step, for which `capuchin` is the nearest; "
     "sequences that change are in [adaptive.md](adaptive.md)"),
    ("torchtitan, two levels (2026)", "a linear program over layers, then one within a layer, of a "
     "compiled graph", "nothing: its plan is made from a compiled graph's layers, which a trace does "
     "not have"),
]


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
    try:
        digest = digests.recomputed_line(bench.build, ".", "paper")
    except digests.Missing as fault:
        raise Failed(str(fault)) from None
    return Section("Peers", [
        "What the paper cites, each as a policy of delta ([policies](../policies.md)): its rule, on "
        "the same manager, prices and copies. Time over unmanaged time at "
        + ", ".join(f"{100 * p:.0f}" for p in PARTS)
        + " % of the peak. `oom`: its rule does not bring an operator's tensors together; `thrash`: "
        "more than ten times the time.",
        table(["row", "policy", "rule", *MODELS], lines),
        "Peers that plan the whole step before it runs, by a solver, are no policy:",
        table(["who", "the plan", "here"], PLANNED),
        digest,
    ], data)
