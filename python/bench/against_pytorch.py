#!/usr/bin/env python3
"""Trains eight models by PyTorch's own means against running out of memory, and under budgets.

    python bench/against_pytorch.py [--models NAME...] [--steps N] [--rounds N] [--out FILE.json]
                                    [--plot FILE.png] [--read FILE.json...]

Rivals are torch.utils.checkpoint round each block (or the model's own switch for it),
torch.autograd.graph.save_on_cpu, and both at once. Each is compared with delta_torch under the
peak that the rival itself reached, and with as much memory of the host as the rival took. One
thread; times are the processor's. Eleven minutes on an idle core.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

import delta_torch  # noqa: E402
from artefacts import picture  # noqa: E402
from delta_torch.planning.makers import checkpoint_blocks  # noqa: E402
from training import SEED, Training, digest  # noqa: E402

LEARNING = 3  # the first steps of a managed run, in which its policy learns
WARM = 2  # of any other: the optimizer makes its state, the C library gets its memory
FULL_HOST = 8 << 30
SHARES = (0.6, 0.3)
RIVALS = ("checkpoint", "save_on_cpu", "both")

Loss = Callable[[], torch.Tensor]


# --- models --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    """A model that is trained: how it is made, by which optimizer, and how users checkpoint it."""

    # With "checkpoint", a model that has a switch for it; gives the model and its loss.
    make: Callable[[bool], tuple[nn.Module, Loss]]
    what: str
    optimizer: Callable[..., torch.optim.Optimizer] = lambda p: torch.optim.AdamW(p, lr=1e-3)
    switch: str = ""  # the model's own; "": torch.utils.checkpoint round each block
    device: str = "cpu"

    def training(self, rival: str | None, **how: Any) -> tuple[Training, Held]:
        """A training, and what its copies outside of the device take, where that is the CPU.

        how: further options of torch.utils.checkpoint.
        """
        checkpointed = rival in ("checkpoint", "both")
        with torch.device(self.device):
            model, loss_of = self.make(checkpointed)
        model.train()
        if checkpointed and not self.switch:
            assert checkpoint_blocks(model, use_reentrant=False, **how) > 0
        optimizer = self.optimizer(model.parameters())
        held = Held()
        copied = rival in ("save_on_cpu", "both")

        def step(_: int) -> torch.Tensor:
            optimizer.zero_grad()
            with self._copies(held) if copied else nullcontext():
                loss = loss_of()
            loss.backward()
            optimizer.step()
            return loss

        return Training(model, optimizer, step), held

    def _copies(self, held: Held) -> AbstractContextManager[Any]:
        kind = torch.device(self.device).type
        if kind == "cpu":
            return HostCopies(held)
        return torch.autograd.graph.save_on_cpu(pin_memory=True, device_type=kind)


def _sgd(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def _images(model: nn.Module, pixels: int, batch: int) -> tuple[nn.Module, Loss]:
    x, y = torch.randn(batch, 3, pixels, pixels), torch.randint(0, 10, (batch,))
    return model, lambda: F.cross_entropy(model(x), y)


def _torchvision(
    name: str, pixels: int, batch: int, switch: str = "", **options: Any
) -> Callable[[bool], tuple[nn.Module, Loss]]:
    def make(checkpointed: bool) -> tuple[nn.Module, Loss]:
        import torchvision

        how = {**options, switch: checkpointed} if switch else options
        model = torchvision.models.get_model(name, weights=None, num_classes=10, **how)
        return _images(model, pixels, batch)

    return make


def _vit(_: bool) -> tuple[nn.Module, Loss]:
    import torchvision

    model = torchvision.models.VisionTransformer(96, 8, 6, 4, 192, 768, num_classes=10)
    return _images(model, 96, 16)


def _transformers(
    model_class: str, config_class: str, tokens: int, **options: Any
) -> Callable[[bool], tuple[nn.Module, Loss]]:
    def make(checkpointed: bool) -> tuple[nn.Module, Loss]:
        import transformers

        transformers.logging.set_verbosity_error()
        config = getattr(transformers, config_class)(vocab_size=2000, **options)
        config.use_cache = False  # of no use in training
        model = getattr(transformers, model_class)(config)
        if checkpointed:
            # It was called otherwise before transformers 5.
            names = ("activation_checkpointing_enable", "gradient_checkpointing_enable")
            switch = next(name for name in names if hasattr(model, name))
            getattr(model, switch)({"use_reentrant": False})
        text = torch.randint(0, 2000, (6, tokens))
        return model, lambda: model(input_ids=text, labels=text).loss

    return make


_HUGGING = "activation_checkpointing_enable"
MODELS: dict[str, Subject] = {
    "resnet50": Subject(_torchvision("resnet50", 96, 10), "10 images of 96x96", _sgd),
    "mobilenet_v3_large": Subject(
        _torchvision("mobilenet_v3_large", 128, 20), "20 images of 128x128", _sgd
    ),
    "densenet121": Subject(
        _torchvision("densenet121", 96, 8, switch="memory_efficient"),
        "8 images of 96x96",
        _sgd,
        switch="memory_efficient",
    ),
    "convnext_tiny": Subject(_torchvision("convnext_tiny", 96, 6), "6 images of 96x96"),
    "vit": Subject(_vit, "6 layers of 192, 16 images of 96x96"),
    "gpt2": Subject(
        _transformers(
            "GPT2LMHeadModel", "GPT2Config", 192, n_layer=6, n_head=6, n_embd=192, n_positions=192
        ),
        "6 layers of 192, 6 texts of 192 tokens",
        switch=_HUGGING,
    ),
    "bert": Subject(
        _transformers(
            "BertForMaskedLM",
            "BertConfig",
            192,
            num_hidden_layers=6,
            hidden_size=192,
            num_attention_heads=6,
            intermediate_size=768,
        ),
        "6 layers of 192, 6 texts of 192 tokens",
        switch=_HUGGING,
    ),
    "llama": Subject(
        _transformers(
            "LlamaForCausalLM",
            "LlamaConfig",
            256,
            num_hidden_layers=6,
            hidden_size=192,
            num_attention_heads=6,
            num_key_value_heads=3,
            intermediate_size=512,
        ),
        "6 layers of 192, 6 texts of 256 tokens",
        switch=_HUGGING,
    ),
}


# --- save_on_cpu where the device is the CPU ------------------------------------------------------


@dataclass
class Held:
    """The bytes of copies outside of the device: now, and the most so far."""

    now: int = 0
    peak: int = 0

    def add(self, count: int) -> None:
        self.now += count
        self.peak = max(self.peak, self.now)


class _Copy:
    """A saved tensor's bytes in memory that no allocator of PyTorch's, and no run, knows of."""

    __slots__ = ("_bytes", "_dtype", "_held", "_shape", "_strides")

    def __init__(self, tensor: torch.Tensor, held: Held) -> None:
        if not _dense(tensor):
            tensor = tensor.clone()  # on the device, as cpu() does for such a one
        count = tensor.numel() * tensor.element_size()
        self._shape, self._strides, self._dtype = tensor.shape, tensor.stride(), tensor.dtype
        self._bytes = numpy.empty(count, numpy.uint8)
        if count:
            ctypes.memmove(self._bytes.ctypes.data, tensor.data_ptr(), count)
        self._held = held
        held.add(count)

    def __del__(self) -> None:
        self._held.add(-self._bytes.nbytes)

    def back(self) -> torch.Tensor:
        tensor = torch.empty_strided(self._shape, self._strides, dtype=self._dtype)
        if self._bytes.nbytes:
            ctypes.memmove(tensor.data_ptr(), self._bytes.ctypes.data, self._bytes.nbytes)
        return tensor


class HostCopies(torch.autograd.graph.saved_tensors_hooks):
    """What save_on_cpu does beside a GPU, for tensors on the CPU, which it leaves where they are.

    Each saved tensor, parameters included, is copied to the host, and to a new tensor of the device
    when the backward pass needs it: as many copies of as many bytes.
    """

    def __init__(self, held: Held) -> None:
        super().__init__(lambda tensor: _Copy(tensor.detach(), held), lambda copy: copy.back())


def _dense(tensor: torch.Tensor) -> bool:
    """Do its elements fill a range of memory, each once?"""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


# --- runs ----------------------------------------------------------------------------------------


@dataclass
class Way:
    """One way to train a model: its own, a rival's, or under a budget; and what it took."""

    name: str  # "unmanaged", a rival, or the policy
    budget_bytes: int | None = None
    host_bytes: int = 0  # that a run may take on the host; of a rival: what it took
    like: str = ""  # the rival whose peak, and whose memory of the host, the run has
    peak_bytes: int = 0
    host_peak_bytes: int = 0
    seconds: list[float] = field(default_factory=list)  # of a step, the fastest of each round
    wall: list[float] = field(default_factory=list)  # the same by the clock
    time: float | None = None  # over the unmanaged one; None: it ran out of memory
    same_losses: bool = True
    same_state: bool | None = None  # parameters, buffers and optimizer; None: not compared
    error: str = ""


@dataclass
class Ran:
    """A training's losses, and the fastest of its steps but the first ones."""

    losses: list[str]
    seconds: float
    wall: float


def ran(training: Training, first: int, steps: int) -> Ran:
    """Trains, timing every step."""
    losses, times, walls = [], [], []
    for i in range(first + steps):
        wall, begin = time.perf_counter(), time.process_time()
        losses.append(training.step(i).item().hex())  # which waits for the device
        times.append(time.process_time() - begin)
        walls.append(time.perf_counter() - wall)
    return Ran(losses, min(times[first:]), min(walls[first:]))


def measured(subject: Subject, name: str, steps: int = 3) -> tuple[Way, list[str], str]:
    """The peaks of a training that is not managed; its losses, and a digest of what it leaves."""
    torch.manual_seed(SEED)
    training, held = subject.training(None if name == "unmanaged" else name)
    losses = []
    with delta_torch.budget(None, policy="unmanaged", device=subject.device) as run:
        for i in range(steps):
            losses.append(training.step(i).item().hex())
    left = digest([training.model.state_dict(), training.optimizer.state_dict()])
    way = Way(name, peak_bytes=run.report().peak_bytes, host_peak_bytes=held.peak)
    way.host_bytes = held.peak
    return way, losses, left


def timed(subject: Subject, way: Way, steps: int, losses: list[str]) -> None:
    """Trains once, and adds to the way what that took; `losses` are those to be expected."""
    torch.manual_seed(SEED)
    if way.budget_bytes is None:
        training, _ = subject.training(None if way.name == "unmanaged" else way.name)
        result = ran(training, WARM, steps)
    else:
        if way.error:
            return
        training, _ = subject.training(None)
        try:
            with delta_torch.budget(
                way.budget_bytes, policy=way.name, host=way.host_bytes, device=subject.device
            ) as run:
                result = ran(training, LEARNING, steps)
        except torch.OutOfMemoryError as error:
            way.error = str(error)
            return
        report = run.report()
        way.peak_bytes = max(way.peak_bytes, report.peak_bytes)
        way.host_peak_bytes = max(way.host_peak_bytes, report.host_peak_bytes)
    common = min(len(losses), len(result.losses))
    way.same_losses &= losses[:common] == result.losses[:common]
    way.seconds.append(result.seconds)
    way.wall.append(result.wall)


def compared(
    subject: Subject, policy: str, shares: tuple[float, ...], steps: int, rounds: int
) -> list[Way]:
    """All ways to train one model, timed in turn; the first one is unmanaged."""
    plain, losses, left = measured(subject, "unmanaged")
    ways = [plain]
    for name in RIVALS:
        rival, of_rival, left_by_it = measured(subject, name)
        rival.same_losses = of_rival == losses
        rival.same_state = left_by_it == left
        ways.append(rival)
    for rival in ways[1:4]:
        ways.append(Way(policy, rival.peak_bytes, rival.host_peak_bytes, like=rival.name))
        ways.append(Way(policy, rival.peak_bytes, FULL_HOST))
    for host in (0, FULL_HOST):
        ways += [Way(policy, int(plain.peak_bytes * share), host) for share in shares]

    torch.manual_seed(SEED)
    training, _ = subject.training(None)
    expected = ran(training, LEARNING, steps).losses
    for _ in range(rounds):
        for way in ways:
            timed(subject, way, steps, expected)
    for way in ways:
        if way.error or not way.seconds:
            continue
        ratios = [a / b for a, b in zip(way.seconds, plain.seconds, strict=True)]
        way.time = statistics.median(ratios)
    return ways


def keep_memory() -> None:
    """Tells the GNU C library to keep what is freed: else the system's pages are in the times."""
    trim_threshold, most_mapped = -1, -4  # M_TRIM_THRESHOLD, M_MMAP_MAX of malloc.h
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(most_mapped, 0)
        library.mallopt(trim_threshold, 2**31 - 1)


# --- what is said --------------------------------------------------------------------------------

HEAD = (
    "| model | rival | its peak | its host | its time | adaptive there | with 8 GiB of host | "
    "for its time |"
)


def smallest(ways: list[Way], rival: Way) -> Way | None:
    """The smallest budget that was tried and took no longer than a rival; None: none did.

    Beside checkpoint it may not use the host; beside others it may.
    """
    found = [
        w
        for w in ways
        if w.budget_bytes is not None
        and w.time is not None
        and rival.time is not None
        and w.time <= rival.time
        and (w.host_bytes == 0) == (rival.name == "checkpoint")
    ]
    return min(found, key=lambda w: w.budget_bytes or 0, default=None)


def rows(model: str, ways: list[Way]) -> list[str]:
    """Three rows of the table, one per rival; peaks are shares of the unmanaged one."""
    plain, rivals = ways[0], ways[1:4]
    lines = []
    for rival in rivals:
        at = {
            w.host_bytes == FULL_HOST: w
            for w in ways[4:]
            if w.budget_bytes == rival.peak_bytes and (w.like == rival.name or not w.like)
        }
        least = smallest(ways, rival)
        cells = [
            model if rival is rivals[0] else "",
            f"`{rival.name}`" if rival.name != "both" else "both",
            _share(rival.peak_bytes, plain),
            _share(rival.host_peak_bytes, plain) if rival.host_peak_bytes else "0",
            _time(rival),
            _time(at[False], rival),
            _time(at[True], rival),
            "-" if least is None else _share(least.budget_bytes or 0, plain),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _share(count: int, plain: Way) -> str:
    return f"{count / plain.peak_bytes:.0%}"


def _time(way: Way, rival: Way | None = None) -> str:
    if way.time is None:
        return "too small"
    bold = rival is not None and rival.time is not None and way.time <= rival.time
    return f"**{way.time:.2f}**" if bold else f"{way.time:.2f}"


def read(files: list[Path]) -> dict[str, list[Way]]:
    """What runs have written, all models of all files, in the order of MODELS."""
    found: dict[str, list[Way]] = {}
    for file in files:
        for model, said in json.loads(file.read_text(encoding="utf-8"))["models"].items():
            found[model] = [Way(**way) for way in said["ways"]]
    order = list(MODELS)
    return dict(sorted(found.items(), key=lambda item: order.index(item[0])))


def draw(results: dict[str, list[Way]], file: Path) -> None:
    """A panel per model: time over peak, rivals as points, budgets as curves."""
    from matplotlib.figure import Figure

    columns = min(4, len(results))
    lines = math.ceil(len(results) / columns)
    figure = Figure(figsize=(2.9 * columns, 2.6 * lines + 0.8), dpi=150, layout="constrained")
    grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    marks = {
        "checkpoint": ("s", "#D55E00"),
        "save_on_cpu": ("^", "#CC79A7"),
        "both": ("D", "#E69F00"),
    }
    for axes in list(grid.flat)[len(results) :]:
        axes.axis("off")
    for axes, (model, ways) in zip(grid.flat, results.items(), strict=False):
        plain = ways[0]
        curves = (
            (0, "--", "adaptive, recomputing only"),
            (FULL_HOST, "-", "adaptive, 8 GiB of host"),
        )
        for host, line, label in curves:
            points = sorted(
                (100 * (w.budget_bytes or 0) / plain.peak_bytes, w.time)
                for w in ways[4:]
                if w.host_bytes == host and w.time is not None
            )
            points.append((100.0, 1.0))
            axes.plot(
                *zip(*points, strict=True), "o" + line, color="#0072B2", ms=3, lw=1.2, label=label
            )
        like = [w for w in ways[4:] if w.like and w.host_bytes > 0 and w.time is not None]
        axes.plot(
            [100 * (w.budget_bytes or 0) / plain.peak_bytes for w in like],
            [w.time for w in like],
            "o",
            color="#0072B2",
            mfc="white",
            ms=5,
            label="adaptive, as much of the host as the rival",
        )
        for rival in ways[1:4]:
            mark, colour = marks[rival.name]
            axes.plot(
                [100 * rival.peak_bytes / plain.peak_bytes],
                [rival.time],
                mark,
                color=colour,
                ms=6,
                label=rival.name if rival.name != "both" else "both at once",
            )
        axes.set_title(
            f"{model}, {plain.peak_bytes / 2**20:.0f} MiB, {min(plain.seconds) * 1e3:.0f} ms",
            fontsize=9,
        )
        axes.grid(alpha=0.3)
        axes.tick_params(labelsize=7)
    most = max(w.time for ways in results.values() for w in ways if w.time is not None)
    grid[0][0].set_ylim(0.95, most + 0.03)
    figure.supxlabel("peak or budget, % of the unmanaged peak", fontsize=9)
    figure.supylabel("step time / unmanaged", fontsize=9)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize=8
    )
    picture(figure, file)


def main(arguments: list[str] | None = None) -> int:
    """Prints the table. 1: losses were not those of the unmanaged training."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--models", nargs="+", default=list(MODELS), choices=MODELS, help="which ones; default: all"
    )
    parser.add_argument("--policy", default="adaptive", help="delta_torch's; default: adaptive")
    parser.add_argument(
        "--shares",
        nargs="*",
        type=float,
        default=list(SHARES),
        help="further budgets, as shares of the unmanaged peak",
    )
    parser.add_argument("--steps", type=int, default=3, help="that are timed in a training")
    parser.add_argument("--rounds", type=int, default=2, help="that train every way in turn")
    parser.add_argument(
        "--read",
        nargs="+",
        type=Path,
        metavar="FILE.json",
        help="train nothing: print and draw what --out has written",
    )
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write all numbers there")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw them there")
    flags = parser.parse_args(arguments)
    torch.set_num_threads(1)

    print(f"{HEAD}\n|{'---|' * (HEAD.count('|') - 1)}")
    if flags.read:
        results = read(flags.read)
        for model, ways in results.items():
            print("\n".join(rows(model, ways)))
    else:
        results = {}
        keep_memory()
        for model in flags.models:
            results[model] = compared(
                MODELS[model], flags.policy, tuple(flags.shares), flags.steps, flags.rounds
            )
            print("\n".join(rows(model, results[model])), flush=True)
    for model, ways in results.items():
        changed = [w.name for w in ways if w.same_state is False]
        if changed:
            print(f"{model}: weights, buffers or optimizer state differ after {', '.join(changed)}")
    wrong = [f"{m}, {w.name}" for m, ways in results.items() for w in ways if not w.same_losses]
    print(f"losses differ: {'; '.join(wrong)}" if wrong else "all losses are the unmanaged ones")
    if flags.out is not None:
        said = {
            model: {"what": MODELS[model].what, "ways": [asdict(w) for w in ways]}
            for model, ways in results.items()
        }
        flags.out.parent.mkdir(parents=True, exist_ok=True)
        flags.out.write_text(
            json.dumps({"torch": torch.__version__, "models": said}, indent=1) + "\n",
            encoding="utf-8",
        )
    if flags.plot is not None:
        draw(results, flags.plot)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
