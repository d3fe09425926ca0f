"""A training step as a chain of blocks: what plans of whole layers are made for.

The forward pass is cut where a single tensor goes from what is before to what is behind, as between
the layers of a network; a block of the backward pass is what reads what a block of the forward pass
has left. `chain_of` gives the blocks, and the step with each block as one operator.
"""

import dataclasses

from program import Operator, Program

SMALL = 1 / 1000  # of the peak: what is smaller crosses a cut without being counted


@dataclasses.dataclass
class Chain:
    """Positions are blocks in the order of the step: forward, backward in reverse, and the rest."""
    fine: Program
    ranges: list  # by position: the first operator, and the one behind the last
    program: Program  # an operator for each position; its storages are `groups`
    groups: list  # by storage of that: storages of the fine program, made and read by the same blocks
    blocks: int  # of the forward pass: position of the backward one of i is 2 * blocks - 1 - i

    def position(self, operator):
        """Of an operator of the fine program."""
        return next(p for p, (a, b) in enumerate(self.ranges) if a <= operator < b)


def _cuts(program):
    """Where, in the forward pass, one tensor of size at most crosses: before these operators."""
    small = SMALL * program.peak()
    crossing = [0] * (program.forward + 1)
    for s, (maker, users) in enumerate(zip(program.makers, program.users())):
        forward = [u for u in users if u < program.forward]
        if program.sizes[s] > small and forward and maker < program.forward:
            for before in range(maker + 1, forward[-1] + 1):
                crossing[before] += 1
    return [p for p in range(1, program.forward) if crossing[p] == 1]


def _forward_blocks(program, most):
    """Ranges of the forward pass, each about as much of what the backward pass needs and of the time."""
    users = program.users()
    weight = [o.cost / max(1, program.forward_time) for o in program.operators[:program.forward]]
    kept = [s for s, u in enumerate(users)
            if program.makers[s] < program.forward and u and u[-1] >= program.forward]
    total = max(1, sum(program.sizes[s] for s in kept))
    for s in kept:
        weight[program.makers[s]] += program.sizes[s] / total
    ranges, begin, here, enough = [], 0, 0.0, 2.0 / most
    cuts = set(_cuts(program))
    for p in range(program.forward):
        if p in cuts and here >= enough and p > begin:
            ranges.append((begin, p))
            begin, here = p, 0.0
        here += weight[p]
    ranges.append((begin, program.forward))
    return ranges


def _backward_blocks(program, forward):
    """Ranges of what follows, one for each of `forward` in reverse order, and of what reads nothing of
    the forward pass behind them."""
    block_of = [0] * program.forward
    for i, (a, b) in enumerate(forward):
        block_of[a:b] = [i] * (b - a)
    begins, block = {}, len(forward) - 1
    begins[block] = program.forward
    last = program.forward
    for j in range(program.forward, len(program.operators)):
        read = [block_of[program.makers[s]] for s in program.operators[j].reads
                if program.makers[s] < program.forward]
        if not read:
            continue
        last = j
        # Of what it reads, what was made last says whose gradient it is.
        while max(read) < block:
            block -= 1
            begins[block] = j
    ends = sorted(begins.values())[1:]
    # The rest: the optimizer's updates, which read gradients alone.
    rest = next((j for j in range(last + 1, len(program.operators))
                 if program.operators[j].reruns_until <= j), len(program.operators))
    ranges = list(zip(sorted(begins.values()), [*ends, rest]))
    while len(ranges) < len(forward):  # blocks that nothing of the backward pass reads
        ranges.append((rest, rest))
    return [*ranges, (rest, len(program.operators))]


def chain_of(program, most=24):
    """The step as some `most` blocks at most, and their backward ones. It needs the mark `backward`."""
    forward = _forward_blocks(program, most)
    ranges = [*forward, *_backward_blocks(program, forward)]
    position = [0] * len(program.operators)
    for p, (a, b) in enumerate(ranges):
        position[a:b] = [p] * (b - a)
    users = program.users()
    coarse = Program(program.name, forward=len(forward), fixed=program.fixed)
    groups, number, last = [], {}, ranges[-1][0] - 1
    reads = [[] for _ in ranges]
    makes = [[] for _ in ranges]
    for s, maker in enumerate(program.makers):
        p = position[maker]
        readers = tuple(sorted({position[u] for u in users[s]} - {p}))
        if not readers:
            continue
        if (p, readers) not in number:
            number[p, readers] = len(groups)
            groups.append([])
            coarse.sizes.append(0)
            coarse.makers.append(p)
            makes[p].append(number[p, readers])
            for r in readers:
                reads[r].append(number[p, readers])
        g = number[p, readers]
        groups[g].append(s)
        coarse.sizes[g] += program.sizes[s]
    for p, (a, b) in enumerate(ranges):
        operators = program.operators[a:b]
        held = sum(coarse.sizes[g] for g in {*reads[p], *makes[p]})
        within = _peak_within(program, users, a, b)
        # What makes nothing, as a counter's increment, is not part of computing a block again.
        again = p < len(forward) and all(o.reruns_until > last for o in operators if o.makes)
        coarse.operators.append(Operator(f"block {p}", sum(o.cost for o in operators), reads[p],
                                         makes[p], max(0, within - held), 1 << 30 if again else p))
    return Chain(program, ranges, coarse, groups, len(forward))


def _peak_within(program, users, a, b):
    """Of what the block touches, the most bytes in use at once while it runs."""
    touched = {s for o in program.operators[a:b] for s in (*o.reads, *o.makes)}
    live = [0] * (b - a + 1)
    for s in touched:
        first = max(a, program.makers[s])
        last = max(users[s], default=program.makers[s])
        last = min(last, b - 1)
        live[first - a] += program.sizes[s]
        live[last + 1 - a] -= program.sizes[s]
    most, now = 0, 0
    for i in range(b - a):
        now += live[i]
        most = max(most, now + program.operators[a + i].workspace)
    return most
