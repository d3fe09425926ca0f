#!/usr/bin/env python3
"""Times training steps of delta-train, beside PyTorch's on the same CPU where PyTorch is at hand.

    python3 bench/step_seconds.py [--train PROGRAM] [--data DIR] [--quick]

Prints the first table of docs/results/convolutions.md: delta-train's unmanaged step over PyTorch's
(channels_last, float32, as many threads), medians over alternating runs, so that a machine whose speed
drifts does not favour either side. Needs nothing but Python; PyTorch is optional.
"""

import argparse
import os
import statistics
import subprocess
import time

from training import machine, train

try:
    import torch
    from torch import nn
except ImportError:
    torch = None


def conv_bn(inputs, outputs, kernel, stride):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs))


if torch:
    class Block(nn.Module):
        """A residual block: `layers` are (outputs, kernel, stride)."""

        def __init__(self, inputs, layers):
            super().__init__()
            body, width, stride = [], inputs, 1
            for i, (outputs, kernel, step) in enumerate(layers):
                body += [conv_bn(width, outputs, kernel, step)]
                body += [nn.ReLU()] if i + 1 < len(layers) else []
                width, stride = outputs, stride * step
            self.body = nn.Sequential(*body)
            same = stride == 1 and inputs == width
            self.shortcut = nn.Identity() if same else conv_bn(inputs, width, 1, stride)

        def forward(self, x):
            return torch.relu(self.body(x) + self.shortcut(x))

    def resnet(model, channels, classes):
        layers = []
        if model == "resnet20":
            layers += [conv_bn(channels, 16, 3, 1), nn.ReLU()]
            width = 16
            for stage in range(3):
                for i in range(3):
                    out, stride = 16 << stage, 2 if stage and i == 0 else 1
                    layers.append(Block(width, [(out, 3, stride), (out, 3, 1)]))
                    width = out
        else:
            layers += [conv_bn(channels, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
            width = 64
            for stage, blocks in enumerate((3, 4, 6, 3)):
                for i in range(blocks):
                    mid, stride = 64 << stage, 2 if stage and i == 0 else 1
                    layers.append(Block(width, [(mid, 1, 1), (mid, 3, stride), (4 * mid, 1, 1)]))
                    width = 4 * mid
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))

    def torch_step(model, channels, image, batch, threads, steps):
        """Median seconds of a training step."""
        torch.manual_seed(1)
        torch.set_num_threads(threads)
        net = resnet(model, channels, 10).to(memory_format=torch.channels_last).train()
        optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)
        images = torch.randn(batch, channels, image, image).to(memory_format=torch.channels_last)
        labels = torch.randint(10, (batch,))
        times = []
        for _ in range(steps):
            began = time.perf_counter()
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
            loss.item()
            times.append(time.perf_counter() - began)
        return statistics.median(times[1:])


def unmanaged_rows(program, data, threads, rounds, steps):
    mnist = ["--data", f"mnist:{data}/data/mnist"] if data else []
    cases = [("resnet20", "MNIST" if data else "synthetic", 1 if data else 3, 32, 64, mnist),
             ("resnet50", "synthetic", 3, 64, 32, [])]
    for model, name, channels, image, batch, flags in cases:
        ours, theirs = [], []
        for _ in range(rounds):
            report = train(program, "--model", model, *flags, "--image", image, "--batch", batch,
                           "--steps", steps, "--threads", threads, "--policy", "unmanaged")
            ours.append(report["step_seconds"])
            if torch:
                theirs.append(torch_step(model, channels, image, batch, threads, steps))
        row = {"model": model, "data": name, "image": image, "batch": batch, "threads": threads,
               "delta_seconds": statistics.median(ours), "torch_seconds": None, "ratio": None}
        if torch:
            row["torch_seconds"] = statistics.median(theirs)
            row["ratio"] = statistics.median(a / b for a, b in zip(ours, theirs))
        yield row


def markdown(result):
    out = [f"`{result['command']}`, commit {result['commit']}. {result['machine']}. "
           f"PyTorch {result['torch'] or 'not at hand: not measured'}. Target: at most 1.5.\n",
           "| model | data | image | batch | threads | delta, s | PyTorch, s | ratio |",
           "|---|---|---|---|---|---|---|---|"]
    number = lambda x, f: "not measured" if x is None else format(x, f)
    for r in result["unmanaged"]:
        out.append(f"| {r['model']} | {r['data']} | {r['image']} | {r['batch']} | {r['threads']} | "
                   f"{r['delta_seconds']:.4f} | {number(r['torch_seconds'], '.4f')} | "
                   f"{number(r['ratio'], '.2f')} |")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", default="build/release/bin/delta-train")
    parser.add_argument("--data", default=os.environ.get("DELTA_DATA"),
                        help="folder with data/mnist (default: $DELTA_DATA)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and steps")
    a = parser.parse_args()
    threads = os.cpu_count() or 1
    rounds, steps = (1, 6) if a.quick else (3, 10)
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    result = {"command": "python3 bench/step_seconds.py" + (" --quick" if a.quick else ""),
              "commit": git.stdout.strip() or "unknown", "machine": machine(),
              "torch": torch.__version__ if torch else None,
              "unmanaged": list(unmanaged_rows(a.train, a.data, threads, rounds, steps))}
    print(markdown(result), end="")


if __name__ == "__main__":
    main()
