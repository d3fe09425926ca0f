"""Checkmate's integer program (Jain et al., 2020), and two extensions of it by copies to the host.

Time is cut into stages: stage t ends with the first run of operator t, and runs before it, in
program order and each at most once, what is computed again. docs/optimum.md has the formulation in
full, and says what each of the three is a bound of:

- RECOMPUTE: nothing is copied.
- LOOSE: copies beside compute, as late and as early as any schedule in these stages could have
  them. Nothing with these stages is faster.
- BARRIER: copies that begin and end with stages, and hold their bytes throughout. What is found can
  be carried out step by step (walk.py).
"""

import dataclasses
import enum

from milp import Milp


class Kind(enum.Enum):
    RECOMPUTE = "recompute"
    LOOSE = "loose"
    BARRIER = "barrier"


@dataclasses.dataclass
class Machine:
    budget: int  # bytes
    rate_out: float = 0.0  # bytes per second
    rate_in: float = 0.0


@dataclasses.dataclass
class Plan:
    """Stage by stage: operators in order; fractions copied out and in, by storage; what arrives."""
    runs: list
    out: list
    into: list
    arrives: list
    held_in: list  # storages whose copy in is under way in the stage

    @property
    def recomputed(self):
        return sum(len(r) - 1 for r in self.runs)


class Stages:
    """The columns and rows of one program under one machine."""

    def __init__(self, program, machine, kind, least_budget=False, cutoff=None):
        self.p, self.machine, self.kind = program, machine, kind
        self.m = Milp()
        self.count = len(program.operators)
        self.users = program.users()
        self.time_unit = max(1.0, program.time / self.count)
        self.byte_unit = max([1, *program.sizes])
        self.least = least_budget
        self.memory = (self.m.column(0, float("inf"), cost=1.0) if least_budget
                       else (machine.budget - program.fixed) / self.byte_unit)
        self.R, self.S, self.first = {}, {}, {}
        self.xo, self.xi, self.H, self.I, self.Q, self.D = {}, {}, {}, {}, {}, {}
        # With what takes longer than there is time to spare nothing is computed again.
        self.spare = float("inf") if cutoff is None else cutoff - program.time + 1
        self.copied = [] if kind is Kind.RECOMPUTE else [
            s for s, z in enumerate(program.sizes) if z > 0 and len(self.users[s]) > 0]
        self._columns()
        self._copy_columns()
        for t in range(self.count):
            self._availability(t)
            self._occupancy(t)
            self._copies(t)
            self._time(t)
        if cutoff is not None:
            self.m.at_most([(1, d) for d in self.D.values()],
                           [(1, cutoff / self.time_unit + 1e-6)])

    # --- columns ---

    def _columns(self):
        for t in range(self.count):
            for i in range(t + 1):
                o = self.p.operators[i]
                if i == t:
                    self.R[t, i] = 1.0
                elif t <= o.reruns_until and o.makes and o.cost <= self.spare:
                    self.R[t, i] = self.m.column(whole=True)
                else:
                    self.R[t, i] = 0.0
            for s, maker in enumerate(self.p.makers):
                if maker < t:
                    # Whole by itself where R is; said so, it is solved fifty times faster.
                    self.S[t, s] = self.m.column(whole=True)

    def _copy_columns(self):
        for s in self.copied:
            for t in range(self.p.makers[s], self.count):
                self.H[t, s] = self.m.column(whole=True)
                self.I[t, s] = self.m.column(whole=True)
                if self.kind is Kind.BARRIER:
                    self.xo[t, s], self.xi[t, s] = self.m.column(), self.m.column()
                    self.Q[t, s] = self.m.column(whole=True)
        for t in range(self.count):
            self.D[t] = self.m.column(0, float("inf"), cost=0.0 if self.least else 1.0)

    @staticmethod
    def _at(columns, *key):
        return columns.get(key, 0.0)

    def _leaves(self, t, s):
        """1 where a copy out ends in the stage, as a sum."""
        return [(1, self._at(self.H, t, s)), (-1, self._at(self.H, t - 1, s))]

    # --- rows ---

    def _availability(self, t):
        """What is read is there; what is kept was there."""
        m, loose = self.m, self.kind is Kind.LOOSE
        for i in range(t + 1):
            if not isinstance(self.R[t, i], dict) and self.R[t, i] == 0.0:
                continue
            for s in self.p.operators[i].reads:
                here = [(1, self._at(self.S, t, s)), (1, self.R[t, self.p.makers[s]])]
                if loose:
                    here.append((1, self._at(self.I, t, s)))
                m.at_most([(1, self.R[t, i])], here)
        for s, maker in enumerate(self.p.makers):
            if maker <= t and t + 1 < self.count:
                m.at_most([(1, self.S[t + 1, s])],
                          [(1, self._at(self.S, t, s)), (1, self.R[t, maker]),
                           (1, self._at(self.I, t, s))])
        for i in range(t):
            o = self.p.operators[i]
            if not isinstance(self.R[t, i], dict):
                continue
            # Nothing is computed again for nobody, nor, of one output, what is there.
            wanted = [(1, self.R[t, u]) for s in o.makes for u in self.users[s] if u <= t]
            wanted += [(1, self._at(self.S, t + 1, s)) for s in o.makes]
            if loose:
                wanted += [e for s in o.makes for e in self._leaves(t, s)]
            m.at_most([(1, self.R[t, i])], wanted)
            if len(o.makes) == 1:
                s = o.makes[0]
                m.at_most([(1, self.R[t, i]), (1, self.S[t, s])],
                          [(1, 1.0), *(self._leaves(t, s) if loose else [])])

    def _occupancy(self, t):
        """The bytes while each operator of the stage runs: they fit."""
        slots = [[(o.workspace / self.byte_unit, self.R[t, k])]
                 for k, o in enumerate(self.p.operators[:t + 1])]
        for s, maker in enumerate(self.p.makers):
            if maker > t or self.p.sizes[s] == 0:
                continue
            size = self.p.sizes[s] / self.byte_unit
            before, here = self._places(t, s)
            for k in range(t + 1):
                slots[k].append((size, before if k < maker else here[k - maker]))
        for slot in slots:
            self.m.at_most(slot, [(1, self.memory)])

    def _places(self, t, s):
        """What a storage takes before its maker's place in the stage, and at each place from there:
        1 where it must be there, else 0."""
        m, maker, loose = self.m, self.p.makers[s], self.kind is Kind.LOOSE
        arrives, flies = self._at(self.I, t, s), self._at(self.Q, t, s)
        users = [u for u in self.users[s] if u <= t]
        kept = self._at(self.S, t + 1, s)
        here = [None] * (t + 1 - maker)
        # After the last reader: what is kept, or is being copied.
        if s in self.copied and t + 1 <= self.count:
            last = m.column()
            m.at_most([(1, kept), (-1, arrives)], [(1, last)])
            if not loose:
                m.at_most([(1, self.xo_held(t, s))], [(1, last)])
                m.at_most([(1, flies)], [(1, last)])
            elif (due := next((u for u in self.users[s] if u > t), None)) is not None:
                # Neither here nor on the host: it is computed again before it is read. The rows
                # above say so of whole values; of parts, a half could be copied out later still.
                m.at_most([(1, 1.0)], [(1, last), (1, self.H[t, s]),
                                       *((1, self.R[v, maker]) for v in range(t + 1, due + 1))])
        else:
            last = kept
        end = t
        for u in reversed(users):
            for k in range(u + 1, end + 1):
                here[k - maker] = last
            at = m.column()
            m.at_most([(1, self.R[t, u])], [(1, at)])
            m.at_most([(1, last)], [(1, at)])
            here[u - maker] = last = at
            end = u - 1
            if loose and s in self.copied:
                # It may have come in right before that reader.
                gap = m.column()
                m.at_most([(1, at), (-1, arrives)], [(1, gap)])
                last = gap
        for k in range(maker + 1, end + 1):
            here[k - maker] = last
        made = m.column()
        m.at_most([(1, self.R[t, maker])], [(1, made)])
        m.at_most([(1, last)], [(1, made)])
        here[0] = made
        if maker == t:
            return 0.0, here
        stored = self.S[t, s]
        if s not in self.copied:
            return stored, here
        before = m.column()
        if loose:
            # A copy out that ends within the stage frees it at some time in it.
            m.at_most([(1, stored)], [(1, before), *self._leaves(t, s)])
            m.at_most([(1, last), (-1, self.R[t, maker]), (-1, arrives)], [(1, before)])
        else:
            m.at_most([(1, stored), (1, flies)], [(1, before)])
        return before, here

    def xo_held(self, t, s):
        """1 where a copy out goes on in a stage with barriers."""
        if (t, s) not in self.first:
            self.first[t, s] = self.m.column(whole=True)
        return self.first[t, s]

    def _copies(self, t):
        """What must be there for a copy, and when it may go on."""
        for s in self.copied:
            if self.p.makers[s] <= t:
                self.m.at_most([(1, self._at(self.H, t - 1, s))], [(1, self.H[t, s])])
                (self._loose_copy if self.kind is Kind.LOOSE else self._barrier_copy)(t, s)

    def _loose_copy(self, t, s):
        """H: a copy out is over by the end of the stage; I: one in begins."""
        m, maker = self.m, self.p.makers[s]
        m.at_most(self._leaves(t, s), [(1, self._at(self.S, t, s)), (1, self.R[t, maker])])
        m.at_most([(1, self.I[t, s])], [(1, self.H[t, s])])
        m.at_most([(1, self.I[t, s])],
                  [*((1, self.R[t, u]) for u in self.users[s] if u <= t),
                   (1, self._at(self.S, t + 1, s))])

    def _barrier_copy(self, t, s):
        """H: a copy out is over by the end of the stage; Q: one in is under way; I: and ends."""
        m, maker = self.m, self.p.makers[s]
        out, into, host, arrives, flies = (c[t, s] for c in
                                           (self.xo, self.xi, self.H, self.I, self.Q))
        so_far = lambda c: [(1, c[u, s]) for u in range(maker, t + 1)]
        stored, held = self._at(self.S, t, s), self.xo_held(t, s)
        m.at_most([(1, host)], so_far(self.xo))
        if t == self.count - 1:
            m.at_most(so_far(self.xo), [(1, 1.0)])
        m.at_most([(1, out)], [(1, held)])
        m.at_most([(1, held)], [(1, stored)])
        m.at_most(so_far(self.I), so_far(self.xi))
        m.at_most([(1, into)], [(1, self._at(self.H, t - 1, s))])
        m.at_most([(1, into)], [(1, flies)])
        m.at_most([(1, arrives)], [(1, flies)])
        m.at_most([(1, self._at(self.Q, t - 1, s)), (-1, self._at(self.I, t - 1, s))],
                  [(1, flies)])
        m.at_most([(1, flies), (1, stored)], [(1, 1.0)])
        if isinstance(self.R[t, maker], dict):
            m.at_most([(1, flies), (1, self.R[t, maker])], [(1, 1.0)])

    def _time(self, t):
        """A stage takes what its operators take, and what its copies do."""
        self.m.at_most([(o.cost / self.time_unit, self.R[t, i])
                        for i, o in enumerate(self.p.operators[:t + 1])], [(1, self.D[t])])
        before, behind = range(t + 1), range(t, self.count)
        loose = self.kind is Kind.LOOSE
        self._link(self.machine.rate_out, self.H if loose else self.xo, [t],
                   before if loose else [t])
        self._link(self.machine.rate_in, self.I if loose else self.xi, behind if loose else [t],
                   behind if loose else [t])

    def _link(self, rate, copies, stages, lasting):
        """What is copied in `stages` takes no longer than these last together."""
        moved = [(self.p.sizes[s] / self.byte_unit, copies[u, s])
                 for u in stages for s in self.copied if (u, s) in copies]
        if moved:
            per_time = rate * 1e-9 * self.time_unit / self.byte_unit
            self.m.at_most(moved, [(per_time, self.D[u]) for u in lasting])

    # --- answers ---

    def start_from(self, plan):
        """Whole columns of a plan that only recomputes, for Milp.solve."""
        values = {c: 0.0 for c, w in enumerate(self.m.whole) if w}
        for t, runs in enumerate(plan.runs):
            for i in runs:
                if isinstance(self.R[t, i], dict):
                    values[next(iter(self.R[t, i]))] = 1.0
        kept = set()
        for t in reversed(range(self.count)):
            for i in reversed(plan.runs[t]):
                kept -= set(self.p.operators[i].makes)
                kept |= set(self.p.operators[i].reads)
            for s in kept:
                values[next(iter(self.S[t, s]))] = 1.0
        return values

    def plan(self, columns):
        """The schedule in a solution."""
        def value(term):
            return columns[next(iter(term))] if isinstance(term, dict) else term
        def fractions(c):
            return [{s: value(c[t, s]) for s in self.copied
                     if (t, s) in c and value(c[t, s]) > 1e-9} for t in range(self.count)]
        def whole(c):
            return [[s for s in self.copied if (t, s) in c and value(c[t, s]) > 0.5]
                    for t in range(self.count)]
        runs = [[i for i in range(t + 1) if value(self.R[t, i]) > 0.5] for t in range(self.count)]
        return Plan(runs, fractions(self.xo), fractions(self.xi), whole(self.I), whole(self.Q))


@dataclasses.dataclass
class Result:
    """Times in ns; None where nothing was found."""
    status: str
    time: float | None
    bound: float
    seconds: float
    plan: Plan | None


def solve(program, machine, kind=Kind.RECOMPUTE, seconds=60, start=None, cutoff=None):
    """`start`: a Plan without copies that is known to fit. `cutoff`: ns; what takes longer is not
    looked for, and where there is nothing else that is the bound."""
    if program.floor() > machine.budget:
        return Result("infeasible", None, float("inf"), 0.0, None)
    stages = Stages(program, machine, kind, cutoff=cutoff)
    answer = stages.m.solve(seconds, stages.start_from(start) if start else None)
    unit = stages.time_unit
    if answer.status == "infeasible" and cutoff is not None:
        return Result("cut off", None, cutoff, answer.seconds, None)
    plan = stages.plan(answer.columns) if answer.columns is not None else None
    # Nothing is faster than the operators by themselves, which a bound of 0 does not say.
    bound = max(answer.bound * unit, program.time)
    return Result(answer.status, None if answer.value is None else answer.value * unit, bound,
                  answer.seconds, plan)


def least_budget(program, seconds=60):
    """In which bytes recomputation alone gets through: a Plan that shows it, and bytes below which
    no schedule in stages does."""
    stages = Stages(program, Machine(0), Kind.RECOMPUTE, least_budget=True)
    everything = Plan([[t] for t in range(stages.count)], [], [], [], [])
    answer = stages.m.solve(seconds, stages.start_from(everything))
    plan = everything if answer.columns is None else stages.plan(answer.columns)
    return plan, int(answer.bound * stages.byte_unit) + program.fixed
