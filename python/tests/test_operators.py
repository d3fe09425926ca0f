"""The sweep: PyTorch's own databases of operators, modules and optimizers, under forced eviction.

Every result, gradient, stride and state of the generator has the bits that it has without
delta_torch, however the operator is called; see operator_cases.py and compared.py. There is no
tolerance: what cannot be compared is on a list, with the reason (operator_exceptions.py).

    python test_operators.py --only nn.functional.ctc_loss      # those with that in their name
    python test_operators.py --all                              # many samples of each, more types
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

import forked

CHUNKS = 20  # some 40 operators each
KINDS = {"operators": CHUNKS, "modules": 3, "optimizers": 1, "references": CHUNKS // 2}
ALL_ONLY = ("references",)
IDS = [f"{kind}-{number:02}" for kind, count in KINDS.items() for number in range(count)]


@pytest.fixture(scope="module")
def sweep(request: pytest.FixtureRequest):
    everything = request.config.getoption("--all")
    chosen = [
        item.callspec.params["chunk"]
        for item in request.session.items
        if item.path == Path(__file__) and hasattr(item, "callspec")
    ]
    chosen = [c for c in chosen if everything or not c.startswith(ALL_ONLY)]
    started = forked.Server(__file__, chosen, *(["--all"] if everything else []))
    yield started
    started.end()


@pytest.mark.parametrize(
    "chunk",
    [pytest.param(c, marks=pytest.mark.long) if c.startswith(ALL_ONLY) else c for c in IDS],
)
def test_the_same_bits(sweep: forked.Server, chunk: str) -> None:
    failures = sweep.failures_of(chunk)
    assert not failures, "\n" + "\n".join(failures)


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--serve", nargs="*", metavar="CHUNK", help="what the tests start")
    parser.add_argument("--all", action="store_true", help="many samples, and other types")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--times", action="store_true", help="which took longest")
    arguments = parser.parse_args()
    forked.be_poisoned()
    import sweeping  # it takes PyTorch's databases seconds

    job = sweeping.job(arguments.all, arguments.times)
    if arguments.serve is not None:
        forked.serve({c: sweeping.names_of(c, KINDS) for c in arguments.serve}, job)
        return 0
    chunks = {
        c: [
            name
            for name in sweeping.names_of(c, KINDS)
            if not arguments.only or any(only in name for only in arguments.only)
        ]
        for c in IDS
        if arguments.all or arguments.only or not c.startswith(ALL_ONLY)
    }
    return 1 if forked.tell({c: names for c, names in chunks.items() if names}, job) else 0


if __name__ == "__main__":
    sys.exit(_main())
