#!/usr/bin/env python3
"""Makes stub shared libraries, so that PyTorch's CUDA build can be imported without NVIDIA's.

PyTorch's default build for Linux is linked with libraries of CUDA (cuBLAS, cuDNN, NCCL ...) that
take 2 GB to download and 3 GB on disk, and `import torch` fails where one is missing, even if
nothing is ever computed on a GPU. This program finds those that are missing and writes a library
of the same name for each, of some kilobytes, with every function that PyTorch links. The functions
do nothing and return 999, CUDA's "unknown error". Operators on the CPU work as always.

This is for tests on machines without a GPU, and for nothing else: nothing of CUDA works with
stubs. NVIDIA's own libraries win over stubs once they are installed with pip.

Not made, as PyTorch really calls them at its start: libcudart and libcupti, of the Python packages
nvidia-cuda-runtime and nvidia-cuda-cupti, 14 MB together.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# Every stub defines this function: so that a later run, for another PyTorch, makes it anew.
MARK = "delta_stub_library"

# NVIDIA's libraries. One that the system has may be of another version than PyTorch's, so only
# those that are installed as Python packages count.
NVIDIA = re.compile(r"lib(cu|nv|nccl)")

# What must be real: PyTorch asks these at its start what there is.
REAL = ("libcudart.so", "libcupti.so")


class StubError(Exception):
    """Something that the user can mend, said in one sentence."""


@dataclass
class Symbol:
    """A name in a library's dynamic symbol table, of the kind that a linker must find."""

    name: str
    version: str  # "": it has none
    library: str  # which library must have it, where the version says so; "" otherwise


@dataclass
class Library:
    """What the linker reads of a shared library."""

    needs: list[str] = field(default_factory=list)
    undefined: list[Symbol] = field(default_factory=list)
    defined: set[str] = field(default_factory=set)


@dataclass
class Loaded:
    """All that `import torch` loads, by the libraries' names."""

    libraries: dict[str, Library] = field(default_factory=dict)  # PyTorch's and NVIDIA's
    missing: set[str] = field(default_factory=set)  # NVIDIA's that are not there, or are stubs
    system: dict[str, ctypes.CDLL] = field(default_factory=dict)  # libc.so.6 and others

    def defines(self, name: str) -> bool:
        """True if one of them has a symbol of that name, or Python itself."""
        return (
            any(name in library.defined for library in self.libraries.values())
            or any(hasattr(library, name) for library in self.system.values())
            or hasattr(ctypes.CDLL(None), name)
        )


def output_of(command: list[str]) -> str:
    """What a program prints, in English. Raises StubError if it is missing or fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
        )
    except OSError as error:
        raise StubError(f"{command[0]} can't be run: {error.strerror}") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise StubError(f"{command[0]} failed: {said[0] if said else done.returncode}")
    return done.stdout


def read_library(path: Path) -> Library:
    """Reads a shared library with readelf. Raises StubError if readelf can't."""
    # "  0x0010:   Name: NVSHMEM  Flags: none  Version: 71" is under "File: libnvshmem_host.so.3".
    file, file_of_version = "", {}
    for line in output_of(["readelf", "-W", "-V", str(path)]).splitlines():
        if found := re.search(r"Version: \d+ +File: (\S+)", line):
            file = found[1]
        elif found := re.search(r"Name: \S+ +Flags: .* +Version: (\d+)", line):
            file_of_version[found[1]] = file

    library = Library()
    dynamic = output_of(["readelf", "-W", "-d", str(path)])
    library.needs = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    # "  12: 0000000000000000  0 FUNC  GLOBAL DEFAULT  UND cudnnCreate@libcudnn.so.9 (71)"
    for line in output_of(["readelf", "-W", "--dyn-syms", str(path)]).splitlines():
        words = line.split()
        if len(words) < 8 or not words[0].endswith(":") or words[0] == "Num:":
            continue
        name, _, version = words[7].partition("@")
        if words[6] != "UND":
            library.defined.add(name)
        elif words[4] == "GLOBAL":  # a weak one may stay undefined
            number = words[8].strip("()") if len(words) > 8 else ""
            library.undefined.append(
                Symbol(name, version.lstrip("@"), file_of_version.get(number, ""))
            )
    return library


def find_torch() -> Path:
    """The folder of this Python's package torch, which is not imported. Raises StubError."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise StubError(f"{sys.executable} has no PyTorch; name its folder with --torch")
    return Path(found.origin).parent


def read_loaded(torch: Path, out: Path) -> Loaded:
    """What `import torch` loads, with stubs in `out`.

    Raises StubError if a library is missing that is not NVIDIA's, or if `torch` is not the folder
    of a PyTorch for Linux.
    """
    waiting = [*torch.glob("_C.*.so"), *torch.glob("lib/libtorch_global_deps.so")]
    if not waiting:
        raise StubError(f"{torch} is not the folder of a PyTorch for Linux: it has no _C.*.so")
    folders = [*sorted(torch.parent.glob("nvidia/*/lib")), torch / "lib", out]

    loaded = Loaded()
    seen = {path.name for path in waiting}
    while waiting:
        path = waiting.pop()
        library = read_library(path)
        if MARK in library.defined:  # a stub of an earlier run
            loaded.missing.add(path.name)
            continue
        loaded.libraries[path.name] = library
        for name in library.needs:
            if name in seen:
                continue
            seen.add(name)
            path = next((f / name for f in folders if (f / name).exists()), None)
            if path is not None:
                waiting.append(path)
            elif NVIDIA.match(name):
                loaded.missing.add(name)
            else:
                try:
                    loaded.system[name] = ctypes.CDLL(name)
                except OSError:
                    raise StubError(f"{name} is missing, not one of NVIDIA's: install it") from None
    return loaded


def wanted_symbols(loaded: Loaded) -> dict[str, dict[str, str]]:
    """For each missing library the functions that its stub must have, each with its version.

    A symbol with a version says which library it is from. One without may be in any library that
    is linked, so each missing one gets it, unless a library that is there has it.
    """
    wanted: dict[str, dict[str, str]] = {name: {} for name in sorted(loaded.missing)}
    for library in loaded.libraries.values():
        owners = loaded.missing.intersection(library.needs)
        for symbol in library.undefined:
            if symbol.library in loaded.missing:
                wanted[symbol.library][symbol.name] = symbol.version
            elif owners and not symbol.library and not loaded.defines(symbol.name):
                for owner in owners:
                    wanted[owner].setdefault(symbol.name, "")
    return wanted


def c_compiler() -> list[str]:
    """The C compiler's command: $CC, or the first of cc, gcc and clang. Raises StubError."""
    if os.environ.get("CC"):
        return os.environ["CC"].split()
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    raise StubError("there is no C compiler: install gcc, or name one in the variable CC")


def version_script(versions: dict[str, str]) -> Iterator[str]:
    """The lines of a linker script that gives symbols their versions."""
    for version in sorted(set(versions.values()) - {""}):
        names = " ".join(f"{name};" for name, v in sorted(versions.items()) if v == version)
        yield f"{version} {{ global: {names} }};\n"


def write_stub(name: str, versions: dict[str, str], out: Path) -> None:
    """Compiles the library `name` with the functions `versions` into the folder `out`."""
    with tempfile.TemporaryDirectory() as folder:
        source, script = Path(folder, "stub.c"), Path(folder, "versions")
        functions = [MARK, *sorted(versions)]
        source.write_text("".join(f"long {f}(void) {{ return 999; }}\n" for f in functions))
        script.write_text("".join(version_script(versions)))
        command = [*c_compiler(), "-O1", "-w", "-fno-builtin", "-fPIC", "-shared", "-nostdlib"]
        command += [f"-Wl,-soname,{name}", "-Wl,-s", str(source), "-o", str(Path(folder, name))]
        if any(versions.values()):
            command.append(f"-Wl,--version-script,{script}")
        output_of(command)
        # Beside it first, so that nobody ever loads half a library.
        beside = out / f".{name}.new"
        shutil.copy(Path(folder, name), beside)
        beside.replace(out / name)


def make_stubs(torch: Path, out: Path, only_list: bool) -> None:
    """Finds what `import torch` misses, and writes a stub for each. Raises StubError."""
    loaded = read_loaded(torch, out)
    real = sorted(name for name in loaded.missing if name.startswith(REAL))
    if real:
        raise StubError(
            f"{', '.join(real)} must be NVIDIA's own: install the Python packages "
            "nvidia-cuda-runtime and nvidia-cuda-cupti, of the CUDA version that PyTorch is for"
        )
    wanted = wanted_symbols(loaded)
    if not wanted:
        print("no library is missing")
    for name, versions in wanted.items():
        if not only_list:
            write_stub(name, versions, out)
        print(f"{name}: {len(versions)} functions")


def main() -> int:
    text = (__doc__ or "").split("\n\n")
    parser = argparse.ArgumentParser(
        description=text[0],
        epilog="\n\n".join(text[1:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--torch", type=Path, metavar="DIR", help="PyTorch's folder; default: this Python's torch"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where stubs go; default: lib in PyTorch's folder"
    )
    parser.add_argument(
        "--list", action="store_true", help="say what is missing, but write nothing"
    )
    flags = parser.parse_args()
    try:
        if Path("/proc/driver/nvidia/version").exists() and not flags.list:
            raise StubError("this machine has an NVIDIA GPU: install PyTorch with its libraries")
        torch = flags.torch or find_torch()
        out = flags.out or torch / "lib"
        if flags.out and not out.is_dir():
            raise StubError(f"{out} is not a folder")
        make_stubs(torch, out, flags.list)
    except (StubError, OSError) as error:
        print(f"stub_libraries.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
