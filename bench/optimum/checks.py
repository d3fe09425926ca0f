#!/usr/bin/env python3
"""Tests of the optimum: search through everything, closed form, and step by step, on tiny programs.

    build/optimum-venv/bin/python bench/optimum/checks.py [--replay build/release/bin/delta-replay]

Exit code 77, and a line that says so, where HiGHS is not installed (compare.py says how to). With
--replay policies are held against the bound, too.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

try:
    import highspy  # noqa: F401 - only whether it is there
except ImportError:
    print("SKIPPED: bench/optimum/checks.py needs HiGHS: pip install highspy")
    sys.exit(77)

import generate
from binomial import forward_runs, uniform_chain
from blocks import chain_of
from exhaustive import least_time, least_time_with_copies
from planners import PLANNERS, NoPlan, write
from program import BadProgram, Operator, Program, read
from stages import Kind, Machine, Plan, least_budget, solve
from walk import BadPlan, walk

REPLAY = None


def program_of(step):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "step.jsonl"
        step.write(path)
        return read(path)


def tiny_chain(dice, layers):
    """Forward and backward of a chain, in units: of bytes and, with copies, of time."""
    p = Program("tiny chain")

    def add(name, cost, reads, size):
        p.operators.append(Operator(name, cost, reads, [len(p.sizes)]))
        p.makers.append(len(p.operators) - 1)
        p.sizes.append(size)
        return len(p.sizes) - 1

    x, tape = None, []
    for _ in range(layers):
        cost, size = dice.randint(1, 2), dice.randint(1, 3)
        inputs = [] if x is None else [x]
        x = add("layer", cost, inputs, size)
        tape.append((cost, inputs, x))
    g = x
    for cost, inputs, _ in reversed(tape):
        g = add("backward", cost, sorted({g, *inputs}), p.sizes[inputs[0]] if inputs else 1)
    return p


def tiny_graph(dice, operators):
    """Any operators that read what some before made."""
    p = Program("tiny graph")
    for i in range(operators):
        reads = sorted(dice.sample(range(len(p.sizes)), min(len(p.sizes), dice.randint(1, 2))))
        made = list(range(len(p.sizes), len(p.sizes) + dice.choice((1, 1, 2))))
        p.operators.append(Operator("op", dice.randint(1, 5), reads, made, dice.randint(0, 1)))
        p.sizes += [dice.randint(1, 3) for _ in made]
        p.makers += [i] * len(made)
    return p


def budgets(p):
    return range(p.floor(), p.peak() + 1)


class Recomputation(unittest.TestCase):
    def beside_search(self, programs):
        """Budgets in which something must be computed again; and in which the search is better."""
        compared = better = 0
        for p in programs:
            for budget in budgets(p):
                truth, result = least_time(p, budget), solve(p, Machine(budget))
                if result.plan is None:
                    self.assertEqual(result.status, "infeasible")
                    better += truth is not None
                    continue
                self.assertEqual(result.status, "optimal")
                self.assertIsNotNone(truth)
                took = walk(p, Machine(budget), result.plan).time
                self.assertAlmostEqual(result.time, took, places=4)
                self.assertGreaterEqual(took, truth)
                compared += truth > p.time
                better += truth < took
        return compared, better

    def test_search_through_chains(self):
        dice = random.Random(1)
        compared, better = self.beside_search([tiny_chain(dice, n) for n in (2, 3, 3, 4, 4, 5)])
        self.assertEqual(better, 0)
        self.assertGreater(compared, 5, "of the chains some must need recomputation")

    def test_search_through_graphs(self):
        """In graphs the search may gain by another order within a stage: rarely, and it is said."""
        dice = random.Random(2)
        compared, better = self.beside_search([tiny_graph(dice, 7) for _ in range(40)])
        self.assertGreater(compared, 30, "of the graphs some must need recomputation")
        self.assertLessEqual(better, compared / 10)

    def test_binomial(self):
        for steps, checkpoints in ((6, 1), (6, 2), (8, 2), (8, 3), (10, 2), (10, 3), (12, 4)):
            p, unit = uniform_chain(steps)
            result = solve(p, Machine(unit * (checkpoints + 1)))
            runs = walk(p, Machine(unit * (checkpoints + 1)), result.plan).runs - steps
            self.assertEqual(runs, forward_runs(steps, checkpoints), (steps, checkpoints))

    def test_least_budget(self):
        p = tiny_chain(random.Random(3), 4)
        plan, proven = least_budget(p)
        found = walk(p, Machine(1 << 40), plan).peak
        self.assertEqual(found, proven)
        self.assertIsNotNone(least_time(p, found))
        self.assertIsNone(least_time(p, found - 1))


class Copies(unittest.TestCase):
    def test_between(self):
        """The bound is below what a search finds, a plan with barriers below recomputation."""
        dice, gained = random.Random(4), 0
        for layers, copy in ((3, 1), (3, 2), (4, 1), (4, 2)):
            p = tiny_chain(dice, layers)
            p.sizes = [2] * len(p.sizes)  # so that each copy takes the same whole time
            rate = 2e9 / copy
            for budget in range(p.floor(), p.peak(), 2):
                machine = Machine(budget, rate, rate)
                alone = solve(p, machine).time or float("inf")
                loose, barrier = (solve(p, machine, k) for k in (Kind.LOOSE, Kind.BARRIER))
                self.assertIn(loose.status, ("optimal", "infeasible"))
                truth = least_time_with_copies(p, budget, copy) or float("inf")
                self.assertLessEqual(loose.bound, truth + 1e-4)
                self.assertLessEqual(truth, alone)
                if barrier.plan is not None:
                    self.assertLessEqual(barrier.time, alone + 1e-4)
                    self.assertLessEqual(loose.bound, barrier.time + 1e-4)
                    took = walk(p, machine, barrier.plan).time
                    self.assertAlmostEqual(took, barrier.time, places=3)
                gained += truth < alone
        self.assertGreater(gained, 2, "in some copies must help")

    def test_fast_and_slow(self):
        p = program_of(generate.chain([4] * 7, [2] * 7))
        budget = p.peak() * 8 // 10
        alone = solve(p, Machine(budget)).time
        self.assertGreater(alone, p.time)
        fast, held, slow = (solve(p, Machine(budget, r, r), k) for r, k in (
            (1e12, Kind.LOOSE), (1e12, Kind.BARRIER), (1.0, Kind.LOOSE)))
        self.assertAlmostEqual(fast.bound / p.time, 1, places=3)
        self.assertLess(held.time, alone)
        self.assertAlmostEqual(slow.bound / alone, 1, places=4)

    def test_policies_keep_to_the_bound(self):
        if REPLAY is None:
            self.skipTest("no --replay")
        dice, held = random.Random(5), 0
        for _ in range(3):
            step = generate.chain([dice.randint(1, 4) for _ in range(5)],
                                  [dice.randint(1, 4) for _ in range(5)])
            with tempfile.TemporaryDirectory() as folder:
                trace, rows = (pathlib.Path(folder) / n for n in ("step.jsonl", "rows.json"))
                step.write(trace)
                p = read(trace)
                rate = int(p.peak() / 4 / (p.forward_time * 1e-9))
                subprocess.run([REPLAY, trace, "--policy", "adaptive,online,dtr,capuchin",
                                "--budget", "0.8,0.7", "--bandwidth", f"{rate}B/s", "--latency",
                                "0ns", "--iterations", "6", "--memory", "pages", "--json", rows],
                               check=True, stdout=subprocess.DEVNULL)
                for row in json.loads(rows.read_text()):
                    self.assertEqual(row["unmanaged_time_ns"], p.time)
                    self.assertEqual(row["unmanaged_peak_bytes"], p.peak())
                    if row["iteration"] != 6 or row["result"] != "pass":
                        continue
                    least = solve(p, Machine(row["budget_bytes"], rate, rate), Kind.LOOSE, 5)
                    self.assertLessEqual(least.bound, row["time_ns"] * (1 + 1e-6))
                    held += 1
        self.assertGreater(held, 10)


class Plans(unittest.TestCase):
    """walk finds what is wrong with a plan."""

    def test_refusals(self):
        p = tiny_chain(random.Random(6), 3)
        whole = Plan([[t] for t in range(len(p.operators))], [], [], [], [])
        self.assertEqual(walk(p, Machine(p.peak()), whole).time, p.time)
        with self.assertRaisesRegex(BadPlan, "bytes of"):
            walk(p, Machine(p.peak() - 1), whole)
        missing = Plan([*whole.runs[:-1], []], [], [], [], [])
        with self.assertRaisesRegex(BadPlan, "never runs"):
            walk(p, Machine(p.peak()), missing)
        swapped = Plan([[1], [0], *whole.runs[2:]], [], [], [], [])
        with self.assertRaises(BadPlan):
            walk(p, Machine(p.peak()), swapped)


class Blocks(unittest.TestCase):
    """Chains of blocks, and plans over them."""

    def programs(self):
        return [program_of(make()) for _, make in generate.PROGRAMS.values()]

    def test_same_step(self):
        for p in self.programs():
            for most in (3, 6, 24):
                c = chain_of(p, most)
                self.assertEqual([i for a, b in c.ranges for i in range(a, b)],
                                 list(range(len(p.operators))))
                self.assertEqual(len(c.ranges), 2 * c.blocks + 1)
                self.assertEqual(c.program.time, p.time)
                self.assertGreaterEqual(c.program.peak(), p.peak())
                for s, maker in enumerate(p.makers):
                    crosses = any(c.position(u) != c.position(maker) for u in p.users()[s])
                    self.assertEqual(sum(s in g for g in c.groups), int(crosses))

    def test_plans(self):
        """Each absence lies between two uses; with less memory no plan gets cheaper."""
        for p in self.programs():
            c, users = chain_of(p), p.users()
            for name, planner in PLANNERS.items():
                times = []
                for part in (1.0, 0.8, 0.6):
                    try:
                        plan = planner(c, int(part * c.program.peak()), 1e9, 20)
                    except NoPlan:
                        continue
                    times.append(plan.time)
                    self.assertLessEqual(plan.bound, plan.time * 1.0001)
                    for s, begin, end, _ in plan.absences:
                        self.assertLessEqual(p.makers[s], begin)
                        self.assertLess(begin, end)
                        between = [u for u in users[s] if begin < u < end]
                        self.assertEqual(between, [], (name, p.name))
                self.assertGreater(len(times), 0, name)
                self.assertAlmostEqual(times[0] / p.time, 1.0, places=6)
                self.assertEqual(times, sorted(times), name)

    def test_carried_out(self):
        """delta's manager takes about the time that the planner says."""
        if REPLAY is None:
            self.skipTest("needs --replay")
        step = generate.PROGRAMS["chain_long"][1]()
        with tempfile.TemporaryDirectory() as folder:
            trace, file, rows = (pathlib.Path(folder) / n for n in ("t.jsonl", "plan.jsonl", "rows"))
            step.write(trace)
            p = read(trace)
            c = chain_of(p)
            budget, rate = int(0.6 * p.peak()), 1e9
            for name, planner in PLANNERS.items():
                plan = planner(c, budget, rate, 20)
                self.assertGreater(len(plan.absences), 0, name)
                write(plan, c, file)
                subprocess.run([REPLAY, trace, "--plan", file, "--budget", f"{budget}B", "--bandwidth",
                                f"{int(rate)}B/s", "--latency", "0ns", "--iterations", "4", "--memory",
                                "pages", "--thrash-limit", "20", "--json", rows], check=True,
                               stdout=subprocess.DEVNULL)
                last = json.loads(rows.read_text(encoding="utf-8"))[-1]
                self.assertEqual(last["result"], "pass", name)
                self.assertLess(abs(last["time_ns"] / plan.time - 1), 0.2, name)


class Traces(unittest.TestCase):
    def lines(self, *events):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "trace.jsonl"
            path.write_text("\n".join(json.dumps(e) for e in ({"delta_trace": 1}, *events)))
            return read(path)

    def test_meaning(self):
        p = self.lines({"variable": 8}, {"run": "a", "cost": 3, "inputs": [0], "outputs": [5]},
                       {"run": "b", "cost": 1, "inputs": [1], "updates": [0],
                        "outputs": [{"view_of": 1}, 7]}, {"read": 2}, {"drop": 1}, {"drop": 2})
        self.assertEqual((p.fixed, p.sizes, p.makers, p.time), (8, [5, 7], [0, 1], 4))
        self.assertEqual([o.name for o in p.operators], ["a", "b", "read", "results"])
        self.assertEqual([o.reads for o in p.operators], [[], [0], [0], [1]])
        # The variable that `a` read is another one from `b` on.
        self.assertEqual([o.reruns_until for o in p.operators[:2]], [1, 1])

    def test_refusals(self):
        run = {"run": "a", "outputs": [1]}
        for events, why in (([run, {"mark": "end_of_step"}, run], "second step"),
                            ([{"run": "a", "inputs": [4]}], "not there"),
                            ([run, {"run": "b", "updates": [0]}], "updates"),
                            ([run] * 61, "operators"), ([], "operators")):
            with self.assertRaisesRegex(BadProgram, why):
                self.lines(*events)

    def test_generated(self):
        for name, (_, make) in generate.PROGRAMS.items():
            p = program_of(make())
            self.assertLessEqual(len(p.operators), 60, name)
            self.assertGreater(p.peak(), p.floor(), name)
            self.assertGreater(p.forward_time, 0, name)
            self.assertLess(p.forward_time, p.time, name)


if __name__ == "__main__":
    if "--replay" in sys.argv:
        at = sys.argv.index("--replay")
        REPLAY = sys.argv[at + 1]
        del sys.argv[at:at + 2]
    unittest.main()
