"""Kinds of collective, each with its tensors and what reads them; run by worker.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from managing import digest, in_collectives, load, managed, values
from torch.distributed import _functional_collectives as functional

KIB = 32  # of one tensor
Started = tuple[Callable[[], Any], list[Any]]  # waits; all tensors that are compared then


def _made(rank: int, more: int = 0) -> torch.Tensor:
    # By an operator, so that it could be computed again: a stale value would be seen.
    return values(KIB, 3 * rank + more) * 2


def _group() -> dist.ProcessGroup:
    return dist.group.WORLD


def _work(work: Any, *tensors: Any) -> Started:
    return (lambda: work.wait()), list(tensors)


def all_reduce(rank: int) -> Started:
    x = _made(rank)
    return _work(dist.all_reduce(x, async_op=True), x)


def all_reduce_coalesced(rank: int) -> Started:
    xs = [_made(rank), _made(rank, 7)]
    return _work(dist.all_reduce_coalesced(xs, async_op=True), xs)


def broadcast(rank: int) -> Started:
    x = _made(rank)
    return _work(dist.broadcast(x, 0, async_op=True), x)


def reduce(rank: int) -> Started:
    x = _made(rank)
    return _work(dist.reduce(x, 0, async_op=True), x if rank == 0 else ())


def all_gather(rank: int) -> Started:
    x, out = _made(rank), [_made(5), _made(6)]
    return _work(dist.all_gather(out, x, async_op=True), x, out)


def all_gather_into_tensor(rank: int) -> Started:
    x, out = _made(rank), torch.cat([_made(5), _made(6)])
    return _work(dist.all_gather_into_tensor(out, x, async_op=True), x, out)


def all_gather_coalesced(rank: int) -> Started:
    xs, out = [_made(rank), _made(rank, 3)], [[_made(5), _made(6)], [_made(7), _made(8)]]
    return _work(dist.all_gather_coalesced(out, xs, async_op=True), xs, out)


def all_gather_into_tensor_coalesced(rank: int) -> Started:
    xs = [_made(rank), _made(rank, 3)]
    out = [torch.cat([_made(5), _made(6)]), torch.cat([_made(7), _made(8)])]
    return _work(_group().allgather_into_tensor_coalesced(out, xs), xs, out)


def reduce_scatter(rank: int) -> Started:
    xs, out = [_made(rank), _made(rank, 3)], _made(9)
    return _work(dist.reduce_scatter(out, xs, async_op=True), xs, out)


def reduce_scatter_tensor(rank: int) -> Started:
    x, out = torch.cat([_made(rank), _made(rank, 3)]), _made(9)
    return _work(dist.reduce_scatter_tensor(out, x, async_op=True), x, out)


def reduce_scatter_tensor_coalesced(rank: int) -> Started:
    xs = [torch.cat([_made(rank), _made(rank, 3)]) for _ in range(2)]
    out = [_made(9), _made(10)]
    return _work(_group().reduce_scatter_tensor_coalesced(out, xs), xs, out)


def gather(rank: int) -> Started:
    x, out = _made(rank), [_made(5), _made(6)] if rank == 0 else None
    return _work(dist.gather(x, out, 0, async_op=True), x, out or ())


def scatter(rank: int) -> Started:
    out, xs = _made(9), [_made(5), _made(6)] if rank == 0 else None
    return _work(dist.scatter(out, xs, 0, async_op=True), out, xs or ())


def all_to_all(rank: int) -> Started:
    xs, out = [_made(rank), _made(rank, 3)], [_made(5), _made(6)]
    return _work(dist.all_to_all(out, xs, async_op=True), xs, out)


def all_to_all_single(rank: int) -> Started:
    x, out = torch.cat([_made(rank), _made(rank, 3)]), torch.cat([_made(5), _made(6)])
    return _work(dist.all_to_all_single(out, x, async_op=True), x, out)


def send_and_receive(rank: int) -> Started:
    x, out = _made(rank), _made(9)
    works = [dist.isend(x, 1 - rank), dist.irecv(out, 1 - rank)]
    return (lambda: [w.wait() for w in works]), [x, out]


def receive_from_any(rank: int) -> Started:
    x, out = _made(rank), _made(9)
    works = [dist.isend(x, 1)] if rank == 0 else [dist.irecv(out)]
    return (lambda: [w.wait() for w in works]), [x, out]


def barriers(rank: int) -> Started:
    x = _made(rank)
    work = dist.barrier(async_op=True)
    dist.monitored_barrier(timeout=timedelta(seconds=30))
    return _work(work, x)


def objects(rank: int) -> Started:
    out = [None, None]
    dist.all_gather_object(out, {"rank": rank, "x": list(range(50))})
    return (lambda: None), [torch.tensor(len(str(out)))]


def _functional(*results: torch.Tensor, also: Any = ()) -> Started:
    waited: list[torch.Tensor] = []
    out: list[Any] = [waited, also]
    return (lambda: waited.extend(torch.ops._c10d_functional.wait_tensor(r) for r in results)), out


def functional_all_reduce(rank: int) -> Started:
    x = _made(rank)
    name = _group().group_name
    return _functional(torch.ops._c10d_functional.all_reduce(x, "sum", name), also=x)


def functional_all_reduce_in_place(rank: int) -> Started:
    x = _made(rank)
    name = _group().group_name
    return _functional(torch.ops._c10d_functional.all_reduce_(x, "sum", name), also=x)


def functional_all_reduce_coalesced(rank: int) -> Started:
    xs = [_made(rank), _made(rank, 3)]
    name = _group().group_name
    return _functional(*torch.ops._c10d_functional.all_reduce_coalesced(xs, "sum", name), also=xs)


def functional_all_reduce_coalesced_in_place(rank: int) -> Started:
    xs = [_made(rank), _made(rank, 3)]
    name = _group().group_name
    return _functional(*torch.ops._c10d_functional.all_reduce_coalesced_(xs, "sum", name), also=xs)


def functional_all_gather(rank: int) -> Started:
    x, name = _made(rank), _group().group_name
    return _functional(torch.ops._c10d_functional.all_gather_into_tensor(x, 2, name), also=x)


def functional_all_gather_out(rank: int) -> Started:
    x, out, name = _made(rank), torch.cat([_made(5), _made(6)]), _group().group_name
    made = torch.ops._c10d_functional.all_gather_into_tensor_out(x, 2, name, out=out)
    return _functional(made, also=[x, out])


def functional_all_gather_coalesced(rank: int) -> Started:
    xs, name = [_made(rank), _made(rank, 3)], _group().group_name
    made = torch.ops._c10d_functional.all_gather_into_tensor_coalesced(xs, 2, name)
    return _functional(*made, also=xs)


def functional_reduce_scatter(rank: int) -> Started:
    x, name = torch.cat([_made(rank), _made(rank, 3)]), _group().group_name
    made = torch.ops._c10d_functional.reduce_scatter_tensor(x, "sum", 2, name)
    return _functional(made, also=x)


def functional_reduce_scatter_coalesced(rank: int) -> Started:
    xs, name = [torch.cat([_made(rank), _made(rank, 3)]) for _ in range(2)], _group().group_name
    made = torch.ops._c10d_functional.reduce_scatter_tensor_coalesced(xs, "sum", 2, name)
    return _functional(*made, also=xs)


def functional_all_to_all(rank: int) -> Started:
    x, name = torch.cat([_made(rank), _made(rank, 3)]), _group().group_name
    half = x.numel() // 2
    made = torch.ops._c10d_functional.all_to_all_single(x, [half, half], [half, half], name)
    return _functional(made, also=x)


def functional_broadcast(rank: int) -> Started:
    x, name = _made(rank), _group().group_name
    return _functional(torch.ops._c10d_functional.broadcast(x, 0, name), also=x)


def functional_broadcast_in_place(rank: int) -> Started:
    x, name = _made(rank), _group().group_name
    return _functional(torch.ops._c10d_functional.broadcast_(x, 0, name), also=x)


def functional_send_and_receive(rank: int) -> Started:
    x, out, name = _made(rank), _made(9), _group().group_name
    ops = torch.ops._c10d_functional
    sent, got = ops.isend(x, 1 - rank, 0, name), ops.irecv(out, 1 - rank, 0, name)

    def wait() -> None:
        for t in (sent, got):
            ops.wait_tensor(t)

    return wait, [x, out]


def functional_batch(rank: int) -> Started:
    x, out, name = _made(rank), _made(9), _group().group_name
    ops = torch.ops._c10d_functional
    kinds = ["isend", "irecv"]
    made = ops.batch_p2p_ops(kinds, [1 - rank] * 2, [0, 0], [x, out], name)

    def wait() -> None:
        for t in made:
            ops.wait_tensor(t)

    return wait, [x, out]


def functional_in_autograd(rank: int) -> Started:
    x = _made(rank).requires_grad_()
    total = functional.all_reduce((x * x).sum(), "sum", dist.group.WORLD)
    gathered = functional.all_gather_tensor_autograd(x * 2, 0, dist.group.WORLD)
    (gathered.sum() + total).backward()
    return (lambda: None), [x.grad, gathered, total]


KINDS = {
    name: f
    for name, f in list(globals().items())
    if callable(f) and getattr(f, "__annotations__", {}).get("return") == "Started"
    and not name.startswith("_")
}


def kind(rank: int, name: str, run: dict[str, Any] | None, times: int = 1) -> Any:
    """Begins it, drives out all that can leave, waits, drives out, and reads."""
    found, held = [], []
    with managed(run) as told:
        for i in range(times):
            kept = [values(16, i) * 3 for _ in range(2)]
            wait, tensors = KINDS[name](rank)
            loads = [load(KIB, 14)]
            wait()
            loads.append(load(KIB, 14))
            found.append(digest(tensors, loads, kept))
            del wait, tensors, loads, kept
            load(1)  # whose operators see what is over
            held.append(in_collectives())
    return {"bits": found, "held": held, **told.about}


def copied_out(rank: int, operator: str, run: dict[str, Any] | None) -> Any:
    """A collective over tensors whose copies are on the host, and clean."""
    with managed(run) as told:
        tensors = [values(2 * KIB, i + rank) for i in range(6)]
        for _ in range(2):  # copied out, and back
            load(2 * KIB, 12)
            sums = [t.sum() for t in tensors]
        for t in tensors:
            getattr(dist, operator)(t, *((0,) if operator == "broadcast" else ()))
        load(2 * KIB, 12)
        found = digest(tensors, sums)
    return {"bits": found, **told.about}


def to_the_limit(rank: int, name: str, run: dict[str, Any] | None, late: float) -> Any:
    """Rank 1 is late; rank 0 allocates meanwhile as much as it may, and drops the handles."""
    with managed(run) as told:
        if rank == 1:
            time.sleep(late)
        wait, tensors = KINDS[name](rank)
        sums = []
        for _ in range(30):
            sums.append(load(2 * KIB, 3))
        wait()
        found = digest(tensors, sums)
    return {"bits": found, **told.about}


def more_than_the_budget(rank: int, run: dict[str, Any] | None) -> Any:
    """Gloo makes one piece of them first: beside what the collective holds there is no room."""
    with managed(run) as told:
        xs = [torch.full((64 * 256,), rank + i + 0.5) for i in range(2)]
        dist.all_reduce_coalesced(xs)
        found = digest(*[x.sum().item() for x in xs])
    return {"bits": found, **told.about}
