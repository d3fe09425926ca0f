"""The command line: python -m delta_torch run, which runs a program within a budget, plan, which
predicts a training step under budgets, and record, which writes its trace."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import torch

from . import launcher
from .flags import add_flag
from .options import MAX_OVERHEAD, Options
from .planning import machines, plan, record
from .planning.makers import OPTIMIZERS, Training, maker_of
from .planning.ranks import COLLECTIVES, NETWORK, NETWORK_LATENCY, PARALLEL
from .sizes import format_bytes

_BAR = 24


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; the process's exit status: 2 where an argument makes no sense, 1 where the
    step can't be recorded or the program can't be run. Raises what a program raises."""
    flags = _parser().parse_args(arguments)
    try:
        done = flags.command(flags)
    except (ValueError, TypeError) as error:
        print(f"delta_torch: {error}", file=sys.stderr)
        return 2
    except (RuntimeError, OSError, ImportError) as error:
        print(f"delta_torch: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1
    return done if isinstance(done, int) else done()  # a program: what it raises is its own


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m delta_torch", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    launcher.add_command(commands)

    planned = commands.add_parser("plan", help="predicts a training step under budgets")
    _add_model(planned)
    planned.add_argument("--batch", type=int, nargs="+", default=[1], metavar="N")
    add_flag(planned, "policy", Options.policy)
    planned.add_argument("--host", help="memory to copy out to, 64GiB (default: 4 peaks)")
    planned.add_argument("--max-overhead", type=float, default=MAX_OVERHEAD, metavar="X")
    planned.add_argument("--largest", action="store_true", help="search the largest batch, too")
    planned.add_argument(
        "--checkpoint", action="store_true", help="show torch.utils.checkpoint per block beside"
    )
    _add_ranks(planned)
    planned.add_argument("--json", metavar="FILE", help="write all numbers")
    planned.add_argument("--plot", metavar="FILE", help="draw the figure: .png, .svg, .pdf")
    planned.add_argument("--quiet", action="store_true", help="no progress on stderr")
    planned.set_defaults(command=_plan)

    recorded = commands.add_parser("record", help="writes a step's trace, for delta-replay")
    _add_model(recorded)
    recorded.add_argument("--batch", type=int, default=1, metavar="N")
    recorded.add_argument("--out", required=True, metavar="FILE", help="gzip where it ends in .gz")
    recorded.set_defaults(command=_record)
    return parser


# What is said of several devices, as plan() takes it.
_OF_RANKS = (
    "parallel",
    "unit",
    "collectives",
    "network",
    "network_latency",
    "one_link",
    "jitter",
)


def _add_ranks(command: argparse.ArgumentParser) -> None:
    command.add_argument("--ranks", type=int, default=1, metavar="N", help="devices that train")
    of_ranks = command.add_argument_group("of several devices, with --ranks")
    of_ranks.add_argument("--parallel", choices=PARALLEL, help=f"how (default: {PARALLEL[0]})")
    of_ranks.add_argument("--unit", metavar="SIZE", help="of fsdp (default: 100MiB)")
    of_ranks.add_argument("--collectives", choices=COLLECTIVES, help=f"(default: {COLLECTIVES[0]})")
    of_ranks.add_argument("--network", metavar="RATE", help=f"of each device (default: {NETWORK})")
    of_ranks.add_argument(
        "--network-latency",
        type=float,
        metavar="SECONDS",
        help=f"of each hop (default: {NETWORK_LATENCY})",
    )
    of_ranks.add_argument(
        "--one-link",
        action="store_true",
        default=None,
        help="collectives and copies take turns on one link",
    )
    of_ranks.add_argument(
        "--jitter",
        type=float,
        metavar="SIGMA",
        help="of devices' speeds; all wait for the slowest (default: none)",
    )


def _of_ranks(flags: argparse.Namespace) -> dict[str, Any]:
    """Those that were given."""
    given = {name: getattr(flags, name) for name in _OF_RANKS}
    given = {name: value for name, value in given.items() if value is not None}
    if given and flags.ranks == 1:
        flag = "--" + next(iter(given)).replace("_", "-")
        raise ValueError(f"{flag} is of several devices: add --ranks N, above 1")
    return given


def _add_model(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--model",
        required=True,
        metavar="MODEL",
        help="torchvision:NAME, transformers:TYPE, transformers:FILE (a Hugging Face model's "
        "config.json, or its folder), or module:function that is called with the batch size, builds "
        "the model and returns the step",
    )
    command.add_argument("--device", default="a100-80", help=", ".join(machines()))
    command.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    command.add_argument(
        "--foreach",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="the optimizer takes all parameters at once, as PyTorch's do on GPUs",
    )
    command.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    command.add_argument("--tf32", action="store_true", help="float32 products in TF32")
    command.add_argument("--size", type=int, default=224, help="of images, in pixels")
    command.add_argument("--tokens", type=int, default=512, help="of texts")
    command.add_argument(
        "--config",
        nargs="+",
        default=[],
        metavar="KEY=N",
        help="of transformers' configuration; an unknown key is refused, with those that there are",
    )
    command.add_argument(
        "--lora",
        type=int,
        default=0,
        metavar="RANK",
        help="train peft's LoRA adapters of that rank in a transformers model, whose own weights stay",
    )
    command.add_argument(
        "--nonzero", type=float, metavar="SHARE", help="of masks, where shapes depend on them"
    )


def _training(flags: argparse.Namespace, checkpoint: bool = False) -> Training:
    for name, value in (("--size", flags.size), ("--tokens", flags.tokens)):
        if value < 1:
            raise ValueError(f"{name} is above 0, not {value}")
    if flags.lora < 0:
        raise ValueError(f"--lora is a rank above 0, not {flags.lora}")
    return Training(
        optimizer=flags.optimizer,
        foreach=flags.foreach,
        dtype=flags.dtype,
        size=flags.size,
        tokens=flags.tokens,
        checkpoint=checkpoint,
        config=dict(_setting(text) for text in flags.config),
        lora=flags.lora,
    )


def _setting(text: str) -> tuple[str, Any]:
    key, found, value = text.partition("=")
    if not found or not key:
        raise ValueError(f"--config is KEY=N, such as num_hidden_layers=12, not {text!r}")
    for kind in (int, float):
        try:
            return key, kind(value)
        except ValueError:
            continue
    return key, {"true": True, "false": False}.get(value.lower(), value)


def _plan(flags: argparse.Namespace) -> int:
    of_ranks = _of_ranks(flags)
    torch.set_num_threads(1)
    compare = None
    if flags.checkpoint:
        if not flags.model.startswith(("torchvision:", "transformers:")):
            raise ValueError(
                "--checkpoint is for models of torchvision and transformers; of others it does not "
                "know the blocks"
            )
        compare = maker_of(flags.model, _training(flags, checkpoint=True))
    found = plan(
        maker_of(flags.model, _training(flags)),
        device=flags.device,
        batches=flags.batch,
        policy=flags.policy,
        host=flags.host,
        max_overhead=flags.max_overhead,
        largest=flags.largest,
        tf32=flags.tf32,
        nonzero=flags.nonzero,
        compare=compare,
        progress=None if flags.quiet else _show,
        ranks=flags.ranks,
        **of_ranks,
    )
    print(found)
    if flags.json:
        with open(flags.json, "w", encoding="utf-8") as out:
            out.write(found.to_json() + "\n")
    if flags.plot:
        found.plot(flags.plot)
    return 0


def _record(flags: argparse.Namespace) -> int:
    torch.set_num_threads(1)
    made = record(
        maker_of(flags.model, _training(flags)),
        flags.out,
        device=flags.device,
        fake=True,
        args=(flags.batch,),
        tf32=flags.tf32,
        nonzero=flags.nonzero,
    )
    print(
        f"{flags.out}: {len(made.operations):,} operators, peak {format_bytes(made.peak_bytes)}, "
        f"{made.step_ns / 1e6:.3g} ms on {made.device}"
    )
    return 0


def _show(text: str, share: float) -> None:
    """A line with a bar, where stderr is a terminal; else a line for each."""
    full = round(_BAR * share)
    line = f"[{'#' * full}{'.' * (_BAR - full)}] {text}"
    if not sys.stderr.isatty():
        print(line, file=sys.stderr)
        return
    print(f"\r\x1b[K{line}", end="\n" if share >= 1 else "", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
