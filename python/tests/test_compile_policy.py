"""Policies of one's own: compiled, run under pressure, refused in sentences, found in the cache."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import delta_torch
from delta_torch import policy_build
from delta_torch.compiler_output import what_is_wrong
from matrix_cases import CASES
from training import Maker, check_same, managed, measured, unmanaged

CASE = "transformer"
STEPS = 3
FAST = ["-O0"]  # to compile, in half the time

# Each counts its answers, so that tests see that it was asked.
HEURISTIC = """
#pragma once
extern "C" { [[gnu::visibility("default")]] inline long asked = 0; }
struct heaviest {
  double weight(const delta::context& c, delta::tensor_id t) const noexcept {
    return ++asked, c.bytes(t);
  }
};
"""
DECIDER = """
#include <stdexcept>
extern "C" { [[gnu::visibility("default")]] inline long fails = 0; }
struct drops {
  delta::action decide(const delta::context&, delta::tensor_id) {
    if (fails) throw std::out_of_range("no answer");
    return delta::action::evict;
  }
};
"""
PREFETCHER = """
extern "C" { [[gnu::visibility("default")]] inline long asked = 0; }
struct newest {
  delta::tensor_id next(const delta::context& c) const noexcept {
    ++asked;
    if (c.offloaded().empty()) return delta::tensor_id::none;
    const delta::tensor_id t = c.offloaded().back();
    const double taken = c.used() - c.leaving() + c.coming_need();
    return taken + c.bytes(t) <= c.budget() ? t : delta::tensor_id::none;
  }
};
"""
# Includes a header beside it.
FUNCTION = """
#include <delta/delta.hpp>
#include "heaviest.hpp"
inline auto all_out() {
  return delta::policy{heaviest{}, delta::offload_only{}, delta::no_prefetch{}};
}
"""


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory):
    """A cache of this file's own, so that each library is compiled once, and now."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield policy_build.cache_folder()


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a header per kind, in which the compiler has to cope with a space."""
    folder = tmp_path_factory.mktemp("with space")
    for name, text in {
        "heaviest": HEURISTIC,
        "drops": DECIDER,
        "newest": PREFETCHER,
        "all_out": FUNCTION,
    }.items():
        (folder / f"{name}.hpp").write_text(text)
    return folder


@pytest.fixture(scope="module")
def training() -> tuple[Maker, object, int]:
    """One that must give up memory: how it is made, its bits without a budget, its peak."""
    make = CASES[CASE]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the tests do
    made = make, unmanaged(make, STEPS), measured(make, 2).peak_bytes
    torch.set_num_threads(threads)
    return made


def variable(cache: Path, name: str, variable: str) -> ctypes.c_long:
    """A variable of the policy's library, which this process has loaded."""
    (library,) = cache.glob(f"{name}-*.so")
    return ctypes.c_long.in_dll(ctypes.CDLL(str(library)), variable)


# --- what compiles --------------------------------------------------------------------------------


def test_heuristic(headers, training, cache) -> None:
    make, expected, peak = training
    assert delta_torch.compile_policy(headers / "heaviest.hpp", "heaviest") == "heaviest"
    assert "heaviest" in delta_torch.policies()
    trained = managed(make, STEPS, peak * 6 // 10, policy="heaviest", host="1GiB")
    assert trained.outcome == expected
    assert trained.report.policy == "heaviest"
    assert trained.report.peak_bytes <= trained.report.budget_bytes
    assert trained.report.evictions + trained.report.offloads > 0
    assert variable(cache, "heaviest", "asked").value > 0
    # It can be planned with, too.
    device = delta_torch.Machine("small", {"float32": 1e12}, 1e11, 2**34, 1e10)

    def maker():
        made = make()
        return lambda: made.step(0)

    before = variable(cache, "heaviest", "asked").value
    planned = delta_torch.plan(maker, device=device, policy="heaviest", shares=[0.6])
    assert planned.policy == "heaviest" and planned.batches[0].points[-1].fits
    assert variable(cache, "heaviest", "asked").value > before
    # Errors list it beside delta's own.
    with pytest.raises(ValueError, match="there is no policy 'light'; .*, heaviest"):
        delta_torch.budget("1GiB", policy="light")


def test_decider_and_errors_of_all_types(headers, training) -> None:
    # delta's errors are thrown in the policy's library and caught by type in the extension.
    make, expected, peak = training
    delta_torch.compile_policy(headers / "drops.hpp", "drops", flags=FAST)
    trained = managed(make, STEPS, peak * 8 // 10, policy="drops")
    assert trained.outcome == expected
    assert trained.report.evictions > 0 and trained.report.recomputes > 0

    kinds = {}
    for percent in (2, 15, 20, 25, 30):
        failed = managed(make, STEPS, peak * percent // 100, policy="drops")
        kinds.setdefault(failed.error["kind"], failed)
        if len(kinds) == 2:
            break
    assert set(kinds) == {"budget_exceeded", "thrash"}  # a class, and one derived from it
    error = kinds["budget_exceeded"].error
    assert error["capacity"] == peak * 2 // 100 // 64 * 64
    assert error["holders"] and error["smallest_budget"] > error["capacity"]
    assert "last error: " in str(kinds["budget_exceeded"].report)
    with delta_torch.budget("64MiB", policy="drops"):
        assert torch.ones(3).sum() == 3


@pytest.mark.long
@pytest.mark.parametrize("compiler", ["g++", "clang++-16"])
def test_other_compilers(headers, training, monkeypatch, tmp_path, compiler: str) -> None:
    # Whichever has built the extension: both keep to one ABI.
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    make, expected, peak = training
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    delta_torch.compile_policy(headers / "drops.hpp", "drops")
    trained = managed(make, STEPS, peak * 8 // 10, policy="drops")
    assert trained.outcome == expected and trained.report.evictions > 0
    failed = managed(make, STEPS, peak * 2 // 100, policy="drops")
    assert failed.error["kind"] == "budget_exceeded" and failed.error["holders"]


EXAMPLE = Path(__file__).resolve().parents[1] / "examples/own_policy.py"


@pytest.mark.long
def test_example() -> None:
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the same") == 2


@pytest.mark.long
@pytest.mark.parametrize("share", [0.6, 0.4])
def test_gpt2(share: float) -> None:
    from real_models import MODELS

    make = MODELS["gpt2"]
    delta_torch.compile_policy(EXAMPLE.with_suffix(".hpp"), "mostly_big")
    expected, peak = unmanaged(make, STEPS), measured(make, STEPS).peak_bytes
    report = check_same(
        make, STEPS, int(peak * share), expected, policy="mostly_big", host="8GiB"
    )
    assert report.policy == "mostly_big" and report.evictions + report.offloads > 0


def test_a_policy_that_throws(headers, training, cache) -> None:
    make, expected, peak = training
    delta_torch.compile_policy(headers / "drops.hpp", "drops", flags=FAST)
    fails = variable(cache, "drops", "fails")
    fails.value = 1
    one = make()
    with (
        pytest.raises((IndexError, RuntimeError), match="no answer"),
        delta_torch.budget(peak * 7 // 10, policy="drops"),
    ):
        for i in range(STEPS):
            one.step(i)
    # That run is over, with what it had: nothing had left before the policy was asked.
    assert not delta_torch._C.active()
    assert all(p.isfinite().all() for p in one.model.parameters())
    fails.value = 0
    assert managed(make, STEPS, peak * 8 // 10, policy="drops").outcome == expected


@pytest.mark.long
def test_prefetcher(headers, training, cache) -> None:
    make, expected, peak = training
    delta_torch.compile_policy(headers / "newest.hpp", "newest", flags=FAST)
    trained = managed(make, STEPS, peak * 6 // 10, policy="newest", host="1GiB", verify=True)
    assert trained.outcome == expected
    assert trained.report.replays_checked > 0
    assert variable(cache, "newest", "asked").value > 0


def test_function_of_a_whole_policy(headers, training, tmp_path) -> None:
    make, expected, peak = training
    delta_torch.compile_policy(headers / "all_out.hpp", "all_out", flags=FAST)
    timeline = tmp_path / "timeline.json"
    trained = managed(
        make, STEPS, peak * 6 // 10, policy="all_out", host="1GiB", timeline=timeline
    )
    assert trained.outcome == expected
    assert trained.report.evictions == 0 and trained.report.offloads > 0
    assert "aten::" in timeline.read_text()


# --- what does not --------------------------------------------------------------------------------


def refusal(folder: Path, text: str, name: str = "mine") -> delta_torch.PolicyError:
    (folder / "mine.hpp").write_text(text)
    with pytest.raises(delta_torch.PolicyError, match="mine.hpp has no policy") as caught:
        delta_torch.compile_policy(folder / "mine.hpp", name)
    assert name not in delta_torch.policies()
    return caught.value


def test_near_misses_print_sentences(tmp_path: Path) -> None:
    error = refusal(
        tmp_path,
        """
        struct mine {
          double weight(delta::context& c, delta::tensor_id t) const { return c.bytes(t); }
          delta::action decide(const delta::context&) { return delta::action::evict; }
          int next(const delta::context&) { return 0; }
          delta::action restore(const delta::context&, delta::tensor_id);
        };
        """,
    )
    first = [" ".join(sentence.split()[:4]) for sentence in error.sentences]
    assert first == [
        "a Heuristic needs 'double",
        "'weight' is there, but",
        "a Decider needs 'delta::action",
        "'restore' is there, but",
        "a Prefetcher needs 'delta::tensor_id",
    ]
    assert str(error).count("\n") == len(error.sentences)  # and nothing else
    assert "static assertion failed" in error.output and "required from" in error.output


def test_near_miss_within_a_policy(tmp_path: Path) -> None:
    error = refusal(
        tmp_path,
        """
        struct heavy { float weight(delta::tensor_id) const { return 1; } };
        auto mine() { return delta::policy{heavy{}, delta::cheaper{}, delta::no_prefetch{}}; }
        """,
    )
    assert len(error.sentences) == 2
    assert error.sentences[1].startswith("'weight' is there, but not as 'double weight(")


def test_no_role_at_all(tmp_path: Path) -> None:
    (sentence,) = refusal(tmp_path, "struct mine { int wight() const; };").sentences
    assert "none of these members" in sentence


def test_name_that_the_header_does_not_have(tmp_path: Path) -> None:
    (sentence,) = refusal(tmp_path, "struct theirs {};").sentences
    assert "mine.hpp has neither a struct nor a function 'mine'" in sentence


def test_error_in_a_body(tmp_path: Path) -> None:
    (line,) = refusal(
        tmp_path,
        "struct mine { double score(const auto& c, delta::tensor_id) const { return c.cost; } };",
    ).sentences
    assert "mine.hpp:1:" in line and "error: " in line and "'cost'" in line


def test_compilers_say_the_same() -> None:
    # The three ways in which g++ and clang print them; and what follows from an error is left out.
    ours = [Path("/delta/include")]
    assertion = "/delta/include/a.hpp:1:2: error: static assertion failed"

    def told(output: str) -> list[str]:
        return what_is_wrong(output, Path("/my/mine.hpp"), "mine", ours)

    assert told(f"{assertion}: a 'b' c\n  note: x\n{assertion}: a 'b' c\n") == ["a 'b' c"]
    assert told(f"{assertion} due to requirement 'f<a>()': a 'b': c\n") == ["a 'b': c"]
    mine = "/my/mine.hpp:3:4: error: no"
    assert told(f"{mine}\n/delta/include/a.hpp:1:2: error: no member\n") == [mine]
    assert told(f"<stdin>:1:1: error: no\n{mine}\n") == [mine]
    (sentence,) = told("<stdin>:2:1: error: no match for call\n")
    assert "made without arguments" in sentence
    assert told("killed") == ["the compiler has failed: see .output"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("online", "'online' is one of delta's own"),
        ("adaptive", "'adaptive' is one of delta's own"),
        ("swap_lru", "'swap_lru' is one of delta's own"),
        ("1st", "is a C\\+\\+ name, such as 'mine': not '1st'"),
        ("my::own", "is a C\\+\\+ name"),
        ("class", "is a C\\+\\+ name"),
        ("", "is a C\\+\\+ name"),
        (None, "is a C\\+\\+ name"),
    ],
)
def test_bad_names(headers: Path, name, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        delta_torch.compile_policy(headers / "heaviest.hpp", name)


def test_bad_files(tmp_path: Path, headers: Path) -> None:
    for file in ("nowhere.hpp", tmp_path):
        with pytest.raises(FileNotFoundError, match="there is no header"):
            delta_torch.compile_policy(file, "mine")
    with pytest.raises(ValueError, match="flags is a list"):
        delta_torch.compile_policy(headers / "heaviest.hpp", "mine", flags="-I.")
    for text in ("no library", ""):
        (tmp_path / "broken.so").write_text(text)
        with pytest.raises(RuntimeError, match="delta: the policy 'mine' can't be loaded"):
            delta_torch._C.load_policy("mine", str(tmp_path / "broken.so"))
    with pytest.raises(RuntimeError, match="is no library of a policy"):
        delta_torch._C.load_policy("mine", torch._C.__file__)


@pytest.mark.parametrize(
    ("compiler", "sentence"),
    [
        ("no-such-compiler", "there is no C\\+\\+ compiler 'no-such-compiler'"),
        ("false", "'false' in CXX is no C\\+\\+ compiler"),
        ("old", "is g\\+\\+ 11, and policies need g\\+\\+ 12"),
    ],
)
def test_bad_compilers(monkeypatch, tmp_path, headers, compiler: str, sentence: str) -> None:
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\ncat > /dev/null\necho '__clang_major__ 11 \"11.4.0\"'\n")
    old.chmod(0o755)
    monkeypatch.setenv("CXX", str(old) if compiler == "old" else compiler)
    with pytest.raises(RuntimeError, match=sentence):
        delta_torch.compile_policy(headers / "heaviest.hpp", "heaviest")


# --- the cache ------------------------------------------------------------------------------------


@pytest.fixture
def compilations(monkeypatch, tmp_path) -> list[str]:
    """The names that were compiled since; nothing is, but files are written as a compiler does."""
    names: list[str] = []

    def compile_nothing(command: list[str], name: str) -> None:
        names.append(name)
        header = command[command.index("-MMD") - 1]
        files = [header, *Path(header).parent.glob("*.inc")]
        escaped = " \\\n ".join(str(f).replace(" ", "\\ ") for f in files)
        Path(command[command.index("-MF") + 1]).write_text(f"it: {escaped}\n")
        Path(command[command.index("-o") + 1]).write_text(f"library {len(names)}")

    monkeypatch.setattr(policy_build, "_compile", compile_nothing)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return names


def test_cache(compilations, tmp_path, monkeypatch) -> None:
    header, included = tmp_path / "a header.hpp", tmp_path / "more.inc"
    header.write_text("1"), included.write_text("1")

    def library(name: str = "mine", *flags: str) -> Path:
        return policy_build.library_of(header, name, flags)

    first = library()
    assert first.is_file() and library() == first and compilations == ["mine"]
    # Whatever it is made of: another library, which a process that has the first can load.
    made = [first]
    for change in (
        lambda: header.write_text("2"),
        lambda: included.write_text("2"),
        lambda: monkeypatch.setattr(policy_build, "__version__", "99"),
        lambda: monkeypatch.setattr(policy_build, "delta_headers", lambda: "changed"),
    ):
        change()
        made.append(library())
        assert library() == made[-1]
    assert len(compilations) == len(made) == len(set(made))
    assert library("other") != made[-1] and library("mine", "-DX") != made[-1]
    assert len(compilations) == len(made) + 2
    # What was there is found again; what is broken or gone is made anew.
    included.write_text("3"), library(), included.write_text("2")
    count = len(compilations)
    for file in policy_build.cache_folder().iterdir():
        file.write_text("broken") if file.suffix == ".json" else None
    assert library() == made[-1] and len(compilations) == count + 1
    made[-1].unlink()
    assert library() == made[-1] and len(compilations) == count + 2
    assert not [p for p in policy_build.cache_folder().iterdir() if p.is_dir()]


def test_failed_compilations_leave_nothing(tmp_path, monkeypatch) -> None:
    def fails(command: list[str], name: str) -> None:
        raise policy_build.CompileFailed("mine.hpp:1:1: error: no")

    monkeypatch.setattr(policy_build, "_compile", fails)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "mine.hpp").write_text("")
    with pytest.raises(delta_torch.PolicyError):
        delta_torch.compile_policy(tmp_path / "mine.hpp", "mine")
    assert not list(policy_build.cache_folder().iterdir())


def test_cache_that_cannot_be_written(tmp_path, monkeypatch, headers) -> None:
    (tmp_path / "delta_torch").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(OSError, match="delta_torch"):
        delta_torch.compile_policy(headers / "heaviest.hpp", "heaviest")


def test_where_the_cache_is(monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/somebody")
    at_home = Path("/home/somebody/.cache/delta_torch/policies")
    assert policy_build.cache_folder() == at_home
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert policy_build.cache_folder() == Path("/caches/delta_torch/policies")
