"""A mixed-integer program in sparse rows, and HiGHS that solves it: bounds, not only answers."""

import dataclasses

import highspy
import numpy as np


@dataclasses.dataclass
class Answer:
    status: str  # optimal, feasible (a time limit ended it), infeasible, unknown
    value: float | None  # of the best solution found
    bound: float  # no solution is below it
    seconds: float
    columns: np.ndarray | None

    @property
    def solved(self):
        return self.status == "optimal"


class Milp:
    """Minimizes. Expressions are dicts from column to coefficient; a number alone is a constant."""

    def __init__(self):
        self.cost, self.lower, self.upper, self.whole = [], [], [], []
        self.starts, self.index, self.value, self.row_upper = [], [], [], []

    def column(self, lower=0.0, upper=1.0, whole=False, cost=0.0):
        self.cost.append(cost)
        self.lower.append(lower)
        self.upper.append(upper)
        self.whole.append(whole)
        return {len(self.cost) - 1: 1.0}

    def at_most(self, left, right):
        """left <= right, both sums of expressions."""
        row, constant = {}, 0.0
        for terms, sign in ((left, 1.0), (right, -1.0)):
            for factor, term in terms:
                if not isinstance(term, dict):
                    constant += sign * factor * term
                    continue
                for c, a in term.items():
                    row[c] = row.get(c, 0.0) + sign * factor * a
        row = {c: a for c, a in row.items() if a != 0}
        if not row and constant <= 1e-9:
            return
        self.starts.append(len(self.index))
        self.index += row.keys()
        self.value += row.values()
        self.row_upper.append(-constant)

    def solve(self, seconds, start=None, threads=1):
        """`start`: values of all whole columns, from a solution that is known."""
        h = highspy.Highs()
        h.silent()
        h.setOptionValue("time_limit", float(seconds))
        h.setOptionValue("threads", threads)
        h.setOptionValue("mip_rel_gap", 1e-6)
        h.setOptionValue("mip_abs_gap", 1e-6)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.cost), len(self.row_upper)
        lp.col_cost_ = np.array(self.cost)
        lp.col_lower_, lp.col_upper_ = np.array(self.lower), np.array(self.upper)
        lp.row_lower_ = np.full(lp.num_row_, -highspy.kHighsInf)
        lp.row_upper_ = np.array(self.row_upper)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(self.starts + [len(self.index)])
        lp.a_matrix_.index_ = np.array(self.index)
        lp.a_matrix_.value_ = np.array(self.value)
        kinds = highspy.HighsVarType
        lp.integrality_ = [kinds.kInteger if w else kinds.kContinuous for w in self.whole]
        h.passModel(lp)
        if start is not None:
            columns = np.array([c for c, w in enumerate(self.whole) if w], dtype=np.int32)
            h.setSolution(len(columns), columns, np.array([start[c] for c in columns], dtype=float))
        h.run()
        return self._answer(h)

    @staticmethod
    def _answer(h):
        info, status = h.getInfo(), h.getModelStatus()
        seconds = h.getRunTime()
        if status in (highspy.HighsModelStatus.kInfeasible,
                      highspy.HighsModelStatus.kUnboundedOrInfeasible):
            return Answer("infeasible", None, float("inf"), seconds, None)
        found = info.primal_solution_status == 2  # feasible
        optimal = status == highspy.HighsModelStatus.kOptimal and found
        name = "optimal" if optimal else "feasible" if found else "unknown"
        value = info.objective_function_value if found else None
        bound = max(0.0, info.mip_dual_bound if info.mip_node_count >= 0 else value or 0.0)
        return Answer(name, value, bound, seconds,
                      np.array(h.getSolution().col_value) if found else None)
