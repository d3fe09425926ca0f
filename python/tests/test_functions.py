"""What programs do besides plain layers: each under pressure, with the same results as without."""

from __future__ import annotations

import threading

import numpy
import pytest
import torch
import torch.nn.functional as F

import delta_torch
from delta_torch import _C

N = 1 << 16  # floats: 256 KiB
BUDGET = 40 * N * 4


def pressure() -> list[torch.Tensor]:
    """So many tensors that those made before must leave."""
    return [torch.zeros(N) + i for i in range(50)]


def both(function, **options):
    """Calls it without and within a run, from the same seed."""
    torch.manual_seed(5)
    expected = function()
    state = torch.get_rng_state()
    torch.manual_seed(5)
    with delta_torch.budget(BUDGET, policy="online", host="1GiB", **options):
        got = function()
    assert torch.equal(torch.get_rng_state(), state)
    same(got, expected)


def same(got, expected) -> None:
    if isinstance(expected, torch.Tensor):
        assert torch.equal(got, expected)
    elif isinstance(expected, (list, tuple)):
        assert len(got) == len(expected)
        for g, e in zip(got, expected, strict=True):
            same(g, e)
    else:
        assert got == expected


def chain(x: torch.Tensor) -> torch.Tensor:
    kept = [x]
    for i in range(12):
        kept.append(torch.sin(kept[-1]) * (i + 1))
    pressure()
    return torch.stack(kept).sum(0)


def activations():
    x = torch.randn(N, requires_grad=True)
    y = chain(x)
    y.sum().backward()
    return y.detach(), x.grad


def in_place_on_activations():
    x = torch.randn(N, requires_grad=True)
    y = (x * 2).add_(1).mul_(3).relu_()
    z = y.clone().zero_().normal_().clamp_(min=0)
    pressure()
    (y * z).sum().backward()
    return x.grad, y.detach(), z


def lists_in_place():
    tensors = [torch.randn(N // 4) * 2 for _ in range(8)]
    torch._foreach_mul_(tensors, 3)
    torch._foreach_add_(tensors, [t.sin() for t in tensors])
    pressure()
    return tensors


def dropout():
    x = torch.randn(N, requires_grad=True)
    y = F.dropout(chain(x), 0.5)
    pressure()
    y.sum().backward()
    return x.grad, torch.rand(3)


def a_generator_of_ones_own():
    generator = torch.Generator().manual_seed(3)
    drawn = [torch.randn(N, generator=generator) for _ in range(6)]
    pressure()
    return drawn, torch.randn(2, generator=generator)


def functional_transforms():
    x = torch.randn(64, 256)
    per_row = torch.func.vmap(torch.func.grad(lambda r: (r.sin() * r).sum()))(x)
    pressure()
    return per_row, torch.func.jvp(torch.tanh, (x,), (per_row,))


def sparse_gradients():
    table = torch.nn.Embedding(100, 256, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        table(torch.randint(0, 100, (50,))).pow(2).sum().backward()
        pressure()
        optimizer.step()
    gradient = table.weight.grad.coalesce()
    return table.weight.detach(), gradient.indices(), gradient.values()


def resized():
    x = torch.ones(4)
    x.resize_(N).fill_(2)
    out = torch.empty(0)
    torch.add(x, 1, out=out)
    pressure()
    x.set_(out)
    return x, out


def empty_inputs():
    x = torch.randn(N)
    y = torch.cat([x, torch.empty(0), x.sin()])
    pressure()
    return y, torch.empty(0).sum()


class Cube(torch.autograd.Function):
    """An operator with a backward pass of its own."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        return gradient * 3 * x**2


def a_function_of_ones_own():
    x = torch.randn(N, requires_grad=True)
    y = Cube.apply(chain(x))
    pressure()
    y.sum().backward()
    return x.grad


@torch.library.custom_op("delta_torch_tests::noisy", mutates_args=())
def noisy(x: torch.Tensor) -> torch.Tensor:
    """A kernel in Python, which draws numbers."""
    return x + torch.rand_like(x)


def an_operator_in_python():
    x = torch.randn(N)
    made = [noisy(x) for _ in range(6)]
    pressure()
    return made


@torch.library.custom_op("delta_torch_tests::by_numpy", mutates_args=())
def by_numpy(x: torch.Tensor) -> torch.Tensor:
    """A kernel in NumPy, which reads its tensor's memory, and others that it has made."""
    half = x / 2
    return torch.from_numpy(numpy.sort(x.numpy()) + half.numpy() + sum(x.tolist()[:3]))


def an_operator_in_numpy():
    x = torch.randn(N)
    made = [by_numpy(x.sin() * i) for i in range(6)]
    pressure()
    return made, [m * 2 for m in made]


def double_backward():
    x = torch.randn(N, requires_grad=True)
    (g,) = torch.autograd.grad(chain(x).sum(), x, create_graph=True)
    pressure()
    g.pow(2).sum().backward()
    return x.grad


def without_gradients():
    with torch.no_grad():
        y = chain(torch.randn(N))
    with torch.inference_mode():
        z = chain(torch.randn(N))
        total = z.sum().item()
    return y, total


def numbers_and_types():
    x = torch.arange(N)
    y = (x / 3 + 1).to(torch.bfloat16) * 2.5
    # Numbers of each type, which PyTorch makes tensors of for one operator.
    by_type = [x * 2.5, x + 7, x * True, x * (1 + 2j), 3 - x, 2.0 ** (x % 5)]
    by_type.append(torch.where(x > 5, x, 0.5))
    pressure()
    return y, by_type, [b + 1 for b in by_type], x.double().mean(), (x > 5).sum()


def kernels_beside_composites():
    x = torch.randn(4, 8, 16, N // 512, requires_grad=True)
    y = F.silu(F.mish(torch.channel_shuffle(x, 2)))
    pressure()
    y.sum().backward()
    return y.detach(), x.grad


def lengths_that_composites_read():
    """Operators that are made of others, and read lengths or places by themselves."""
    rnn = torch.nn.LSTM(8, 16, batch_first=True)
    x = torch.randn(6, 20, 8, requires_grad=True)
    lengths = torch.tensor([20, 20, 18, 12, 5, 5])
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    pressure()
    packed, _ = rnn(packed)
    pressure()
    y, _ = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    labels = torch.randint(1, 16, (6, 3))
    pressure()
    loss = F.ctc_loss(y.log_softmax(-1).transpose(0, 1), labels, lengths, torch.full((6,), 3))
    places = torch.tensor([2, 5])
    pressure()
    parts = torch.tensor_split(y.detach(), places)
    pressure()
    loss.backward()
    return loss.detach(), x.grad, parts


def outputs_that_shrink():
    """Kernels that take more for an output than it has in the end."""
    x = torch.randn(64, 64, requires_grad=True)
    loss = F.smooth_l1_loss(x, torch.ones(64, 64)) + F.huber_loss(x, torch.zeros(64, 64))
    loss = loss + F.unfold(x.view(1, 1, 64, 64), 3).pow(2).mean()
    pressure()
    loss.backward()
    return loss.detach(), x.grad


# Functorch's wrappers have no bytes, and stand above the other dispatch key's fallback.
ABOVE_FUNCTORCH = _C.key() == "TESTING_ONLY_GenericMode"

FUNCTIONS = [
    activations, in_place_on_activations, lists_in_place, dropout, a_generator_of_ones_own,
    functional_transforms, sparse_gradients, resized, empty_inputs, a_function_of_ones_own,
    an_operator_in_python, an_operator_in_numpy, double_backward, without_gradients, numbers_and_types,
    kernels_beside_composites, lengths_that_composites_read, outputs_that_shrink,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_same(function) -> None:
    if ABOVE_FUNCTORCH and function is functional_transforms:
        pytest.skip("not with this dispatch key")
    both(function)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_replays_are_right(function) -> None:
    if ABOVE_FUNCTORCH and function is functional_transforms:
        pytest.skip("not with this dispatch key")
    both(function, verify=True)


def test_a_number_is_no_tensor_of_the_run() -> None:
    with delta_torch.budget("64MiB", steps="manual") as run:
        x = torch.ones(N) * 1
        before = _C.stats()["adopted"]
        for i in range(20):
            x = x * 2.5 + i
        assert _C.stats()["adopted"] == before
    assert run.report().operators >= 40


def test_numpy_memory_that_changes() -> None:
    array = numpy.ones(N, dtype=numpy.float32)

    def compute():
        array[:] = 1
        x = torch.from_numpy(array)
        y = x * 2
        array[:] = 7  # y was computed before
        pressure()
        z = x + 1
        x.add_(1)
        return y, z, float(array[0]), x

    both(compute)


def test_threads() -> None:
    def compute():
        x = torch.randn(N)
        found: list[torch.Tensor] = []

        def work() -> None:
            with delta_torch.attach() if _C.active() else torch.enable_grad():
                found.append(chain(x))

        y = x * 2
        pressure()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return found[0], y

    both(compute)


def test_a_kept_module_stays() -> None:
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)])
    with delta_torch.budget("6MiB", policy="online", host="1GiB"):
        delta_torch.keep(model[1])
        out = model(torch.randn(256, 256, requires_grad=True))
        held = [torch.zeros(N) + i for i in range(16)]
        out.sum().backward()
        del held


def test_out_of_memory_and_on() -> None:
    with delta_torch.budget(BUDGET, policy="online", host=0) as run:
        with pytest.raises(torch.OutOfMemoryError, match="delta: "):
            torch.ones(60 * N)
        assert run.error["smallest_budget"] >= 60 * N * 4
        assert float((torch.ones(N) + 1).sum()) == 2 * N
