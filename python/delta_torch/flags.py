"""The options of a run as flags of the command line, each with a variable of the environment."""

from __future__ import annotations

import argparse
import dataclasses
import os
from typing import Any, NamedTuple

from .options import Options, policies


class Flag(NamedTuple):
    """How an option of Options is written on a command line."""

    name: str
    metavar: str | None  # None: it takes no value
    help: str

    @property
    def variable(self) -> str:
        """Of the environment, which says it where the flag does not."""
        return "DELTA_TORCH_" + self.name.removeprefix("--").replace("-", "_").upper()


FLAGS = {
    "size": Flag(
        "--budget",
        "SIZE",
        "4GiB, or a share of the peak, 50%%: some steps run without a limit first, to measure it; "
        "none: no limit, to see what the program takes",
    ),
    "host": Flag(
        "--host",
        "SIZE",
        "memory of the host that tensors may be copied out to, 16GiB; auto: half of what is free, "
        "and 0 on a CPU",
    ),
    "policy": Flag("--policy", "NAME", "what decides which tensors leave: " + ", ".join(policies())),
    "verify": Flag("--verify", None, "compute every operator twice and compare; slow"),
    "timeline": Flag("--timeline", "FILE", "a trace of all that happens, for ui.perfetto.dev"),
    "steps": Flag(
        "--steps",
        "WHAT",
        "what ends a training step: optimizer, or manual where the program calls "
        "delta_torch.step()",
    ),
    "on_oom": Flag(
        "--on-oom",
        "WHAT",
        "where memory is short: raise, or of several processes abort, which ends this one at once",
    ),
    "share_after": Flag("--share-after", "N", "of a share, steps that are measured first"),
    "device": Flag("--device", "DEVICE", "whose memory it is about, cuda:1; else PyTorch's"),
}


def add_flag(parser: argparse.ArgumentParser, option: str, default: Any = argparse.SUPPRESS) -> None:
    """Adds the flag of one option."""
    name, metavar, text = FLAGS[option]
    usual = Options.__dataclass_fields__[option].default
    if metavar is not None and usual not in (None, ""):
        text += f" (default: {usual})"
    kind: dict[str, Any] = {"action": "store_true"}
    if metavar is not None:
        kind = {"metavar": metavar, "type": lambda given: _checked(option, given)}
    parser.add_argument(name, dest=option, default=default, help=text, **kind)
    if option == "verify":
        parser.add_argument(
            "--verify-tensors",
            dest=option,
            action="store_const",
            const="tensors",
            default=default,
            help="hash every tensor of the CPU, and compare after reloads, recomputes and operators",
        )


def given_options(parsed: argparse.Namespace) -> dict[str, Any]:
    """What flags, or else the environment, say of the options of Options, as budget() takes it.

    Raises ValueError, which names the variable, for one that makes no sense.
    """
    said = {option: getattr(parsed, option) for option in FLAGS if hasattr(parsed, option)}
    for option, flag in FLAGS.items():
        text = os.environ.get(flag.variable, "")
        if option in said or not text:
            continue
        try:
            said[option] = _checked(option, text)
        except argparse.ArgumentTypeError as error:
            raise ValueError(f"{flag.variable} in the environment: {error}") from None
    return said


_NUMBERS = {"size": (int, float), "host": (int,), "share_after": (int,)}  # or a text


def _checked(option: str, text: str) -> Any:
    value: Any = text
    if option == "size" and text == "none":
        return None
    if option == "verify":
        if text not in ("0", "1", "tensors"):
            raise argparse.ArgumentTypeError(f"it is 0, 1 or tensors, not {text!r}")
        return text if text == "tensors" else text == "1"
    for kind in _NUMBERS.get(option, ()):
        try:
            value = kind(text)
            break
        except ValueError:
            continue
    try:
        dataclasses.replace(Options(device="cpu"), **{option: value})
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return value
