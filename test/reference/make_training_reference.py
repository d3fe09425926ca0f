#!/usr/bin/env python3
"""Writes training.json.gz: what PyTorch gets from three training steps of the executor's models.

Needs PyTorch and NumPy. Everything is computed in double precision from single-precision starting
values, so the file holds the truth and the tests' tolerances are those of float arithmetic alone.
The starting values come from the executor's generator (executor/model/initialise.hpp), written again
here from its description; so no weights need to be stored.

    python3 make_training_reference.py | gzip -9n > training.json.gz
"""

import json
import sys

import numpy as np
import torch
import torch.nn.functional as F

SEED = 42
SAMPLES = 24  # numbers kept per recorded tensor, evenly spaced
FEW = ("conv1.", "fc.", "layer4.1.", "layer2.0.")  # layers whose optimizer states are recorded


def hash64(z):
    """SplitMix64 as a function of its state, over an array."""
    with np.errstate(over="ignore"):
        z = z + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def key_of(name, seed):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return hash64(np.array([seed ^ h], dtype=np.uint64))[0]


def uniform(name, shape, half_width):
    key = key_of(name, SEED)
    with np.errstate(over="ignore"):
        bits = hash64(key + np.arange(np.prod(shape), dtype=np.uint64))
    x = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1
    return (x * half_width).astype(np.float32).reshape(shape)


def normal(name, shape, deviation):
    key = key_of(name, SEED)
    with np.errstate(over="ignore"):
        bits = hash64(key + np.arange(3 * np.prod(shape), dtype=np.uint64))
    parts = sum((bits >> np.uint64(s)) & np.uint64(0xFFFF) for s in (0, 16, 32, 48))
    total = parts.astype(np.int64).reshape(-1, 3).sum(axis=1)
    x = (total - 6 * 65535).astype(np.float64) * 2.0**-16
    return (x * deviation).astype(np.float32).reshape(shape)


class Model:
    """Parameters and statistics by the executor's names; layers in PyTorch's functional form."""

    def __init__(self, residual_gamma):
        self.parameters, self.statistics, self.training = {}, {}, True
        self.residual_gamma = residual_gamma

    def parameter(self, name, make):
        if name not in self.parameters:
            self.parameters[name] = torch.tensor(make().astype(np.float64), requires_grad=True)
        return self.parameters[name]

    def conv(self, name, x, out, kernel, stride, pad, groups):
        shape = (out, kernel, kernel, x.shape[1] // groups)  # OHWI
        deviation = np.sqrt(2.0 / (out * kernel * kernel))
        w = self.parameter(name + ".weight", lambda: normal(name + ".weight", shape, deviation))
        return F.conv2d(x, w.permute(0, 3, 1, 2), stride=stride, padding=pad, groups=groups)

    def bn(self, name, x):
        c = x.shape[1]
        gamma = self.parameter(name + ".weight", lambda: np.ones(c) * self.gamma(name))
        beta = self.parameter(name + ".bias", lambda: np.zeros(c))
        mean = self.statistics.setdefault(name + ".running_mean", torch.zeros(c).double())
        var = self.statistics.setdefault(name + ".running_var", torch.ones(c).double())
        return F.batch_norm(x, mean, var, gamma, beta, self.training, 0.1, 1e-5)

    def gamma(self, name):
        """Residual branches of bottlenecks end in bn3."""
        return self.residual_gamma if name.endswith(".bn3") else 1.0

    def linear(self, name, x, out):
        bound = 1 / np.sqrt(x.shape[1])
        w = self.parameter(
            name + ".weight", lambda: uniform(name + ".weight", (out, x.shape[1]), bound))
        b = self.parameter(name + ".bias", lambda: uniform(name + ".bias", (out,), bound))
        return F.linear(x, w, b)

    def conv_bn(self, conv, bn, x, out, kernel, stride, groups=1):
        return self.bn(bn, self.conv(conv, x, out, kernel, stride, kernel // 2, groups))

    def shortcut(self, name, x, out, stride):
        if stride == 1 and x.shape[1] == out:
            return x
        return self.conv_bn(name + ".downsample.0", name + ".downsample.1", x, out, 1, stride)

    def basic(self, name, x, width, stride):
        y = F.relu(self.conv_bn(name + ".conv1", name + ".bn1", x, width, 3, stride))
        y = self.conv_bn(name + ".conv2", name + ".bn2", y, width, 3, 1)
        return F.relu(y + self.shortcut(name, x, width, stride))

    def bottleneck(self, name, x, width, stride):
        inner = width * self.group_width * self.groups // 64
        y = F.relu(self.conv_bn(name + ".conv1", name + ".bn1", x, inner, 1, 1))
        y = F.relu(self.conv_bn(name + ".conv2", name + ".bn2", y, inner, 3, stride, self.groups))
        y = self.conv_bn(name + ".conv3", name + ".bn3", y, 4 * width, 1, 1)
        return F.relu(y + self.shortcut(name, x, 4 * width, stride))

    def stages(self, x, block, width, blocks, classes):
        for stage, count in enumerate(blocks):
            for i in range(count):
                stride = 2 if stage > 0 and i == 0 else 1
                x = block(f"layer{stage + 1}.{i}", x, width << stage, stride)
        return self.linear("fc", x.mean(dim=(2, 3)), classes)


class ResNet20(Model):
    def forward(self, x, classes):
        x = F.relu(self.conv_bn("conv1", "bn1", x, 16, 3, 1))
        return self.stages(x, self.basic, 16, (3, 3, 3), classes)


class ForImageNet(Model):
    groups, group_width = 1, 64

    def forward(self, x, classes):
        x = F.relu(self.conv_bn("conv1", "bn1", x, 64, 7, 2))
        x = F.max_pool2d(x, 3, 2, 1)
        return self.stages(x, getattr(self, self.block), 64, self.blocks, classes)


class ResNet18(ForImageNet):
    block, blocks = "basic", (2, 2, 2, 2)


class ResNet50(ForImageNet):
    block, blocks = "bottleneck", (3, 4, 6, 3)


class ResNeXt50(ForImageNet):
    block, blocks = "bottleneck", (3, 4, 6, 3)
    groups, group_width = 32, 4


def summary(tensor):
    """The norm, and samples i * size // SAMPLES of the flattened tensor (OHWI order)."""
    flat = tensor.detach().reshape(-1)
    count = min(SAMPLES, flat.numel())
    picked = [flat[i * flat.numel() // count].item() for i in range(count)]
    return {"norm": float(f"{flat.norm().item():.9g}"),
            "samples": [float(f"{x:.9g}") for x in picked]}


def run(name, make, residual_gamma, batch, image, channels, classes, hyper, steps, recorded,
        loss_tolerance, tensor_tolerance):
    """`hyper` is the optimizer's name, and its arguments as the executor calls them."""
    model = make(residual_gamma)
    pixels = normal("images", (batch, image, image, channels), 1.0).astype(np.float64)
    images = torch.tensor(pixels).permute(0, 3, 1, 2)
    labels = torch.tensor([(7 * i + 3) % classes for i in range(batch)])
    optimizer, losses, gradients = None, [], {}
    for step in range(steps):
        loss = F.cross_entropy(model.forward(images, classes), labels)
        losses.append(loss.item())
        if optimizer is None:  # the first pass has made the parameters
            optimizer = optimizer_of(model.parameters.values(), *hyper)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            gradients = {n: summary(p.grad) for n, p in model.parameters.items() if recorded(n)}
        optimizer.step()
    model.training = False
    with torch.no_grad():
        inference = F.cross_entropy(model.forward(images, classes), labels).item()
    kept = {"sgd": {"velocity": "momentum_buffer"},
            "adam": {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}}[hyper[0]]
    return {
        "model": name, "batch": batch, "image": image, "channels": channels, "classes": classes,
        "seed": SEED, "residual_gamma": residual_gamma, "optimizer": hyper[0], **hyper[1],
        "loss_tolerance": loss_tolerance,
        "tensor_tolerance": tensor_tolerance, "losses": losses, "inference_loss": inference,
        "parameter_count": sum(p.numel() for p in model.parameters.values()),
        "first_gradients": gradients,
        "final_parameters": {n: summary(p) for n, p in model.parameters.items() if recorded(n)},
        "final_states": {f"{n}.{ours}": summary(optimizer.state[p][theirs])
                         for n, p in model.parameters.items()
                         if recorded(n) and n.startswith(FEW)
                         for ours, theirs in kept.items()},
        "final_statistics": {n: summary(s) for n, s in model.statistics.items() if recorded(n)},
    }


def optimizer_of(parameters, name, hyper):
    # The executor keeps its hyper-parameters in float.
    h = {key: float(np.float32(value)) for key, value in hyper.items()}
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=h["learning_rate"], momentum=h["momentum"],
                               weight_decay=h["decay"])
    return torch.optim.Adam(parameters, lr=h["learning_rate"], betas=(h["beta1"], h["beta2"]),
                            eps=h["epsilon"], weight_decay=h["decay"])


def main():
    torch.set_num_threads(2)
    hyper = ("sgd", {"learning_rate": 0.01, "momentum": 0.9, "decay": 1e-4})
    gentle = ("sgd", {"learning_rate": 0.002, "momentum": 0.9, "decay": 1e-4})
    # The step of an element whose gradient is near zero has the sign of its rounding; a large
    # epsilon keeps such steps small.
    adam = ("adam", {"learning_rate": 0.001, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3,
                     "decay": 1e-2})
    ends = ("conv1.", "bn1.", "fc.", "layer4.2.", "layer3.2.", "layer2.0.")
    some = lambda n: n.startswith(ends)
    few = lambda n: n.startswith(FEW)
    # A rounding that flips a ReLU moves the gradients at once, by up to a few percent where a
    # channel has few pixels. With gammas of 1, ResNet-50 on this size has several such flips between
    # PyTorch in single and in double precision (1 to 5 %); residual branches scaled down by
    # gamma = 1/8 make them rare (1e-5 without). ResNeXt-50 has twice as many channels to flip: with
    # 1/8 and batches of 4 the velocities of PyTorch's two precisions differ by 14 %, with 1/16 by
    # 0.7 %. The tolerances allow for a few: other processors round differently (with SSE4.1 alone one
    # flip moves a velocity of ResNeXt-50 by 6 % of its root mean square). Losses are continuous, so
    # theirs are sharp.
    cases = [
        run("resnet20", ResNet20, 1.0, 4, 32, 3, 10, hyper, 3, lambda n: True, 1e-4, 0.02),
        run("resnet20", ResNet20, 1.0, 4, 28, 1, 10, hyper, 3, some, 1e-4, 0.02),
        run("resnet20", ResNet20, 1.0, 4, 32, 3, 10, adam, 3, some, 1e-4, 0.02),
        run("resnet50", ResNet50, 0.125, 2, 64, 3, 10, gentle, 3, some, 1e-3, 0.05),
        run("resnet18", ResNet18, 1.0, 4, 64, 3, 10, gentle, 3, few, 1e-3, 0.05),
        run("resnext50_32x4d", ResNeXt50, 0.0625, 4, 64, 3, 10, gentle, 3, few, 1e-3, 0.1),
    ]
    maker = f"make_training_reference.py, PyTorch {torch.__version__.split('+')[0]}"
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    sys.stdout.write(f'{{"made_by":"{maker}","cases":[\n{lines}]}}\n')


if __name__ == "__main__":
    main()
