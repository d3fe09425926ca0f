"""What reversing a uniform chain takes, in closed form: Griewank and Walther's binomial rule (2000).

With s checkpoints, the chain's input among them, n steps are reversed with at least
t(n, s) = r n - C(s + r, s + 1) runs of a step, where C(s + r - 1, s) < n <= C(s + r, s).
"""

from math import comb

from program import Operator, Program


def forward_runs(steps, checkpoints):
    """t(n, s)."""
    r = 0
    while comb(checkpoints + r, checkpoints) < steps:
        r += 1
    return r * steps - comb(checkpoints + r, checkpoints + 1)


def uniform_chain(steps):
    """A chain on which t(n, s) is exact for a budget of s + 1 units: a step takes its input and its
    output, reversing one takes its input and as much workspace; gradients take no bytes, and the
    last step is reversed without having run. A step costs 1, reversing one nothing that counts:
    `steps` ones that are never worth running again."""
    p = Program(f"uniform chain of {steps}")
    unit = 1000
    for i in range(steps - 1):
        p.operators.append(Operator(f"step {i + 1}", 1, [i - 1] if i else [], [i]))
        p.sizes.append(unit)
        p.makers.append(i)
    gradient = None
    for i in range(steps, 0, -1):
        reads = ([i - 2] if i > 1 else []) + ([gradient] if gradient is not None else [])
        p.operators.append(Operator(f"reverse {i}", steps**2, reads, [len(p.sizes)], unit,
                                    len(p.operators)))
        gradient = len(p.sizes)
        p.sizes.append(0)
        p.makers.append(len(p.operators) - 1)
    return p, unit
