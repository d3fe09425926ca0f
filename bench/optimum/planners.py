"""Plans of a whole step that published solvers would make, for a step of any size, over HiGHS.

checkmate     Jain et al. 2020: the integer program of stages.py, recomputation alone, over blocks
beaumont      Beaumont et al. 2021: of each block, recompute all that it leaves or offload it, over a
              chain; what lies between two blocks may be offloaded
torchtitan    two levels (pytorch/torchtitan pull request 4636, 2026): a linear program over layers,
              which parts of it are kept, recomputed and offloaded; then, within a layer, which tensors

Each gives absences (executor/peers/offline_plan.hpp), which delta-replay carries out with --plan.
docs/optimum.md says what is kept of each, and what is not.
"""

import dataclasses
import json

from milp import Milp
from stages import Kind, Machine, solve
from walk import _actions, _keeps


class NoPlan(Exception):
    """The solver found none, and why."""


@dataclasses.dataclass
class Plan:
    absences: list  # (storage of the fine program, from, to, offloaded?): operators of the fine program
    time: float  # ns, as the solver sees it
    bound: float  # ns: by its own program nothing takes less


# --- what absences are made of ------------------------------------------------------------------------

def _last_use(chain, users, storage, behind):
    """The last operator that touches it before that one."""
    return max([chain.fine.makers[storage], *(u for u in users[storage] if u < behind)])


def write(plan, chain, file):
    """For delta-replay --plan. Positions are the trace's operators."""
    program = chain.fine
    run = [o.run for o in program.operators]
    # What the program itself reads is no operator of the trace: the next one stands for it.
    for i in range(len(run) - 1, -1, -1):
        if run[i] is None:
            run[i] = run[i + 1] if i + 1 < len(run) else None
    count = sum(o.run is not None for o in program.operators)
    lines = [json.dumps({"delta_plan": 1, "operators": count, "absences": len(plan.absences)})]
    for s, begin, end, offloaded in plan.absences:
        maker = program.makers[s]
        lines.append(json.dumps({"made_by": run[maker], "output": program.operators[maker].makes.index(s),
                                 "from": run[begin], "to": run[end],
                                 "how": "offload" if offloaded else "evict"}))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


# --- Checkmate ----------------------------------------------------------------------------------------

def checkmate(chain, budget, rate, seconds):
    """Over blocks: a block's tensors of the same readers are one."""
    found = solve(chain.program, Machine(budget), Kind.RECOMPUTE, seconds)
    if found.plan is None:
        raise NoPlan(found.status)
    actions = _actions(chain.program, found.plan)
    keeps = _keeps(chain.program, found.plan, actions)
    behind = [keeps[a] for a, (what, _, _) in enumerate(actions) if what == "end"]  # by stage
    users, absences = chain.fine.users(), []
    readers = chain.program.users()
    for g, maker in enumerate(chain.program.makers):
        stage = maker + 1
        last = max(readers[g])
        while stage <= last:
            if g in behind[stage - 1]:
                stage += 1
                continue
            begin = stage
            while stage < last and g not in behind[stage]:
                stage += 1
            # Computed again in this stage, and there from then on, or used in it for the last time.
            a, (to, _) = chain.ranges[begin][0], chain.ranges[stage]
            absences += [(s, _last_use(chain, users, s, a), to, False) for s in chain.groups[g]
                         if to > _last_use(chain, users, s, a)]
            stage += 1
    return Plan(absences, found.time, found.bound)


# --- a chain with copies ------------------------------------------------------------------------------

@dataclasses.dataclass
class Part:
    """Tensors of a block of the forward pass that are decided on together: away between two positions."""
    block: int
    storages: list
    size: int
    leaves: int  # position that reads it last in the forward pass
    returns: int  # position of the backward pass that reads it first
    pieces: list = ()  # what of it may be recomputed: (bytes, ns, storages)


def _positions(chain):
    position = [0] * len(chain.fine.operators)
    for p, (a, b) in enumerate(chain.ranges):
        position[a:b] = [p] * (b - a)
    return position


def _parts(chain):
    """By block what nobody else reads in the forward pass, and what later blocks do."""
    users, position, parts = chain.fine.users(), _positions(chain), {}
    for s, maker in enumerate(chain.fine.makers):
        p = position[maker]
        forward = [position[u] for u in users[s] if position[u] < chain.blocks]
        backward = [position[u] for u in users[s] if chain.blocks <= position[u] < 2 * chain.blocks]
        if p >= chain.blocks or not backward or chain.fine.sizes[s] == 0:
            continue
        leaves, returns = max([p, *forward]), min(backward)
        part = parts.setdefault((p, leaves > p), Part(p, [], 0, leaves, returns))
        part.storages.append(s)
        part.size += chain.fine.sizes[s]
        part.leaves, part.returns = max(part.leaves, leaves), min(part.returns, returns)
    return [part for part in parts.values() if part.returns > part.leaves + 1]


class _ChainProgram:
    """The linear program: what of each part is recomputed and offloaded, and how far the copies are at
    the end of each position, one lane each way beside compute. Waiting is allowed, at its price."""

    def __init__(self, chain, parts, budget, rate, whole):
        self.chain, self.parts, self.rate = chain, parts, rate
        self.m, self.unit = Milp(), max(1, *(part.size for part in parts))
        self.time_unit = max(1.0, chain.fine.time / len(chain.ranges))
        self.recompute = [[self.m.column(whole=whole, cost=cost / self.time_unit)
                           for _, cost, _ in part.pieces] for part in parts]
        self.offload = [self.m.column(whole=whole) for _ in parts]
        self.wait = [self.m.column(0, float("inf"), cost=1.0) for _ in chain.ranges]
        self.out, self.into = {}, {}
        for k, part in enumerate(parts):
            self._copies(k, part)
        for p, other in enumerate(self._others()):
            self._lanes(p)
            self._memory(p, budget - other)

    def _recomputed(self, k, unit):
        """In bytes over `unit`."""
        return [(size / unit, r) for (size, _, _), r in zip(self.parts[k].pieces, self.recompute[k])]

    def _copies(self, k, part):
        """Parts of 1, growing: what is on the host, and what is back, at the end of each position."""
        m = self.m
        m.at_most([*self._recomputed(k, max(1, part.size)), (1, self.offload[k])], [(1, 1.0)])
        for p in range(part.leaves, part.returns):
            self.out[k, p], self.into[k, p] = m.column(), m.column()
            before, back = self.out.get((k, p - 1), 0.0), self.into.get((k, p - 1), 0.0)
            m.at_most([(1, before)], [(1, self.out[k, p])])
            m.at_most([(1, back)], [(1, self.into[k, p])])
            m.at_most([(1, self.out[k, p])], [(1, self.offload[k])])
            m.at_most([(1, self.into[k, p])], [(1, before)])
        m.at_most([(1, self.offload[k])], [(1, self.into[k, part.returns - 1])])

    def _lanes(self, p):
        """What is copied each way beside a position takes no longer than that and the wait."""
        a, b = self.chain.ranges[p]
        lasts = sum(o.cost for o in self.chain.fine.operators[a:b]) / self.time_unit
        per_time = self.rate * 1e-9 * self.time_unit / self.unit
        for lane in (self.out, self.into):
            moved = [(sign * part.size / self.unit, lane.get((k, at), 0.0))
                     for k, part in enumerate(self.parts) if (k, p) in lane
                     for sign, at in ((1, p), (-1, p - 1))]
            if moved:
                self.m.at_most(moved, [(per_time, lasts), (per_time, self.wait[p])])

    def _away(self, p):
        return [(k, part) for k, part in enumerate(self.parts) if part.leaves < p < part.returns]

    def _others(self):
        """By position: the most bytes in use there but for what may be away then."""
        fine, users, most = self.chain.fine, self.chain.fine.users(), []
        last = [max(u, default=m) for u, m in zip(users, fine.makers)]
        for p, (a, b) in enumerate(self.chain.ranges):
            away = {s for _, part in self._away(p) for s in part.storages}
            live = [0] * (b - a + 1)
            for s, (first, end) in enumerate(zip(fine.makers, last)):
                if s not in away and first < b and end >= a:
                    live[max(first, a) - a] += fine.sizes[s]
                    live[min(end, b - 1) + 1 - a] -= fine.sizes[s]
            here = top = 0
            for i in range(b - a):
                here += live[i]
                top = max(top, here + fine.operators[a + i].workspace)
            most.append(fine.fixed + top)
        return most

    def _memory(self, p, left):
        """What is there of what may be away, what is on its way in included."""
        held = []
        for k, part in self._away(p):
            size = part.size / self.unit
            held += [(size, 1.0), (-size, self.out[k, p - 1]), (size, self.into[k, p])]
            held += [(-bytes_, r) for bytes_, r in self._recomputed(k, self.unit)]
        if held:
            self.m.at_most(held, [(1, left / self.unit)])

    def solve(self, seconds):
        """By part: the shares of its pieces that are recomputed, and the share that is offloaded."""
        answer = self.m.solve(seconds)
        if answer.columns is None:
            raise NoPlan(answer.status)
        value = lambda column: answer.columns[next(iter(column))]
        chosen = [([value(r) for r in pieces], value(o))
                  for pieces, o in zip(self.recompute, self.offload)]
        time = self.chain.fine.time
        return chosen, time + answer.value * self.time_unit, time + answer.bound * self.time_unit


def _absences(chain, part, recomputed, offloaded):
    users, (to, _) = chain.fine.users(), chain.ranges[part.returns]
    end = chain.ranges[part.leaves][1]
    pairs = [(s, False) for s in recomputed] + [(s, True) for s in offloaded]
    return [(s, _last_use(chain, users, s, end), to, copied) for s, copied in pairs]


def beaumont(chain, budget, rate, seconds):
    """Of each block everything is kept, or recomputed from its input, or offloaded; its output is kept or
    offloaded."""
    parts = _parts(chain)
    for part in parts:
        o = chain.program.operators[part.block]
        if part.leaves == part.block and o.reruns_until > part.returns:
            part.pieces = [(part.size, o.cost, part.storages)]
    chosen, time, bound = _ChainProgram(chain, parts, budget, rate, whole=True).solve(seconds)
    absences = []
    for part, (shares, offloaded) in zip(parts, chosen):
        again = part.storages if any(share > 0.5 for share in shares) else []
        absences += _absences(chain, part, again, part.storages if offloaded > 0.5 else [])
    return Plan(absences, time, bound)


def _cost_of(fine, kept, storage, backward):
    """ns of its operator and those of all that it needs and the backward pass does not keep; None: one of
    them must not run again, or draws random numbers."""
    cost, met, walk = 0, set(), [fine.makers[storage]]
    while walk:
        i = walk.pop()
        if i in met:
            continue
        met.add(i)
        o = fine.operators[i]
        if o.random or o.reruns_until < backward:
            return None
        cost += o.cost
        walk += [fine.makers[s] for s in o.reads if s not in kept]
    return cost


def torchtitan(chain, budget, rate, seconds):
    """Shares of layers by a linear program; tensors of a layer by their shares, the largest offloaded."""
    parts, fine = _parts(chain), chain.fine
    kept = {s for part in parts for s in part.storages}
    for part in parts:
        backward = chain.ranges[part.returns][1]
        costs = [(fine.sizes[s], _cost_of(fine, kept, s, backward), s) for s in part.storages]
        part.pieces = [(size, cost, [s]) for size, cost, s in costs if cost is not None]
    chosen, time, bound = _ChainProgram(chain, parts, budget, rate, whole=False).solve(seconds)
    absences = []
    for part, (shares, offloaded) in zip(parts, chosen):
        wanted = offloaded * part.size + sum(x * size for x, (size, _, _) in zip(shares, part.pieces))
        again, copied, leaves = [], [], 0
        for share, (size, _, (s,)) in sorted(zip(shares, part.pieces), key=lambda x: -x[0]):
            # By halves; where nothing is offloaded, until the layer's share is met.
            if share > 0.5 or (share > 1e-6 and offloaded < 1e-6 and leaves < wanted):
                again.append(s)
                leaves += size
        for s in sorted(set(part.storages) - set(again), key=lambda s: -fine.sizes[s]):
            if leaves + fine.sizes[s] / 2 <= wanted and offloaded > 1e-6:
                copied.append(s)
                leaves += fine.sizes[s]
        absences += _absences(chain, part, again, copied)
    return Plan(absences, time, bound)


PLANNERS = {"checkmate": checkmate, "beaumont": beaumont, "torchtitan": torchtitan}
