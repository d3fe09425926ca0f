"""One rank of a group of processes that tests start: runs the named cases, one after the other.

Arguments: its rank, how many there are, a file for their store. Each line of its input is a case,
as JSON: module, function and arguments; so is each line of its output, a result or an error.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
import traceback
from datetime import timedelta
from pathlib import Path

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist

TO_START = timedelta(seconds=40)


def timeout_s() -> float:
    """How long collectives wait for other ranks."""
    return float(os.environ["DELTA_TEST_TIMEOUT_S"])


def main() -> None:
    rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)  # ranks share few processors; and the same bits every time
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a program prints is no answer
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=world,
        timeout=TO_START,
    )
    # All are there, and have loaded what takes seconds on a busy machine: from now on a rank is late
    # because of what it does, not of how it starts.
    importlib.import_module("delta_torch")
    dist.barrier()
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=timeout_s()), dist.group.WORLD)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        module, function, arguments = json.loads(line)
        try:
            torch.manual_seed(17)
            before = dist.group.WORLD._get_sequence_number_for_group()
            with contextlib.redirect_stdout(io.StringIO()):
                result = getattr(importlib.import_module(module), function)(rank, **arguments)
            if isinstance(result, dict):
                after = dist.group.WORLD._get_sequence_number_for_group()
                result["begun"] = after - before
            answer = {"result": result}
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)
    # Without the group's end: another rank may have failed.
    os._exit(0)


if __name__ == "__main__":
    main()
