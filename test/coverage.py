#!/usr/bin/env python3
"""Coverage of delta's headers by the tests: lines and branches by folder, as Clang counts them in the source.

    ./run.sh coverage                    # build, run the tests that are not long, and print the table
    ./run.sh coverage --missing tensors  # then also what no test reaches, in files that have that in their names
    ./run.sh coverage --table            # only the table, of the profiles that are there

A line or a branch of a template counts once, and as reached if it is in any instantiation: llvm-cov's own
summary takes the best instantiation in place of their union, so that the sums here are of its detailed
output. A branch is one outcome of a condition; each part of an && or || has its own two. Left out are
conditions that are known when compiling (if constexpr, while (true)) and asserts, which must never fail.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build/coverage"
INCLUDE = ROOT / "include/delta"


def fail(sentence: str) -> None:
    sys.exit(f"coverage: {sentence}")


def tests() -> list[str]:
    """The tests that do not take minutes."""
    long = re.compile(r"^// ctest-labels:.*\blong\b", re.M)
    return sorted(t.stem for folder in ("core", "executor") for t in (ROOT / "test" / folder).glob("*_test.cpp")
                  if not t.stem.startswith(("gpu_", "cuda_", "cudnn_", "kernels_")) and not long.search(t.read_text()))


def build_and_run(jobs: int) -> None:
    names = tests()
    commands = [["cmake", "--preset", "coverage", "-DCMAKE_CXX_COMPILER=clang++-16",
                 f"-DDELTA_DATA={os.environ.get('DELTA_DATA', '')}"],
                ["cmake", "--build", "--preset", "coverage", "-j", str(jobs), "--target", *names]]
    for command in commands:
        if subprocess.run(command, cwd=ROOT).returncode:
            fail(f"'{' '.join(command[:4])}' failed, see above")
    for old in BUILD.glob("profiles/*"):
        old.unlink()
    # %m: one file for each program, however many processes it has.
    done = subprocess.run(["ctest", "--preset", "coverage", "-j", str(jobs), "-R", f"^({'|'.join(names)})$"], cwd=ROOT,
                          env=os.environ | {"LLVM_PROFILE_FILE": str(BUILD / "profiles/%m.profraw")})
    if done.returncode:
        fail("a test failed, see above")


def exported(form: str, *flags: str) -> str:
    programs = [str(p) for t in (*tests(), "delta-replay", "delta-train") if (p := BUILD / "bin" / t).exists()]
    command = ["llvm-cov-16", "export", f"-format={form}", f"-instr-profile={BUILD}/merged.profdata", *flags,
               programs[0], *(w for p in programs[1:] for w in ("-object", p)), "-sources", str(INCLUDE)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        fail(f"llvm-cov-16: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout


def known_when_compiling(source: str) -> list[tuple[int, int]]:
    """The stretches of text whose conditions have one outcome: of if constexpr, and asserts."""
    found = []
    for m in re.finditer(r"\bif\s+constexpr\s*\(|\bassert\(", source):
        depth, at = 1, m.end()
        while depth and at < len(source):
            depth += {"(": 1, ")": -1}.get(source[at], 0)
            at += 1
        found.append((m.end(), at))
    return found


def counted() -> tuple[dict[str, dict[int, int]], dict[str, dict[tuple, list[int]]]]:
    """By file: the runs of each line, and those of both outcomes of each condition."""
    lines: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    file = ""
    for row in exported("lcov").splitlines():
        if row.startswith("SF:"):
            file = row[3:]
        elif row.startswith("DA:"):
            line, count = row[3:].split(",")[:2]
            lines[file][int(line)] += int(count)
    branches: dict[str, dict[tuple, list[int]]] = defaultdict(dict)
    for entry in json.loads(exported("text", "-skip-functions", "-skip-expansions"))["data"][0]["files"]:
        name = entry["filename"]
        text = Path(name).read_text()
        starts = [0]
        for row in text.split("\n"):
            starts.append(starts[-1] + len(row) + 1)
        skipped = known_when_compiling(text)
        for line, column, last, end, yes, no, *_ in entry["branches"]:
            at = starts[line - 1] + column - 1
            if any(a <= at < b for a, b in skipped) or text[at:starts[last - 1] + end - 1] in ("true", "false"):
                continue
            both = branches[name].setdefault((line, column, last, end), [0, 0])
            both[0] += yes
            both[1] += no
    return lines, branches


def table(lines: dict, branches: dict) -> str:
    """Rows by folder, then all."""
    folders = sorted({str(Path(f).parent) for f in lines})
    rows = [(str(Path(d).relative_to(ROOT)), [f for f in lines if str(Path(f).parent) == d]) for d in folders]
    rows.append(("all", list(lines)))
    width = max(len(name) for name, _ in rows)
    out = [f"{'folder':{width}}   lines  reached        branches  reached"]
    for name, files in rows:
        n = sum(len(lines[f]) for f in files)
        hit = sum(c > 0 for f in files for c in lines[f].values())
        b = sum(2 * len(branches[f]) for f in files)
        taken = sum(c > 0 for f in files for both in branches[f].values() for c in both)
        out.append(f"{name:{width}}  {n:6}  {hit:6} {100 * hit / max(n, 1):5.1f} %"
                   f"  {b:7}  {taken:6} {100 * taken / max(b, 1):5.1f} %")
    return "\n".join(out)


def missing(lines: dict, branches: dict, part: str) -> None:
    for f in sorted(f for f in lines if part in f):
        name, source = Path(f).relative_to(ROOT), Path(f).read_text().split("\n")
        for line in sorted({n for n, c in lines[f].items() if c == 0}):
            print(f"{name}:{line}: never: {source[line - 1].strip()}")
        for (line, column, last, end), both in sorted(branches[f].items()):
            if lines[f].get(line) and 0 in both:
                what = source[line - 1][column - 1:end - 1 if last == line else None]
                outcome = "true nor false" if both == [0, 0] else "true" if both[0] == 0 else "false"
                print(f"{name}:{line}: never {outcome}: {what}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run.sh coverage", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.error = lambda message: fail(f"{message}; --help says more")
    parser.add_argument("--missing", metavar="NAME",
                        help="also print what is not reached in files with that in their path")
    parser.add_argument("--table", action="store_true", help="build and run nothing")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="build and run N at a time (2)")
    options = parser.parse_args()
    if not options.table:
        build_and_run(options.jobs)
    raw = sorted(map(str, BUILD.glob("profiles/*.profraw")))
    if not raw:
        fail("there are no profiles; start without --table")
    subprocess.run(["llvm-profdata-16", "merge", "-sparse", *raw, "-o", f"{BUILD}/merged.profdata"], check=True)
    lines, branches = counted()
    if options.missing is not None:
        missing(lines, branches, options.missing)
    print(table(lines, branches))


if __name__ == "__main__":
    main()
