#!/usr/bin/env python3
"""Are the results right on a GPU? Its tests, and training under budgets compared bit for bit with the
unmanaged run.

    python3 bench/gpu/right.py"""

import sys

from common import Failed, Part, Skipped, TooSmall, last_line, options, run, table

# The fake GPU's tests say the same on every machine: a few of their random programs are enough here.
# Not of those that run on the GPU itself, where more programs take longer.
SEEDS = "200"


def passes(o, command, limit, env=None):
    """Exit code 77 is a test that was left out, 3 delta-train's answer that a policy can't keep to a
    budget: no wrong results."""
    code, said = run(command, limit, {**o.env, **(env or {})})
    if code == 77:
        left_out = [line for line in said.splitlines() if line.startswith("SKIPPED")]
        raise Skipped(left_out[0] if left_out else "left out")
    if code == 3:
        raise TooSmall("the policy says that it can not keep to it")
    if code != 0:
        print(said)
        raise Failed(f"exit code {code}: {last_line(said)}")
    return {}


def checks(o):
    """Pairs of a row's name and what runs it, those first that only a GPU can answer."""
    def test(path):
        few = {} if path.name == "cuda_backend_test" else {"DELTA_TEST_SEEDS": SEEDS}
        return lambda limit: passes(o, [path], limit, few)

    def training(model, policy, percent):
        return lambda limit: passes(
            o, [o.bin / "delta-train", "--device", o.device, "--image", 64, "--batch", 16, "--lr",
                0.005, "--steps", 4, "--model", model, "--policy", policy, "--budget", f"{percent}%",
                "--verify"], limit)

    tests = sorted(p for kind in ("cuda", "gpu") for p in o.bin.glob(f"{kind}_*_test"))
    tests.sort(key=lambda p: p.name != "cuda_backend_test")
    rows = [(p.name, test(p)) for p in tests[:1]]
    for model in ("resnet20", "resnet50"):
        for policy, parts in (("adaptive", (80, 60, 40)), ("online", (80, 60, 40)),
                              ("dtr", (80, 60, 40)), ("paper", (80, 60))):
            rows += [(f"{model}, {policy}, {part} %, bit for bit", training(model, policy, part))
                     for part in parts]
    return rows + [(p.name, test(p)) for p in tests[1:]]


def result_table(part):
    def result(row):
        said = {"done": "passed", "failed": "FAILED"}.get(row["status"], row["status"])
        return said + (f": {row['line']}" if row.get("line") else "")
    return [table(["check", "result"], [[name, result(row)] for name, row in part.rows.items()])]


def main():
    o = options(__doc__, row_seconds=120)
    sys.exit(Part(o, "right", "Right on a GPU", result_table, True).run(checks(o)))


if __name__ == "__main__":
    main()
