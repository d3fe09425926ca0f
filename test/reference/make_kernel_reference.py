#!/usr/bin/env python3
"""Writes kernels.json.gz: what PyTorch's operators give, for kernels_reference_test.cpp.

Needs PyTorch and NumPy. Inputs are not stored: both sides draw them from MT19937 (see
kernel_testing.hpp, random_floats). PyTorch computes in double precision from single-precision
inputs, so the file holds the truth, and the test's tolerances are those of float arithmetic alone.
Of each result, evenly spaced samples and the largest magnitude are kept.

    python3 make_kernel_reference.py | gzip -9n > kernels.json.gz
"""

import json
import sys

import numpy as np
import torch
import torch.nn.functional as F

SAMPLES = 48


def draw(count, seed, offset=0.0):
    generator = np.random.MT19937()
    generator._legacy_seeding(seed)  # the seeding of C++'s std::mt19937
    bits = generator.random_raw(count).astype(np.uint32)
    # Every step in single precision, as the test does it.
    values = (bits >> np.uint32(8)).astype(np.float32) / np.float32(1 << 23) - np.float32(1)
    return torch.from_numpy((values + np.float32(offset)).astype(np.float64))


def leaf(shape, seed, offset=0.0):
    return draw(int(np.prod(shape)), seed, offset).reshape(shape).requires_grad_()


def nchw(t):
    return t.permute(0, 3, 1, 2)


def nhwc(t):
    return t.permute(0, 2, 3, 1)


def record(tensor):
    values = tensor.detach().contiguous().flatten().double().numpy()
    at = np.linspace(0, values.size - 1, min(SAMPLES, values.size)).astype(np.int64)
    return {
        "size": int(values.size),
        "largest": float(np.abs(values).max()),
        "at": at.tolist(),
        "values": [float(f"{v:.10g}") for v in values[at]],
    }


def convolution(n, h, w, c, k, kh, kw, stride, pad, groups=None):
    """With `groups`, the shape has a tenth number."""
    x, filter = leaf((n, h, w, c), 1), leaf((k, kh, kw, c // (groups or 1)), 2)
    y = nhwc(F.conv2d(nchw(x), nchw(filter), stride=stride, padding=pad, groups=groups or 1))
    y.backward(draw(y.numel(), 3).reshape(y.shape))
    return {
        "shape": [n, h, w, c, k, kh, kw, stride, pad] + ([groups] if groups else []),
        "y": record(y), "dx": record(x.grad), "dfilter": record(filter.grad),
    }


def batch_norm(rows, c, epsilon, momentum):
    x, gamma, beta = leaf((rows, c), 1, 0.5), leaf((c,), 2, 1.5), leaf((c,), 3)
    mean, var = draw(c, 4), draw(c, 5, 2.0)
    y = F.batch_norm(x, mean, var, gamma, beta, True, momentum, epsilon)
    y.backward(draw(y.numel(), 6).reshape(y.shape))
    inferred = F.batch_norm(x, mean, var, gamma, beta, False, momentum, epsilon)
    return {
        "rows": rows, "c": c, "epsilon": epsilon, "momentum": momentum,
        "y": record(y), "running_mean": record(mean), "running_var": record(var),
        "dx": record(x.grad), "dgamma": record(gamma.grad), "dbeta": record(beta.grad),
        "inferred": record(inferred),
    }


def max_pool(n, h, w, c, window, stride, pad):
    x = leaf((n, h, w, c), 1)
    y = nhwc(F.max_pool2d(nchw(x), window, stride, pad))
    y.backward(draw(y.numel(), 2).reshape(y.shape))
    return {"shape": [n, h, w, c, window, stride, pad], "y": record(y), "dx": record(x.grad)}


def head(n, pixels, c, classes):
    """Average pool, linear layer, loss: gradients through all three."""
    x, weight, bias = leaf((n, pixels, c), 1), leaf((classes, c), 2), leaf((classes,), 3)
    pooled = x.mean(1)
    logits = F.linear(pooled, weight, bias)
    logits.retain_grad()
    pooled.retain_grad()
    labels = torch.tensor([i * 7 % classes for i in range(n)])
    loss = F.cross_entropy(logits, labels)
    loss.backward()
    return {
        "n": n, "pixels": pixels, "c": c, "classes": classes, "loss": loss.item(),
        "pooled": record(pooled), "logits": record(logits),
        "probabilities": record(F.softmax(logits, 1)), "dlogits": record(logits.grad),
        "dweight": record(weight.grad), "dbias": record(bias.grad),
        "dpooled": record(pooled.grad), "dx": record(x.grad),
    }


def sgd(n, lr, momentum, decay, steps):
    # The test's hyperparameters are floats; so are these.
    lr, momentum, decay = (float(np.float32(v)) for v in (lr, momentum, decay))
    w = leaf((n,), 1)
    optimizer = torch.optim.SGD([w], lr=lr, momentum=momentum, weight_decay=decay)
    for step in range(steps):
        w.grad = draw(n, 2 + step)
        optimizer.step()
    return {
        "n": n, "lr": lr, "momentum": momentum, "decay": decay, "steps": steps,
        "w": record(w), "v": record(optimizer.state[w]["momentum_buffer"]),
    }


def adam(n, lr, beta1, beta2, epsilon, decay, steps):
    lr, beta1, beta2, epsilon, decay = (
        float(np.float32(v)) for v in (lr, beta1, beta2, epsilon, decay))
    w = leaf((n,), 1)
    optimizer = torch.optim.Adam([w], lr=lr, betas=(beta1, beta2), eps=epsilon, weight_decay=decay)
    for step in range(steps):
        w.grad = draw(n, 2 + step)
        optimizer.step()
    state = optimizer.state[w]
    return {
        "n": n, "lr": lr, "beta1": beta1, "beta2": beta2, "epsilon": epsilon, "decay": decay,
        "steps": steps, "w": record(w), "m": record(state["exp_avg"]),
        "v": record(state["exp_avg_sq"]),
    }


def dropout(n, probability):
    """Backward alone: a mask is part of the input, and forward draws another one than PyTorch."""
    probability = float(np.float32(probability))
    mask = torch.arange(n) * 7 % 10 < 6
    scale = 1.0 / (1.0 - probability)
    return {
        "n": n, "probability": probability,
        "dx": record(torch.ops.aten.native_dropout_backward(draw(n, 1), mask, scale)),
    }


json.dump(
    {
        "convolution": [
            convolution(2, 32, 30, 3, 16, 7, 7, 2, 3),
            convolution(2, 14, 13, 24, 40, 3, 3, 1, 1),
            convolution(2, 15, 14, 24, 40, 3, 3, 2, 1),
            convolution(2, 14, 14, 64, 48, 1, 1, 1, 0),
            convolution(2, 15, 14, 40, 72, 1, 1, 2, 0),
            convolution(1, 7, 7, 512, 512, 3, 3, 1, 1),
            convolution(1, 9, 11, 5, 6, 3, 1, 2, 0),
            convolution(1, 8, 8, 7, 9, 5, 5, 3, 2),
        ],
        "batch_norm": [batch_norm(2 * 13 * 11, 24, 1e-5, 0.1), batch_norm(9, 130, 1e-3, 0.25),
                       batch_norm(20000, 8, 1e-5, 0.1)],
        "max_pool": [max_pool(2, 13, 12, 20, 3, 2, 1), max_pool(2, 8, 8, 65, 2, 2, 0),
                     max_pool(1, 9, 9, 7, 3, 1, 1)],
        "head": [head(4, 49, 130, 10), head(3, 1, 64, 1000)],
        "sgd": [sgd(5000, 0.1, 0.9, 1e-4, 3)],
        "grouped_convolution": [
            convolution(1, 15, 14, 128, 128, 3, 3, 2, 1, 32),
            convolution(2, 9, 15, 32, 64, 3, 3, 1, 1, 4),
            convolution(1, 7, 7, 96, 80, 3, 3, 1, 1, 2),
            convolution(2, 9, 10, 40, 40, 3, 3, 2, 1, 40),
            convolution(1, 12, 11, 20, 40, 3, 3, 1, 1, 20),
        ],
        "adam": [adam(5000, 1e-3, 0.9, 0.999, 1e-8, 0.0, 3),
                 adam(3000, 0.05, 0.8, 0.99, 1e-3, 1e-2, 7)],
        "dropout": [dropout(1000, 0.4)],
    },
    sys.stdout,
    indent=0,
)
print()
