"""PyTorch's higher-order operators within a run: flex_attention, cond, while_loop, scan, map.

They take functions, so a run can't see them as one operator. Its dispatch keys are passed over by
them, as PyTorch's own default keys are, and the operators that they call are managed one by one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import _ops

from . import _C


def pass_through() -> None:
    """Lets every higher-order operator, those that are made later too, pass over a run's keys.

    Holds for good: without a run no tensor or thread has these keys.
    """
    known: dict[str, Any] = getattr(_ops, "_higher_order_ops", {})
    defaults: list[Any] = getattr(_ops, "_HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS", [])
    for number in _C.keys():
        key = torch._C.DispatchKey(number)
        if key in defaults:
            continue
        defaults.append(key)
        for operator in known.values():
            operator.fallthrough(key)
