#!/usr/bin/env python3
"""Makes docs/results/paper.md: every table and figure of the DELTA paper, as published and as delta
has it, each row measured, simulated or not run.

    ./run.sh paper [--only NAME,...] [--device cpu|simulated|cuda] [--out DIR]

measured     on this machine's CPU, small sizes
simulated    the paper's sizes: steps of PyTorch's models on fake tensors, priced by the roofline of
             an A100 with 80 GB and copies at 22.4 GB/s each way, replayed by delta's policies
not run      with the line that runs it
"""

import argparse
import importlib
import pathlib
import sys

from page import write
from workbench import ROOT, Failed, Workbench, say

ORDER = ["reality", "memory", "models", "max_batch", "devices", "overlap", "costs", "convergence", "filters",
         "peers", "curves"]
HEAD = """# The paper's evidence

Every table and figure of the DELTA paper (Tang et al. 2022), as published and as delta has it.
`./run.sh paper` makes this page anew, and writes what it is made from to build/results, with curves of time by
budget, losses and timelines. Rows of the kinds below are never mixed:

| row | what it is |
|---|---|
| paper | as published: an A100 with 80 GB, within its own framework |
| simulated | the paper's sizes: a step of PyTorch's model, recorded on fake tensors at that batch, priced in float32 by the roofline of an A100-80 ([planning](../planning.md#what-the-prices-assume)), copies at 22.4 GB/s each way, replayed by delta's own policies in virtual time; the last of four steps |
| measured | run on a CPU of two cores, small sizes |
| not run | with the line that runs it |

"""


def main():
    parser = argparse.ArgumentParser(prog="./run.sh paper", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(ORDER),
                        help="sections, of: " + ", ".join(ORDER))
    parser.add_argument("--device", choices=("cpu", "simulated", "cuda"), default="cpu",
                        help="where what is measured runs (default cpu); simulated: nowhere, these "
                        "rows say so")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/results")
    flags = parser.parse_args()
    names = flags.only.split(",")
    for name in names:
        if name not in ORDER:
            parser.error(f"--only: no section {name!r}; allowed: {', '.join(ORDER)}")
    flags.out.mkdir(parents=True, exist_ok=True)
    try:
        bench = Workbench(flags.build, ROOT / "build/paper", flags.device)
        for name in sorted(names, key=ORDER.index):
            say(f"section {name}")
            write(flags.out, HEAD, ORDER, name, importlib.import_module(name).section(bench, flags.out))
    except Failed as fault:
        say(str(fault))
        sys.exit(1)
    say(f"wrote {flags.out / 'paper.md'}")


if __name__ == "__main__":
    main()
