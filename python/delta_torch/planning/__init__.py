"""What a training step would take on a machine, and under which budget, without that machine."""

from .machines import Machine, machines
from .plan import plan
from .plans import BatchPlan, Plan, Point
from .record import record
from .recording import Recording

__all__ = [
    "BatchPlan",
    "Machine",
    "Plan",
    "Point",
    "Recording",
    "machines",
    "plan",
    "record",
]
