"""Building the package: the source distribution, what setup.py says where it can't build, stubs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch

import delta_torch

ROOT = Path(__file__).resolve().parents[1]
SETUP = ROOT / "setup.py"
STUBS = ROOT / "tools/stub_libraries.py"


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python on a file, in a folder where nothing of the repository is found by accident."""
    return subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={**os.environ, "LC_ALL": "C", **environment},
    )


def files_below(folder: Path, *suffixes: str) -> set[str]:
    """The files of these kinds in `folder`, which may be a link, named from there on."""
    found = folder.resolve().rglob("*")
    return {str(p.relative_to(folder.resolve())) for p in found if p.suffix in suffixes}


def test_version_is_that_of_the_header():
    printed = run(SETUP, "--version").stdout.split()[-1]
    assert printed == delta_torch.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", printed)


def test_other_files_say_the_same_version():
    """What names a version beside the header: each is changed with it."""
    top, minor = ROOT.parent, delta_torch.__version__.rpartition(".")[0]
    said = {
        "CITATION.cff": r"^version: (\S+)$",
        "CHANGELOG.md": r"^## (\S+) \((?:unreleased|\d{4}-\d\d-\d\d)\)$",
        "README.md": r"`find_package\(delta (\S+) REQUIRED\)`",
    }
    for file, pattern in said.items():
        found = re.findall(pattern, (top / file).read_text(), re.M)
        expected = minor if file == "README.md" else delta_torch.__version__
        assert found and found[0] == expected, f"{file}: {found[:1]}; expected: {expected}"
    released = re.search(r"^date-released: (\S+)$", (top / "CITATION.cff").read_text(), re.M)
    dated = re.search(r"^## \S+ \(([\d-]+)\)$", (top / "CHANGELOG.md").read_text(), re.M)
    assert (released and released[1]) == (dated and dated[1])


def test_headers_come_with_the_package():
    package = Path(delta_torch.__file__).parent
    for folder, header in (
        ("include", "manager.hpp"),
        ("engine_include", "engine/manager_of.hpp"),
        ("testing_include", "testing/replay_check.hpp"),
    ):
        installed = files_below(package / folder, ".hpp", ".h")
        assert installed == files_below(ROOT / "delta_torch" / folder, ".hpp", ".h")
        assert f"delta/{header}" in installed


def test_source_distribution_holds_all_that_is_compiled(tmp_path: Path):
    done = run(SETUP, "-q", "sdist", "--dist-dir", tmp_path)
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.glob("delta_torch-*.tar.gz")
    with tarfile.open(archive) as members:
        assert all(member.isfile() or member.isdir() for member in members), "no links"
        names = {name.partition("/")[2] for name in members.getnames()}
    folders = (
        "csrc",
        "csrc_cuda",
        "engine",
        "delta_torch/include",
        "delta_torch/engine_include",
        "delta_torch/testing_include",
        "examples",
        "tests/devices",
    )
    for folder in folders:
        files = files_below(ROOT / folder, ".cpp", ".hpp", ".h")
        assert files
        assert {f"{folder}/{file}" for file in files} <= names
    assert {"delta_torch/compiling/own_policy.hpp", "delta_torch/compiling/policy_library.hpp"} <= names
    python = files_below(ROOT / "delta_torch", ".py") - {"_built_for.py"}
    assert "delta_torch/_built_for.py" not in names, "the source is for every PyTorch"
    assert {f"delta_torch/{file}" for file in python} <= names
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE"} <= names


def refusal(**environment: str) -> str:
    """What setup.py says, where it does not build."""
    done = run(SETUP, "build_ext", **environment)
    assert done.returncode == 1
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("delta_torch: "))
    assert "Traceback" not in done.stderr
    return line


def test_no_compiler():
    assert "there is no C++ compiler 'no-such-compiler'" in refusal(CXX="no-such-compiler")


def test_no_cuda_toolkit():
    said = refusal(DELTA_TORCH_CUDA="1", CUDA_HOME="/no/such/toolkit")
    if torch.version.cuda is None:
        assert said.endswith("DELTA_TORCH_CUDA is 1, and this PyTorch is not built for CUDA")
    else:
        assert "the CUDA toolkit in /no/such/toolkit has no cuda_runtime_api.h" in said


@pytest.mark.parametrize(
    ("macros", "name"), [("__clang_major__ 11", "g++ 11"), ("15 4", "clang 15")]
)
def test_compiler_too_old(tmp_path: Path, macros: str, name: str):
    compiler = tmp_path / "old-compiler"
    compiler.write_text(f"#!/bin/sh\necho {macros}\n")
    compiler.chmod(0o755)
    assert f"is {name}, and C++20 needs g++ 12 or clang 16" in refusal(CXX=str(compiler))


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("__version__ = '2.10.1+cpu'", "PyTorch is 2.10.1+cpu, and delta_torch needs 2.11 or"),
        ("raise ImportError('libcufile.so.0: cannot open')", "can't be imported: libcufile.so.0"),
        ("raise ModuleNotFoundError(name='torch')", "PyTorch 2.11 or newer must be installed"),
    ],
)
def test_pytorch_too_old_broken_or_missing(tmp_path: Path, source: str, sentence: str):
    (tmp_path / "torch.py").write_text(source)
    assert sentence in refusal(PYTHONPATH=str(tmp_path))


def test_delta_itself_is_missing(tmp_path: Path):
    shutil.copy(SETUP, tmp_path)
    done = run(tmp_path / "setup.py", "--version")
    assert done.returncode == 1
    assert "delta's own sources are missing" in done.stderr


def test_stubs_refuse_what_is_not_pytorch(tmp_path: Path):
    done = run(STUBS, "--torch", tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        f"stub_libraries.py: {tmp_path} is not the folder of a PyTorch for Linux: "
        "it has no _C.*.so\n"
    )


def test_stubs_refuse_a_folder_that_is_missing():
    done = run(STUBS, "--out", "/no/such/folder")
    assert done.returncode == 1
    assert done.stderr == "stub_libraries.py: /no/such/folder is not a folder\n"


@pytest.mark.skipif(torch.version.cuda is None, reason="this PyTorch is built for processors only")
@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="there is a GPU")
def test_stubs_have_what_pytorch_links(tmp_path: Path):
    """Python imports PyTorch with stubs of its own, where those that it may have are set aside."""
    listed = run(STUBS, "--list")
    assert listed.returncode == 0, listed.stderr
    if "no library is missing" in listed.stdout:
        pytest.skip("NVIDIA's own libraries are installed")
    done = run(STUBS, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == listed.stdout
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {line.partition(":")[0] for line in listed.stdout.splitlines()}

    # Loaded before PyTorch is, they are what it is linked with; a missing function is an error.
    loaded = "\n".join(f"ctypes.CDLL({str(tmp_path / name)!r}, 256 | 2)" for name in sorted(made))
    program = (
        f"import ctypes\n{loaded}\nimport torch\nassert (torch.ones(3) + 1).sum() == 6\n"
        "print(open('/proc/self/maps').read())"
    )
    imported = run("-W", "ignore", "-c", program)
    assert imported.returncode == 0, imported.stderr
    mapped = set(re.findall(r"/\S+", imported.stdout))
    assert {str(tmp_path / name) for name in made} <= mapped
    assert not {path for path in mapped if Path(path).name in made and str(tmp_path) not in path}
