"""The sweep: PyTorch's own databases of operators, modules and optimizers, under forced eviction.

Every result, gradient, stride and state of the generator has the bits that it has without
delta_torch, however the operator is called; see operator_cases.py and compared.py. There is no
tolerance: what cannot be compared is on a list, with the reason (operator_exceptions.py).

    python test_operators.py --only nn.functional.ctc_loss      # those with that in their name
    python test_operators.py --all                              # many samples of each, more types
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

import forked

CHUNKS = 20  # some 40 operators each
KINDS = {"operators": CHUNKS, "modules": 3, "optimizers": 1, "references": CHUNKS // 2}
ALL_ONLY = ("references",)
IDS = [f"{kind}-{number:02}" for kind, count in KINDS.items() for number in range(count)]


class Sweep:
    """The server, and what it has said so far. Its chunks run two at a time."""

    def __init__(self, chunks: list[str], everything: bool) -> None:
        command = [sys.executable, "-W", "ignore", __file__, "--serve", *chunks]
        if everything:
            command.append("--all")
        self._server = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **forked.POISON}
        )
        self._failures: dict[str, list[str]] = defaultdict(list)
        self._done: set[str] = set()

    def failures_of(self, chunk: str) -> list[str]:
        """Waits until the chunk is done."""
        assert self._server.stdout is not None
        while chunk not in self._done:
            line = self._server.stdout.readline()
            assert line, f"the server has ended with {self._server.wait()}"
            which, _, failure = line.rstrip("\n").partition("\t")
            if failure:
                self._failures[which].append(failure)
            else:
                self._done.add(which)
        return self._failures[chunk]

    def end(self) -> None:
        self._server.kill()
        self._server.wait()


@pytest.fixture(scope="module")
def sweep(request: pytest.FixtureRequest):
    everything = request.config.getoption("--all")
    chosen = [
        item.callspec.params["chunk"]
        for item in request.session.items
        if item.path == Path(__file__) and hasattr(item, "callspec")
    ]
    started = Sweep([c for c in chosen if everything or not c.startswith(ALL_ONLY)], everything)
    yield started
    started.end()


@pytest.mark.parametrize(
    "chunk",
    [pytest.param(c, marks=pytest.mark.long) if c.startswith(ALL_ONLY) else c for c in IDS],
)
def test_the_same_bits(sweep: Sweep, chunk: str) -> None:
    failures = sweep.failures_of(chunk)
    assert not failures, "\n" + "\n".join(failures)


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--serve", nargs="*", metavar="CHUNK", help="what the tests start")
    parser.add_argument("--all", action="store_true", help="many samples, and other types")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--times", action="store_true", help="which took longest")
    arguments = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in forked.POISON.items()):
        os.execve(sys.executable, [sys.executable, "-W", "ignore", *sys.argv],
                  {**os.environ, **forked.POISON})

    import sweeping

    serving = arguments.serve is not None
    chunks = {c: sweeping.names_of(c, KINDS) for c in (arguments.serve if serving else IDS)}
    if arguments.only:
        chunks = {c: [n for n in names if any(only in n for only in arguments.only)]
                  for c, names in chunks.items()}
    elif not (serving or arguments.all):
        chunks = {c: names for c, names in chunks.items() if not c.startswith(ALL_ONLY)}
    job = sweeping.job(arguments.all, arguments.times)
    began, failures, left = time.monotonic(), 0, len(chunks)
    for chunk, failure in forked.run_chunks({c: n for c, n in chunks.items() if n or serving}, job):
        if serving:
            print(f"{chunk}\t{failure}", flush=True)
        elif failure:
            failures += 1
            print(failure, flush=True)
        else:
            left -= 1
            print(f"# {chunk} done, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    if not serving:
        print(f"# {failures} failures, {time.monotonic() - began:.0f} s")
    return 1 if failures and not serving else 0


if __name__ == "__main__":
    sys.exit(_main())
