"""The least time by recomputation alone, by a search through everything that can be done.

Dijkstra's algorithm over (operators that ran first, storages that are there): any operator whose
inputs are there may run, in any order and as often as it likes, and any storage may go. So it knows
no stages, and shares nothing with the integer program but the rules of memory. Exponential: for
tiny programs.
"""

import heapq


def least_time(program, budget):
    """ns, or None where nothing fits. Every operator may be run again."""
    count = len(program.operators)
    room = budget - program.fixed
    masks = [(sum(1 << s for s in o.reads), sum(1 << s for s in o.makes), o.cost, o.workspace)
             for o in program.operators]
    size = {0: 0}

    def bytes_of(mask):
        if mask not in size:
            low = mask & -mask
            size[mask] = bytes_of(mask ^ low) + program.sizes[low.bit_length() - 1]
        return size[mask]

    best, queue = {(0, 0): 0}, [(0, 0, 0)]
    while queue:
        time, first, here = heapq.heappop(queue)
        if best[first, here] < time:
            continue
        if first == count:
            return time
        steps = []
        for i in range(first + 1):
            reads, makes, cost, workspace = masks[i]
            if reads & ~here == 0 and bytes_of(here | makes) + workspace <= room:
                steps.append((time + cost, first + (i == first), here | makes))
        rest = here
        while rest:
            low = rest & -rest
            steps.append((time, first, here & ~low))
            rest ^= low
        for after, f, h in steps:
            if after < best.get((f, h), after + 1):
                best[f, h] = after
                heapq.heappush(queue, (after, f, h))
    return None


def least_time_with_copies(program, budget, copy):
    """The same with copies, in whole units of time, of which each operator's cost is a number and a
    copy of a storage takes `copy`, either way. Compute and both links run side by side, and one copy
    follows the other; a storage takes its bytes from when an operator or a copy that makes it
    begins, and must be there until those that read it have ended. Gives units, or None."""
    room = budget - program.fixed
    count = len(program.operators)
    masks = [(sum(1 << s for s in o.reads), sum(1 << s for s in o.makes), o.cost, o.workspace)
             for o in program.operators]
    bytes_of = lambda mask: sum(z for s, z in enumerate(program.sizes) if mask >> s & 1)
    # first: operators that ran or run first; here: bytes taken; host: whole copies there;
    # then what goes on and for how long: operator, storage out, storage in.
    start = (0, 0, 0, None, None, None)
    best, queue, order = {start: 0}, [(0, 0, start)], 0
    while queue:
        time, _, state = heapq.heappop(queue)
        if best[state] < time:
            continue
        first, here, host, running, out, into = state
        if first == count and running is None:
            return time
        made = masks[running[0]][1] if running else 0
        ready = here & ~made & ~(1 << into[0] if into else 0)
        held = (masks[running[0]][0] | made if running else 0) | (1 << out[0] if out else 0) | (
            1 << into[0] if into else 0)
        taken = bytes_of(here) + (masks[running[0]][3] if running else 0)
        steps = [(time, (first, here & ~(1 << s), host, running, out, into))
                 for s in range(len(program.sizes)) if here >> s & 1 and not held >> s & 1]
        if running is None:
            for i in range(min(first + 1, count)):
                reads, makes, cost, workspace = masks[i]
                if reads & ~ready or makes & here or taken + bytes_of(makes) + workspace > room:
                    continue
                steps.append((time, (first + (i == first), here | makes, host, (i, cost), out, into)))
        for s in range(len(program.sizes)):
            if out is None and ready >> s & 1 and not host >> s & 1:
                steps.append((time, (first, here, host, running, (s, copy), into)))
            if (into is None and host >> s & 1 and not here >> s & 1
                    and taken + program.sizes[s] <= room):
                steps.append((time, (first, here | 1 << s, host, running, out, (s, copy))))
        if running or out or into:
            after = host | (1 << out[0] if out and out[1] == 1 else 0)
            left = [None if e is None or e[1] == 1 else (e[0], e[1] - 1)
                    for e in (running, out, into)]
            steps.append((time + 1, (first, here, after, *left)))
        for at, s in steps:
            if at < best.get(s, at + 1):
                best[s] = at
                order += 1
                heapq.heappush(queue, (at, order, s))
    return None
