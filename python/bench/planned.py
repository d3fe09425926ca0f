#!/usr/bin/env python3
"""Plans twelve models on a device, without running them, and draws their curves.

    python bench/planned.py [--device NAME] [--models NAME...] [--out FILE]

Writes a table (.md) and a figure (.png): step time under budgets, beside torch.utils.checkpoint per
block and the lower bound. Everything in them is simulated. Needs torchvision, transformers and
Matplotlib. Two minutes on two cores.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

import torch

import delta_torch
from delta_torch.planning.makers import Training, maker_of

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
from artefacts import picture  # noqa: E402

# Optimizers take one parameter after the other: all at once, they need them all at once.
ONE_BY_ONE = {"foreach": False}
# What is trained, in which batch, and how.
MODELS: dict[str, tuple[str, int, dict]] = {
    "ResNet-50": ("torchvision:resnet50", 256, {}),
    "ResNet-152": ("torchvision:resnet152", 128, {}),
    "DenseNet-121": ("torchvision:densenet121", 128, {}),
    "MobileNetV3-L": ("torchvision:mobilenet_v3_large", 512, {}),
    "EfficientNet-B4": ("torchvision:efficientnet_b4", 64, {"size": 380}),
    "ConvNeXt-B": ("torchvision:convnext_base", 64, {}),
    "Swin-B": ("torchvision:swin_b", 64, {}),
    "ViT-L/16": ("torchvision:vit_l_16", 64, {}),
    "BERT-base": ("transformers:bert", 32, {}),
    "GPT-2": ("transformers:gpt2", 16, {"tokens": 1024}),
    "T5-small": ("transformers:t5", 32, {}),
    "Llama-7B": ("transformers:llama", 2, {"tokens": 2048, "dtype": "bfloat16"}),
}
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
SHOWN = (0.8, 0.6, 0.5, 0.4, 0.3, 0.2)


def planned(name: str, device: str) -> delta_torch.Plan:
    model, batch, options = MODELS[name]
    return delta_torch.plan(
        maker_of(model, Training(**ONE_BY_ONE, **options)),
        device=device,
        batches=[batch],
        shares=SHARES,
        compare=maker_of(model, Training(**ONE_BY_ONE, **options, checkpoint=True)),
    )


def row(name: str, plan: delta_torch.Plan, seconds: float) -> str:
    (b,) = plan.batches
    by_share = {round(p.share, 2): p for p in b.points}
    cells = [f"{by_share[s].overhead:.2f}" if by_share[s].fits else "-" for s in SHOWN]
    smallest = b.smallest[1.2]
    least = "-" if smallest is None else f"{smallest / b.peak_bytes:.0%}"
    at = b.at_checkpoint
    beside = f"{at.overhead:.2f}" if at is not None and at.fits else "-"
    return (
        f"| {name} | {b.batch} | {b.peak_bytes / 2**30:.1f} | {b.step_ns / 1e6:.0f} | "
        f"{' | '.join(cells)} | {least} | {b.checkpoint_bytes / b.peak_bytes:.0%} | "
        f"{b.checkpoint_ns / b.step_ns:.2f} | {beside} | {seconds:.0f} |"
    )


def draw(plans: dict[str, delta_torch.Plan], device: str, file: Path) -> None:
    from matplotlib.figure import Figure

    columns = min(4, len(plans))
    rows = math.ceil(len(plans) / columns)
    figure = Figure(figsize=(2.6 * columns, 2.3 * rows + 0.5), dpi=150, layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes, (name, plan) in zip(grid.flat, plans.items(), strict=False):
        (b,) = plan.batches
        fitting = [p for p in b.points if p.fits]
        x = [100 * p.share for p in fitting]
        axes.plot(x, [p.overhead for p in fitting], "o-", color="#0072B2", ms=3, label="adaptive")
        bounded = [p for p in b.points if math.isfinite(p.bound)]
        axes.plot(
            [100 * p.share for p in bounded],
            [p.bound for p in bounded],
            ":",
            color="black",
            linewidth=1,
            label="lower bound",
        )
        axes.plot(
            [100 * b.checkpoint_bytes / b.peak_bytes],
            [b.checkpoint_ns / b.step_ns],
            "s",
            color="#D55E00",
            label="checkpoint per block",
        )
        axes.set_title(f"{name}, batch {b.batch}, {b.peak_bytes / 2**30:.0f} GiB", fontsize=8)
        axes.grid(alpha=0.3)
        axes.set_ylim(0.95, 2)
        axes.set_xlim(15, 105)
        axes.tick_params(labelsize=7)
    figure.supxlabel("budget, % of the unmanaged peak", fontsize=9)
    figure.supylabel("step time / unmanaged", fontsize=9)
    figure.suptitle(f"simulated: {device} by a roofline, policy adaptive", fontsize=10)
    grid[0][0].legend(loc="upper right", frameon=False, fontsize=7)
    picture(figure, file)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="a100-80")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--out", type=Path, default=Path("planning"))
    flags = parser.parse_args()
    torch.set_num_threads(1)

    plans, lines = {}, []
    for name in flags.models:
        began = time.monotonic()
        plans[name] = planned(name, flags.device)
        lines.append(row(name, plans[name], time.monotonic() - began))
        print(lines[-1], file=sys.stderr, flush=True)
    shares = " | ".join(f"{s:.0%}" for s in SHOWN)
    head = (
        f"| model | batch | peak, GiB | step, ms | {shares} | for 1.2 | checkpoint: peak | time | "
        "adaptive there | planned in, s |"
    )
    table = [head, "|---" * (len(SHOWN) + 9) + "|", *lines]
    flags.out.parent.mkdir(parents=True, exist_ok=True)
    flags.out.with_suffix(".md").write_text("\n".join(table) + "\n", encoding="utf-8")
    draw(plans, flags.device, flags.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
