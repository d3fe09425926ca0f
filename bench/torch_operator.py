#!/usr/bin/env python3
"""Times PyTorch's smallest operators: what an operator costs before it does anything.

    python3 bench/torch_operator.py

Prints one JSON object. Times are ns per torch.add, out of place, of two float32 tensors of four
elements on the CPU: one thread, no gradients, the median of the repeats.
Times are the processor's, so that what else runs on the machine counts little.
  eager    called from Python, so a call through Python's bindings is in it (the loop's own turn is
           taken off)
  script   the adds in a loop within torch.jit.script: the interpreter that PyTorch uses then, its
           dispatcher and the operator, but no Python
Without PyTorch it says so, in one line, and that is no error.
"""

import json
import statistics
import sys
import time
import timeit
import warnings

try:
    import torch
except ImportError:
    print("not measured: no PyTorch")
    sys.exit(0)

CALLS = 100_000
REPEATS = 9


def repeated_adds(a, b, n: int):
    for _ in range(n):
        torch.add(a, b)


def scripted_adds(a: "torch.Tensor", b: "torch.Tensor", n: int) -> "torch.Tensor":
    # Four adds in turn, each of which the last depends on: an add that nobody uses would be left
    # out, and the loop's own part should be small.
    c = a
    for _ in range(n // 4):
        c = torch.add(torch.add(torch.add(torch.add(c, b), b), b), b)
    return c


def median_ns(call):
    """Per add, over repeats of one loop each, after one to warm up."""
    call()
    return statistics.median(timeit.repeat(
        call, timer=time.process_time, number=1, repeat=REPEATS)) * 1e9 / CALLS


def main():
    torch.set_num_threads(1)
    a, b = torch.ones(4), torch.full((4,), 0.5)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions advise against scripts
        def turns():
            for _ in range(CALLS):
                pass
        found = {"torch": torch.__version__.split("+")[0], "calls": CALLS, "repeats": REPEATS,
                 "eager_ns": median_ns(lambda: repeated_adds(a, b, CALLS)) - median_ns(turns)}
        try:
            scripted = torch.jit.script(scripted_adds)
            scripted(a, b, CALLS)  # compiled on the first calls
            found["script_ns"] = median_ns(lambda: scripted(a, b, CALLS))
        except Exception as error:  # a version without scripts
            found["script_ns"], found["script"] = None, f"not measured: {type(error).__name__}"
    print(json.dumps(found))


if __name__ == "__main__":
    main()
