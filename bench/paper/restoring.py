"""Reload or recompute first what was offloaded: the paper's question to Capuchin."""

import re
import subprocess

from page import PUBLISHED, SIMULATED, Section, table
from workbench import MODELS, Failed

PARTS = (0.6, 0.4, 0.3)


def section(bench, out):
    program = bench.build / "bin" / "paper_pieces"
    if not program.exists():
        raise Failed(f"no {program}; build it first")
    traces = [str(bench.trace(m)) for m in MODELS]
    parts = ",".join(map(str, PARTS))

    def run():
        done = subprocess.run([program, "--restore", parts, *traces], capture_output=True,
                              encoding="utf-8")
        if done.returncode != 0:
            raise Failed(done.stderr.strip())
        return [re.split(r"\s*\t\s*", line) for line in done.stdout.strip().splitlines()]

    from workbench import stamp

    rows = bench.kept(["restore", parts, [stamp(bench.trace(m)) for m in MODELS],
                       program.stat().st_mtime_ns], run)
    lines = [[PUBLISHED, "recompute first, by c_s and c_r of six tensors", *["-"] * len(MODELS)]]
    lines += [[SIMULATED, name, *cells] for name, *cells in rows]
    return Section("Reload or recompute first?", [
        "The paper recomputes what it offloaded wherever that can be recomputed, against Capuchin, "
        "which reloads. Here is the paper's policy with either, and with whichever is cheaper then, "
        "by measured costs and the queue of copies. Time over unmanaged time at "
        + ", ".join(f"{100 * p:.0f}" for p in PARTS) + " % of the peak. At these prices hardly anything "
        "is offloaded under the paper's rule, as nearly every operator is cheaper than its copies: so "
        "the question decides next to nothing.",
        table(["row", "what comes back how", *MODELS], lines),
    ], {name: cells for name, *cells in rows})
