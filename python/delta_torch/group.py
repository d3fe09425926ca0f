"""The processes that train together, as a run sees them: what they tell each other past collectives.

They do so through the store of torch.distributed's group. A collective waits until all ranks have
called it, so one that has failed or is late would hold up the others; a store has what was put
there, whoever is gone. While a run is on, a thread looks there a few times a second, so that a
rank whose collective has failed can find out which ones are gone, and which are behind.
"""

from __future__ import annotations

import atexit
import os
import pickle
import sys
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch

from . import _C

LOOKS_EVERY_S = 0.25
ANSWERS_WITHIN_S = 2.0  # eight looks, as a rank may be in an operator that keeps Python's lock
AFTER_A_FAILURE_S = 1.0
AGREES_WITHIN_S = 5.0
_POLL_S = 0.01
# What errors of gloo say where the cause is another rank.
_OF_OTHERS = (
    "gloo/",
    "Application timeout caused pair closure",
    "Connection closed by peer",
    "Connection reset by peer",
    "Socket closed",
    "Timed out waiting",
)


@dataclass(frozen=True)
class Failure:
    """Which ranks failed first, and why, as far as that is known."""

    ranks: tuple[int, ...]  # none: unknown
    reason: str

    def __str__(self) -> str:
        if not self.ranks:
            return self.reason
        names = ", ".join(map(str, self.ranks))
        return f"rank{'s' * (len(self.ranks) > 1)} {names} failed first: {self.reason}"


def is_of_others(error: BaseException | None) -> bool:
    """Is an error, or one that it came from, a collective's that another rank has caused?"""
    while error is not None:
        if isinstance(error, RuntimeError) and any(text in str(error) for text in _OF_OTHERS):
            return True
        error = error.__cause__ or error.__context__
    return False


class Group:
    """The ranks of torch.distributed's default group, by its store.

    number: which of the groups of this process it is. All ranks are to count them alike; where
    they do not they hear nothing of each other.
    """

    def __init__(self, process_group: Any, number: int) -> None:
        distributed = torch.distributed
        self.process_group = process_group
        self.rank, self.world = distributed.get_rank(), distributed.get_world_size()
        # torchrun keeps its store for the next attempt.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._prefix = f"delta_torch/{attempt}/{number}"
        self._store = self._connection()
        self._turns: dict[str, int] = {}
        self._watch: threading.Thread | None = None
        self._end = threading.Event()

    def tell(self, topic: str, value: Any) -> list[str]:
        """Puts a value there for the others; gives the keys of all ranks' values of this turn.

        A topic has turns: each rank's first value, each one's second, and so on.
        """
        turn = self._turns[topic] = self._turns.get(topic, 0) + 1
        keys = [f"{topic}/{turn}/{rank}" for rank in range(self.world)]
        self._store.set(keys[self.rank], pickle.dumps(value))
        return keys

    def hear(self, keys: list[str], seconds: float) -> list[Any]:
        """The values of all ranks; None for those that have put none there within that time, or
        soon after a rank has failed."""
        end, failed = time.monotonic() + seconds, False
        while not (whole := self._store.check(keys)) and time.monotonic() < end:
            if not failed and self.first_failure() is not None:
                failed, end = True, min(end, time.monotonic() + AFTER_A_FAILURE_S)
            time.sleep(_POLL_S)
        there = [whole or self._store.check([key]) for key in keys]
        return [
            pickle.loads(self._store.get(key)) if is_there else None
            for key, is_there in zip(keys, there, strict=True)
        ]

    def exchange(self, topic: str, value: Any, seconds: float) -> list[Any]:
        """Tells a value, and hears those of all ranks."""
        return self.hear(self.tell(topic, value), seconds)

    @property
    def timeout_s(self) -> float:
        """How long its collectives wait for other ranks."""
        try:
            backend = self.process_group._get_backend(torch.device("cpu"))
            return backend.options._timeout.total_seconds()
        except (AttributeError, RuntimeError):
            return torch.distributed.distributed_c10d.default_pg_timeout.total_seconds()

    # --- who failed first ------------------------------------------------------------------------

    def first_failure(self) -> Failure | None:
        """As the first rank that knew of one has put it there."""
        key = self._failure_key()
        return pickle.loads(self._store.get(key)) if self._store.check([key]) else None

    def claim(self, failure: Failure) -> Failure:
        """Puts a failure there unless another one is; gives the one that is."""
        key = self._failure_key()
        if self._store.add(f"{key}/claims", 1) == 1:
            self._store.set(key, pickle.dumps(failure))
        self._store.wait([key], timedelta(seconds=ANSWERS_WITHIN_S))
        return pickle.loads(self._store.get(key))

    def goes_on(self) -> None:
        """This rank begins a run: what it was said to have failed by is over."""
        failure = self.first_failure()
        if failure is not None and (self.rank in failure.ranks or not failure.ranks):
            self._store.add("failures", 1)

    def explain(self, error: BaseException) -> None:
        """Notes on an error that ends a run which rank it is, and which one failed first."""
        here = f"delta: rank {self.rank} of {self.world}"
        if any(note.startswith(here) for note in getattr(error, "__notes__", ())):
            return  # it has left a step, and leaves the run
        try:
            failure = self.first_failure()
            if failure is None and is_of_others(error):
                failure = self.claim(self._suspects())
            elif failure is None:
                sentence = str(error).partition("\n")[0]
                reason = f"{type(error).__name__}: {sentence}"
                failure = self.claim(Failure((self.rank,), reason))
            said = str(failure)
        except RuntimeError:  # of the store
            said = "the group's store is gone with the process that has it, mostly rank 0"
        if hasattr(error, "add_note"):  # from Python 3.11 on, which PyTorch 2.15 needs
            error.add_note(f"delta: rank {self.rank} of {self.world}: {said}")

    def _suspects(self) -> Failure:
        """Asks all ranks: who does not answer is gone; else who had an error; else who is behind."""
        turn = self._store.add("questions", 1)
        keys = [f"answer/{turn}/{rank}" for rank in range(self.world)]
        self._store.set(keys[self.rank], pickle.dumps(self._state()))
        answers = self.hear(keys, ANSWERS_WITHIN_S)
        gone = tuple(rank for rank, answer in enumerate(answers) if answer is None)
        if known := self.first_failure():
            return known
        if gone:
            return Failure(gone, "no answer: the process has ended or was killed, or its run was over")
        for rank, answer in enumerate(answers):
            if answer["error"]:
                return Failure((rank,), answer["error"])
        begun = [answer["begun"] for answer in answers]
        if min(begun) == max(begun):
            return Failure((), "no rank is known to have failed first: all are alive, and none is behind")
        behind = tuple(rank for rank, n in enumerate(begun) if n == min(begun))
        return Failure(
            behind, f"late: {min(begun)} collectives were begun there, {max(begun)} elsewhere"
        )

    def _state(self) -> dict[str, Any]:
        error = _C.last_error()
        try:
            begun = self.process_group._get_sequence_number_for_group()
        except RuntimeError:
            begun = 0  # of backends that do not count
        return {"begun": begun, "error": error["message"] if error else ""}

    def _failure_key(self) -> str:
        return f"failed/{self._store.add('failures', 0)}"

    # --- the thread that answers -----------------------------------------------------------------

    def watch(self) -> None:
        """Begins to answer the others. Nothing where it does already."""
        if self._watch is None:
            self.goes_on()
            self._end.clear()
            # Read here: the thread may begin later than the others' first question.
            asked = (self._store.add("questions", 0),)
            self._watch = threading.Thread(
                target=self._answer, args=asked, name="delta_torch", daemon=True
            )
            self._watch.start()

    def unwatch(self) -> None:
        """Ends that."""
        if self._watch is not None:
            self._end.set()
            self._watch.join()
            self._watch = None

    def _answer(self, answered: int) -> None:
        store = self._connection()  # of its own: one waits for what another thread asks of it
        try:
            while not self._end.wait(LOOKS_EVERY_S):
                asked = store.add("questions", 0)
                for turn in range(answered + 1, asked + 1):  # several may ask at once
                    store.set(f"answer/{turn}/{self.rank}", pickle.dumps(self._state()))
                answered = asked
        except RuntimeError:
            pass  # the store has gone with its process: nobody can ask any more

    def _connection(self) -> Any:
        store = torch.distributed.distributed_c10d._get_default_store().clone()
        return torch.distributed.PrefixStore(self._prefix, store)


_current: Group | None = None
_made = 0


def current() -> Group | None:
    """The group of this process; None where it is alone. The same until torch.distributed has
    another default group."""
    global _current, _made
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    if distributed.get_world_size() == 1:
        return None
    process_group = distributed.distributed_c10d._get_default_group()
    if _current is None or _current.process_group is not process_group:
        unwatch()
        _made += 1
        _current = Group(process_group, _made)
    return _current


def rank() -> int | None:
    """This process's number in its group or, before there is one, among those that torchrun has
    started; None: it is alone."""
    if (group := current()) is not None:
        return group.rank
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return None
    return int(os.environ.get("RANK", "0"))


def watch() -> None:
    """Begins to answer other ranks, where there are some."""
    if (group := current()) is not None:
        group.watch()


def unwatch() -> None:
    """Ends that."""
    if _current is not None:
        _current.unwatch()


def explain(error: BaseException) -> None:
    """Notes on an error that ends a run which rank it is, and which one failed first."""
    if (group := current()) is not None:
        group.explain(error)


def largest(peak: int) -> int:
    """The largest of the peaks that ranks have measured for a share.

    Ranks that have measured none, as their training is shorter, are waited for for five seconds.
    """
    group = current()
    if group is None:
        return peak
    told = group.exchange("peak", peak, AGREES_WITHIN_S)
    return max(known or 0 for known in told)


def abort(sentence: str) -> None:
    """Memory is short here: tells the other ranks, and ends this process, whoever would catch the
    error. Their collectives fail at once, as its connections are closed. Nothing where it is alone.
    """
    group = current()
    if group is None:
        return
    try:
        group.claim(Failure((group.rank,), sentence))
    except RuntimeError:
        pass  # the store has gone: so have the others
    sys.stdout.flush()
    print(f"{sentence} (on_oom=\"abort\": this process ends)", file=sys.stderr, flush=True)
    os._exit(1)


atexit.register(unwatch)  # a thread that waits for Python's lock when Python has ended aborts
