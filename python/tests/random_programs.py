"""Random training programs as lists of small instructions, and the interpreter that runs them.

An instruction is a name and some numbers. Numbers choose among the tensors that there are, so that
any list of instructions is a program, and one from which some were taken away still is.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import delta_torch
from compared import Program
from delta_torch import _C

KEPT = 24  # tensors that a program holds; the oldest go


@dataclass(frozen=True)
class Instruction:
    name: str
    numbers: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.numbers))})"


@dataclass
class Machine:
    """What a program works on."""

    drive_out: Callable[[], None]
    values: list[torch.Tensor] = field(default_factory=list)
    weights: list[nn.Parameter] = field(default_factory=list)
    seen: list[Any] = field(default_factory=list)  # results that are compared, beside the tensors

    def any(self, n: int) -> torch.Tensor:
        return self.values[n % len(self.values)]

    def like(self, t: torch.Tensor, n: int) -> torch.Tensor:
        """A tensor of the same shape, or t itself."""
        fitting = [v for v in self.values if v.shape == t.shape]
        return fitting[n % len(fitting)] if fitting else t

    def weight(self, n: int) -> nn.Parameter:
        return self.weights[n % len(self.weights)]

    def give(self, t: torch.Tensor) -> None:
        self.values.append(t)
        if len(self.values) > KEPT:
            del self.values[0]


Step = Callable[[Machine, int, int], None]
STEPS: dict[str, Step] = {}


def step(function: Step) -> Step:
    STEPS[function.__name__.removeprefix("_")] = function
    return function


@step
def _data(m: Machine, a: int, b: int) -> None:
    m.give(torch.randn(2 + a % 5, 8))


@step
def _linear(m: Machine, a: int, b: int) -> None:
    x = m.any(a)
    m.give(nn.functional.linear(x if x.shape[-1:] == (8,) else torch.ones(3, 8), m.weight(b)))


@step
def _unary(m: Machine, a: int, b: int) -> None:
    functions = (torch.sin, torch.tanh, torch.sigmoid, nn.functional.gelu, torch.neg, torch.clone)
    m.give(functions[b % len(functions)](m.any(a)))


@step
def _binary(m: Machine, a: int, b: int) -> None:
    x = m.any(a)
    functions = (torch.add, torch.mul, torch.sub, torch.maximum)
    m.give(functions[b % len(functions)](x, m.like(x, b)))


@step
def _view(m: Machine, a: int, b: int) -> None:
    x = m.any(a)
    if x.dim() < 2 or x.shape[0] < 2:
        return
    views = (
        lambda: x.t() if x.dim() == 2 else x,
        lambda: x[1:],
        lambda: x[..., ::2],
        lambda: x.unsqueeze(0).expand(2, *x.shape)[1],
        lambda: x.narrow(0, 0, 1),
        lambda: x.chunk(2)[0],
        lambda: x.reshape(-1),
        lambda: x.as_strided(x.shape, x.stride()),
    )
    m.give(views[b % len(views)]())


@step
def _in_place(m: Machine, a: int, b: int) -> None:
    x = m.any(a)
    functions = (
        lambda: x.mul_(0.5),
        lambda: x.add_(m.like(x, b)),
        lambda: x.sin_(),
        lambda: x.zero_(),
        lambda: x.copy_(m.like(x, b + 1)),
        lambda: x.clamp_(-1, 1),
        lambda: x[..., :1].fill_(2.0),
    )
    functions[b % len(functions)]()


@step
def _random_in_place(m: Machine, a: int, b: int) -> None:
    x = m.any(a).detach().clone()
    (x.normal_, x.uniform_, x.bernoulli_, x.exponential_)[b % 4]()
    m.give(x)


@step
def _dropout(m: Machine, a: int, b: int) -> None:
    m.give(nn.functional.dropout(m.any(a), 0.1 + b % 5 / 10))


@step
def _norm(m: Machine, a: int, b: int) -> None:
    x = m.any(a)
    m.give(nn.functional.layer_norm(x, x.shape[-1:]) if b % 2 else x.softmax(-1))


@step
def _autocast(m: Machine, a: int, b: int) -> None:
    x = m.any(a)
    with torch.autocast("cpu", torch.bfloat16):
        made = nn.functional.linear(x, m.weight(b)) if x.shape[-1:] == (8,) else x * 2
    m.give(made.float())


@step
def _detach(m: Machine, a: int, b: int) -> None:
    x = m.any(a).detach()
    m.give(x.clone().requires_grad_() if b % 2 and x.is_floating_point() else x)


@step
def _hook(m: Machine, a: int, b: int) -> None:
    x = m.any(a)
    if not x.requires_grad:
        return
    if b % 3 == 0:
        x.register_hook(lambda g: m.seen.append(g.detach()))
    elif b % 3 == 1:
        x.register_hook(lambda g: g * 0.5)
    else:
        x.retain_grad()


@step
def _backward(m: Machine, a: int, b: int) -> None:
    x = m.any(a)
    if x.requires_grad:
        if b % 2:
            m.drive_out()
        # retain_graph: later passes go through the same graph, after its tensors were changed.
        x.float().square().sum().backward(retain_graph=b % 3 > 0)


@step
def _gradient_of_gradient(m: Machine, a: int, b: int) -> None:
    x, w = m.any(a), m.weight(b)
    if not x.requires_grad:
        return
    (g,) = torch.autograd.grad(x.sin().sum(), w, create_graph=True, allow_unused=True)
    if g is not None:
        m.give(g)


@step
def _checkpoint(m: Machine, a: int, b: int) -> None:
    x = m.any(a)

    def inner(t: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(t.sin(), 0.5) * t

    m.give(checkpoint(inner, x, use_reentrant=b % 3 == 0))


@step
def _update(m: Machine, a: int, b: int) -> None:
    with torch.no_grad():
        for w in m.weights:
            if w.grad is not None:
                w.sub_(w.grad, alpha=0.01)
                if a % 2:
                    w.grad = None
                else:
                    w.grad.zero_()


@step
def _evaluated(m: Machine, a: int, b: int) -> None:
    x = m.any(a)
    with torch.inference_mode() if b % 2 else torch.no_grad():
        made = (x * 2).tanh().sum()
        m.seen.append(made.item())


@step
def _end_of_step(m: Machine, a: int, b: int) -> None:
    if _C.active():
        delta_torch.step()


@step
def _drive_out(m: Machine, a: int, b: int) -> None:
    m.drive_out()


@step
def _dropped(m: Machine, a: int, b: int) -> None:
    if len(m.values) > 2:
        del m.values[a % len(m.values)]


@step
def _freed_by_a_thread(m: Machine, a: int, b: int) -> None:
    if len(m.values) < 3:
        return
    box = [m.values.pop(a % len(m.values))]
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()


@step
def _fails(m: Machine, a: int, b: int) -> None:
    x = m.any(a)
    attempts = (
        lambda: x @ torch.ones(97, 3),
        lambda: x.view(-1, 10007),
        lambda: torch.cat([x, torch.ones(2, 2, 2, 2)]),
        lambda: x.add_(torch.ones(7, 11, 13)),
        lambda: torch.linalg.cholesky(-torch.eye(4)),
    )
    attempts[b % len(attempts)]()


@step
def _out(m: Machine, a: int, b: int) -> None:
    x = m.any(a).detach()
    made = x.new_zeros(1 + b % 3)
    torch.mul(x, 2, out=made)
    m.give(made)


@step
def _read(m: Machine, a: int, b: int) -> None:
    x = m.any(a).detach()
    m.seen.append(x.reshape(-1)[:3].tolist() if b % 2 else x.float().mean().item())


@step
def _indexed(m: Machine, a: int, b: int) -> None:
    x = m.any(a)
    if x.dim() == 0 or x.shape[0] == 0:
        return
    if b % 3 == 0:
        m.give(x[x > 0])
    elif b % 3 == 1:
        m.give(x.sort(-1)[0])
    else:
        m.give(x.index_select(0, torch.randint(0, x.shape[0], (3,))))


@step
def _set_data(m: Machine, a: int, b: int) -> None:
    w = m.weight(a)
    w.data = w.data * 0.9 if b % 2 else w.data.clone()


def made(seed: int) -> list[Instruction]:
    """The instructions of a program: ten to forty."""
    chance = random.Random(seed)
    names = list(STEPS)
    return [
        Instruction(chance.choice(names), (chance.randrange(1000), chance.randrange(1000)))
        for _ in range(chance.randint(10, 40))
    ]


def program_of(instructions: list[Instruction]) -> Program:
    """What runs them. An instruction that fails is a result, by the type of its error."""

    def program(drive_out: Callable[[], None]) -> Any:
        m = Machine(drive_out)
        m.weights = [nn.Parameter(torch.randn(8, 8) * 0.3) for _ in range(3)]
        m.values = [torch.randn(4, 8), torch.randn(3, 8, requires_grad=True) * 1]
        for instruction in instructions:
            try:
                STEPS[instruction.name](m, *instruction.numbers)
            except torch.OutOfMemoryError:
                raise  # the budget's: a larger one is tried
            except Exception as error:
                m.seen.append(f"{instruction.name}: {_kind_of(error)}")
        return m.values, m.weights, [w.grad for w in m.weights], m.seen

    return program


def _kind_of(error: Exception) -> str:
    if str(error).startswith("delta"):
        return str(error)
    return type(error).__name__


def shrunk(
    instructions: list[Instruction], fails: Callable[[list[Instruction]], bool]
) -> list[Instruction]:
    """The same without what can be taken away while it still fails: halves, then single ones."""
    size = max(len(instructions) // 2, 1)
    while True:
        at, before = 0, len(instructions)
        while at < len(instructions):
            fewer = instructions[:at] + instructions[at + size :]
            if fails(fewer):
                instructions = fewer
            else:
                at += size
        if size > 1:
            size //= 2
        elif len(instructions) == before:
            return instructions
