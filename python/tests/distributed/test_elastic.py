"""A rank that is killed: torchrun starts all anew, from a checkpoint, to the same bits."""

from __future__ import annotations

from pathlib import Path

from launched import HERE, torchrun
from elastic_training import KILLED_AT


def _trained(folder: Path, kind: str, restarts: int) -> list[str]:
    result = folder / kind
    torchrun(
        f"--max-restarts={restarts}",
        HERE / "elastic_training.py",
        folder / f"{kind}.pt",
        result,
        kind,
    )
    return result.read_text().split()


def test_the_same_bits(group_support, tmp_path: Path) -> None:
    bits, attempt, first, _ = _trained(tmp_path, "plain", 0)
    assert (attempt, first) == ("0", "0")
    again, attempt, first, left = _trained(tmp_path, "killed", 1)
    assert (attempt, first) == ("1", str(KILLED_AT)), "it was not killed, or not gone on with"
    assert again == bits
    assert int(left) > 0, "nothing has left"
