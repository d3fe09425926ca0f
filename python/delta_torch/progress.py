"""Says what is being done where that takes a while."""

from __future__ import annotations

import logging
import sys

from . import group

_log = logging.getLogger("delta_torch")


def tell(text: str) -> None:
    """One line: on stderr where that is a terminal, else in the log "delta_torch", as INFO.

    Of several processes that train together the first one alone says it.
    """
    if group.rank():
        return
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"delta: {text}", file=sys.stderr, flush=True)
    else:
        _log.info("%s", text)
