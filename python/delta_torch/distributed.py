"""torch.distributed within a run: callbacks of collectives, DistributedDataParallel, ranks.

Collectives are operators, and the extension knows them (csrc/collectives.cpp). What they leave to
Python is here: a callback of a collective's future runs on a thread of the process group, whose
operators no run sees by itself; and some of the modules and functions on top of collectives work
past PyTorch's dispatcher, and are refused by their names.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from . import _C, group
from .patching import Patches

_REFUSED = (
    "delta_torch does not manage {what} yet, as its results may be wrong: leave the run first, or "
    "{instead} (docs/distributed.md)"
)


def processes() -> int:
    """How many train together; 1 without torch.distributed."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return 1
    return distributed.get_world_size()


def install() -> Patches:
    """Wraps what needs it; `undo` of what is returned ends it."""
    patches = Patches()
    if not torch.distributed.is_available():
        return patches
    try:
        _refuse_rpc()
        tell_rank()
        patches.replace(
            torch.distributed,
            "init_process_group",
            _then_tell_rank(torch.distributed.init_process_group),
        )
        for name in ("then", "add_done_callback"):
            patches.replace(torch._C.Future, name, _managed(getattr(torch._C.Future, name)))
        work = torch._C._distributed_c10d.Work
        patches.replace(work, "wait", _timed(work.wait))
        patches.wrap(torch.distributed, "_register_builtin_comm_hook", _before_builtin_hook)
    except BaseException:
        patches.undo()
        raise
    return patches


def tell_rank() -> None:
    """Lets errors begin with this process's rank, where there are several."""
    _C.set_rank(torch.distributed.get_rank() if processes() > 1 else -1)


def _then_tell_rank(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def init_process_group(*args: Any, **options: Any) -> Any:
        result = original(*args, **options)
        tell_rank()
        group.watch()
        return result

    return init_process_group


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    # Of a send or a receive nothing else tells how long it takes.
    @functools.wraps(original)
    def wait(*args: Any, **options: Any) -> Any:
        _C.wait_begins()
        try:
            return original(*args, **options)
        finally:
            _C.wait_ends()

    return wait


def _managed(original: Callable[..., Any]) -> Callable[..., Any]:
    # As communication hooks of DistributedDataParallel do, which write gradients there.
    @functools.wraps(original)
    def then(future: Any, callback: Callable[[Any], Any]) -> Any:
        @functools.wraps(callback, updated=())
        def managed(done: Any) -> Any:
            before = _C.enter_callback()
            try:
                return callback(done)
            finally:
                _C.leave_callback(before)

        return original(future, managed)

    return then


def entered(module: torch.nn.Module) -> None:
    """Is told of each module that is called for the first time, whose submodules may not be."""
    sharded = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
    for part in module.modules():
        if isinstance(part, torch.nn.parallel.DistributedDataParallel):
            _refuse_options(part)
            # For its reducer; other readers of an address that is away find none, in place of an
            # error.
            _C.reduce(True)
        elif sharded is not None and isinstance(part, sharded.FullyShardedDataParallel):
            raise RuntimeError(
                _REFUSED.format(what="FullyShardedDataParallel", instead="use fully_shard")
            )


def _refuse_options(module: Any) -> None:
    hook = str(module._get_ddp_logging_data().get("comm_hook", ""))
    if hook.endswith("BuiltinCommHookType.FP16_COMPRESS"):
        _refuse_builtin_hook()
    if getattr(module, "mixed_precision", None) is not None:
        raise RuntimeError(
            _REFUSED.format(
                what="DistributedDataParallel's mixed_precision", instead="use torch.autocast"
            )
        )
    if getattr(module, "_delay_all_reduce_params", None):
        raise RuntimeError(
            _REFUSED.format(
                what="DistributedDataParallel's delay_all_reduce_named_params",
                instead="leave it out",
            )
        )


def _before_builtin_hook(_reducer: Any, kind: Any, *_args: Any) -> None:
    if kind == torch.distributed.BuiltinCommHookType.FP16_COMPRESS:
        _refuse_builtin_hook()


def _refuse_builtin_hook() -> None:
    # Its callback is C++, on a thread of the process group: it writes a bucket that may be away.
    raise RuntimeError(
        _REFUSED.format(
            what="the communication hook BuiltinCommHookType.FP16_COMPRESS",
            instead="register default_hooks.fp16_compress_hook, which does the same",
        )
    )


def _refuse_rpc() -> None:
    rpc = sys.modules.get("torch.distributed.rpc")
    if rpc is not None and rpc.is_available() and rpc._is_current_rpc_agent_set():
        raise RuntimeError(
            _REFUSED.format(what="torch.distributed.rpc", instead="use collectives")
        )


def steps_within_another(hook: FrameType | None) -> bool:
    """Is an optimizer's step, whose hook this frame is, a part of another optimizer's step?

    ZeroRedundancyOptimizer calls one for its share of the parameters. Found by PyTorch's function
    around each step: whatever is remembered here would be wrong once a step has raised.
    """
    around = hook.f_back if hook is not None else None
    if around is None:
        return False
    frame = around.f_back
    while frame is not None:
        if frame.f_code is around.f_code:
            return True
        frame = frame.f_back
    return False
