"""The device of a run: which one it is, and what has to be said or set before it is managed."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable

import torch

# Of these types of device nobody has run delta_torch yet.
_NOT_RUN_YET = {"cuda": "a GPU"}


def device_of_run(device: torch.device | str | None) -> torch.device:
    """The device by its name; None: PyTorch's accelerator, or the CPU.

    Raises ValueError where there is no such device.
    """
    if device is None:
        found = torch.accelerator.current_accelerator(check_available=True)
        device = found if found is not None else "cpu"
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"there is no device {device!r}: {str(error).splitlines()[0]}") from None
    if device.type == "cpu":
        return torch.device("cpu")
    known = torch.accelerator.current_accelerator(check_available=True)
    if known is None or known.type != device.type:
        have = "only the CPU" if known is None else f"the CPU and {known.type}"
        raise ValueError(f"there is no device {str(device)!r} here: PyTorch has {have}")
    if device.index is None:
        device = torch.device(device.type, torch.accelerator.current_device_index())
    if device.index >= torch.accelerator.device_count():
        raise ValueError(
            f"there is no device {str(device)!r} here: "
            f"PyTorch has {torch.accelerator.device_count()} of them"
        )
    return device


def finish() -> None:
    """Waits for the accelerator, where there is one: what was queued there is over."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def prepare(device: torch.device) -> None:
    """What a type of device needs before a run begins on it."""
    if device.type in _NOT_RUN_YET:
        warnings.warn(
            f"delta_torch has not run on {_NOT_RUN_YET[device.type]} yet: it was tested on a simulated "
            "accelerator alone. Compare the losses of a few steps with those without it",
            UserWarning,
            stacklevel=5,
        )
    if device.type == "cuda":
        try:
            part = importlib.import_module("delta_torch._cuda")
        except ImportError as error:
            raise RuntimeError(
                "this delta_torch was built without its CUDA part, which needs the CUDA toolkit's "
                f"headers: install it again where they are, with DELTA_TORCH_CUDA=1 ({error})"
            ) from error
        _refuse_collectives()
        torch.cuda.init()  # PyTorch's allocator may not be asked before
        part.use()


def keep_kernels(device: torch.device) -> Callable[[], None]:
    """cuDNN's benchmark is off for the run, with a warning; gives what turns it on again.

    Each thread would try anew which kernel is the fastest: forward passes and what a backward pass
    computes again have threads of their own, and other kernels give other bits.
    """
    if device.type == "cpu" or not torch.backends.cudnn.benchmark:
        return lambda: None
    warnings.warn(
        "torch.backends.cudnn.benchmark is off while the run is on: other kernels, so other bits, "
        "could be chosen for what is computed again",
        UserWarning,
        stacklevel=5,
    )
    torch.backends.cudnn.benchmark = False

    def turn_on() -> None:
        torch.backends.cudnn.benchmark = True

    return turn_on


def _refuse_collectives() -> None:
    # NCCL works on streams of its own, behind operators that have returned: a tensor could leave
    # under it, and the results would be wrong without an error.
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return
    if "nccl" in str(distributed.get_backend_config()):
        raise RuntimeError(
            "delta_torch does not order the collectives of NCCL yet: end the process group before "
            "a run, or train on one GPU without torch.distributed"
        )
