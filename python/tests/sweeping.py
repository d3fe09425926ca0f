"""What the sweep's children do: all cases of an operator, a module or an optimizer, each way."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable

import torch

import module_cases
import operator_cases
from compared import Way, compare, in_a_line, same_twice
from forked import Say
from operator_exceptions import WITHOUT_CONTENTS, reason_for

WAYS = (Way("dtr", 0), Way("swap_lru", "1GiB"))
SHOWN = 3  # failures of a variant under a policy; more are counted

_tables = {
    "operators": (operator_cases.operators(), operator_cases.cases_of),
    "references": (operator_cases.operators(references=True), operator_cases.cases_of),
    "modules": (module_cases.modules(), module_cases.cases_of_module),
    "optimizers": (module_cases.optimizers(), module_cases.cases_of_optimizer),
}
_found = {
    name: (info, cases) for table, cases in _tables.values() for name, info in table.items()
}


def names_of(chunk: str, kinds: dict[str, int]) -> list[str]:
    """Those of a chunk, `modules-02`: every so-manieth, so that they take as long as others."""
    kind, _, number = chunk.partition("-")
    return list(_tables[kind][0])[int(number) :: kinds[kind]]


def job(everything: bool, times: bool) -> Callable[[str, Say, Say], None]:
    def run(name: str, at: Say, fails: Say) -> None:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        info, cases = _found[name]
        began, failed = time.process_time(), Counter[tuple[str, Way]]()
        at("samples")
        for case in cases(info, everything):
            at(f"{case.what}: without delta_torch")
            reason = reason_for(name, case.what)
            contents = reason is not WITHOUT_CONTENTS
            if reason is not None and contents:
                continue
            right, nondeterministic = same_twice(case.program, contents)
            if right.error is not None and case.works:
                error = in_a_line(right.error)
                fails(f"{name}: {case.what}: not even without delta_torch: {error}")
                continue
            if nondeterministic is not None:
                fails(f"{name}: {case.what}: not the same twice without it: {nondeterministic}")
                continue
            for way in WAYS:
                for one in (way, Way(way.policy, way.host, True)) if case.resident else (way,):
                    at(f"{case.what}: {one}")
                    wrong = compare(right, case.program, one, contents)
                    if wrong is None:
                        continue
                    kind = case.what.partition("sample")[2].lstrip(" 0123456789"), one
                    failed[kind] += 1
                    if failed[kind] <= SHOWN:
                        fails(f"{name}: {case.what}: {one}: {wrong}")
        for (variant, one), count in failed.items():
            if count > SHOWN:
                fails(f"{name}: {variant}: {one}: and {count - SHOWN} more")
        if times:
            fails(f"{time.process_time() - began:8.2f} s {name}")

    return run
