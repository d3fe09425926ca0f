"""Random programs of PyTorch's eager mode, with and without a run, compared bit for bit.

    python test_random_programs.py 17 42         # the programs of these seeds, shrunk where they fail
"""

from __future__ import annotations

import argparse
import sys
import warnings

import pytest
import torch

import forked
import random_programs
from compared import Way, compare, same_twice
from random_programs import Instruction, made, program_of, shrunk

FEW, MANY = 100, 2000
CHUNKS = [f"programs-{n}" for n in range(8)]
WAYS = (Way("dtr", 0), Way("swap_lru", "1GiB"), Way("online", "1GiB"), Way("adaptive", "1GiB"))


def wrong_with(instructions: list[Instruction], way: Way) -> str | None:
    program = program_of(instructions)
    right, otherwise = same_twice(program)
    assert otherwise is None, f"not the same twice without delta_torch: {otherwise}"
    return compare(right, program, way)


def ways_of(seed: int) -> tuple[Way, Way]:
    """Of dropping and of copying out, one each."""
    return WAYS[0], WAYS[1 + seed % 3]


def check(seed: str, at: forked.Say, fails: forked.Say) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    instructions = made(int(seed))
    for way in ways_of(int(seed)):
        at(str(way))
        if wrong_with(instructions, way) is None:
            continue
        at(f"{way}, shrinking")
        fewer = shrunk(instructions, lambda some: wrong_with(some, way) is not None)
        steps = " ".join(map(str, fewer))
        fails(f"seed {seed}: {way}: {wrong_with(fewer, way)}: {steps}")


@pytest.fixture(scope="module")
def programs(request: pytest.FixtureRequest):
    many = request.config.getoption("--all")
    started = forked.Server(__file__, CHUNKS, *(["--all"] if many else []))
    yield started
    started.end()


@pytest.mark.parametrize("chunk", CHUNKS)
def test_random_programs(programs: forked.Server, chunk: str) -> None:
    failures = programs.failures_of(chunk)
    assert not failures, "\n" + "\n".join(failures)


def test_shrinking_leaves_what_fails() -> None:
    instructions = made(3)
    last = instructions[-1]
    assert shrunk(instructions, lambda some: last in some) == [last]


def test_a_program_is_its_seed() -> None:
    assert made(7) == made(7) != made(8)
    assert {i.name for seed in range(50) for i in made(seed)} == set(random_programs.STEPS)


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("seeds", nargs="*", help="none: all of them")
    parser.add_argument("--serve", nargs="*", metavar="CHUNK", help="what the tests start")
    parser.add_argument("--all", action="store_true", help=f"{MANY} programs, not {FEW}")
    parser.add_argument("--without", action="append", default=[], metavar="INSTRUCTION")
    arguments = parser.parse_args()
    forked.be_poisoned()
    count = MANY if arguments.all else FEW
    seeds = {
        c: list(map(str, range(n, count, len(CHUNKS)))) for n, c in enumerate(CHUNKS)
    }
    if arguments.serve is not None:
        forked.serve({c: seeds[c] for c in arguments.serve}, check)
        return 0
    for name in arguments.without:
        del random_programs.STEPS[name]
    seeds = {"seeds": arguments.seeds} if arguments.seeds else seeds
    return 1 if forked.tell(seeds, check) else 0


if __name__ == "__main__":
    sys.exit(_main())
