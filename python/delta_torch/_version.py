"""The version of this package, which is delta's: its header has the numbers, and no other file; and
the version of PyTorch that the package's extension was built for."""

from __future__ import annotations

import re
from pathlib import Path

import torch


def _from_header() -> str:
    text = (Path(__file__).parent / "include/delta/version.hpp").read_text(encoding="utf-8")
    numbers = dict(re.findall(r"#define DELTA_VERSION_(MAJOR|MINOR|PATCH) (\d+)", text))
    return ".".join(numbers[part] for part in ("MAJOR", "MINOR", "PATCH"))


__version__ = _from_header()


def check_torch() -> None:
    """Raises ImportError where PyTorch is another one than the extension was built for."""
    from ._built_for import TORCH

    found = re.match(r"\d+\.\d+", torch.__version__)
    if found is None or found[0] != TORCH:
        raise ImportError(
            f"this delta_torch {__version__} was built for PyTorch {TORCH}, and PyTorch "
            f"{torch.__version__} is installed: install delta_torch for that one, or build it again "
            "beside it by pip install --no-build-isolation --no-deps --force-reinstall, from its "
            "sources"
        )
