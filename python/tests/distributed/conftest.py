"""Groups of processes for tests: two ranks by gloo on the CPU, kept from one test to the next."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).resolve().parent
AT_MOST_S = 60.0  # for one case


class Ranks:
    """A group of processes. After a case that has failed it is started anew."""

    def __init__(self, world: int = 2) -> None:
        self.world = world
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
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            for rank in range(self.world)
        ]

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
                    end = min(end, time.monotonic() + 10)  # the others may wait for it
        return answers

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes = []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """Two of them."""
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        pytest.skip("without torch.distributed and gloo")
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 15):
        pytest.skip("collectives are refused before PyTorch 2.15")
    group = Ranks()
    yield group
    group.end()
