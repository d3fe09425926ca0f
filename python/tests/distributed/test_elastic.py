"""A rank that is killed: torchrun starts all anew, from a checkpoint, to the same bits."""

from __future__ import annotations

from pathlib import Path

from elastic_training import KILLED_AT
from launched import HERE, torchrun


def test_the_same_bits(ranks, tmp_path: Path) -> None:
    plain, result = str(tmp_path / "plain.pt"), tmp_path / "result"
    bits, first = ranks.run("elastic_training.trained", checkpoint=plain)[0].split()
    assert first == "0"
    program = HERE / "elastic_training.py"
    torchrun("--max-restarts=1", program, tmp_path / "killed.pt", result)
    again, first, attempt, left = result.read_text().split()
    assert (attempt, first) == ("1", str(KILLED_AT)), "it was not killed, or not gone on with"
    assert again == bits
    assert int(left) > 0, "nothing has left"
