"""Code of others that reads and writes tensors past PyTorch's dispatcher: extensions, ctypes.

Each program gives the bits that it gives without delta_torch, or it is refused in one sentence that
says what helps. Nothing is silent.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import delta_torch
import forked
from away import tensor_away
from compared import Outcome, Program, Way, compare, without
from delta_torch import _C

N = 3000
WAYS = [
    Way("dtr", 0),
    Way("dtr", 0, True),
    Way("swap_lru", "1GiB"),
    Way("swap_lru", "1GiB", True),
    Way("adaptive", "1GiB"),
]
HELPS = re.compile(r"\b(pin|attach|custom_op)\b")

Out = Callable[[], None]


def same_or_refused(program: Program, way: Way) -> None:
    right: Outcome = without(program)
    assert right.error is None, right.error
    wrong = compare(right, program, way)
    if wrong is None:
        return
    refused = re.match(r"error: RuntimeError: delta: ", wrong) and HELPS.search(wrong)
    assert refused, f"neither the same bits nor a sentence that helps: {wrong}"


def floats_at(address: int, count: int) -> Any:
    return (ctypes.c_float * count).from_address(address)


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Compiled once a session."""
    from torch.utils.cpp_extension import load_inline

    source = Path(__file__).with_name("plain_extension.cpp").read_text()
    folder = tmp_path_factory.mktemp("plain_extension")
    return load_inline(
        "plain_extension",
        source,
        no_implicit_headers=True,
        extra_cflags=["-O0"],
        build_directory=str(folder),
    )


def _made(function: str) -> Callable[[ModuleType], Program]:
    """A tensor that a function of the extension has made, and what was computed from it."""

    def with_extension(ext: ModuleType) -> Program:
        def program(out: Out) -> Any:
            x = torch.randn(N).clone()
            out()
            y = getattr(ext, function)(x)
            z = y.sin()
            out()
            return x, y, z, y * 2

        return program

    return with_extension


def _trained_through(ext: ModuleType) -> Program:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
            return ext.twice(x)

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
            return ext.twice(gradient.contiguous())

    def program(out: Out) -> Any:
        weight = torch.randn(N).requires_grad_()
        for _ in range(3):
            y = Twice.apply((weight * 3).sin()).square()
            out()
            y.sum().backward()
            with torch.no_grad():
                weight -= weight.grad * 0.1
                weight.grad = None
        return weight, y

    return program


def _written(ext: ModuleType) -> Program:
    def program(out: Out) -> Any:
        weight = torch.randn(N).clone()
        before = weight * 2
        out()
        weight.sum()  # back on the device
        ext.add_in_place(weight, 1.5)
        after = weight * 2
        out()
        return before, weight, after

    return program


def _written_when_away(ext: ModuleType) -> Program:
    def program(out: Out) -> Any:
        weight = torch.randn(N).clone()
        before = weight * 2
        out()
        ext.add_in_place(weight, 1.5)
        out()
        return before, weight

    return program


def _read_only(ext: ModuleType) -> Program:
    def program(out: Out) -> Any:
        x = torch.randn(N).clone()
        y = x.cos()
        out()
        first = ext.sum_of(y)
        out()
        return first, ext.sum_of(x), y

    return program


def _kept(ext: ModuleType, pinned: bool) -> Program:
    def program(out: Out) -> Any:
        x = torch.randn(N).clone()
        if pinned and _C.active():
            delta_torch.pin(x)
        x.sum()
        ext.keep(x)
        y = x * 3
        out()
        ext.add_to_kept(2.0)
        z = x * 3
        out()
        return x, y, z

    return program


PYBIND = {
    "empty": _made("twice"),
    "empty_by_data_ptr": _made("twice_by_data_ptr"),
    "zeros": _made("every_other_of_zeros"),
    "trained": _trained_through,
    "written": _written,
    "written_when_away": _written_when_away,
    "read_only": _read_only,
    "kept_pinned": lambda ext: _kept(ext, True),
    "kept": lambda ext: _kept(ext, False),
}


@pytest.mark.long  # the compiler takes a minute
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("kind", PYBIND)
def test_pybind(extension: ModuleType, kind: str, way: Way) -> None:
    program = PYBIND[kind](extension)

    def job(_name: str, _at: forked.Say, fails: forked.Say) -> None:
        try:
            same_or_refused(program, way)
        except AssertionError as error:
            fails(str(error))

    # What writes by an old address may end the process.
    said = [failure for _, failure in forked.run_chunks({kind: [kind]}, job) if failure]
    assert not said, "\n".join(said)


@pytest.mark.long
def test_an_operator_that_reads_what_is_away_is_named(extension: ModuleType) -> None:
    with tensor_away() as tensor:
        extension.hide(tensor)
        try:
            with pytest.raises(RuntimeError) as caught:
                torch.ops.delta_plain.add_hidden(torch.ones(8))
        finally:
            extension.hide(torch.empty(0))
    text = str(caught.value)
    assert "not on the device at the moment" in text
    assert "delta_torch.pin(tensor)" in text and "torch.library.custom_op" in text
    assert "it was read by 'delta_plain::add_hidden'" in text


@torch.library.custom_op("delta_torch_extensions::declared", mutates_args=("x",))
def declared(x: torch.Tensor, value: float) -> None:
    array = floats_at(x.data_ptr(), x.numel())
    for i in range(0, x.numel(), 7):
        array[i] += value


@torch.library.custom_op("delta_torch_extensions::undeclared", mutates_args=())
def undeclared(x: torch.Tensor, value: float) -> torch.Tensor:
    array = floats_at(x.data_ptr(), x.numel())
    for i in range(0, x.numel(), 7):
        array[i] += value
    return x.cos()


@torch.library.custom_op("delta_torch_extensions::undeclared_by_operators", mutates_args=())
def undeclared_by_operators(x: torch.Tensor, value: float) -> torch.Tensor:
    x.detach().add_(value)
    return x.cos()


@torch.library.custom_op("delta_torch_extensions::undeclared_by_numpy", mutates_args=())
def undeclared_by_numpy(x: torch.Tensor, value: float) -> torch.Tensor:
    x.numpy()[::3] += value
    return x.cos()


@torch.library.custom_op("delta_torch_extensions::fills", mutates_args=())
def fills(x: torch.Tensor) -> torch.Tensor:
    made = torch.empty_like(x)
    ctypes.memmove(made.data_ptr(), x.data_ptr(), x.numel() * x.element_size())
    return made


OPERATORS = {
    "declared": declared,
    "undeclared": undeclared,
    "undeclared_by_operators": undeclared_by_operators,
    "undeclared_by_numpy": undeclared_by_numpy,
    "fills": lambda x, _value: fills(x),
}


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("kind", OPERATORS)
def test_custom_op(kind: str, way: Way) -> None:
    def program(out: Out) -> Any:
        x = torch.randn(N).clone()
        before = x * 2
        out()
        given = OPERATORS[kind](x, 1.5)
        after = x * 2
        out()
        return before, x, given, after

    same_or_refused(program, way)


def _sgd(parameter: torch.Tensor) -> None:
    """parameter -= gradient, through the addresses only."""
    at, gradient = (floats_at(t.data_ptr(), t.numel()) for t in (parameter, parameter.grad))
    for i in range(0, parameter.numel(), 11):
        at[i] -= gradient[i]


def _optimizer_by_address(again: bool) -> Program:
    def program(out: Out) -> Any:
        layers = [m for _ in range(3) for m in (nn.Linear(24, 24), nn.Tanh())]
        net = nn.Sequential(*layers)
        losses = []
        for _ in range(3):
            loss = net(torch.randn(16, 24)).square().mean()
            out()
            loss.backward(retain_graph=again)
            for p in net.parameters():
                _sgd(p)
                p.grad = None
            out()
            if again:  # with the activations of before the weights' change
                loss.backward()
                for p in net.parameters():
                    p.grad = None
            losses.append(loss.detach())
            if _C.active():
                delta_torch.step()
        return losses, list(net.parameters())

    return program


def _address_kept(pinned: bool) -> Program:
    def program(out: Out) -> Any:
        x = torch.randn(N).clone()
        y = x.sin()
        if pinned and _C.active():
            delta_torch.pin(x)
        array = floats_at(x.data_ptr(), N)
        out()
        array[5] = 7.0
        z = x.sin()
        out()
        if pinned and _C.active():
            delta_torch.step()  # until here it is held without a pin, too
        out()
        if pinned:
            array[6] = 8.0
        return x, y, z, x.sin()

    return program


def _empty_filled(out: Out) -> Any:
    x = torch.empty(N)
    floats_at(x.data_ptr(), N)[:] = [float(i) for i in range(N)]
    y = x.sin()
    out()
    return x, y


def _filled_by_numpy(out: Out) -> Any:
    x = torch.zeros(N)
    x.numpy()[:] = 3.0
    y = x.sin()
    out()
    return x, y, torch.tensor([1.0, 2.0]) * 2


def _written_through_a_view(out: Out) -> Any:
    x = torch.randn(N).clone()
    y = x.exp()
    out()
    floats_at(x[100:200].data_ptr(), 100)[3] = 5.0
    out()
    return x, y, x.exp()


def _storage_written(out: Out) -> Any:
    x = torch.randn(N).clone()
    y = x.exp()
    out()
    floats_at(x.untyped_storage().data_ptr(), N)[3] = 5.0
    out()
    return x, y, x.exp()


CTYPES = {
    "optimizer": _optimizer_by_address(False),
    "optimizer_then_backward_again": _optimizer_by_address(True),
    "kept": _address_kept(False),
    "kept_pinned": _address_kept(True),
    "empty_filled": _empty_filled,
    "filled_by_numpy": _filled_by_numpy,
    "view": _written_through_a_view,
    "storage": _storage_written,
}


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("kind", CTYPES)
def test_by_address(kind: str, way: Way) -> None:
    same_or_refused(CTYPES[kind], way)
