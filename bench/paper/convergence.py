"""Convergence: losses under a budget beside those without one, which are the same bits."""

import json
import os
import pathlib
import subprocess
import sys

from page import MEASURED, NOT_RUN, PUBLISHED, Section, not_run, table
from published import FINAL_LOSS
from workbench import Failed, NotMeasured, keep_picture, say

EPOCHS = 3


def mnist():
    """The folder of MNIST's files; None: there is none."""
    data = os.environ.get("DELTA_DATA", "")
    folder = pathlib.Path(data, "data", "mnist")
    return folder if data and folder.is_dir() else None


def resnet(bench):
    flags = ["--model", "resnet20", "--data", f"mnist:{mnist()}", "--image", 28, "--batch", 100,
             "--epochs", EPOCHS, "--lr", 0.05, "--evaluate"]
    plain = bench.train(*flags)
    managed = bench.train(*flags, "--budget", int(plain["peak_bytes"] * 0.4), "--policy", "adaptive")
    return plain, managed


def bert(bench):
    script = pathlib.Path(__file__).with_name("bert_spans.py")

    def run():
        say("BERT of 4 layers, with and without a budget")
        done = subprocess.run([sys.executable, script], capture_output=True, encoding="utf-8")
        if done.returncode != 0:
            raise Failed(f"bert_spans.py: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        return json.loads(done.stdout)

    return bench.kept(["bert", script.read_text(encoding="utf-8")], run)


def draw(curves, out):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3), dpi=150, layout="constrained")
    for axes, (title, (plain, managed)) in zip(figure.subplots(1, len(curves), squeeze=False)[0],
                                               curves.items(), strict=True):
        axes.plot(plain, "-", lw=3, color="#BBBBBB", label="without a budget")
        axes.plot(managed, "-", lw=1, color="#0072B2", label="under a budget")
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("step")
        axes.set_ylabel("loss")
        axes.legend(frameon=False, fontsize=8)
    keep_picture(figure, out, "convergence")


def measured(bench, lines, curves, data):
    if bench.device == "simulated":
        raise NotMeasured
    if mnist() is None:
        lines.append([NOT_RUN, f"ResNet-20, MNIST, {EPOCHS} epochs", "-", "-",
                      "`DELTA_DATA=DIR ./run.sh paper --only convergence`"])
    else:
        plain, managed = resnet(bench)
        same = all(plain[k] == managed[k] for k in ("losses_digest", "parameters_digest",
                                                    "state_digest"))
        if not same:
            raise Failed("ResNet-20: the managed run has other bits")
        lines.append([MEASURED, f"ResNet-20, MNIST's 10,000 test images, {EPOCHS} epochs, 40 % of "
                      "the peak", f"{plain['losses'][-1]:.4f}", f"{managed['losses'][-1]:.4f}",
                      "yes"])
        curves["ResNet-20 on MNIST, measured"] = (plain["losses"], managed["losses"])
        data["resnet20"] = {"losses_digest": plain["losses_digest"],
                            "accuracy": managed["evaluation_accuracy"]}
    b = bert(bench)
    if b["plain"] != b["managed"]:
        raise Failed("BERT: the managed run has other losses")
    lines.append([MEASURED, f"BERT-base with 4 layers, span head, made text, {len(b['plain'])} steps "
                  f"through PyTorch, {b['percent']} % of the peak", f"{b['plain'][-1]:.4f}",
                  f"{b['managed'][-1]:.4f}", "yes"])
    curves["BERT, 4 layers, measured"] = (b["plain"], b["managed"])
    data["bert"] = b


def section(bench, out):
    lines = [[PUBLISHED, "ResNet-50, ImageNet, 90 epochs, 8 GPUs", FINAL_LOSS["baseline"],
              FINAL_LOSS["DELTA"], "no"]]
    curves, data = {}, {}
    try:
        measured(bench, lines, curves, data)
    except NotMeasured:
        lines.append(not_run("convergence", 5))
    if curves:
        draw(curves, out)
    return Section("Convergence", [
        "The paper shows that the loss comes out nearly the same. Under delta it is the same, to the "
        "last bit of every step's.",
        table(["row", "training", "loss without", "loss under a budget", "the same bits"], lines),
    ], data)
