#!/usr/bin/env python3
"""PyTorch's images per second in a ResNet-50 step, for fast.py: prints one line of JSON.

    python3 bench/gpu/torch_step.py DEVICE IMAGE BATCH STEPS float32|tf32|default

Exit code 77 where there is no PyTorch."""

import json
import statistics
import sys
import time

try:
    import torch
    from torch import nn
except ImportError:
    print("SKIPPED: there is no PyTorch")
    sys.exit(77)


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


def rate(device, image, batch, steps, tf32, deterministic):
    """Images per second: the median step, without the first two."""
    torch.manual_seed(1)
    torch.backends.cudnn.deterministic = deterministic
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32 and deterministic
    net = bottleneck_net(10).to(device, memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(net.parameters(), 0.005, momentum=0.9, weight_decay=1e-4)
    images = torch.randn(batch, 3, image, image, device=device)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(10, (batch,), device=device)
    times = []
    for _ in range(max(steps, 3)):
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        loss.item()  # as ours, which gives the loss of each step
        times.append(time.perf_counter() - began)
    return batch / statistics.median(times[2:])


def main():
    device, image, batch, steps, mode = sys.argv[1:]
    found = rate(device, int(image), int(batch), int(steps), mode != "float32", mode != "default")
    print(json.dumps({"rate": found, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
