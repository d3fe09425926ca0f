"""What goes wrong on one rank ends all, with a sentence that names the first one and its reason."""

from __future__ import annotations

import random

import pytest
from failure_cases import ACTS, PLACES, STEPS
from launched import Ranks

SEED = 20261126
TIMEOUT_S = 3.0  # of the group
REASONS = {
    "raise": "ValueError: injected",
    "memory": "OutOfMemoryError: delta: out of memory. rank",
    "kill": "no answer: the process has ended or was killed",
    "slow": "late: ",
    "abort": "delta: out of memory. rank",
}


def cases(count: int) -> list[dict]:
    """Each place and each act as often as the others."""
    chance = random.Random(SEED)
    made = []
    for i in range(count):
        world = chance.choice([2, 2, 2, 3])
        made.append(
            {
                "world": world,
                "act": ACTS[i % len(ACTS)],
                "place": PLACES[(i + 2 * (i // len(ACTS))) % len(PLACES)],
                "at": chance.randrange(STEPS),
                "who": chance.randrange(world),
                "policy": chance.choice(["dtr", "online", "adaptive"]),
                "host": chance.choice([0, "1GiB"]),
            }
        )
    return made


def check(case: dict) -> str:
    """Runs a case; what is wrong with how it ended, or nothing. A rank that goes on for long after
    another one has failed hangs, by Ranks."""
    arguments = dict(case)
    group = Ranks(arguments.pop("world"), TIMEOUT_S)
    try:
        answers = group.try_to_run("failure_cases.trains", **arguments)
    finally:
        group.end()
    act, who = case["act"], case["who"]
    for rank, answer in enumerate(answers):
        if rank == who and act in ("kill", "abort"):
            right = "ended with -9" if act == "kill" else "ended with 1"
            if right not in answer.get("error", ""):
                return f"rank {rank}: {answer}"
            continue
        said = answer.get("trace", answer.get("error", "it has no error"))
        named = f"delta: rank {rank} of {case['world']}: rank {who} failed first: {REASONS[act]}"
        if named not in said:
            return f"rank {rank}, which says not '{named}': {said}"
    return ""


@pytest.mark.parametrize("case", cases(5), ids=lambda c: f"{c['act']}-{c['place']}")
def test_a_failing_rank(group_support, case: dict) -> None:
    if said := check(case):
        pytest.fail(f"{case}\n{said}")


@pytest.mark.long
def test_a_hundred_failures(group_support) -> None:
    print(f"seed {SEED}")
    wrong = [f"{case}\n{said}" for case in cases(100) if (said := check(case))]
    assert not wrong, "\n\n".join(wrong)
