"""Amounts of memory as people write them, "4GiB" or "40%", as bytes or as a share of a peak."""

from __future__ import annotations

import math
import numbers
import operator
import re
from dataclasses import dataclass

# Both kinds of units: a GB is 10^9 bytes, a GiB is 2^30.
_UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_WITH_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-z]+|%)\s*", re.IGNORECASE)
AUTO = "auto"
# More than this is a mistake: no machine has it.
_LARGEST = 2**46


@dataclass(frozen=True)
class Share:
    """A part of the memory that the same steps take without a budget: above 0, at most 1."""

    of_peak: float

    def bytes_of(self, peak: int) -> int:
        """This share of a peak, in bytes, rounded down."""
        return int(peak * self.of_peak)


def parse_budget(value: object) -> int | Share:
    """A budget: bytes, or a share of the peak.

    Bytes are a whole number (123456) or a text with a unit ("4GiB", "1.5 GB"). A share is a float
    above 0 and at most 1, or a text with a percent sign ("40%"). Raises ValueError for all else.
    """
    if isinstance(value, str):
        number, unit = _split(value, "a budget")
        return _share(number / 100, value) if unit == "%" else _bytes(number, unit, value)
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        return _share(float(value), value)
    return _whole(value, "a budget", lowest=1)


def parse_host(value: object) -> int | None:
    """How much memory on the host tensors may be copied out to, in bytes; 0 for none.

    Written as a budget is, but not as a share; None: "auto". Raises ValueError for all else.
    """
    if value == AUTO:
        return None
    if isinstance(value, str):
        number, unit = _split(value, "host memory")
        if unit == "%":
            raise ValueError(f"host memory is bytes, such as '16GiB', and no share: not {value!r}")
        return _bytes(number, unit, value, lowest=0)
    return _whole(value, "host memory", lowest=0)


def format_bytes(count: int | float) -> str:
    """Bytes for people: "3.2 GiB", "0 B"."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            break
        size /= 1024
    else:
        unit = "TiB"
    if unit == "B":
        return f"{size:.0f} B"
    return f"{size:.0f} {unit}" if abs(size) >= 100 else f"{size:.1f} {unit}"


def _split(text: str, what: str) -> tuple[float, str]:
    match = _WITH_UNIT.fullmatch(text)
    if not match or (match[2] != "%" and match[2].lower() not in _UNITS):
        raise ValueError(
            f"{what} is a number with a unit of B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, "
            f"such as '4GiB': not {text!r}"
        )
    return float(match[1]), match[2]


def _bytes(number: float, unit: str, value: object, *, lowest: int = 1) -> int:
    return _within(int(number * _UNITS[unit.lower()]), value, lowest)


def _whole(value: object, what: str, *, lowest: int) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        count = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        share = " or a share, such as 0.4," if lowest else ""
        raise ValueError(
            f"{what} is a whole number of bytes,{share} or a text such as '4GiB': not {value!r}"
        ) from None
    return _within(count, value, lowest)


def _within(count: int, value: object, lowest: int) -> int:
    if count < lowest:
        raise ValueError(f"memory is {lowest} byte{'s' * (lowest != 1)} or more: not {value!r}")
    if count > _LARGEST:
        raise ValueError(f"{value!r} is more than 64 TiB, which is the most that can be asked for")
    return count


def _share(share: float, value: object) -> Share:
    if not math.isfinite(share) or not 0 < share <= 1:
        raise ValueError(
            "a budget as a share is above 0 and at most 1 (100%), and one in bytes is a whole "
            f"number: not {value!r}"
        )
    return Share(share)
