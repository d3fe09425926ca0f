"""Carries a plan out step by step, and checks it at every step: inputs are there, bytes fit, time.

Written apart from the integer program, of which it uses the plan alone: what runs and is copied in
each stage. When a storage goes follows from the plan by a walk from its end: it goes behind its last
reader before it is made or copied in again.
"""

import dataclasses


class BadPlan(AssertionError):
    """The plan can't be carried out: where, and why."""


@dataclasses.dataclass
class Outcome:
    time: float  # ns
    peak: int  # bytes
    runs: int  # of operators


def _actions(program, plan):
    """All that happens, in order: (what, stage, subject)."""
    actions = []
    for t, runs in enumerate(plan.runs):
        actions.append(("begin", t, None))
        actions += [("run", t, i) for i in runs]
        actions.append(("end", t, None))
    return actions


def _keeps(program, plan, actions):
    """By action, the storages that must be there behind it for what follows."""
    needed, keeps = set(), [None] * len(actions)
    for a in range(len(actions) - 1, -1, -1):
        what, t, i = actions[a]
        keeps[a] = frozenset(needed)
        if what == "run":
            needed -= set(program.operators[i].makes)
            needed |= set(program.operators[i].reads)
        elif what == "end" and plan.out:
            needed -= set(plan.arrives[t])
            needed |= {s for s, x in plan.out[t].items() if x > 0}
    if needed:
        raise BadPlan(f"storages {sorted(needed)} are read and were never made")
    return keeps


def walk(program, machine, plan):
    """What the plan takes, in a machine with barriers between stages. Throws BadPlan."""
    actions = _actions(program, plan)
    keeps = _keeps(program, plan, actions)
    here, host, landed, coming = set(), {}, {}, set()
    outcome, first = Outcome(0.0, 0, 0), 0
    bytes_of = lambda s: program.sizes[s]

    def check(extra, at):
        used = program.fixed + sum(map(bytes_of, here)) + sum(map(bytes_of, coming - here)) + extra
        outcome.peak = max(outcome.peak, used)
        if used > machine.budget:
            raise BadPlan(f"{used} bytes of {machine.budget} at {at}")

    for a, (what, t, i) in enumerate(actions):
        if what == "begin":
            compute = 0
            moved_in = plan.into[t] if plan.into else {}
            coming = set(plan.held_in[t]) if plan.held_in else set()
            if not set(moved_in) <= coming:
                raise BadPlan(f"stage {t}: a copy in without its bytes")
            if any(host.get(s, 0) < 1 - 1e-6 for s in moved_in):
                raise BadPlan(f"stage {t}: a copy in of what is not on the host")
            check(0, f"the begin of stage {t}")
        elif what == "run":
            o = program.operators[i]
            if i > first or (i < first and t > o.reruns_until):
                raise BadPlan(f"operator {i} must not run in stage {t}")
            if not set(o.reads) <= here:
                raise BadPlan(f"operator {i} of stage {t} misses {set(o.reads) - here}")
            here |= set(o.makes)
            check(o.workspace, f"operator {i} of stage {t}")
            compute += o.cost
            outcome.runs += 1
            first += i == first
        else:
            out = plan.out[t] if plan.out else {}
            if not set(out) <= here:
                raise BadPlan(f"stage {t}: a copy out of what is not there")
            longest = float(compute)
            for rate, moved in ((machine.rate_out, out), (machine.rate_in, moved_in)):
                total = sum(bytes_of(s) * x for s, x in moved.items())
                if total > 0:
                    longest = max(longest, total * 1e9 / rate if rate else float("inf"))
            outcome.time += longest
            for s, x in out.items():
                host[s] = host.get(s, 0) + x
            for s, x in moved_in.items():
                landed[s] = landed.get(s, 0) + x
            for s in plan.arrives[t] if plan.arrives else []:
                landed[s] = landed.get(s, 0) - 1
                if landed[s] < -1e-6:
                    raise BadPlan(f"stage {t}: storage {s} arrives before its last byte")
                here.add(s)
            coming = set()
        here &= keeps[a]
    if first != len(program.operators):
        raise BadPlan(f"operator {first} never runs")
    return outcome
