"""What a C++ compiler's errors say about a policy: delta's sentences, and errors in the user's files.

The concepts' static assertions are whole sentences; around each the compiler prints where it
stands in delta's headers, and what was instantiated from where, which nobody needs.
"""

from __future__ import annotations

import re
from pathlib import Path

# As the source is told to the compiler (policy_build.py): an error in its first line says that
# nothing has the policy's name, one in its second line that name() does not compile.
SOURCE = "<stdin>"
_MOST = 5  # errors of the compiler's own that are shown

_ERROR = re.compile(r"^(?P<file>[^\n:]+):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)$")
# clang says which condition failed; its sentence comes after.
_ASSERTION = re.compile(r"static assertion failed(?: due to requirement '.*?')?: (?P<sentence>.*)$")


def what_is_wrong(output: str, header: Path, name: str, ours: list[Path]) -> list[str]:
    """Sentences, or, where there are none, the compiler's first errors.

    output: all that the compiler printed, in English. header, name: the user's header and policy.
    ours: folders of headers that are delta's, whose errors follow from others.
    """
    errors = [match for line in output.splitlines() if (match := _ERROR.match(line))]
    lines_of_source = {int(e["line"]) for e in errors if e["file"] == SOURCE}
    sentences = [a["sentence"] for e in errors if (a := _ASSERTION.search(e["text"]))]
    # A header with an error in it may lack the name because of that.
    within = [
        e[0]
        for e in errors
        if e["file"] != SOURCE
        and not _ASSERTION.search(e["text"])
        and not any(folder in Path(e["file"]).resolve().parents for folder in ours)
    ]
    if within:
        return _unique([*sentences, *within])[: _MOST + len(sentences)]
    if 1 in lines_of_source:
        return [f"{header} has neither a struct nor a function '{name}' in the global namespace"]
    if 2 in lines_of_source:
        return [
            f"{name}() does not compile: '{name}' is a struct that is made without arguments, or a "
            "function that is called without arguments"
        ]
    if sentences:
        return _unique(sentences)
    return _unique([e[0] for e in errors])[:_MOST] or ["the compiler has failed: see .output"]


def _unique(lines: list[str]) -> list[str]:
    return list(dict.fromkeys(lines))
