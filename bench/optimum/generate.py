"""Small training steps, forward and backward, in delta's trace format: the shapes of networks.

What is written down is the forward pass; the backward one follows by the rules of autograd: an
operator per operator, which reads the gradient of the output and what the forward one read; sums of
gradients where a tensor has several readers; drops behind each last use. Weights and their gradients
are the same bytes under every policy, and left out. Costs and sizes are made up: a backward operator
takes twice its forward one.
"""

import json

MS = 1_000_000  # ns
MIB = 1 << 20


class Step:
    """Records a forward pass; `write` adds the backward one and writes the trace."""

    def __init__(self):
        self.sizes = [MIB]  # of tensors; 0 is the batch, a constant
        self.operators = []  # name, cost, inputs, outputs
        self.tape = []

    def run(self, name, inputs, size, cost, saves=True, passes=False):
        """`saves`: its gradient reads the inputs; `passes`: it has none, and hands on its own."""
        out = self.raw(name, inputs, [size], cost)[0]
        self.tape.append((name, inputs, out, cost, saves, passes))
        return out

    def raw(self, name, inputs, sizes, cost):
        outputs = list(range(len(self.sizes), len(self.sizes) + len(sizes)))
        self.sizes += sizes
        self.operators.append((name, int(cost), list(inputs), outputs))
        return outputs

    def backward(self, loss):
        self.mark = len(self.operators)
        gradients = {loss: [self.raw("seed", [loss], [self.sizes[loss]], MS / 10)[0]]}
        def total(t):
            parts = gradients.pop(t)
            while len(parts) > 1:
                parts = [self.raw("accumulate", parts[:2], [self.sizes[t]], MS / 5)[0], *parts[2:]]
            return parts[0]
        for name, inputs, out, cost, saves, passes in reversed(self.tape):
            g, wanted = total(out), [t for t in inputs if t != 0]
            if passes:
                made = [g] * len(wanted)
            else:
                reads = [g, *(inputs if saves else [])]
                # The first layer has its weights' gradient, of which nothing but a word is kept.
                sizes = [self.sizes[t] for t in wanted] or [64]
                made = self.raw(name + ".backward", reads, sizes, 2 * cost)
            for t, m in zip(wanted, made):
                gradients.setdefault(t, []).append(m)

    def lines(self):
        last = {}
        for i, (_, _, inputs, outputs) in enumerate(self.operators):
            for t in inputs + outputs:
                last[t] = i
        events = [{"constant": self.sizes[0]}]
        for i, (name, cost, inputs, outputs) in enumerate(self.operators):
            if i == self.mark:
                events.append({"mark": "backward"})
            events.append({"run": name, "cost": cost, "inputs": inputs,
                           "outputs": [self.sizes[t] for t in outputs]})
            events += [{"drop": t} for t in sorted(set(inputs + outputs))
                       if t != 0 and last[t] == i]
        events.append({"mark": "end_of_step"})
        return [{"delta_trace": 1, "granularity": 64, "events": len(events)}, *events]

    def write(self, path):
        path.write_text("".join(json.dumps(e) + "\n" for e in self.lines()), encoding="utf-8")


def chain(sizes, costs):
    """Layers one behind the other: the length of both lists."""
    s, x = Step(), 0
    for size, cost in zip(sizes, costs):
        x = s.run("layer", [x], size * MIB, cost * MS)
    s.backward(s.run("loss", [x], 64, MS / 5))
    return s


def residual(blocks):
    """y = x + g(f(x)), again and again."""
    s = Step()
    x = s.run("stem", [0], 4 * MIB, 2 * MS)
    for _ in range(blocks):
        y = s.run("convolution", [x], 2 * MIB, 2 * MS)
        y = s.run("convolution", [y], 4 * MIB, 2 * MS)
        x = s.run("add", [x, y], 4 * MIB, MS / 4, passes=True)
    s.backward(s.run("loss", [x], 64, MS / 5))
    return s


def dense(layers):
    """A DenseNet's block: each layer reads all before it, side by side in one tensor."""
    s = Step()
    x, width = s.run("stem", [0], 2 * MIB, MS), 2
    for _ in range(layers):
        y = s.run("convolution", [x], MIB, MS * width / 2)
        width += 1
        x = s.run("concatenate", [x, y], width * MIB, MS * width / 20, saves=False)
    s.backward(s.run("loss", [x], 64, MS / 5))
    return s


def unet(depth):
    """Down and up again, with what each level had on the way down read on the way up."""
    s, x, skips = Step(), 0, []
    for level in range(depth):
        size = 8 * MIB >> level
        x = s.run("convolution", [x], size, 3 * MS)
        skips.append((x, size))
        x = s.run("pool", [x], size // 4, MS / 4)
    x = s.run("convolution", [x], 8 * MIB >> depth, 3 * MS)
    for skip, size in reversed(skips):
        x = s.run("upsample", [x], size // 2, MS / 4, saves=False)
        x = s.run("convolution", [x, skip], size // 2, 3 * MS)
    s.backward(s.run("loss", [x], 64, MS / 5))
    return s


def rnn(steps):
    """A cell unrolled over time, of which every state is read out into the loss."""
    s, h, losses = Step(), 0, []
    for _ in range(steps):
        h = s.run("cell", [h], 2 * MIB, 2 * MS)
        losses.append(s.run("readout", [h], MIB, MS))
    s.backward(s.run("loss", losses, 64, MS / 5))
    return s


# By name, what it is in words and how to make it.
PROGRAMS = {
    "chain_equal": ("12 equal layers", lambda: chain([4] * 12, [2] * 12)),
    "chain_long": ("16 equal layers", lambda: chain([4] * 16, [2] * 16)),
    "chain_unequal": ("12 layers of unequal bytes and costs",
                      lambda: chain([8, 2, 8, 4, 6, 1, 4, 3, 5, 2, 4, 1],
                                    [1, 3, 2, 6, 1, 2, 4, 1, 3, 2, 5, 1])),
    "residual": ("a stem and 4 residual blocks", lambda: residual(4)),
    "dense": ("a DenseNet's block of 5 layers", lambda: dense(5)),
    "unet": ("a U-Net of depth 3", lambda: unet(3)),
    "rnn": ("a recurrent cell, unrolled 7 times", lambda: rnn(7)),
}


def write_all(folder):
    """Writes each to folder/NAME.jsonl; gives the files by name."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, (_, make) in PROGRAMS.items():
        files[name] = folder / f"{name}.jsonl"
        make().write(files[name])
    return files
