"""Groups of processes for tests, by gloo on the CPU: kept from one case to the next, or torchrun's."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
AT_MOST_S = 60.0  # for one case
AFTER_AN_ERROR_S = 12.0  # of another rank


def torchrun(*arguments: str | Path, ranks: int = 2) -> str:
    """Runs a program by torchrun; what it has printed. Fails where it does."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *launcher, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode != 0:
        pytest.fail(done.stderr)
    return done.stdout


class Ranks:
    """A group of processes. After a case that has failed it is started anew.

    repetitions: of each case with a run, as races may hide.
    """

    def __init__(self, world: int = 2, timeout_s: float = 40, repetitions: int = 1) -> None:
        self.world = world
        self.repetitions = repetitions
        self._timeout_s = timeout_s  # of their collectives
        self._processes: list[subprocess.Popen[str]] = []
        self._right: dict[str, list[Any]] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def run(self, case: str, **arguments: Any) -> list[Any]:
        """What "module.function" returns on each rank. Fails where one of them raises."""
        answers = self.try_to_run(case, **arguments)
        errors = [
            f"rank {rank}: {answer.get('trace', answer['error'])}"
            for rank, answer in enumerate(answers)
            if "error" in answer
        ]
        if errors:
            pytest.fail("\n".join([f"{case} {arguments}", *errors]))
        return [answer["result"] for answer in answers]

    def right(self, case: str, **arguments: Any) -> list[Any]:
        """As `run`, without a budget; each once."""
        key = json.dumps([case, arguments])
        if key not in self._right:
            self._right[key] = self.run(case, run=None, **arguments)
        return self._right[key]

    def same(
        self, case: str, run: dict[str, Any], right: list[Any] | None = None, **arguments: Any
    ) -> list[Any]:
        """Runs a case without a run and with one: the same bits on each rank, within the budget,
        and as many collectives, so that none was repeated. What the latter gives; right: what the
        former gave."""
        right = right or self.right(case, **arguments)
        for _ in range(self.repetitions):
            got = self.run(case, run=run, **arguments)
            for a, b in zip(right, got, strict=True):
                assert b["bits"] == a["bits"], run
                assert b["peak"] <= b["budget"], run
                assert b["begun"] == a["begun"], run
        return got

    def try_to_run(self, case: str, **arguments: Any) -> list[dict[str, Any]]:
        """For each rank a "result" or an "error"."""
        if not self._processes:
            self._start()
        module, function = case.split(".")
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps([module, function, arguments]) + "\n")
            process.stdin.flush()
        answers = self._answers()
        if any("error" in answer for answer in answers):
            self.end()
        return answers

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        store, worker = str(Path(self._folder.name, "store")), str(HERE / "worker.py")
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-W", "ignore", worker, str(rank), str(self.world), store],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    "DELTA_TEST_TIMEOUT_S": str(self._timeout_s),
                },
            )
            for rank in range(self.world)
        ]
        for process in self._processes:  # a start is no part of a case
            assert process.stdout is not None
            process.stdout.readline()

    def _answers(self) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = [{"error": "it hangs"} for _ in self._processes]
        waiting = selectors.DefaultSelector()
        for rank, process in enumerate(self._processes):
            assert process.stdout is not None
            waiting.register(process.stdout, selectors.EVENT_READ, rank)
        end = time.monotonic() + AT_MOST_S
        while waiting.get_map() and time.monotonic() < end:
            for key, _ in waiting.select(timeout=1):
                line = self._processes[key.data].stdout.readline()
                if line:
                    answers[key.data] = json.loads(line)
                else:
                    code = self._processes[key.data].wait()
                    answers[key.data] = {"error": f"the process has ended with {code}"}
                waiting.unregister(key.fileobj)
                if "error" in answers[key.data]:
                    end = min(end, time.monotonic() + AFTER_AN_ERROR_S)  # the others may wait for it
        return answers

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes = []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
