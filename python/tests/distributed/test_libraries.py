"""Training libraries on two ranks under a budget: the bits of the same ranks without one."""

from __future__ import annotations

import pytest
from test_ddp import shares

pytestmark = pytest.mark.long


@pytest.mark.parametrize("case", ["trainer", "accelerated"])
@pytest.mark.parametrize(("share", "host"), [("90%", 0), ("60%", "1GiB"), ("45%", "1GiB")])
def test_same_bits(ranks, case: str, share: str, host: int | str) -> None:
    pytest.importorskip("transformers" if case == "trainer" else "accelerate")
    got = ranks.same(f"library_cases.{case}", shares(share, "online", host))
    assert any(b["left"] > 0 for b in got), "nothing has left"
