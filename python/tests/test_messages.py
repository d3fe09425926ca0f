"""docs/errors.md: every error and warning of the package has a row there, and every row has one.

What the package can say is collected from its sources: in Python each exception that is made, each
warning and note; in C++ each literal that begins with "delta: ", and what is thrown or warned.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT.parent / "docs/errors.md"
CORE = ROOT.parent / "include/delta/error.hpp"
HOLE = "\0"  # what is only known when it is said: a name, a number, another error's text

# Whose text is another's, which has a row of its own, or is PyTorch's or the compiler's.
PASSED_ON = {
    "delta_torch/flags.py: str(error)",
    "delta_torch/launcher.py: f'delta_torch: {error}'",
    "delta_torch/own_policy.py: path",  # PolicyError makes its text of it
    "delta_torch/policy_build.py: done.stderr",
    "delta_torch/run.py: message",  # TensorDiffers, of C++
    "delta_torch/smallest_budget.py: message",  # NoBudgetFound, which is made with it
    "delta_torch/run.py: f'delta: {report.past_error()}'",  # the report's own line of advice
}
# delta's errors, and what their texts begin with; none: delta_torch gives no cause for it.
CORE_ERRORS: dict[str, tuple[str, ...]] = {
    "error": (),
    "unknown_tensor": (),
    "misuse": (),
    "poisoned": ("the manager is unusable",),
    "budget_exceeded": ("operator '%s' needs ", "operator '%s' needs inputs that were evicted"),
    "thrash": ("recomputation thrashes",),
}


class Message(NamedTuple):
    """What can be said: as what, its text with HOLE for what is filled in, and where it is made."""

    kind: str
    text: str
    where: str


# --- Python ---------------------------------------------------------------------------------------


def exceptions() -> set[str]:
    """The names of all exceptions: Python's, and the package's classes that derive from them."""
    known = {n for n, c in vars(builtins).items() if isinstance(c, type) and issubclass(c, BaseException)}
    known.add("ArgumentTypeError")
    for file in (ROOT / "delta_torch").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and known & {ast.unparse(b) for b in node.bases}:
                known.add(node.name)
    return known


def constants_of(tree: ast.Module) -> dict[str, str]:
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            found.update({ast.unparse(target): node.value.value for target in node.targets})
    return {name: value for name, value in found.items() if isinstance(value, str)}


def text_of(node: ast.expr, constants: dict[str, str]) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) else HOLE for v in node.values)
    if isinstance(node, ast.BinOp):
        return text_of(node.left, constants) + text_of(node.right, constants)
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "format":
        return re.sub(r"\{\w*\}", HOLE, text_of(node.func.value, constants))
    return constants.get(ast.unparse(node), HOLE)


def python_messages() -> list[Message]:
    known, found = exceptions(), []
    for file in sorted([ROOT / "setup.py", *(ROOT / "delta_torch").rglob("*.py")]):
        tree = ast.parse(file.read_text())
        constants = constants_of(tree)
        owner = {  # super().__init__(text) in an exception says what that exception says
            id(part): node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and node.name in known
            for part in ast.walk(node)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = ast.unparse(node.func).removeprefix("warnings.").removeprefix("argparse.")
            name = name if name == "super().__init__" else name.rpartition("error.")[2]
            kind = {"warn": "Warning", "add_note": "note", "_print": "printed"}.get(name, name)
            if name == "super().__init__" and id(node) in owner:
                kind = owner[id(node)]
            elif name == "fail" and file.name == "setup.py":
                kind = "delta_torch"
            elif name == "print" and "stderr" in ast.unparse(node):
                kind = "printed"
            elif kind == name and name not in known:
                continue
            text = text_of(node.args[0], constants).lstrip("\n")
            where = f"{file.relative_to(ROOT)}: {ast.unparse(node.args[0])}"
            if kind == "printed" and re.match(rf"[{HOLE}\r]|delta(_torch[^:]*)?: {HOLE}", text):
                continue  # reports, progress, and errors that are said in place of raised
            if where not in PASSED_ON:
                found.append(Message(kind, text, where))
    return found


# --- C++ ------------------------------------------------------------------------------------------


def statements(code: str) -> list[str]:
    """Those that throw or warn, or have a literal which begins with "delta: "."""
    code = re.sub(r"^\s*//.*$|//[^\"\n]*$", "", code, flags=re.M)
    begins = re.compile(r'\b(?:throw|TORCH_CHECK|TORCH_WARN|PyErr_SetString)\b|"delta: ')
    found, at = [], 0
    while (match := begins.search(code, at)) is not None:
        end = re.compile(r'(?:"(?:\\.|[^"\\])*"|[^";])*').match(code, match.start()).end()
        found.append(code[match.start() : end])
        at = max(end, match.end())
    return found


def literals_of(statement: str) -> str:
    """Its literals in a row, with HOLE between those that are not side by side."""
    literal = r'"((?:\\.|[^"\\])*)"'
    first = re.search(literal, statement)
    if first is None:
        return ""
    joined = re.sub(r'"\s*"', "", statement[first.start() :])
    parts = re.split(literal, joined)
    text = "".join(p if i % 2 else HOLE * bool(p.strip(" ,+)\n")) for i, p in enumerate(parts))
    return re.sub(f"%[a-z.0-9]+|{HOLE}+", HOLE, text.replace(r"\"", '"')).strip(HOLE)


def cpp_messages() -> list[Message]:
    found = []
    for folder in ("csrc", "csrc_cuda"):
        for file in sorted((ROOT / folder).glob("*.[ch]pp")):
            for statement in statements(file.read_text()):
                text = literals_of(statement)
                if re.search(r"no_room\(|out_of_memory\(", statement):
                    text = f"delta: out of memory. {HOLE}{text}"
                if " " in text.strip():
                    found.append(Message("", text, f"{folder}/{file.name}"))
    core = CORE.read_text()
    said = re.sub(r'", \w+\.\w+, "', "%s", core)  # a text between two others
    for name in re.findall(r"^class (\w+) (?:final )?: public", core, re.M):
        for text in CORE_ERRORS[name]:  # a new error of delta's needs a line there
            assert re.search(rf'\b(?:print|say)\("{re.escape(text)}', said), text
            short = "" if name == "poisoned" else "out of memory. "
            text = f"delta: {short}{text}".replace("'%s'", HOLE)
            found.append(Message("", text, f"error.hpp: {name}"))
    return found


# --- the page -------------------------------------------------------------------------------------


def pattern_of(written: str) -> re.Pattern[str]:
    parts = (re.escape(part) for part in written.split("..."))
    return re.compile(".*".join(parts), re.S)


@functools.cache
def rows() -> list[tuple[str, str]]:
    """Each message that the page names: "" or the exception it is of, and its beginning."""
    found = []
    for line in PAGE.read_text().splitlines():
        if line.startswith("| `"):
            for written in re.findall(r"`([^`]+)`", line.split(" | ")[0]):
                kind, _, text = written.rpartition("Error: ")
                found.append((kind and kind + "Error", text))
    return found


def has(row: tuple[str, str], message: Message) -> bool:
    kind, written = row
    kinds = (kind, "ArgumentTypeError") if kind == "ValueError" else (kind,)
    if kind and message.kind not in kinds:
        return False
    # "rank 1: " may stand behind "delta: ", and setup.py's begin with its name.
    text = message.text.replace(f"delta: {HOLE}", "delta: ", 1) if not message.kind else message.text
    return any(pattern_of(written).match(t) for t in (message.text, text))


MESSAGES = python_messages() + cpp_messages()


def test_each_has_a_row() -> None:
    missing = []
    for message in MESSAGES:
        shown = message.text.replace(HOLE, "...")
        assert re.search("[a-z]{3}", shown), f"{message.where}: its text can't be seen: PASSED_ON"
        if not any(has(row, message) for row in rows()):
            missing.append(f"{message.where.partition(':')[0]}: {message.kind}: {shown}")
    assert not missing, "docs/errors.md has no row of these"


def test_rows_are_of_messages() -> None:
    stale = [row for row in rows() if not any(has(row, message) for message in MESSAGES)]
    assert not stale, "nothing says this any more"


def test_rows_are_not_of_everything() -> None:
    """A row says enough to be told from others; but those of one kind of error's arguments."""
    for kind, written in rows():
        assert kind in ("ValueError", "TypeError") or len(written.replace(".", "")) >= 12, written
    unlike = Message("RuntimeError", "the moon is made of cheese, not of stone", "")
    assert not any(has(row, unlike) for row in rows())


def test_what_is_collected() -> None:
    """The collector sees each way in which the package says something."""
    wheres = {m.where.partition(":")[0] for m in MESSAGES}
    assert {"delta_torch/run.py", "delta_torch/planning/plan.py", "setup.py"} <= wheres
    assert {"csrc/module.cpp", "csrc/operator_begin.cpp", "csrc_cuda/cuda_part.cpp"} <= wheres
    assert {"Warning", "note", "delta_torch", "PolicyError", "NoBudgetFound"} <= {m.kind for m in MESSAGES}
    said = statements('f(x);\nthrow bad("delta: a; b " + n +\n  " c");\n// throw bad("d");\n')
    assert [literals_of(s) for s in said] == [f"delta: a; b {HOLE} c"]
