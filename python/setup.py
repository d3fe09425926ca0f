"""Builds delta_torch: its extension delta_torch._C, of csrc and delta's engine, for the PyTorch
that is installed.

    pip install ./python --no-build-isolation --no-deps    # in the root of a clone
    python setup.py build_ext --inplace                    # here; compiles what has changed

Where PyTorch is built for CUDA and the CUDA toolkit's headers are found, delta_torch._cuda is
built, too; DELTA_TORCH_CUDA=0 leaves it out, and with =1 a toolkit that is missing is an error.
DELTA_WARNINGS_AS_ERRORS=1 makes a warning an error; MAX_JOBS=N compiles N files at a time;
DELTA_TORCH_IN_VERSION=1 adds PyTorch's version to the package's, as wheels of each have one name
otherwise. What is compiled stays in build/torch-VERSION-PYTHON, so that builds for several versions
don't mix.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import setuptools
from setuptools.command.build_py import build_py

os.chdir(Path(__file__).resolve().parent)

OLDEST_TORCH = (2, 11)
OLDEST_SETUPTOOLS = (77,)
OLDEST_COMPILERS = {"g++": 12, "clang": 16}

CSRC = Path("csrc")
CSRC_CUDA = Path("csrc_cuda")
# What PyTorch's own headers of CUDA include of the toolkit.
CUDA_HEADERS = ("cuda_runtime_api.h", "cublas_v2.h", "cublasLt.h", "cusparse.h", "cusolverDn.h")
INCLUDE = Path("delta_torch/include")
ENGINE_INCLUDE = Path("delta_torch/engine_include")
TESTING_INCLUDE = Path("delta_torch/testing_include")
ENGINE = Path("engine")
COMPILING = Path("delta_torch/compiling")  # what users' policies are compiled with
TRACES = ENGINE / "traces"
OWN = ENGINE / "own"
HASHES = ENGINE / "hashes"
# What lies elsewhere in a clone, and in the source distribution where it is named here.
LINKED = {
    INCLUDE: Path("../include"),
    ENGINE_INCLUDE: Path("../engine/include"),
    TESTING_INCLUDE: Path("../testing/include"),
    ENGINE: Path("../engine"),
    COMPILING: Path("../engine/own"),
    Path("LICENSE"): Path("../LICENSE"),
}


def fail(sentence: str) -> None:
    """Ends the build with one sentence, without a traceback."""
    sys.exit(f"delta_torch: {sentence}")


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (2, 15, 0) of "2.15.0+cpu"."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(n) for n in found[0].split(".")) if found else ()


def link_into_clone() -> None:
    """In a clone, links what is not below this folder to where it is; setuptools looks only here.

    The links are made, not committed: a checkout without symbolic links would hold files instead.
    """
    for place, target in LINKED.items():
        if not place.exists() and target.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            # A link's target is relative to the folder that the link is in.
            target = Path(os.path.relpath(target, place.parent))
            place.unlink(missing_ok=True)  # a link that leads nowhere
            place.symlink_to(target)


def delta_version() -> str:
    """delta's version, from its header."""
    header = INCLUDE / "delta/version.hpp"
    sources = (header, ENGINE / "policies.cpp", TRACES / "bound.cpp")
    if not all(source.exists() for source in sources):
        fail(
            "delta's own sources are missing: build it in a clone of the whole repository, or from "
            "the source distribution"
        )
    text = header.read_text(encoding="utf-8")
    return ".".join(
        re.search(rf"#define DELTA_VERSION_{part} (\d+)", text)[1]
        for part in ("MAJOR", "MINOR", "PATCH")
    )


def check_compiler() -> None:
    """Ends the build if the C++ compiler is missing or too old."""
    command = os.environ.get("CXX", "c++")
    try:
        done = subprocess.run(
            [*shlex.split(command), "-E", "-P", "-x", "c++", "-"],
            input="__clang_major__ __GNUC__",
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        fail(f"there is no C++ compiler '{command}': install g++ 12 or newer, or name one in CXX")
    words = done.stdout.split()
    if done.returncode != 0 or len(words) != 2:
        return  # none that we know; what it can't compile, it will say
    name, major = ("clang", words[0]) if words[0].isdigit() else ("g++", words[1])
    if major.isdigit() and int(major) < OLDEST_COMPILERS[name]:
        fail(
            f"{command} is {name} {major}, and C++20 needs g++ {OLDEST_COMPILERS['g++']} or clang "
            f"{OLDEST_COMPILERS['clang']} at least: name another in CXX"
        )


def check_torch() -> None:
    """Ends the build if PyTorch is missing, broken or too old."""
    oldest = ".".join(map(str, OLDEST_TORCH))
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            fail(f"PyTorch can't be imported: {error}")
        fail(
            f"PyTorch {oldest} or newer must be installed first, as delta_torch is built for the "
            "one that is there: then pip install --no-build-isolation"
        )
    except (ImportError, OSError) as error:
        fail(f"PyTorch can't be imported: {error}")
    if numbers(torch.__version__) < OLDEST_TORCH:
        fail(f"PyTorch is {torch.__version__}, and delta_torch needs {oldest} or newer")


def torch_minor() -> str | None:
    """The installed PyTorch's version as far as an extension depends on it, "2.15"; None: none."""
    try:
        found = numbers(importlib.metadata.version("torch"))
    except importlib.metadata.PackageNotFoundError:
        return None
    return ".".join(map(str, found[:2]))


def system_includes(folders: list[str]) -> list[str]:
    """Flags that make headers of others the system's, in which the compiler warns of nothing."""
    return [flag for folder in folders for flag in ("-isystem", folder)]


def compile_flags(torch_includes: list[str]) -> list[str]:
    """Flags of every source file. The engine's have no header of PyTorch and don't miss it."""
    # Only Python's entry is called from outside: the rest is called without indirection.
    flags = ["-std=c++20", "-O3", "-g0", "-fvisibility=hidden", "-fvisibility-inlines-hidden"]
    flags += ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow"]
    # g++ 12 is wrong about -Wrestrict, which clang does not have.
    flags += ["-Wno-restrict", "-Wno-unknown-warning-option"]
    if os.environ.get("DELTA_WARNINGS_AS_ERRORS", "0") not in ("", "0"):
        flags.append("-Werror")
    # A folder that is named in both ways, as Python's is, is the system's.
    return flags + system_includes([*torch_includes, sysconfig.get_path("include")])


def extension(building: bool) -> setuptools.Extension:
    """delta_torch._C; not to be built, only its files are named, and PyTorch is not needed."""
    folders = (CSRC, ENGINE, TRACES, OWN, HASHES)
    sources = sorted(str(p) for folder in folders for p in folder.glob("*.cpp"))
    headers = [p for folder in folders for p in folder.glob("*.hpp")]
    for folder in (INCLUDE, ENGINE_INCLUDE, TESTING_INCLUDE):
        headers += [p for p in (folder / "delta").rglob("*") if p.suffix in (".hpp", ".h")]
    depends = sorted(map(str, headers))
    if not building:
        return setuptools.Extension("delta_torch._C", sources, depends=depends)

    from torch.utils import cpp_extension

    made = cpp_extension.CppExtension("delta_torch._C", sources, depends=depends)
    folders = (CSRC, ENGINE, INCLUDE, ENGINE_INCLUDE, TESTING_INCLUDE, COMPILING)
    made.include_dirs = [str(p.absolute()) for p in folders]
    made.extra_compile_args = compile_flags(cpp_extension.include_paths())
    return made


def no_cuda() -> str | None:
    """Why delta_torch._cuda can't be built here, in words; None: it can."""
    import torch
    from torch.utils import cpp_extension

    if torch.version.cuda is None:
        return "this PyTorch is not built for CUDA"
    home = cpp_extension.CUDA_HOME
    if home is None:
        return "there is no CUDA toolkit; name its folder in CUDA_HOME"
    folders = [Path(p) for p in cpp_extension.include_paths("cuda")]
    for name in CUDA_HEADERS:
        if not any((folder / name).exists() for folder in folders):
            return f"the CUDA toolkit in {home} has no {name}"
    libraries = cpp_extension.library_paths("cuda")
    if not any(Path(folder, "libcudart.so").exists() for folder in libraries):
        return f"the CUDA toolkit in {home} has no libcudart.so"
    header = next(p for f in folders if (p := f / CUDA_HEADERS[0]).exists())
    found = re.search(r"#define CUDART_VERSION +(\d+)", header.read_text(errors="replace"))
    major, needed = int(found[1]) // 1000 if found else 0, numbers(torch.version.cuda)[0]
    if major != needed:
        return f"PyTorch is built for CUDA {needed}, and the toolkit in {home} is CUDA {major}"
    return None


def cuda_extension() -> setuptools.Extension | None:
    """delta_torch._cuda: plain C++ over CUDA's runtime; None where it can't be, having said why."""
    wanted = os.environ.get("DELTA_TORCH_CUDA", "")
    reason = "DELTA_TORCH_CUDA is 0" if wanted == "0" else no_cuda()
    if reason is not None:
        if wanted not in ("", "0"):
            fail(f"DELTA_TORCH_CUDA is {wanted}, and {reason}")
        print(f"delta_torch: without its CUDA part, as {reason}", file=sys.stderr)
        return None

    from torch.utils import cpp_extension

    sources = sorted(str(p) for p in CSRC_CUDA.glob("*.cpp"))
    depends = sorted(str(p) for p in (*CSRC_CUDA.glob("*.hpp"), CSRC / "device_part.hpp"))
    made = cpp_extension.CUDAExtension("delta_torch._cuda", sources, depends=depends)
    made.include_dirs = [str(p.absolute()) for p in (CSRC_CUDA, CSRC)]
    made.extra_compile_args = compile_flags(cpp_extension.include_paths("cuda"))
    return made


def extension_builder() -> type:
    """PyTorch's command that compiles extensions, with a folder of its own for objects."""
    import torch
    from torch.utils.cpp_extension import BuildExtension

    class build_extension(BuildExtension):
        """Keeps the objects of an editable build, too: the next compiles only what has changed."""

        def initialize_options(self) -> None:
            super().initialize_options()
            self.build_temp = f"build/torch-{torch.__version__}-{sys.implementation.cache_tag}"

        def run(self) -> None:
            super().run()
            # Beside the extension, wherever that is: delta_torch's import compares it.
            beside = Path(self.get_ext_fullpath("delta_torch._C")).parent
            (beside / "_built_for.py").write_text(f'TORCH = "{torch_minor()}"\n')

    return build_extension


class build_package(build_py):
    """Copies the Python files. What has left the package must not stay from an earlier build."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(Path(self.build_lib, "delta_torch"), ignore_errors=True)
        super().run()


def main() -> None:
    if numbers(setuptools.__version__) < OLDEST_SETUPTOOLS:
        fail(
            f"setuptools is {setuptools.__version__}, and {OLDEST_SETUPTOOLS[0]} or newer is "
            "needed: pip install --upgrade 'setuptools>=77.0.3,<82'"
        )
    link_into_clone()
    version = delta_version()

    # A source distribution, or a question about the package, needs neither PyTorch nor a compiler.
    building = any(
        command.startswith(("build", "bdist", "editable", "develop", "install"))
        for command in sys.argv[1:]
    )
    commands: dict[str, type] = {"build_py": build_package}
    cuda = None
    if building:
        check_torch()
        check_compiler()
        cuda = cuda_extension()
        commands["build_ext"] = extension_builder()
        os.environ.setdefault("MAX_JOBS", str(len(os.sched_getaffinity(0))))

    # An extension is for one minor version of PyTorch; the source distribution is for all.
    minor = None if "sdist" in sys.argv else torch_minor()
    requirement = f"torch=={minor}.*" if minor else f"torch>={'.'.join(map(str, OLDEST_TORCH))}"
    if minor and os.environ.get("DELTA_TORCH_IN_VERSION", "0") not in ("", "0"):
        version += f"+torch{minor}"

    setuptools.setup(
        version=version,
        install_requires=[requirement],
        ext_modules=[e for e in (extension(building), cuda) if e is not None],
        cmdclass=commands,
    )


main()
