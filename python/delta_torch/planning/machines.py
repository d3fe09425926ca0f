"""Machines that a step is priced for: their rates, each with where the figure is from."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field

import torch

GB = 10**9
TERA = 10**12


@dataclass(frozen=True)
class Machine:
    """A device by its rates: what a roofline and a replay need to know of it.

    flops: operations per second by type: "float32", "tf32" (float32 where TF32 is allowed),
        "float16", "bfloat16", "float64". A type that is missing has the rate of float32.
    bandwidth: of its memory, bytes per second.
    memory: bytes that it has. reserved: bytes of these that tensors can't have.
    copy: to the host and back, bytes per second in either direction. latency: of a copy, seconds.
    burden: what operators lose by a copy beside them, of its time: 0 where copies have engines of
        their own, 1 where the processor makes them.
    managing: what delta_torch itself takes for an operator, in seconds, where nothing else is done
        meanwhile.
    launch: the least that an operator takes, seconds.
    granularity: what its allocator rounds sizes up to.
    efficiency: by kind of operator, what it reaches of its flops and of its bandwidth, in place of
        the figures of EFFICIENCY.
    source: where the figures are from.
    """

    name: str
    flops: dict[str, float]
    bandwidth: float
    memory: int
    copy: float
    reserved: int = 2**30
    latency: float = 10e-6
    burden: float = 0.0
    managing: float = 0.0
    launch: float = 4e-6
    granularity: int = 512
    efficiency: dict[str, tuple[float, float]] = field(default_factory=dict)
    source: str = "given by the user"

    def __post_init__(self) -> None:
        if "float32" not in self.flops:
            raise ValueError(f"the machine {self.name!r} needs flops of float32")
        for what, value in (
            *((f"flops of {k}", v) for k, v in self.flops.items()),
            ("bandwidth", self.bandwidth),
            ("memory", self.memory),
            ("copy", self.copy),
        ):
            if not value > 0:
                raise ValueError(f"{what} of the machine {self.name!r} is above 0, not {value!r}")
        if not 0 <= self.reserved < self.memory:
            raise ValueError(
                f"of the memory of the machine {self.name!r} ({self.memory:,} bytes), "
                f"{self.reserved:,} can't be reserved"
            )

    @property
    def usable(self) -> int:
        """Bytes that tensors can have."""
        return self.memory - self.reserved

    def flops_of(self, dtype: torch.dtype, tf32: bool) -> float:
        """Operations per second for a type."""
        name = str(dtype).removeprefix("torch.")
        if name == "float32" and tf32:
            name = "tf32"
        return self.flops.get(name, self.flops["float32"])

    def efficiency_of(self, kind: str) -> tuple[float, float]:
        """What operators of that kind reach of the flops and of the bandwidth."""
        known = CPU_EFFICIENCY if self.name == "cpu" else EFFICIENCY
        return {**known, **self.efficiency}[kind]


# Dense rates, without sparsity. `copy` is an assumption: 80 % of the link's rate in one direction,
# about what pinned copies reach (PCIe 4.0 x16: 32 GB/s, PCIe 5.0 x16: 64 GB/s). `latency`, `launch`
# and `reserved` (the context of the driver) are assumptions, the same for all.
_GPUS = {
    m.name: m
    for m in (
        Machine(
            "a100-80",
            {
                "float64": 9.7 * TERA,
                "float32": 19.5 * TERA,
                "tf32": 156 * TERA,
                "bfloat16": 312 * TERA,
                "float16": 312 * TERA,
            },
            bandwidth=2039 * GB,
            memory=80 * 2**30,
            copy=25 * GB,
            source="NVIDIA A100 datasheet (A100 80GB SXM)",
        ),
        Machine(
            "h100",
            {
                "float64": 34 * TERA,
                "float32": 67 * TERA,
                "tf32": 494.5 * TERA,
                "bfloat16": 989.5 * TERA,
                "float16": 989.5 * TERA,
            },
            bandwidth=3350 * GB,
            memory=80 * 2**30,
            copy=50 * GB,
            source="NVIDIA H100 datasheet (H100 SXM; its figures with sparsity halved)",
        ),
        Machine(
            "h200",
            {
                "float64": 34 * TERA,
                "float32": 67 * TERA,
                "tf32": 494.5 * TERA,
                "bfloat16": 989.5 * TERA,
                "float16": 989.5 * TERA,
            },
            bandwidth=4800 * GB,
            memory=141 * GB,
            copy=50 * GB,
            source="NVIDIA H200 datasheet (H200 SXM; its figures with sparsity halved)",
        ),
        Machine(
            "rtx4090",
            {
                "float64": 1.29 * TERA,
                "float32": 82.6 * TERA,
                "tf32": 82.6 * TERA,
                "bfloat16": 165.2 * TERA,
                "float16": 165.2 * TERA,
            },
            bandwidth=1008 * GB,
            memory=24 * 2**30,
            copy=25 * GB,
            source="NVIDIA Ada GPU architecture whitepaper (FP16 with FP32 accumulate)",
        ),
    )
}

# Parts of the machine's rates that a kind of operator reaches: of its flops, of its bandwidth.
# Assumptions, but for those with a source: matrix products of cuBLAS and convolutions of cuDNN
# reach 60 to 80 % of the dense peak in NVIDIA's and others' measurements at large sizes, less at
# those of training; FlashAttention-2 reaches 50 to 73 % (Dao 2023, A100, forward; backward less);
# a streaming kernel 80 to 90 % of the memory's rate (BabelStream on A100 and H100).
EFFICIENCY: dict[str, tuple[float, float]] = {
    "matmul": (0.65, 0.75),
    "convolution": (0.5, 0.65),
    "grouped convolution": (0.1, 0.5),
    "attention": (0.5, 0.75),
    "normalisation": (0.5, 0.65),
    "softmax": (0.5, 0.65),
    "elementwise": (0.5, 0.8),
    "reduction": (0.5, 0.7),
    "pooling": (0.5, 0.6),
    "random": (0.5, 0.7),
    "embedding": (0.5, 0.4),
    "optimizer": (0.5, 0.8),
}
# Of processors, relative to a large matrix product and a copy, both measured on the machine itself.
# Set so that the kinds of ten small models take together about what they took on one x86 machine,
# on one thread; small tensors stay in its caches.
CPU_EFFICIENCY: dict[str, tuple[float, float]] = {
    "matmul": (0.75, 0.9),
    "convolution": (0.65, 0.2),
    "grouped convolution": (0.06, 0.5),
    "attention": (0.5, 0.7),
    "normalisation": (0.3, 0.2),
    "softmax": (0.3, 0.3),
    "elementwise": (0.3, 1.0),
    "reduction": (0.3, 0.25),
    "pooling": (0.3, 0.05),
    "random": (0.3, 0.05),
    "embedding": (0.3, 0.4),
    "optimizer": (0.3, 1.0),
}


def machines() -> list[str]:
    """The names of the machines that there are; "cpu" is this one, measured."""
    return [*_GPUS, "cpu"]


def machine(device: str | Machine) -> Machine:
    """A machine by its name, or itself. Raises ValueError for a name that is none."""
    if isinstance(device, Machine):
        return device
    if device == "cpu":
        return _this_cpu()
    if device not in _GPUS:
        raise ValueError(
            f"there is no device {device!r}; there are {', '.join(machines())}, "
            "and delta_torch.Machine for others"
        )
    return _GPUS[device]


_measured: dict[int, Machine] = {}


def _this_cpu() -> Machine:
    """This machine's processor, by a matrix product, a copy and an addition that are timed: a
    fifth of a second, once per number of threads."""
    threads = torch.get_num_threads()
    if threads not in _measured:
        a = torch.ones(512, 512)
        flops = 2 * 512**3 / _fastest(lambda: a @ a)
        source, target = torch.ones(8 << 20), torch.ones(8 << 20)
        copied = 2 * source.nbytes / _fastest(lambda: target.copy_(source))
        # Of what no cache holds, into what none holds: a tensor that leaves was made a while ago.
        blocks = [torch.ones(4 << 20) for _ in range(16)]
        pairs = zip(blocks[::2], blocks[1::2])
        cold = blocks[0].nbytes / statistics.median(_seconds(lambda: b.copy_(a)) for a, b in pairs)
        del blocks
        small = torch.ones(8)
        _measured[threads] = Machine(
            "cpu",
            {"float32": flops, "float64": flops / 2},
            bandwidth=copied,
            memory=_memory(),
            copy=cold,
            reserved=0,
            # What delta_torch's storage says, too (delta::host_device).
            latency=4e-6,
            burden=1.0,
            # What it takes for an operator for which nothing has to leave (docs/results/pytorch.md).
            managing=1.1e-6,
            launch=2 * _fastest(lambda: small.add(small)),
            granularity=64,
            source="measured on this machine",
        )
    return _measured[threads]


def _seconds(work) -> float:
    began = time.perf_counter()
    work()
    return max(time.perf_counter() - began, 1e-9)


def _fastest(work) -> float:
    work()
    return min(_seconds(work) for _ in range(7))


def _memory() -> int:
    import os

    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
