"""Places of C++ where a mutant can be made, found by libclang, and the source rewritten with all of them.

A mutant is a small change of one place: `<` for `<=`, a call left out. Each is written beside the original
behind a guard, `(::delta_mutant(17) ? (a <= b) : (a < b))`, so that one compilation has all of them. Left
out is what is no code of a function that runs: templates' arguments, constant expressions, requires,
static_assert, assert, declarations. Lines stay where they are.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import sys
from pathlib import Path

try:
    import clang.cindex as cindex
except ImportError:
    # Debian's binding is Python alone, and does for another Python than Debian's.
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        import clang.cindex as cindex
    except ImportError:
        cindex = None

KINDS = {
    "comparison": "`<` for `<=`, `==` for `!=`, and back",
    "logic": "`&&` for `||`, and back",
    "arithmetic": "`+` for `-`, `*` for `/`, `+=` for `-=`, `++` for `--`, and back",
    "min-max": "std::min for std::max, and back",
    "negation": "a condition negated, a `!` left out",
    "removal": "a statement left out: a call, an assignment, an increment",
    "constant": "another number by one, false for true, and back",
    "swap": "two arguments of one type, side by side, swapped",
}
OTHER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
         "+": "-", "-": "+", "*": "/", "/": "*", "+=": "-=", "-=": "+="}
COMMENTS = re.compile(r'("(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\')|//[^\n]*|/\*.*?\*/', re.S)
# Changing the order of these two is no change.
SYMMETRIC = {"swap", "max", "min", "exchange", "operator==", "operator!="}
INTEGERS = {"INT": "", "UINT": "u", "LONG": "l", "ULONG": "ul", "LONGLONG": "ll", "ULONGLONG": "ull"}


def one_line(text: str) -> str:
    """Source text without comments, on one line."""
    return re.sub(r"\s+", " ", COMMENTS.sub(lambda m: m[1] or " ", text)).strip()


@dataclasses.dataclass
class Place:
    """A mutant: bytes [start, end) of a file, and what is there instead."""

    file: str  # below the folder that is mutated
    start: int
    end: int
    kind: str
    function: str
    line: int
    before: str
    after: str
    statement: bool = False  # left out as a whole, with its semicolon
    condition: bool = False  # negated: its text is needed once only
    height: int = 1  # lines
    again: int = 1  # the n-th of its text in its function
    number: int = 0

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What names it while the code around it changes: no line numbers."""
        return (self.file, self.function, self.before, self.after, self.again)

    @property
    def id(self) -> str:
        return hashlib.sha256("\0".join(map(str, self.key)).encode()).hexdigest()[:8]

    def __str__(self) -> str:
        again = f" #{self.again}" if self.again > 1 else ""
        return f"{self.file} {self.function}: `{self.before}` -> `{self.after}`{again}"


class Finder:
    """Walks what libclang has parsed, and gathers places in the functions of some files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.sources: dict[str, str] = {}
        self.places: dict[tuple, Place] = {}
        self.macros: dict[str, list[tuple[int, int]]] = {}
        self.names: dict[str, str | None] = {}

    def parse(self, source: Path, arguments: list[str]) -> None:
        """Adds the places of a translation unit. Raises ValueError with the first error of the compiler."""
        index = cindex.Index.create()
        unit = index.parse(str(source), args=arguments,
                           options=cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
        errors = [d for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
        if errors:
            raise ValueError(f"{errors[0].location.file}:{errors[0].location.line}: {errors[0].spelling}")
        top = [c for c in unit.cursor.get_children() if self.file_of(c)]
        for c in top:
            if kind(c) == "MACRO_INSTANTIATION":
                self.macros.setdefault(self.file_of(c), []).append((c.extent.start.offset, c.extent.end.offset))
        for c in top:
            self.declarations(c, ())

    def file_of(self, cursor) -> str | None:
        """The path below the folder, or None for a file elsewhere."""
        file = cursor.location.file
        if file is None:
            return None
        if file.name not in self.names:
            path = Path(file.name).resolve()
            inside = path.is_relative_to(self.folder)
            self.names[file.name] = str(path.relative_to(self.folder)) if inside else None
            if inside:
                self.sources[self.names[file.name]] = path.read_bytes().decode("latin-1")
        return self.names[file.name]

    # --- declarations

    def declarations(self, cursor, scope: tuple[str, ...]) -> None:
        """Goes down to the bodies of functions."""
        what = kind(cursor)
        if what in ("CLASS_DECL", "STRUCT_DECL", "CLASS_TEMPLATE", "CLASS_TEMPLATE_PARTIAL_SPECIALIZATION"):
            scope += (cursor.spelling.split("<")[0],)
        elif what in ("FUNCTION_DECL", "CXX_METHOD", "FUNCTION_TEMPLATE", "CONSTRUCTOR", "DESTRUCTOR",
                      "CONVERSION_FUNCTION"):
            self.function(cursor, scope)
            return
        elif what not in ("NAMESPACE", "LINKAGE_SPEC", "UNEXPOSED_DECL", "FRIEND_DECL"):
            return
        for c in cursor.get_children():
            self.declarations(c, scope)

    def function(self, cursor, scope: tuple[str, ...]) -> None:
        file = self.file_of(cursor)
        if file is None:
            return
        if not scope and cursor.semantic_parent is not None and kind(cursor.semantic_parent) not in (
                "NAMESPACE", "TRANSLATION_UNIT"):
            scope = (cursor.semantic_parent.spelling.split("<")[0],)  # defined outside its class
        for body in cursor.get_children():
            if kind(body) == "COMPOUND_STMT":
                head = self.sources[file][cursor.extent.start.offset:body.extent.start.offset]
                if not re.search(r"\bconsteval\b", head):
                    self.here = (file, "::".join((*scope, cursor.spelling.split("<")[0])))
                    self.walk(body, None)

    # --- code

    def walk(self, node, parent) -> None:
        file, _ = self.here
        what, source = kind(node), self.sources[file]
        if what in SKIPPED or what is None:
            return
        start, end = extent(node)
        if self.in_macro(start):
            return
        children = [c for c in node.get_children() if kind(c) is not None]
        if what in ("CLASS_DECL", "STRUCT_DECL"):
            here = self.here
            for c in children:
                self.declarations(c, (here[1], node.spelling))
            self.here = here
            return
        if what == "DECL_REF_EXPR":
            return  # its children are arguments of templates
        if what == "VAR_DECL":
            if re.search(r"\b(constexpr|constinit)\b", source[start:node.location.offset]):
                return
            children = [c for c in children if extent(c)[0] > node.location.offset]
        elif what == "MEMBER_REF_EXPR":
            children = [c for c in children if extent(c)[0] == start]
        elif what == "CASE_STMT":
            children = children[1:]
        elif what == "IF_STMT" and re.match(r"if\s+constexpr\b", source[start:end]):
            children = children[1:]
        elif what in ("IF_STMT", "WHILE_STMT", "CONDITIONAL_OPERATOR"):
            self.condition(children)
        self.operators(what, node, parent)
        self.literal(what, node, parent)
        for i, c in enumerate(children):
            if what == "COMPOUND_STMT" or (what in ("IF_STMT", "FOR_STMT", "WHILE_STMT", "CXX_FOR_RANGE_STMT")
                                           and i > 0):
                self.removal(c, what, i == len(children) - 1)
            self.walk(c, node)

    def in_macro(self, at: int) -> bool:
        return any(a <= at < b for a, b in self.macros.get(self.here[0], ()))

    def add(self, start: int, end: int, what: str, before: str, after: str, **more) -> None:
        file, function = self.here
        if self.in_macro(start):
            return
        place = Place(file, start, end, what, function, self.sources[file].count("\n", 0, start) + 1,
                      one_line(before), one_line(after),
                      height=self.text(start, end).count("\n") + 1, **more)
        self.places.setdefault((file, start, end, place.after), place)

    def text(self, start: int, end: int) -> str:
        return self.sources[self.here[0]][start:end]

    def condition(self, children: list) -> None:
        """Negates the condition of an if, a while or a ?:, where no operator's own mutant does that."""
        if not children or not children[0].kind.is_expression():
            return  # one that declares
        node = children[0]
        start, end = extent(node)
        text = self.text(start, end)
        operator, _ = self.between(node)
        if operator in ("==", "!=") or text.startswith("!") and operator is None or text in ("true", "false"):
            return
        self.add(start, end, "negation", text, f"!({text})", condition=True)

    def between(self, node) -> tuple[str | None, list]:
        """The binary operator of a node and its two operands; None where it is none."""
        children = [c for c in node.get_children() if kind(c) is not None]
        if kind(node) == "UNEXPOSED_EXPR" and len(children) == 1:
            return self.between(children[0]) if extent(children[0]) == extent(node) else (None, [])
        if len(children) < 2:
            return None, []
        (a, b), (c, d) = extent(children[0]), extent(children[-1])
        if (a, d) != extent(node) or b > c:
            return None, []
        middle = one_line(self.text(b, c))
        return (middle, [children[0], children[-1]]) if middle in OTHER else (None, [])

    def operators(self, what: str, node, parent) -> None:
        start, end = extent(node)
        if what in ("BINARY_OPERATOR", "COMPOUND_ASSIGNMENT_OPERATOR", "CALL_EXPR", "UNEXPOSED_EXPR"):
            operator, sides = self.between(node)
            if operator is not None:
                self.binary(node, operator, sides)
                return
        if what == "UNARY_OPERATOR":
            text = self.text(start, end)
            if text.startswith("!="):
                pass  # half of an != that the language made of an operator==
            elif text.startswith("!"):
                self.add(start, end, "negation", text, text[1:])
            elif kind(parent) == "FOR_STMT":
                pass  # a loop that walks the other way: found at once, or by its time limit
            elif text[:2] in ("++", "--"):
                self.add(start, end, "arithmetic", text, {"++": "--", "--": "++"}[text[:2]] + text[2:])
            elif text[-2:] in ("++", "--"):
                self.add(start, end, "arithmetic", text, text[:-2] + {"++": "--", "--": "++"}[text[-2:]])
        elif what == "CALL_EXPR":
            self.call(node)

    def binary(self, node, operator: str, sides: list) -> None:
        (start, a), (b, end) = extent(sides[0]), extent(sides[1])
        left, right = self.text(start, a), self.text(b, end)
        what = "comparison" if operator[0] in "<>=!" else "logic" if operator in ("&&", "||") else "arithmetic"
        if what == "arithmetic" and '"' in left[:1] + right[:1] + left[-1:]:
            return  # strings, added
        self.add(start, end, what, self.text(start, end), f"{left} {OTHER[operator]} {right}")

    def call(self, node) -> None:
        start, end = extent(node)
        text = self.text(start, end)
        arguments = [a for a in node.get_arguments() if a is not None and kind(a) is not None]
        head = re.match(r"(std::(?:ranges::)?)(min|max)\b(?!_)", text)
        if head:
            other = {"min": "max", "max": "min"}[head[2]]
            self.add(start, end, "min-max", text, head[1] + other + text[head.end():])
            return
        if node.spelling in SYMMETRIC or not text.endswith((")", "}")):
            return
        for a, b in zip(arguments, arguments[1:]):
            types = {t.get_canonical().spelling.removeprefix("const ").rstrip("& ") for t in (a.type, b.type)}
            (c, d), (e, f) = extent(a), extent(b)
            if len(types) != 1 or "dependent" in types.copy().pop() or not start < c < d < e < f < end:
                continue
            first, second = self.text(c, d), self.text(e, f)
            if first != second and self.text(d, e).strip() == ",":
                self.add(start, end, "swap", text,
                         self.text(start, c) + second + self.text(d, e) + first + self.text(f, end))

    def literal(self, what: str, node, parent) -> None:
        start, end = extent(node)
        text = self.text(start, end)
        if what == "CXX_BOOL_LITERAL_EXPR" and text in ("true", "false"):
            self.add(start, end, "constant", text, "false" if text == "true" else "true")
        elif what == "INTEGER_LITERAL" and re.fullmatch(r"\d[\d']*[uUlL]*", text):
            # A number that was converted where it stands is written as what it became: braces do not narrow.
            became = parent.type.get_canonical().kind.name if kind(parent) == "UNEXPOSED_EXPR" else ""
            digits = re.match(r"[\d']+", text)[0]
            suffix = INTEGERS.get(became, text[len(digits):])
            value = int(digits.replace("'", ""))
            self.add(start, end, "constant", digits + suffix if suffix != text[len(digits):] else text,
                     f"{0 if value == 1 else value + 1}{suffix}")

    def removal(self, node, parent: str, last: bool) -> None:
        """Leaves out a statement that is an expression; only the body of a loop or an if is one there."""
        if not node.kind.is_expression() or (parent in ("FOR_STMT", "CXX_FOR_RANGE_STMT", "WHILE_STMT") and not last):
            return
        start, end = extent(node)
        semicolon = re.compile(r"\s*;").match(self.sources[self.here[0]], end)
        if semicolon is None:
            return
        if kind(node) == "PAREN_EXPR" or self.text(start, end).startswith("static_cast<void>"):
            return  # (void)x
        text = self.text(start, semicolon.end())
        self.add(start, semicolon.end(), "removal", text, "", statement=True)


SKIPPED = {"STATIC_ASSERT", "PARM_DECL", "FIELD_DECL", "TYPE_REF", "TEMPLATE_REF", "NAMESPACE_REF",
           "TEMPLATE_TYPE_PARAMETER", "TEMPLATE_NON_TYPE_PARAMETER", "CXX_UNARY_EXPR", "TYPE_ALIAS_DECL",
           "TYPEDEF_DECL", "USING_DECLARATION", "REQUIRES_EXPR", "CONCEPT_SPECIALIZATION_EXPR", "ENUM_DECL",
           "MACRO_INSTANTIATION", "SizeOfPackExpr", "SIZE_OF_PACK_EXPR"}


def kind(cursor) -> str | None:
    """The name of a cursor's kind; None for one that the binding does not know (requires, concepts)."""
    if cursor is None:
        return None
    try:
        return cursor.kind.name
    except ValueError:
        return None


def extent(cursor) -> tuple[int, int]:
    return cursor.extent.start.offset, cursor.extent.end.offset


def numbered(finder: Finder) -> list[Place]:
    """All places in order, numbered, with equal ones of a function told apart."""
    found = sorted(finder.places.values(), key=lambda p: (p.file, p.start, -p.end, p.after))
    seen: dict[tuple, int] = {}
    for n, place in enumerate(found):
        place.number = n
        seen[place.key[:4]] = place.again = seen.get(place.key[:4], 0) + 1
    return found


def rewritten(source: str, places: list[Place]) -> str:
    """The source with a guard at each of `places`, all of one file."""
    ordered = sorted(places, key=lambda p: (p.start, -p.end, not p.statement, not p.condition, p.number))

    def span(start: int, end: int, inside: list[Place]) -> str:
        out, at, i = [], start, 0
        while i < len(inside):
            outer = inside[i]
            j = i + 1
            while j < len(inside) and inside[j].start < outer.end:
                j += 1
            out.append(source[at:outer.start])
            within = inside[i + 1:j]
            # Operators of one size overlap only if they are the same place or one is in the other.
            out.append(guarded(outer, span(outer.start, outer.end, within)))
            at, i = outer.end, j
        out.append(source[at:end])
        return "".join(out)

    def guarded(p: Place, text: str) -> str:
        n = f"::delta_mutant({p.number})"
        if p.statement:
            return f"{{ if (!{n}) {text} }}"
        if p.condition:
            return f"({n} != static_cast<bool>({text}))"
        # Of !x and x, the type that both become may be x's, an optional: conditions are bool.
        cast = "static_cast<bool>" if p.kind in ("logic", "negation") else ""
        return f"({n} ? /*<{p.number}*/{cast}({p.after})/*{p.number}>*/ : {cast}({text}))"

    return span(0, len(source), ordered)
