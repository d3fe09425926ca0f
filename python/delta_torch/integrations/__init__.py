"""What puts a run into the loops of training libraries: a module each, imported only by name.

    from delta_torch.integrations.transformers import BudgetCallback
    from delta_torch.integrations.lightning import BudgetCallback
    from delta_torch.integrations.accelerate import budget
"""

from __future__ import annotations

from ..run import Run

_LOGGED = ("budget_bytes", "peak_bytes", "host_bytes", "evictions", "offloads", "recomputes")


def logged(run: Run) -> dict[str, int | float]:
    """The numbers of a run that go to a library's logs: delta/peak_bytes and others, of Report."""
    stats = run.stats()
    return {f"delta/{name}": stats[name] for name in _LOGGED if name in stats}
