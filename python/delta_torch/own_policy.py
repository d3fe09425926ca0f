"""Policies of one's own: a heuristic, decider or prefetcher in C++, compiled and known by a name."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from . import _C
from .compiler_output import what_is_wrong
from .policy_build import FOLDERS, CompileFailed, library_of

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What C++20 keeps for itself.
_KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
    char32_t class compl concept const consteval constexpr constinit const_cast continue co_await
    co_return co_yield decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public register reinterpret_cast requires return
    short signed sizeof static static_assert static_cast struct switch template this thread_local
    throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while
    xor xor_eq
    """.split()
)


class PolicyError(RuntimeError):
    """A policy that does not compile. The text says in sentences what is wrong with it.

    sentences: the same as a list. output: all that the compiler printed.
    """

    def __init__(self, header: Path, name: str, sentences: list[str], output: str) -> None:
        lines = "".join(f"\n  {sentence}" for sentence in sentences)
        super().__init__(f"{header} has no policy '{name}' that compiles:{lines}")
        self.sentences = sentences
        self.output = output


def compile_policy(
    header: str | os.PathLike[str], name: str, *, flags: Sequence[str] = ()
) -> str:
    """Compiles a policy of your own, which is then one like any other by `name`, in this process.

        delta_torch.compile_policy("mine.hpp", "mine")
        with delta_torch.budget("4GiB", policy="mine") as run: ...

    header: a C++ header that has, outside of namespaces, a struct of that name which is a
        Heuristic, a Decider or a Prefetcher, or a function of that name which returns one, or a
        whole delta::policy. In the roles that a struct does not have it is `online`. Which members
        each role needs is in docs/writing_a_policy.md; delta/delta.hpp is included already.
    name: no policy of delta's own has it. Compiling another one under the same name replaces
        it for runs that begin later.
    flags: for the compiler besides, such as "-I" with a folder.

    Returns the name. It takes some ten seconds of the compiler that CXX names (or c++), and
    nothing when the same was compiled before: libraries are kept in ~/.cache/delta_torch/policies.
    Raises PolicyError, with delta's sentences, where the policy is wrong; ValueError for a name
    that can't be one; FileNotFoundError where there is no such header; RuntimeError where there
    is no compiler, or what it made can't be loaded; OSError where it can't be kept.
    """
    _check_name(name)
    path = Path(header).absolute()
    if not path.is_file():
        raise FileNotFoundError(f"there is no header {os.fspath(header)!r} to compile a policy of")
    if isinstance(flags, str):
        raise ValueError(f"flags is a list of flags, such as ['-Ifolder']: not {flags!r}")
    try:
        library = library_of(path, name, tuple(map(str, flags)))
    except CompileFailed as failed:
        output = str(failed)
        ours = [folder.resolve() for folder in FOLDERS]
        raise PolicyError(path, name, what_is_wrong(output, path, name, ours), output) from None
    _C.load_policy(name, str(library))
    return name


def _check_name(name: str) -> None:
    if name in _C.policies() and name not in _C.own_policies():
        raise ValueError(f"{name!r} is one of delta's own policies: give yours another name")
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name) or name in _KEYWORDS:
        raise ValueError(f"a policy's name is a C++ name, such as 'mine': not {name!r}")
