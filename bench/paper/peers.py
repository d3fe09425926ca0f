"""Published peers on one page: each a policy, on all models."""

from page import SIMULATED, Section, table
from workbench import MODELS, overhead

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


def section(bench, out):
    lines, data = [], {}
    found = {m: bench.replays(bench.trace(m), PEERS, PARTS) for m in MODELS}
    for policy, name in PEERS.items():
        cells = []
        for model in MODELS:
            cells.append(" / ".join(overhead(found[model][policy, p]) for p in PARTS))
            data.setdefault(policy, {})[model] = cells[-1]
        lines.append([SIMULATED, name, f"`{policy}`", *cells])
    bounds = []
    for model in MODELS:
        rows = [found[model]["paper", p]["bound_overhead"] for p in PARTS]
        bounds.append(" / ".join("-" if b is None else f"{b:.3f}" for b in rows))
    lines.append([SIMULATED, "lower bound", "", *bounds])
    return Section("Peers", [
        "What the paper cites, each as a policy of delta ([policies](../policies.md)): its rule, on "
        "the same manager, prices and copies. Time over unmanaged time at "
        + ", ".join(f"{100 * p:.0f}" for p in PARTS)
        + " % of the peak. `oom`: its rule does not bring an operator's tensors together; `thrash`: "
        "more than ten times the time.",
        table(["row", "rule", "policy", *MODELS], lines),
    ], data)
