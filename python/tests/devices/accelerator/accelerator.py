"""A simulated accelerator: PyTorch's PrivateUse1 device, for tests, with no hardware behind it.

`import accelerator` with this folder on sys.path, then `accelerator.load()`: it builds the C++ part
once, gives the device its name and makes `torch.simulated`. Tensors go to device "simulated". Work
there runs late and in odd order, drawn from a seed (`set_schedule`), and the host can't touch its
memory: what holds here under every seed holds because streams, events and record_stream were used
as they must be.
"""

from __future__ import annotations

import hashlib
import os
import sys
import types
from pathlib import Path

import torch
import torch.utils.cpp_extension

NAME = "simulated"
PRIVATE_USE_1 = 20  # c10::DeviceType
HERE = Path(__file__).resolve().parent
# GCC 12 warns of an overflow in PyTorch's own intrusive_ptr, where there is none.
FLAGS = ["-O1", "-std=c++20", "-Wall", "-Wextra", "-Wno-stringop-overflow"]

_native: types.ModuleType | None = None


def _build(folder: Path | None) -> types.ModuleType:
    """Compiles what has changed since these sources were last compiled for this PyTorch."""
    name = "simulated_accelerator"
    kind = hashlib.sha256(f"{torch.__version__} {sys.version} {FLAGS}".encode()).hexdigest()[:12]
    where = folder or Path(os.environ.get("SIMULATED_BUILD", HERE.parents[3] / "build"))
    where = where / f"simulated-{kind}"
    where.mkdir(parents=True, exist_ok=True)
    text = hashlib.sha256()
    for path in sorted((HERE / "csrc").iterdir()):
        text.update(path.name.encode() + path.read_bytes())
    known = where / "sources.sha256"  # written last: what it names has been compiled
    if known.exists() and known.read_text() == text.hexdigest():
        return torch.utils.cpp_extension._import_module_from_library(name, str(where), True)
    os.environ.setdefault("MAX_JOBS", "1")  # others use the machine, too
    module = torch.utils.cpp_extension.load(
        name,
        [str(path) for path in sorted((HERE / "csrc").glob("*.cpp"))],
        extra_cflags=FLAGS,
        build_directory=str(where),
    )
    known.write_text(text.hexdigest())
    return module


class _Device:
    """`with torch.simulated.device(0)`: there is only one."""

    def __init__(self, device: object = None) -> None:
        self.idx = 0

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


# Not subclasses: PyTorch's C++ wants exactly its own classes.
def _stream(device: object = None, priority: int = 0, **packed: int) -> torch.Stream:
    """A new stream of the device; or, of stream_id and so on, one that there is."""
    return torch.Stream(**packed) if packed else torch.Stream(f"{NAME}:0", priority=priority)


def _event(enable_timing: bool = False, **options: bool) -> torch.Event:
    """An event of the device; `enable_timing` gives it the device's simulated clock."""
    return torch.Event(f"{NAME}:0", enable_timing=enable_timing)


class _StreamContext:
    """`with torch.simulated.stream(s)`: the thread queues its work there."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        self.before = torch.accelerator.current_stream()
        if self.stream is not None:
            torch.accelerator.set_stream(self.stream)

    def __exit__(self, *error: object) -> None:
        torch.accelerator.set_stream(self.before)


def _set_state(state: torch.Tensor, device: object = None) -> None:
    _native.set_state(state.cpu())


def _module(native: types.ModuleType) -> types.ModuleType:
    """What becomes `torch.simulated`."""
    module = types.ModuleType(f"torch.{NAME}")
    contents = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_is_in_bad_fork": lambda: False,
        "_lazy_init": lambda: None,
        "init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "device": _Device,
        "get_device_name": lambda device=None: "simulated",
        "synchronize": lambda device=None: torch.accelerator.synchronize(),
        "Stream": _stream,
        "Event": _event,
        "stream": _StreamContext,
        "StreamContext": _StreamContext,
        "current_stream": lambda device=None: torch.accelerator.current_stream(),
        "set_stream": torch.accelerator.set_stream,
        "default_stream": lambda device=None: torch.Stream(
            stream_id=0, device_index=0, device_type=PRIVATE_USE_1
        ),
        "manual_seed": lambda seed: native.set_seed(seed % 2**64),
        "manual_seed_all": lambda seed: native.set_seed(seed % 2**64),
        "get_rng_state": lambda device=None: native.get_state(),
        "set_rng_state": _set_state,
        "get_amp_supported_dtype": lambda: [torch.bfloat16, torch.float16],
        "is_bf16_supported": lambda: True,
        "empty_cache": native.empty_cache,
        "memory_allocated": lambda device=None: native.memory_allocated(),
        "max_memory_allocated": lambda device=None: native.max_memory_allocated(),
        "reset_peak_memory_stats": lambda device=None: native.reset_peak_memory_stats(),
        "set_capacity": native.set_capacity,
        "set_failure": native.set_failure,
        "fill": native.fill,
        "is_seeded_anew": native.is_seeded_anew,
        "set_schedule": set_schedule,
        "pending": native.pending,
        "statistics": native.statistics,
    }
    for name, value in contents.items():
        setattr(module, name, value)
    return module


def set_schedule(seed: int, laziness: float = 0.9) -> None:
    """Waits for all work, then draws the order of what follows from `seed`.

    `laziness` is how likely it is that queueing work runs none: 1 runs nothing before it must, 0
    runs something every time.
    """
    _native.set_schedule(seed, laziness)


def load(folder: Path | None = None) -> types.ModuleType:
    """Builds and registers the device, once in a process; gives `torch.simulated`.

    `folder` is where to build (default: $SIMULATED_BUILD, or the tree's build/). PyTorch uses one
    thread from now on, since sums differ with the number of threads.
    """
    global _native
    if _native is None:
        torch.set_num_threads(1)
        torch.utils.rename_privateuse1_backend(NAME)
        _native = _build(folder)
        torch._register_device_module(NAME, _module(_native))
        torch.utils.generate_methods_for_privateuse1_backend()
    return getattr(torch, NAME)
