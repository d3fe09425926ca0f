"""Forked children that run named jobs, two at a time; one that crashes costs the job it was at.

A server process, which has imported all that is slow, forks them. It is started with freed bytes
poisoned: what reads them is seen to differ, or crashes.
"""

from __future__ import annotations

import faulthandler
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

# Freed and fresh bytes get a pattern. Without the thread's cache of glibc, whose blocks do not.
POISON = {"MALLOC_PERTURB_": "165", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
AT_ONCE = 2
SILENT_S = 120.0  # a child that has not said anything for so long hangs

Say = Callable[[str], None]
Job = Callable[[str, Say, Say], None]  # of a name; says what it is at, and each failure


@dataclass
class _Child:
    pid: int
    pipe: int
    chunk: str
    names: list[str]
    errors: tempfile.SpooledTemporaryFile
    done: int = 0  # of names
    at: str = ""  # what the job at hand is doing
    rest: bytes = b""
    spoke: float = field(default_factory=time.monotonic)


class Server:
    """A script that runs chunks of jobs and prints what serve() prints; its failures by chunk."""

    def __init__(self, script: str, chunks: list[str], *flags: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", script, *flags, "--serve", *chunks],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **POISON},
        )
        self._failures: dict[str, list[str]] = defaultdict(list)
        self._done: set[str] = set()

    def failures_of(self, chunk: str) -> list[str]:
        """Waits until the chunk is done."""
        assert self._process.stdout is not None
        while chunk not in self._done:
            line = self._process.stdout.readline()
            assert line, f"the server has ended with {self._process.wait()}"
            which, _, failure = line.rstrip("\n").partition("\t")
            if failure:
                self._failures[which].append(failure)
            else:
                self._done.add(which)
        return self._failures[chunk]

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def be_poisoned() -> None:
    """Starts this script anew where freed bytes are not poisoned yet."""
    if any(os.environ.get(name) != value for name, value in POISON.items()):
        os.execve(
            sys.executable,
            [sys.executable, "-W", "ignore", *sys.argv],
            {**os.environ, **POISON},
        )


def serve(chunks: dict[str, list[str]], job: Job) -> None:
    """Prints a line for each failure, and one for each chunk that is done, for a Server."""
    for chunk, failure in run_chunks(chunks, job):
        print(f"{chunk}\t{failure}", flush=True)


def tell(chunks: dict[str, list[str]], job: Job) -> int:
    """Prints the failures for people to read; how many there are."""
    began, failures = time.monotonic(), 0
    for chunk, failure in run_chunks(chunks, job):
        if failure:
            failures += 1
            print(failure, flush=True)
        else:
            print(f"# {chunk} done, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(f"# {failures} failures, {time.monotonic() - began:.0f} s")
    return failures


def run_chunks(chunks: dict[str, list[str]], job: Job) -> Iterator[tuple[str, str]]:
    """Runs the job for each name of each chunk, a child for each chunk.

    Gives (chunk, failure) as they come, and (chunk, "") once a chunk is done. After a crash another
    child goes on with the next name.
    """
    waiting = [(chunk, names) for chunk, names in chunks.items()]
    waiting.reverse()
    selector = selectors.DefaultSelector()
    children: dict[int, _Child] = {}
    while waiting or children:
        while waiting and len(children) < AT_ONCE:
            child = _fork(*waiting.pop(), job)
            children[child.pipe] = child
            selector.register(child.pipe, selectors.EVENT_READ)
        ready = {key.fd for key, _ in selector.select(timeout=5)}
        for pipe, child in list(children.items()):
            ended = False
            if pipe in ready:
                data = os.read(pipe, 65536)
                ended = not data
                child.spoke = time.monotonic()
                yield from _heard(child, data)
            elif time.monotonic() - child.spoke > SILENT_S:
                os.kill(child.pid, signal.SIGKILL)
                ended = True
            if not ended:
                continue
            selector.unregister(pipe)
            os.close(pipe)
            del children[pipe]
            _, status = os.waitpid(child.pid, 0)
            if child.done < len(child.names):
                name = child.names[child.done]
                yield child.chunk, f"{name}: {child.at}: {_end_of(child, status)}"
                child.done += 1
            if child.done < len(child.names):
                waiting.append((child.chunk, child.names[child.done :]))
            else:
                yield child.chunk, ""


def _fork(chunk: str, names: list[str], job: Job) -> _Child:
    reading, writing = os.pipe()
    errors = tempfile.TemporaryFile()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            os.dup2(errors.fileno(), 2)
            faulthandler.enable()
            _be_a_child(names, job, writing)
        finally:
            os._exit(0)
    os.close(writing)
    return _Child(pid, reading, chunk, names, errors)


def _be_a_child(names: list[str], job: Job, writing: int) -> None:
    def say(kind: str, text: str) -> None:
        os.write(writing, f"{kind}{' '.join(text.split())}\n".encode())

    for name in names:
        try:
            job(name, lambda text: say("@", text), lambda text: say("-", text))
        except BaseException as error:
            where = traceback.format_exc()[-400:]
            say("-", f"{name}: the test itself: {type(error).__name__}: {error}: {where}")
        say(".", "")


def _heard(child: _Child, data: bytes) -> Iterator[tuple[str, str]]:
    *lines, child.rest = (child.rest + data).split(b"\n")
    for line in lines:
        kind, text = line[:1].decode(), line[1:].decode()
        if kind == "@":
            child.at = text
        elif kind == "-":
            yield child.chunk, text
        else:
            child.done += 1


def _end_of(child: _Child, status: int) -> str:
    child.errors.seek(0)
    said = child.errors.read().decode(errors="replace")
    frames = [line.strip() for line in said.splitlines() if line.strip()]
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    how = "hangs" if number == signal.SIGKILL else signal.Signals(number).name if number else "exit"
    return f"CRASH {how}: {' | '.join(frames[-12:])[:500]}"
