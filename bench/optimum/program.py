"""One training step as an integer program sees it: operators, storages, and what each one needs.

`read` makes it of a trace in delta's own format (docs/traces.md), plain or gzip. Tensors become the
storages that own their bytes; what the program itself reads, and the results at the end, become
operators of no cost that can't be run again.
"""

import dataclasses
import gzip
import json

MOST_OPERATORS = 60


class BadProgram(ValueError):
    """A trace that can't be read, or that the integer program can't express: file, line, why."""


@dataclasses.dataclass
class Operator:
    name: str
    cost: int  # ns
    reads: list  # storages with a maker, each once
    makes: list  # storages
    workspace: int = 0  # bytes
    reruns_until: int = 1 << 30  # it may be run again while operators up to this one are due
    run: int | None = None  # its number among the trace's operators; None: the program reads something
    random: bool = False


@dataclasses.dataclass
class Program:
    name: str
    operators: list = dataclasses.field(default_factory=list)
    sizes: list = dataclasses.field(default_factory=list)  # of storages with a maker, bytes
    makers: list = dataclasses.field(default_factory=list)  # operator of each
    forward: int | None = None  # operators before the mark `backward`
    fixed: int = 0  # bytes of constants and variables: taken to stay on the device throughout

    @property
    def time(self):
        """Of the step without a budget, ns."""
        return sum(o.cost for o in self.operators)

    @property
    def forward_time(self):
        """Of what comes before the backward pass, ns; of all where no mark says so."""
        return sum(o.cost for o in self.operators[:self.forward])

    def users(self):
        """By storage, the operators that read it, in order."""
        users = [[] for _ in self.sizes]
        for i, o in enumerate(self.operators):
            for s in o.reads:
                users[s].append(i)
        return users

    def peak(self):
        """The most bytes in use when each storage goes behind its last reader."""
        users, most = self.users(), 0
        last = [max(u, default=m) for u, m in zip(users, self.makers)]
        for i, o in enumerate(self.operators):
            live = sum(z for z, m, e in zip(self.sizes, self.makers, last) if m <= i <= e)
            most = max(most, live + o.workspace)
        return self.fixed + most

    def floor(self):
        """What the largest operator takes by itself: no budget below it can do."""
        return self.fixed + max(o.workspace + sum(self.sizes[s] for s in {*o.reads, *o.makes})
                                for o in self.operators)


def _lines(path):
    opener = gzip.open if str(path).endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.strip()]
    except (OSError, ValueError) as problem:
        raise BadProgram(f"{path}: {problem}") from problem


class _Reader:
    """Goes through the events once, with what each tensor's bytes are at the moment."""

    def __init__(self, path, most, effects_repeat):
        self.path, self.most, self.effects_repeat = path, most, effects_repeat
        self.runs = 0
        self.program = Program(str(path))
        self.storage = []  # by tensor: its storage, or None without a maker
        self.root = []  # by tensor: the tensor that owns its bytes
        self.references = []  # by tensor, at the owner
        self.readers_of_roots = {}  # by owner without a maker: operators that read this version
        self.granularity = 1

    def refuse(self, line, why):
        raise BadProgram(f"{self.path}:{line}: {why}")

    def tensor(self, size, maker, view_of=None):
        self.references.append(0)
        if view_of is None:
            self.root.append(len(self.root))
            rounded = -(-size // self.granularity) * self.granularity
            if maker is None:
                self.storage.append(None)
                self.program.fixed += rounded
            else:
                self.storage.append(len(self.program.sizes))
                self.program.sizes.append(rounded)
                self.program.makers.append(maker)
        else:
            self.root.append(self.root[view_of])
            self.storage.append(self.storage[view_of])
        self.references[self.root[-1]] += 1
        return self.storage[-1]

    def changes(self, owner):
        """From here on the old version is gone: who read it can't be run again."""
        for o in self.readers_of_roots.pop(owner, []):
            o.reruns_until = min(o.reruns_until, len(self.program.operators) - 1)

    def run(self, number, e):
        operators, index = self.program.operators, len(self.program.operators)
        traits = set(e.get("traits", []))
        o = Operator(e["run"], int(e.get("cost", 0)), [], [], int(e.get("workspace", 0)),
                     run=self.runs, random="random" in traits)
        self.runs += 1
        operators.append(o)
        updates = [int(t) for t in e.get("updates", [])]
        again = self.effects_repeat and "effect_once" in traits
        for t in [int(t) for t in e.get("inputs", [])] + ([] if again else updates):
            if self.storage[t] is None:
                self.readers_of_roots.setdefault(self.root[t], []).append(o)
            elif self.storage[t] not in o.reads:
                o.reads.append(self.storage[t])
        for made in e.get("outputs", []):
            if isinstance(made, dict):
                self.tensor(0, index, int(made["view_of"]))
            else:
                o.makes.append(self.tensor(int(made), index))
        if "never_replay" in traits or (not again and (updates or "effect_once" in traits)):
            o.reruns_until = index
        for t in updates:
            if self.storage[t] is not None:
                self.refuse(number, f"{o.name} updates a tensor that an operator made")
            self.changes(self.root[t])

    def needed(self, name, storages):
        index = len(self.program.operators)
        if storages:
            self.program.operators.append(Operator(name, 0, storages, [], 0, index))

    def event(self, number, e):
        if "run" in e:
            self.run(number, e)
        elif "constant" in e or "variable" in e:
            self.tensor(int(e.get("constant", e.get("variable"))), None)
        elif "share" in e or "drop" in e:
            owner = self.root[int(e.get("share", e.get("drop")))]
            self.references[owner] += 1 if "share" in e else -1
        elif "read" in e or "write" in e:
            t = int(e.get("read", e.get("write")))
            if "write" in e:
                self.changes(self.root[t])
            elif self.storage[t] is not None:
                self.needed("read", [self.storage[t]])
        elif e.get("mark") == "backward":
            self.program.forward = len(self.program.operators)
        elif "mark" not in e:
            self.refuse(number, f"unknown event {sorted(e)}")

    def read(self):
        lines = _lines(self.path)
        if not lines or lines[0].get("delta_trace") != 1:
            self.refuse(1, "not a trace in delta's format, version 1")
        self.granularity = max(1, int(lines[0].get("granularity", 0)))
        ended = False
        for number, e in enumerate(lines[1:], 2):
            if ended and "drop" not in e:
                self.refuse(number, "a second step begins: a trace of one step is wanted")
            ended = ended or e.get("mark") == "end_of_step"
            try:
                self.event(number, e)
            except (KeyError, IndexError, TypeError) as problem:
                self.refuse(number, f"a tensor or a key that is not there: {problem}")
        if not ended:
            held = [s for s, r in zip(self.storage, self.references) if s is not None and r > 0]
            self.needed("results", held)
        count = len(self.program.operators)
        if not 0 < count <= self.most:
            self.refuse(len(lines), f"{count} operators: 1 to {self.most} are wanted")
        return self.program


def read(path, most=MOST_OPERATORS, effects_repeat=False):
    """The program in that file. `effects_repeat`: an operator of the trait effect_once may run again, as
    in delta, without what it changes. Throws BadProgram."""
    return _Reader(path, most, effects_repeat).read()
