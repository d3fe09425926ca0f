"""Beginnings and ends of groups, runs and tensors around collectives; run by worker.py."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from managing import digest, in_collectives, load, managed, values

KIB = 64


def _made(rank: int, more: int = 0) -> torch.Tensor:
    return values(KIB, 3 * rank + more) * 2


def group_within(rank: int, run: dict[str, Any] | None) -> Any:
    """A group that begins and ends within a run."""
    with managed(run) as told:
        group = dist.new_group([0, 1])
        x = _made(rank)
        work = dist.all_reduce(x, group=group, async_op=True)
        sums = load(KIB, 8)
        work.wait()
        dist.destroy_process_group(group)
        found = digest(x, sums, load(KIB, 8))
        held = in_collectives()
    return {"bits": found, "held": held, **told.about}


def two_runs(rank: int, run: dict[str, Any] | None) -> Any:
    """A tensor of one run is another one's, too."""
    found = []
    x = _made(rank)
    for i in range(2):
        with managed(run) as told:
            work = dist.all_reduce(x, async_op=True)
            sums = load(KIB, 8)
            work.wait()
            x = x * 0.5 + i
            found.append(digest(x, sums, load(KIB, 8)))
            held = in_collectives()
    found.append(digest(x))
    return {"bits": found, "held": held, **told.about}


def handle_dropped(rank: int, run: dict[str, Any] | None) -> Any:
    """Nobody waits for the work; a barrier of the same queue tells that it is over."""
    with managed(run) as told:
        x = _made(rank)
        dist.all_reduce(x, async_op=True)
        sums = load(KIB, 8)
        for _ in range(4):
            dist.barrier()
        found = digest(x, sums, load(KIB, 8))
        held = in_collectives()
    return {"bits": found, "held": held, **told.about}


def ended_in_flight(rank: int, run: dict[str, Any] | None) -> Any:
    """The run ends before the collective does."""
    with managed(run) as told:
        sums = load(KIB, 8)
        x = _made(rank)
        out = torch.zeros_like(x)
        works = [dist.irecv(out, 1 - rank)]
        y = _made(rank, 5)
        if rank == 0:
            works.append(dist.all_reduce(y, async_op=True))
    if rank == 1:
        works.append(dist.all_reduce(y, async_op=True))
    works.append(dist.isend(x, 1 - rank))
    for work in works:
        work.wait()
    return {"bits": digest(x, y, out, sums), "held": in_collectives(), **told.about}


def storage_dropped(rank: int, run: dict[str, Any] | None) -> Any:
    """The program drops its tensors while the collective runs; others get no place of theirs."""
    found = []
    with managed(run) as told:
        for i in range(10):
            x, out = _made(rank, i), _made(rank)
            works = [dist.isend(x, 1 - rank), dist.irecv(out, 1 - rank)]
            del x
            sums = load(KIB, 8)
            for work in works:
                work.wait()
            found.append(digest(out, sums))
            del works, work, out
            load(1)
        held = in_collectives()
    return {"bits": found, "held": held, **told.about}


def storage_resized(rank: int, run: dict[str, Any] | None) -> Any:
    """A storage is freed and filled again, as FSDP does it; what was computed from it stays."""
    with managed(run) as told:
        x = _made(rank)
        y = x * 3
        load(KIB, 8)
        bytes_ = x.untyped_storage().nbytes()
        x.untyped_storage().resize_(0)
        sizes = [x.untyped_storage().size()]
        load(KIB, 8)
        x.untyped_storage().resize_(bytes_)
        x.fill_(7)
        z = x + y
        sums = load(KIB, 8)
        x.untyped_storage().resize_(2 * bytes_)  # keeps what there was
        found = digest(x, y, z, sums, load(KIB, 8))
        sizes.append(x.untyped_storage().size())
    return {"bits": [found, sizes], "held": in_collectives(), **told.about}


def callback(rank: int, run: dict[str, Any] | None) -> Any:
    """A callback on the group's thread writes a tensor that has a copy on the host."""
    with managed(run) as told:
        kept = [_made(rank, i) for i in range(3)]
        for _ in range(2):
            load(KIB, 8)
            sums = [k.sum() for k in kept]
        futures = []
        for k in kept:
            future = dist.all_reduce(k.clone(), async_op=True).get_future()
            futures.append(future.then(lambda f, k=k: k.copy_(f.value()[0] + 1)))
        load(KIB, 8)
        # The threads of the group may all be in a callback: whoever waits must not hold them up.
        name = dist.group.WORLD.group_name
        ops = torch.ops._c10d_functional
        sums.append(ops.wait_tensor(ops.all_reduce(sums[0], "sum", name)))
        for future in futures:
            future.wait()
        found = digest(kept, sums, load(KIB, 8))
        held = in_collectives()
    return {"bits": found, "held": held, **told.about}


def waits_for_a_landing(rank: int, run: dict[str, Any] | None) -> Any:
    """What a collective holds is all that could leave: an operator waits until it is over."""
    import time

    with managed(run) as told:
        if rank == 1:
            time.sleep(0.3)
        xs = [_made(rank, i) for i in range(6)]
        for x in xs:
            dist.all_reduce(x, async_op=True)
        sums = load(2 * KIB, 3)
        dist.barrier()
        found = digest(sums)
    return {"bits": found, "held": 0, **told.about}
