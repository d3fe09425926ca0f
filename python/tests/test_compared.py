"""What the sweep and the random programs rely on: eviction, comparison, children that crash."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
import torch

import forked
from away import is_away
from bits import bits_of, difference
from compared import Way, compare, same_twice, without
from delta_torch import _C
from inputs import Inputs

WAYS = (Way("dtr", 0), Way("swap_lru", "1GiB"))

Out = Callable[[], None]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_all_is_driven_out(way: Way) -> None:
    seen = []

    def program(out: Out) -> Any:
        inputs = Inputs()
        x = inputs.of(torch.randn(8, 9, requires_grad=True))
        y = x.sin() * 2
        out()
        if _C.active():
            seen.extend(map(is_away, (x, y)))
        return x, y

    assert compare(without(program), program, way) is None
    assert seen == [True, True]


def test_inputs_lie_as_they_did() -> None:
    base = torch.arange(24.0).reshape(4, 6)
    given = [base.t()[1:], base[:, ::2], torch.ones(1).expand(3), torch.zeros(0, 2), base[0, 3]]
    for apart in (False, True):
        inputs = Inputs(apart)
        made = inputs.of([*given, given[0], slice(given[4], None)])
        assert made[5] is made[0] and made[6].start is made[4]
        for t, copy in zip(given, made[:5], strict=True):
            assert torch.equal(t, copy) and t.data_ptr() != copy.data_ptr() or not t.numel()
            if not apart and t.numel():
                assert copy.stride() == t.stride()
                assert copy.storage_offset() == t.storage_offset()


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (lambda: torch.full((5,), -0.0 if _C.active() else 0.0), "5 of 5, at 0 -0.0 for 0.0"),
        (lambda: torch.zeros(3, 2).t() if _C.active() else torch.zeros(2, 3), "strides"),
        (lambda: torch.rand(2)[:0] if _C.active() else torch.zeros(0), "generator"),
        (lambda: torch.zeros(2 + _C.active()), "float32 [3]"),
        (lambda: 1 / (1 - _C.active()), "error: ZeroDivisionError"),
        (lambda: 1 / _C.active(), "no error for ZeroDivisionError"),
        (lambda: [1] * (1 + _C.active()), "2 results for 1"),
    ],
)
def test_differences_are_seen(what: Callable[[], Any], expected: str, way: Way) -> None:
    found = compare(without(lambda _: what()), lambda _: what(), way)
    assert found is not None and expected in found


def test_the_same_nan_is_the_same() -> None:
    nan = torch.tensor([float("nan"), 1.0])
    assert difference(bits_of(nan), bits_of(nan.clone())) is None


def test_what_is_not_the_same_twice() -> None:
    calls = iter(range(9))
    assert same_twice(lambda _: torch.tensor(next(calls)))[1] is not None
    assert same_twice(lambda _: torch.rand(3))[1] is None


def test_a_larger_budget_is_tried() -> None:
    def program(out: Out) -> Any:
        return torch.ones(2**20).sin()

    assert compare(without(program), program, WAYS[0]) is None


def test_a_crash_is_the_failure_of_its_job() -> None:
    def job(name: str, at: forked.Say, fails: forked.Say) -> None:
        at(f"{name} begins")
        if name == "crash":
            ctypes.string_at(0)
        if name == "raise":
            raise ValueError(name)
        if name == "fail":
            fails(f"{name} fails")

    chunks = {"one": ["fine", "crash", "fail"], "two": ["raise", "fine"], "three": []}
    said = list(forked.run_chunks(chunks, job))
    assert {chunk for chunk, failure in said if not failure} == set(chunks)
    failures = sorted(failure for _, failure in said if failure)
    assert len(failures) == 3
    assert failures[0].startswith("crash: crash begins: CRASH SIGSEGV")
    assert failures[1] == "fail fails"
    assert "ValueError: raise" in failures[2]
