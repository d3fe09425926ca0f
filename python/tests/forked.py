"""Forked children that run named jobs, two at a time; one that crashes costs the job it was at.

A server process, which has imported all that is slow, forks them. It is started with freed bytes
poisoned: what reads them is seen to differ, or crashes.
"""

from __future__ import annotations

import faulthandler
import os
import selectors
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

# Freed and fresh bytes get a pattern. Without the thread's cache of glibc, whose blocks do not.
POISON = {"MALLOC_PERTURB_": "165", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
AT_ONCE = 2
SILENT_S = 120.0  # a child that has not said anything for so long hangs

Say = Callable[[str], None]


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


def run_chunks(
    chunks: dict[str, list[str]], job: Callable[[str, Say, Say], None]
) -> Iterator[tuple[str, str]]:
    """Runs `job(name, at, fails)` for each name of each chunk, a child for each chunk.

    The job says by at() what it does, and by fails() each failure. Gives (chunk, failure) as they
    come, and (chunk, "") once a chunk is done. After a crash another child goes on with the next
    name.
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


def _fork(chunk: str, names: list[str], job: Callable[[str, Say, Say], None]) -> _Child:
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


def _be_a_child(names: list[str], job: Callable[[str, Say, Say], None], writing: int) -> None:
    def say(kind: str, text: str) -> None:
        os.write(writing, f"{kind}{' '.join(text.split())}\n".encode())

    for name in names:
        try:
            job(name, lambda text: say("@", text), lambda text: say("-", text))
        except BaseException:
            say("-", f"{name}: the test itself: {traceback.format_exc()[-600:]}")
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
