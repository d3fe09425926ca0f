"""Compiles a policy's header to a shared library, in a cache on disk.

The cache is $XDG_CACHE_HOME/delta_torch/policies, or ~/.cache/delta_torch/policies. An entry is
found by all that the library is made of: the header's text and place, delta's headers, the
compiler and the flags; it lists the files that the header includes, and counts only as long as
these are as they were. Everything is written beside its place and then moved there, so that several
processes may compile at once. Nothing is ever deleted: the folder may be, at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from ._version import __version__

PACKAGE = Path(__file__).resolve().parent
# Of headers that are delta's. Each may be a link into a clone.
FOLDERS = tuple(
    PACKAGE / name for name in ("include", "engine_include", "testing_include", "compiling")
)
_OLDEST = {"g++": 12, "clang": 16}
# As the extension is compiled, which takes 8.5 s: -O2 takes 7.5 s, and what a policy answers is
# asked for each tensor whenever room is lacking.
_FLAGS = ("-std=c++20", "-O3", "-g0", "-DNDEBUG", "-fPIC", "-shared")
# One function is visible. All else is the library's own, whatever the extension has of that name.
_FLAGS += ("-fvisibility=hidden", "-fvisibility-inlines-hidden")
# Output that compiler_output.py reads.
_OUTPUT_FLAGS = ("-fdiagnostics-color=never",)


class CompileFailed(Exception):
    """The compiler has printed errors, which are the text."""


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: how it is called, and what it says that it is."""

    command: tuple[str, ...]
    kind: str  # "g++ 12.2.0"


def find_compiler() -> Compiler:
    """The one that the environment variable CXX names, or c++.

    Raises RuntimeError where there is none, or it is too old for C++20.
    """
    text = os.environ.get("CXX") or "c++"
    command = tuple(shlex.split(text))
    try:
        done = subprocess.run(
            [*command, "-E", "-P", "-x", "c++", "-"],
            input="__clang_major__ __GNUC__ __VERSION__",
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        raise RuntimeError(
            f"there is no C++ compiler {text!r}: install g++ 12 or newer, or name one in CXX"
        ) from None
    words = done.stdout.split(maxsplit=2)
    if done.returncode != 0 or len(words) != 3:
        raise RuntimeError(f"{text!r} in CXX is no C++ compiler: it is g++ or clang")
    name, major = ("clang", words[0]) if words[0].isdigit() else ("g++", words[1])
    if not major.isdigit() or int(major) < _OLDEST[name]:
        raise RuntimeError(
            f"{text} is {name} {major}, and policies need g++ {_OLDEST['g++']} or clang "
            f"{_OLDEST['clang']} at least: name another in CXX"
        )
    return Compiler(command, f"{name} {words[2]}")


def library_of(header: Path, name: str, flags: tuple[str, ...]) -> Path:
    """The library of the policy `name` in `header`: the cache's, or compiled now.

    Raises CompileFailed, RuntimeError as find_compiler, and OSError where the cache can't be
    written.
    """
    compiler = find_compiler()
    cache = cache_folder()
    command = [*compiler.command, *_FLAGS, *_OUTPUT_FLAGS, _abi_flag(), *flags]
    if compiler.kind.startswith("clang"):
        command.append("-ferror-limit=0")
    for folder in FOLDERS:
        # As the system's: no warnings in them, and -MMD does not list them.
        command += ["-isystem", str(folder)]
    command += ["-include", "own_policy.hpp", "-include", str(header)]
    key = _digest(
        json.dumps([command, os.getcwd() if flags else "", name, compiler.kind, __version__]),
        header.read_bytes(),
        delta_headers(),
    )
    entry = cache / f"{key}.json"
    known = _known(entry)
    if known is not None:
        return known
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=cache, prefix="compiling-") as folder:
        made, needs = Path(folder, "policy.so"), Path(folder, "policy.d")
        _compile([*command, "-MMD", "-MT", "it", "-MF", str(needs), "-o", str(made)], name)
        files = {str(p): _digest(p.read_bytes()) for p in _named(needs.read_text())}
        # Other included files, another library: a process may have loaded the one before.
        library = cache / f"{name}-{_digest(key, json.dumps(files))}.so"
        made.replace(library)
        listed = Path(folder, "entry.json")
        listed.write_text(json.dumps({"library": library.name, "files": files}))
        listed.replace(entry)
    return library


def cache_folder() -> Path:
    """Where libraries are kept, whether or not it exists."""
    # The specification ignores paths that are not absolute.
    base = Path(os.environ.get("XDG_CACHE_HOME") or "")
    if not base.is_absolute():
        base = Path.home() / ".cache"
    return base / "delta_torch" / "policies"


@lru_cache(maxsize=1)
def delta_headers() -> str:
    """A digest of the headers that come with the package."""
    files = sorted(p for folder in FOLDERS for p in folder.resolve().rglob("*.h*"))
    return _digest(*(part for p in files for part in (p.name, p.read_bytes())))


def _compile(command: list[str], name: str) -> None:
    # `using` finds what the header has of that name, be it a struct or a function: see SOURCE.
    source = f"namespace {{ using ::{name}; }}\nDELTA_OWN_POLICY({name})\n"
    done = subprocess.run(
        [*command, "-x", "c++", "-"],
        input=source,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},  # in English
    )
    if done.returncode != 0:
        raise CompileFailed(done.stderr)


def _abi_flag() -> str:
    return f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"


def _known(entry: Path) -> Path | None:
    """The library that an entry of the cache names; None where any file has changed or gone."""
    try:
        listed = json.loads(entry.read_text())
        library = entry.with_name(listed["library"])
        for file, digest in listed["files"].items():
            if _digest(Path(file).read_bytes()) != digest:
                return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return library if library.is_file() else None


def _named(rule: str) -> list[Path]:
    """The files behind the colon of a rule of make, as -MMD writes it."""
    text = rule.replace("\\\n", " ").partition(":")[2]
    marked = text.replace("\\ ", "\0").replace("\\#", "#").replace("$$", "$")
    paths = [Path(word.replace("\0", " ")) for word in marked.split()]
    return [p.absolute() for p in paths if str(p) not in ("-", "<stdin>")]


def _digest(*parts: str | bytes) -> str:
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        sha.update(len(data).to_bytes(8, "little") + data)
    return sha.hexdigest()[:32]
