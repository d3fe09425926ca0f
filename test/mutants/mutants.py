#!/usr/bin/env python3
"""Mutation testing: which small changes of delta's code no test finds.

    ./run.sh mutants                                   # 500 mutants of include/delta, and the tests of test/core
    ./run.sh mutants --only detail/storage             # all of some headers: those whose name has that in it
    ./run.sh mutants --again                           # those that survived the last time, after a new test
    ./run.sh mutants --go-on                           # those that it had not tried when it was interrupted
    ./run.sh mutants --mutant 1f0c55ab                 # one: its change, and what every test says of it

libclang finds the places; all mutants that are chosen are compiled into one copy of the repository in
build/mutants, each behind a guard that the variable DELTA_MUTANT of the environment opens. So a test is
compiled once, and run once for each mutant that it reaches, fastest first, until one fails; N mutants at a time
with --jobs N. A test that hangs has found its mutant. What survives is a missing test, or no change: those are in
equivalent.txt, with the reason. The status is 1 where a survivor is in no list.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import places as found  # noqa: E402
from places import Place  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
EQUIVALENT = HERE / "equivalent.txt"
LINE = re.compile(r"(\S+) (\S.*?): `([^`]*)` -> `([^`]*)`(?: #(\d+))?: (\S.*)")
KILLED, SURVIVED, NOT_REACHED, BROKEN, EQUAL = "killed", "survived", "not reached", "does not compile", "equivalent"


class Failure(Exception):
    """What ends the command with one line."""


def read_equivalents(path: Path, all_places: list[Place]) -> dict[tuple, str]:
    """The reasons by Place.key. A line that is no mutant's is an error: the code has changed."""
    known = {p.key for p in all_places}
    reasons: dict[tuple, str] = {}
    for n, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = LINE.fullmatch(line)
        if parts is None:
            raise Failure(f"{path}:{n}: not of the form: FILE FUNCTION: `BEFORE` -> `AFTER`: REASON")
        key = (*parts.group(1, 2, 3, 4), int(parts[5] or 1))
        if key not in known:
            raise Failure(f"{path}:{n}: there is no such mutant (any more): {line.rsplit(': ', 1)[0]}")
        if key in reasons:
            raise Failure(f"{path}:{n}: listed twice")
        reasons[key] = parts[6]
    return reasons


def write_if_changed(path: Path, text: str, keep_time: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode("latin-1")
    if not path.exists() or path.read_bytes() != data:
        before = path.stat() if path.exists() and keep_time else None
        path.write_bytes(data)
        if before:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def mirror(tree: Path, real: str) -> None:
    """A copy of the repository by links, in which the folder `real` is one of its own."""
    source, place = ROOT, tree
    for part in Path(real).parts:
        if place.is_symlink():
            raise Failure(f"{place} is a link: remove {tree}")  # else the repository's own would be written
        place.mkdir(parents=True, exist_ok=True)
        for entry in source.iterdir():
            link = place / entry.name
            if entry.name not in (part, "build", ".git") and not link.is_symlink():
                link.symlink_to(entry)
        source, place = source / part, place / part
    if place.is_symlink():
        raise Failure(f"{place} is a link: remove {tree}")
    place.mkdir(exist_ok=True)


class Core:
    """include/delta, and the tests that CMake builds of it."""

    folder = "include/delta"

    def __init__(self, build: Path, jobs: int, tests: str, slow: bool) -> None:
        self.tree, self.build, self.jobs, self.pattern = build / "tree", build / "release", jobs, tests
        self.slow = "long" if slow else "slow|long"
        self.log = build / "build.log"

    def find(self) -> found.Finder:
        finder = found.Finder(ROOT / self.folder)
        include = ROOT / "include"
        unit = self.tree.parent / "all.cpp"
        unit.parent.mkdir(parents=True, exist_ok=True)
        unit.write_text("".join(f'#include "{h.relative_to(include)}"\n' for h in sorted(include.rglob("*.hpp"))))
        finder.parse(unit, ["-std=c++20", f"-I{include}", f"-I{ROOT}/testing/include"])
        return finder

    def errors(self) -> str:
        """What the compiler says of all headers, with no template instantiated: quick, so first."""
        return subprocess.run(
            [compiler(), "-std=c++20", "-w", "-fsyntax-only", "-ferror-limit=0", "-fno-caret-diagnostics",
             f"-I{self.tree}/include", f"-I{ROOT}/testing/include", *guard_flags(), str(self.tree.parent / "all.cpp")],
            capture_output=True, text=True).stderr

    def compile(self) -> str | None:
        """Builds the tests; None, or what the compiler said."""
        if not (self.build / "build.ninja").exists() or guard_flags() != self.configured_with():
            flags = " ".join(["-w", "-ferror-limit=0", "-fno-caret-diagnostics", *guard_flags()])
            run_logged(["cmake", "-S", str(self.tree), "-B", str(self.build), "-G", "Ninja",
                        "-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_CXX_COMPILER={compiler()}",
                        f"-DCMAKE_CXX_FLAGS={flags}", "-DCMAKE_CXX_FLAGS_DEBUG=-O0 -g0",
                        "-DDELTA_BUILD_BENCHMARKS=OFF", "-DDELTA_BUILD_EXAMPLES=OFF", "-DDELTA_CUDA=OFF",
                        # A header changes and stays as old, which precompiled ones are not for.
                        "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON",
                        f"-DDELTA_DATA={os.environ.get('DELTA_DATA', '')}"], self.log)
            (self.build / "guards").write_text("\n".join(guard_flags()))
        names = [t for t in self.names() if re.search(self.pattern, t)]
        if not names:
            raise Failure(f"--tests '{self.pattern}' names no test; there are {', '.join(self.names())}")
        done = subprocess.run(["cmake", "--build", str(self.build), "-j", str(self.jobs), "--target", *names,
                               "--", "-k", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.log.write_text(done.stdout)
        return None if done.returncode == 0 else done.stdout

    def configured_with(self) -> list[str]:
        path = self.build / "guards"
        return path.read_text().split("\n") if path.exists() else []

    def names(self) -> list[str]:
        """Tests that take seconds, or at most minutes with --slow, as their labels say."""
        slow = re.compile(rf"^// ctest-labels:.*\b({self.slow})\b", re.M)
        return sorted(t.stem for folder in ("core", "executor") for t in (ROOT / "test" / folder).glob("*_test.cpp")
                      if not slow.search(t.read_text()))

    def tests(self) -> dict[str, tuple[list[str], Path]]:
        """Commands by name, and where each runs."""
        return {t: ([str(self.build / "bin" / t), "-aa=1", "-m"], self.build) for t in self.names()
                if re.search(self.pattern, t)}


# A number that no sample exceeds: that it never changes spares compilations.
GUARDS = 20000


def guard_flags() -> list[str]:
    return ["-include", str(HERE / "delta_mutant.hpp"), f"-DDELTA_MUTANTS={GUARDS}"]


def compiler() -> str:
    for name in ("clang++-16", "clang++"):
        if shutil.which(name):
            return name
    raise Failure("there is no clang++-16; install Debian's clang-16")


def run_logged(command: list[str], log: Path) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(done.stdout)
    if done.returncode:
        raise Failure(f"'{' '.join(command[:6])} ...' failed: see {log}")


# --- writing, and what does not compile ---------------------------------------------------------------------

def write(finder: found.Finder, chosen: list[Place], broken: set[int], target: Path,
          keep_time: bool = False) -> dict[str, str]:
    """Writes the folder with the chosen mutants in it, but for the broken ones.

    keep_time: as old as before, so that what has compiled with a broken mutant in it is not compiled again.
    """
    texts = {}
    for header in sorted(finder.folder.rglob("*")):
        if not header.is_file():
            continue
        name = str(header.relative_to(finder.folder))
        here = [p for p in chosen if p.file == name and p.number not in broken]
        source = finder.sources.get(name) or header.read_bytes().decode("latin-1")
        texts[name] = found.rewritten(source, here) if here else source
        write_if_changed(target / name, texts[name], keep_time)
    return texts


def to_blame(said: str, texts: dict[str, str], chosen: list[Place], folder: str) -> set[int]:
    """The mutants that the compiler's errors are about: by place, or else by line."""
    by_line: dict[tuple[str, int], set[int]] = {}
    for p in chosen:
        for line in range(p.line, p.line + p.height):
            by_line.setdefault((p.file, line), set()).add(p.number)
    position = re.compile(rf"(?:^|[\s/]){re.escape(folder)}/(\S+?):(\d+):(\d+): (?:\w+ )?(error|note):")
    blamed: set[int] = set()
    decided = True
    for row in said.splitlines():
        at = position.search(row)
        if ": error:" in row or ": fatal error:" in row:
            decided = False
        if at is None or decided:
            continue
        name, line, column = at[1], int(at[2]), int(at[3])
        if name not in texts:
            continue
        text = texts[name].split("\n")[line - 1]
        inside = [int(m[1]) for m in re.finditer(r"/\*<(\d+)\*/(.*?)/\*\1>\*/", text)
                  if m.start() < column <= m.end()]
        if inside:
            blamed.add(inside[-1])
            decided = True
        elif by_line.get((name, line)):
            blamed |= by_line[(name, line)]
            decided = True
    return blamed


# --- running ------------------------------------------------------------------------------------------------

# A hang is told by the processor's seconds, as a machine may be busy; or, where it waits for nothing, by these.
PATIENCE = 300


def run(command: list[str], folder: Path, more: dict[str, str], limit: float) -> tuple[int, float, str]:
    """The status (-9 for a hang), the processor's seconds, and what was printed at the end."""
    def limits() -> None:
        os.setpgrp()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 1))

    environment = os.environ | {"DELTA_TEST_SEEDS": "20"} | more
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, preexec_fn=limits) as process:
        try:
            said = process.communicate(timeout=PATIENCE + 2 * limit)[0]
            status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, status = process.communicate()[0], -9
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime  # of all, if they are several
    return status, took, said.decode(errors="replace")[-4000:]


def reach(tests: dict, build: Path) -> tuple[dict[str, float], dict[int, list[str]]]:
    """Seconds of each test without a mutant, and for each mutant the tests that reach it, fastest first.

    What a test said stays in build/reached.json until it is compiled anew.
    """
    seconds: dict[str, float] = {}
    by_number: dict[int, list[str]] = {}
    numbers: dict[str, list[int]] = {}
    kept = build / "reached.json"
    known = json.loads(kept.read_text()) if kept.exists() else {}
    for name, (command, folder) in tests.items():
        program = shutil.which(command[0])
        made = Path(program).stat().st_mtime_ns if program else 0
        if known.get(name, [None])[0] != made:
            log = build / "reached.log"
            log.unlink(missing_ok=True)
            status, took, said = run(command, folder, {"DELTA_MUTANT_LOG": str(log)}, 600)
            if status == 77:
                continue  # it skips
            if status:
                raise Failure(f"{name} fails without a mutant (status {status}): {' '.join(said.split())[-300:]}")
            known[name] = [made, took, sorted({int(n) for n in log.read_text().split()}) if log.exists() else []]
            kept.write_text(json.dumps(known))
        _, seconds[name], numbers[name] = known[name]
    for name in sorted(seconds, key=seconds.get):
        print(f"  {seconds[name]:6.1f} s, {len(numbers[name]):5} mutants  {name}", flush=True)
        for n in numbers[name]:
            by_number.setdefault(n, []).append(name)
    return seconds, by_number


def limit_of(seconds: float) -> float:
    return 10 * seconds + 2


def kill(p: Place, tests: dict, seconds: dict[str, float], reached: dict[int, list[str]]) -> tuple[str, str]:
    """What became of a mutant, and which test found it."""
    if p.number not in reached:
        return NOT_REACHED, ""
    for name in reached[p.number]:
        command, folder = tests[name]
        status, _, _ = run(command, folder, {"DELTA_MUTANT": str(p.number)}, limit_of(seconds[name]))
        if status not in (0, 77):
            return KILLED, name
    return SURVIVED, ""


# --- the command --------------------------------------------------------------------------------------------

def choose(everything: list[Place], options: argparse.Namespace, last: list[str]) -> list[Place]:
    """The mutants that the flags ask for, in order."""
    if options.mutant:
        one = [p for p in everything if p.id == options.mutant]
        if not one:
            raise Failure(f"--mutant {options.mutant}: there is no such mutant")
        return one
    if options.again or options.go_on:
        if not last:
            raise Failure("--again: no survivors are left of the last time" if options.again else
                          "--go-on: the last time tried all")
        return [p for p in everything if p.id in last and (not options.only or any(o in p.file for o in options.only))]
    some = [p for p in everything if not options.only or any(o in p.file for o in options.only)]
    if not some:
        raise Failure(f"--only {' '.join(options.only)}: no file with a mutant has that in its name")
    count = options.sample if options.sample is not None else None if options.only else 500
    if count is None or count >= len(some):
        return some
    # One of each file, then any.
    random.Random(options.seed).shuffle(some)
    first: dict[str, Place] = {}
    for p in some:
        first.setdefault(p.file, p)
    ordered = [*first.values(), *(p for p in some if first[p.file] is not p)]
    return sorted(ordered[:count], key=lambda p: p.number)


def table(chosen: list[Place], fate: dict[str, tuple[str, str]], prefix: str) -> str:
    """Mutants by file and by kind: what became of them."""
    columns = [KILLED, EQUAL, SURVIVED, NOT_REACHED, BROKEN]
    lines = []
    for title, of in (("file", lambda p: p.file), ("kind", lambda p: p.kind)):
        names = sorted({of(p) for p in chosen})
        width = max(len(n) for n in (*names, prefix, "all"))
        lines.append(f"{title:{width}}  mutants  " + "  ".join(columns))
        for name in (*names, "all"):
            here = [p for p in chosen if name in ("all", of(p))]
            counts = Counter(fate[p.id][0] for p in here)
            lines.append(f"{name:{width}}  {len(here):7}  " + "  ".join(f"{counts[c]:{len(c)}}" for c in columns))
        lines.append("")
    return "\n".join(lines)


def parsed(words: list[str]) -> argparse.Namespace:
    def natural(text: str) -> int:
        if not text.isdigit():
            raise argparse.ArgumentTypeError(f"'{text}' is no number")
        return int(text)

    class Parser(argparse.ArgumentParser):
        def error(self, message: str):
            raise Failure(f"{message}; --help says more")

    kinds = "".join(f"  {k:12}{v}\n" for k, v in found.KINDS.items())
    parser = Parser(prog="./run.sh mutants", description=__doc__, epilog=f"What is changed:\n{kinds}",
                    formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--sample", type=natural, metavar="N",
                        help="N mutants, at least one of each file where N allows it (500; with --only: all)")
    parser.add_argument("--seed", type=natural, default=1, metavar="S", help="which N: the same S takes the same (1)")
    parser.add_argument("--only", action="append", default=[], metavar="FILE",
                        help="only files below the folder whose path has this in it; again for more")
    parser.add_argument("--mutant", metavar="ID",
                        help="one mutant: print its change, and run every test that reaches it")
    parser.add_argument("--again", action="store_true", help="those that survived, or were not reached, the last time")
    parser.add_argument("--go-on", action="store_true", help="those that an interrupted run had not tried")
    parser.add_argument("--slow", action="store_true", help="with the tests that take minutes, last")
    parser.add_argument("--tests", default="", metavar="REGEX",
                        help="the tests that run, of those that take seconds (all of test/core)")
    parser.add_argument("--list", action="store_true", help="print the chosen mutants, and run nothing")
    parser.add_argument("--jobs", type=natural, default=2, metavar="N",
                        help="compile N files, and try N mutants, at a time (2)")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    options = parsed(words)
    if found.cindex is None:
        raise Failure("Python has no libclang: install Debian's python3-clang-16, or libclang by pip")
    build = ROOT / "build/mutants"
    core = {t.stem for t in (ROOT / "test/core").glob("*_test.cpp")}
    part = Core(build, options.jobs, options.tests or rf"^({'|'.join(sorted(core))})$", options.slow)
    finder = part.find()
    everything = found.numbered(finder)
    reasons = read_equivalents(EQUIVALENT, everything)
    state = build / "last.json"
    last = json.loads(state.read_text()) if state.exists() else {"compiled": [], "broken": [], "survivors": []}
    chosen = choose(everything, options, last.get("untried", []) if options.go_on else last["survivors"])
    if options.list:
        for p in chosen:
            print(p.id, p.kind, f"{part.folder}/{p.file}:{p.line}", p)
        return 0

    # What is compiled already stays, so that a mutant of the last time needs no compilation.
    compiled = [p for p in everything if p.id in set(last["compiled"])]
    if not {p.id for p in chosen} <= {p.id for p in compiled}:
        compiled = chosen
    for n, p in enumerate(compiled):
        p.number = n
    print(f"{len(everything)} mutants of {part.folder}; {len(chosen)} of them are tried", flush=True)
    broken = {p.number for p in compiled if p.id in set(last["broken"])}

    def save(**more) -> None:
        last.update(compiled=[p.id for p in compiled], broken=[p.id for p in compiled if p.number in broken], **more)
        build.mkdir(parents=True, exist_ok=True)
        state.write_text(json.dumps(last))

    make(part, finder, compiled, broken, save)

    tests = part.tests()
    print(f"{len(tests)} tests without a mutant", flush=True)
    seconds, reached = reach(tests, build)
    if options.mutant:
        return show(chosen[0], finder, broken, tests, seconds, reached)
    fate: dict[str, tuple[str, str]] = {}
    old = last["survivors"] if options.go_on else []
    started = time.monotonic()
    lock = threading.Lock()

    def left() -> list[str]:
        return [p.id for p in chosen if fate.get(p.id, ("",))[0] in (SURVIVED, NOT_REACHED)]

    def one(p: Place) -> None:
        became = ((BROKEN, "") if p.number in broken else (EQUAL, "") if p.key in reasons
                  else kill(p, tests, seconds, reached))
        with lock:
            fate[p.id] = became
            if became[0] in (SURVIVED, NOT_REACHED):
                print(f"{p.id} {became[0]}: {part.folder}/{p.file}:{p.line}: {p}", flush=True)
            save(survivors=[*old, *left()], untried=[p.id for p in chosen if p.id not in fate])
            if len(fate) % 50 == 0:
                print(f"-- {len(fate)} of {len(chosen)}, {time.monotonic() - started:.0f} s", flush=True)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # also in the background
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    pool = ThreadPoolExecutor(max(1, options.jobs))
    try:
        for done in [pool.submit(one, p) for p in chosen]:
            done.result()
    except KeyboardInterrupt:
        pool.shutdown(cancel_futures=True)
        print("interrupted: what was tried by then; --go-on tries the others")
        chosen = [p for p in chosen if p.id in fate]
    print("\n" + table(chosen, fate, part.folder))
    counts = Counter(f[0] for f in fate.values())
    every = (KILLED, EQUAL, SURVIVED, NOT_REACHED, BROKEN)
    print(f"{len(chosen)} mutants: " + ", ".join(f"{counts[c]} {c}" for c in every))
    print("found by " + ", ".join(f"{t} {n}" for t, n in Counter(f[1] for f in fate.values() if f[1]).most_common()))
    return 1 if left() else 0


def make(part, finder: found.Finder, compiled: list[Place], broken: set[int], save) -> None:
    """Writes and compiles; what does not compile is left out, and added to `broken`."""
    mirror(part.tree, part.folder)
    for quick in (True, False):
        while True:
            texts = write(finder, compiled, broken, part.tree / part.folder, keep_time=not quick)
            save()
            said = part.errors() if quick else part.compile()
            if not said or ("error:" not in said and quick):
                break
            more = to_blame(said, texts, [p for p in compiled if p.number not in broken], part.folder)
            if not more:
                first = next((r for r in said.splitlines() if "error" in r.lower()), said[-300:])
                raise Failure(f"an error that is of no mutant: {first}; see {part.log}")
            broken |= more
            for p in compiled:
                if p.number in more:
                    print(f"{p.id} does not compile: {p}", flush=True)


def show(p: Place, finder: found.Finder, broken: set[int], tests: dict, seconds: dict, reached: dict) -> int:
    """Prints the change of one mutant as lines, and what every test that reaches it says."""
    source = finder.sources[p.file]
    first, last = source.rfind("\n", 0, p.start) + 1, source.find("\n", p.end)
    print(f"{p.id} {p.kind} {p.file}:{p.line} {p.function}")
    for sign, text in (("-", source[first:last]), ("+", source[first:p.start] + p.after + source[p.end:last])):
        print("\n".join(f"{sign} {line}" for line in text.split("\n")))
    if p.number in broken:
        print(BROKEN)
        return 0
    found_by = 0
    for name in reached.get(p.number, []):
        status, took, said = run(*tests[name], {"DELTA_MUTANT": str(p.number)}, limit_of(seconds[name]))
        found_by += status not in (0, 77)
        what = "passes" if status in (0, 77) else "hangs" if status == -9 else f"fails ({status})"
        print(f"  {name}: {what}, {took:.1f} s")
        if status not in (0, 77, -9):
            print("\n".join("    " + line for line in said.strip().splitlines()[-12:]))
    print(f"found by {found_by} of {len(reached.get(p.number, []))} tests that reach it")
    return 0 if found_by else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failure as failure:
        sys.exit(f"mutants: {failure}")
    except BrokenPipeError:
        sys.exit(1)
