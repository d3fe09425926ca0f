"""What an operator's schema does not say, and the run has to know: hidden writes, sums in any order.

The kernels here stand in for those of a GPU, under the same names.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import delta_torch

SIZE = 4096


def crowd() -> None:
    """All else has to leave; where something can't, there is no room."""
    kept = [torch.full((SIZE,), float(i)) for i in range(7)]
    for t in kept:
        delta_torch.pin(t)
    assert all(bool((t == i).all()) for i, t in enumerate(kept))


def nothing_leaves() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        crowd()


def recurrent(x: torch.Tensor, state: torch.Tensor, dropout: float, train: bool) -> torch.Tensor:
    return torch._cudnn_rnn(
        x, [x], 1, None, x, None, 0, 1, 0, 1, False, dropout, train, False, [], state
    )[0]


@pytest.fixture
def cudnn() -> Iterator[None]:
    """cuDNN's recurrent network: its dropout state goes on with each call that trains."""
    library = torch.library.Library("aten", "IMPL")

    def kernel(x: torch.Tensor, *others: object) -> tuple[torch.Tensor, ...]:
        state, (dropout, train) = others[-1], others[10:12]
        y = x * state.sum()
        if train and dropout > 0:
            state.add_(1)
        return y, *(x.new_zeros(1) for _ in range(4))

    def backward(x: torch.Tensor, *others: object) -> tuple[object, ...]:
        reserve = others[-2]
        grad = x * reserve.sum()
        reserve.zero_()  # used up
        return grad, x.new_zeros(1), x.new_zeros(1), [x.new_zeros(1)]

    library.impl("_cudnn_rnn", kernel, "CPU")
    library.impl("_cudnn_rnn_backward", backward, "CPU")
    yield
    library._destroy()


@torch.no_grad()
def test_a_dropout_state_goes_on_once(cudnn: None) -> None:
    with delta_torch.budget("128KiB", policy="dtr"):
        x = torch.ones(SIZE)
        state = torch.ones(SIZE)  # which could be made again, as it was
        first, second = (recurrent(x, state, 0.5, True) for _ in range(2))
        nothing_leaves()
        assert (float(first[0]), float(second[0])) == (SIZE, 2 * SIZE)
        assert bool((state == 3).all())


@torch.no_grad()
def test_without_dropout_a_recurrent_network_runs_again(cudnn: None) -> None:
    """A state that is there for another network does not keep it from that."""
    for dropout, train in ((0.5, False), (0.0, True)):
        with delta_torch.budget("128KiB", policy="dtr") as run:
            y = recurrent(torch.ones(SIZE), torch.ones(SIZE), dropout, train)
            crowd()
            assert float(y[0]) == SIZE
        assert run.report().recomputes > 0


@torch.no_grad()
def test_a_reserve_space_is_used_up(cudnn: None) -> None:
    with delta_torch.budget("128KiB", policy="dtr"):
        x, reserve = torch.ones(SIZE), torch.ones(SIZE)
        grad = torch.ops.aten._cudnn_rnn_backward(
            x, [x], 1, x, x, None, x, None, None, None, 0, 1, 0, 1, False, 0.0, True, False, [],
            None, reserve, [True] * 4,
        )[0]  # fmt: skip
        crowd()
        assert float(grad[0]) == SIZE
        assert bool((reserve == 0).all())


@torch.no_grad()
def test_statistics_of_several_processes_are_written() -> None:
    library = torch.library.Library("aten", "IMPL")

    def kernel(
        x: torch.Tensor, mean: torch.Tensor, _var: torch.Tensor, _momentum: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        mean.add_(x)
        return x.clone(), x.clone()

    library.impl("batch_norm_update_stats", kernel, "CPU")
    try:
        with delta_torch.budget("128KiB", policy="dtr"):
            x, mean, var = (torch.ones(SIZE) for _ in range(3))
            torch.batch_norm_update_stats(x, mean, var, 0.1)
            nothing_leaves()
            assert bool((mean == 2).all())
    finally:
        library._destroy()
