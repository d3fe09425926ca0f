#!/usr/bin/env python3
"""Images per second of an unmanaged ResNet-50 step, float32 and TF32, beside PyTorch's.

    python3 bench/gpu/fast.py

PyTorch runs right behind each of ours, in channels_last: with deterministic algorithms and the same
TF32 setting, and as it is by default. Without PyTorch its columns are empty. delta's step includes
the copy of the batch to the device; PyTorch's images are there already."""

import statistics
import time

from common import number, options, table, train, where, write

try:
    import torch
    from torch import nn
except ImportError:
    torch = None


def bottleneck_net(classes):
    """ResNet-50 v1.5, as delta-train has it."""
    def conv(inputs, outputs, kernel, stride=1):
        return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
                nn.BatchNorm2d(outputs)]

    class Block(nn.Module):
        def __init__(self, inputs, mid, stride):
            super().__init__()
            self.body = nn.Sequential(*conv(inputs, mid, 1), nn.ReLU(), *conv(mid, mid, 3, stride),
                                      nn.ReLU(), *conv(mid, 4 * mid, 1))
            same = stride == 1 and inputs == 4 * mid
            self.way = nn.Identity() if same else nn.Sequential(*conv(inputs, 4 * mid, 1, stride))

        def forward(self, x):
            return torch.relu(self.body(x) + self.way(x))

    layers, width = [*conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for i in range(blocks):
            layers.append(Block(width, 64 << stage, 2 if stage and i == 0 else 1))
            width = 256 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def torch_rate(o, tf32, deterministic):
    """Images per second: the median step, without the first two."""
    if torch is None:
        return None
    torch.manual_seed(1)
    torch.backends.cudnn.deterministic = deterministic
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32 and deterministic
    net = bottleneck_net(10).to(o.device, memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(net.parameters(), 0.005, momentum=0.9, weight_decay=1e-4)
    images = torch.randn(o.batch, 3, o.image, o.image, device=o.device)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(10, (o.batch,), device=o.device)
    times = []
    for _ in range(max(o.steps, 3)):
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        loss.item()  # as ours, which gives the loss of each step
        times.append(time.perf_counter() - began)
    del net, optimizer, images
    if o.device == "cuda":
        torch.cuda.empty_cache()
    return o.batch / statistics.median(times[2:])


def main():
    o = options(__doc__, steps=30)
    rows = []
    for name, tf32 in (("float32", False), ("TF32", True)):
        if tf32 and o.device == "cpu":
            continue
        report = train(o, *(["--tf32"] if tf32 else []))
        ours = o.batch / report["step_seconds"]
        same, default = torch_rate(o, tf32, True), torch_rate(o, True, False) if tf32 else None
        rows.append({"numbers": name, "delta": ours, "torch_deterministic": same,
                     "torch_default": default, "ratio": ours / same if same else None,
                     "device": report["device_name"]})
    result = {"where": where(o, "fast"), "torch": torch.__version__ if torch else None,
              "rows": rows}
    lines = table(["numbers", "delta, images/s", "PyTorch deterministic", "delta / PyTorch",
                   "PyTorch default"],
                  [[r["numbers"], number(r["delta"], 1), number(r["torch_deterministic"], 1),
                    number(r["ratio"], 2), number(r["torch_default"], 1)] for r in rows])
    write(o, "fast", result, "Unmanaged steps beside PyTorch",
          [f"PyTorch {result['torch'] or 'is not at hand: not measured'}."], lines)


if __name__ == "__main__":
    main()
