"""What a training step would take on a machine, and under which budget, without that machine."""

from .compare import Comparison, compare_policies
from .machines import Machine, machines
from .plan import plan
from .plans import BatchPlan, Plan, Point
from .record import record
from .recording import Recording

__all__ = [
    "BatchPlan",
    "Comparison",
    "Machine",
    "Plan",
    "Point",
    "Recording",
    "compare_policies",
    "machines",
    "plan",
    "record",
]
