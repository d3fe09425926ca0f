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
