"""The version of this package, which is delta's: its header has the numbers, and no other file."""

from __future__ import annotations

import re
from pathlib import Path


def _from_header() -> str:
    text = (Path(__file__).parent / "include/delta/version.hpp").read_text(encoding="utf-8")
    numbers = dict(re.findall(r"#define DELTA_VERSION_(MAJOR|MINOR|PATCH) (\d+)", text))
    return ".".join(numbers[part] for part in ("MAJOR", "MINOR", "PATCH"))


__version__ = _from_header()
