"""A recorded training step: its tensors, operators and drops, in memory and as a file.

The file is delta's trace format, version 1 (docs/traces.md), which delta-replay reads.
"""

from __future__ import annotations

import gzip
import json
import os
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

from .. import _C

# As in delta::trace::kind.
CONSTANT, VARIABLE, RUN, SHARE, DROP, READ, WRITE, BACKWARD, END_OF_STEP = range(9)
RANDOM, EFFECT_ONCE, NEVER_REPLAY = 1, 2, 4

ACTIVATION = "activations and temporaries"
# What tensors are, in the order in which tables have them.
SCRATCH = "kernels' own"
BUCKETS = "buckets of gradients"  # of several devices, as is the next
GATHERED = "gathered parameters"
ROLES = (
    "parameters",
    "gradients",
    "optimizer state",
    "buffers and data",
    ACTIVATION,
    SCRATCH,
    BUCKETS,
    GATHERED,
)


@dataclass
class Operation:
    """One operator that ran. Tensors are numbers."""

    name: str
    kind: str
    inputs: list[int]
    outputs: list[int]  # the first are new versions of the first inputs, in the same memory
    updates: list[int]
    replaced: int = 0  # how many of them
    traits: int = 0
    cost_ns: int = 0
    workspace: int = 0  # bytes of its kernel's own, while it runs


@dataclass
class Recording:
    """One step, as a program that can be repeated. record() makes it.

    Its lists are by tensor, by operation, and by event; an event is a kind and a number.
    """

    device: str
    granularity: int = 1
    rate_out: float = 0.0  # bytes per second, to the host; 0: not known
    rate_in: float = 0.0
    latency_ns: int = 0
    sizes: list[int] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    events: list[tuple[int, int]] = field(default_factory=list)
    # Of parameters: the tensor, and the operation with which it is complete, in that order.
    gradients: list[tuple[int, int]] = field(default_factory=list)

    def __repr__(self) -> str:
        return (
            f"<delta_torch.Recording: {len(self.operations)} operators on {self.device}, "
            f"peak {self.peak_bytes} bytes, {self.step_ns / 1e6:.3g} ms>"
        )

    @property
    def operators(self) -> list[str]:
        """The operators' names, in order: "aten::addmm"."""
        return [o.name for o in self.operations]

    @property
    def step_ns(self) -> int:
        """What all operators take together, in nanoseconds."""
        return sum(o.cost_ns for o in self.operations)

    @property
    def peak_bytes(self) -> int:
        """The most bytes in use at once where nothing leaves."""
        return self._peak[0]

    @property
    def at_peak(self) -> dict[str, int]:
        """What these bytes are, by role: parameters, gradients, activations, ..."""
        return dict(self._peak[1])

    def rounded(self, size: int) -> int:
        """What a block of that size takes."""
        return -(-size // self.granularity) * self.granularity

    @cached_property
    def _peak(self) -> tuple[int, dict[str, int]]:
        most, at = self._walk()
        return most, self._composition(at)

    def _walk(self) -> tuple[int, int]:
        """The most bytes at once, and the event at which they are reached."""
        now = most = at = scratch = 0
        dead = set()  # old versions, whose memory a new one has
        for i, (what, number) in enumerate(self.events):
            scratch = 0
            if what == RUN:
                o = self.operations[number]
                scratch = self.rounded(o.workspace)
                dead.update(o.inputs[: o.replaced])
                now += sum(self.rounded(self.sizes[t]) for t in o.outputs[o.replaced :])
            elif what in (CONSTANT, VARIABLE):
                now += self.rounded(self.sizes[number])
            elif what == DROP and number not in dead:
                now -= self.rounded(self.sizes[number])
            if now + scratch > most:
                most, at = now + scratch, i
        return most, at

    def _composition(self, at: int) -> dict[str, int]:
        held: set[int] = set()
        for what, number in self.events[: at + 1]:
            if what == RUN:
                o = self.operations[number]
                held.difference_update(o.inputs[: o.replaced])
                held.update(o.outputs)
            elif what in (CONSTANT, VARIABLE):
                held.add(number)
            elif what == DROP:
                held.discard(number)
        by_role: Counter[str] = Counter()
        what, number = self.events[at]
        if what == RUN:
            by_role[SCRATCH] = self.rounded(self.operations[number].workspace)
        for t in held:
            by_role[self.roles[t]] += self.rounded(self.sizes[t])
        return {role: by_role[role] for role in ROLES if by_role[role]}

    @cached_property
    def program(self) -> _C.RecordedStep:
        """The step as the extension takes it."""
        names = dict.fromkeys(o.name for o in self.operations)
        names.update(dict.fromkeys(ROLES))
        number = {name: i for i, name in enumerate(names)}
        fields: list[int] = []
        lists: list[int] = []
        made = set()
        for o in self.operations:
            made.update(o.outputs)
            counts = (len(o.inputs), len(o.outputs), len(o.updates))
            fields += [number[o.name], o.cost_ns, o.traits, *counts, o.replaced, o.workspace]
            lists += [*o.inputs, *o.outputs, *o.updates]
        return _C.RecordedStep(
            sizes=self.sizes,
            labels=[-1 if t in made else number[r] for t, r in enumerate(self.roles)],
            operations=fields,
            lists=lists,
            events=[n for event in self.events for n in event],
            gradients=[n for gradient in self.gradients for n in gradient],
            names=list(names),
            granularity=self.granularity,
        )

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes the trace: gzip where the name ends in .gz. Raises OSError where it can't."""
        path = os.fspath(file)
        assert self.program is not None  # made now: it refuses what breaks a rule of the format
        lines = [json.dumps(self._header())]
        lines += [json.dumps(self._line(*event), separators=(",", ":")) for event in self.events]
        text = "\n".join(lines) + "\n"
        data = text.encode()
        if path.endswith(".gz"):
            data = gzip.compress(data, mtime=0)
        with open(path, "wb") as out:
            out.write(data)

    def _header(self) -> dict[str, object]:
        header: dict[str, object] = {"delta_trace": 1, "device": self.device}
        header["rate_out"], header["rate_in"] = int(self.rate_out), int(self.rate_in)
        header["latency"] = self.latency_ns
        header["granularity"], header["events"] = self.granularity, len(self.events)
        return header

    def _line(self, what: int, number: int) -> dict[str, object]:
        if what in (CONSTANT, VARIABLE):
            kind = "constant" if what == CONSTANT else "variable"
            return {kind: self.sizes[number], "name": self.roles[number]}
        if what == DROP:
            return {"drop": number}
        if what in (READ, WRITE):
            return {"read" if what == READ else "write": number}
        if what == RUN:
            return self._run_line(self.operations[number], number)
        return {"mark": "backward" if what == BACKWARD else "end_of_step"}

    def _run_line(self, o: Operation, number: int) -> dict[str, object]:
        line: dict[str, object] = {"run": o.name, "cost": o.cost_ns}
        if o.inputs:
            line["inputs"] = o.inputs
        if o.outputs:
            line["outputs"] = [self.sizes[t] for t in o.outputs]
        if o.replaced:
            line["replaces"] = o.replaced
        if o.updates:
            line["updates"] = o.updates
        names = (("random", RANDOM), ("effect_once", EFFECT_ONCE), ("never_replay", NEVER_REPLAY))
        traits = [name for name, bit in names if o.traits & bit]
        if o.workspace:
            line["workspace"] = o.workspace
        if traits:
            line["traits"] = traits
        first = bisect_left(self.gradients, number, key=_after)
        behind = bisect_right(self.gradients, number, key=_after)
        if first < behind:
            line["gradients"] = [t for t, _ in self.gradients[first:behind]]
        return line


def _after(gradient: tuple[int, int]) -> int:
    """The operation with which it is complete."""
    return gradient[1]
