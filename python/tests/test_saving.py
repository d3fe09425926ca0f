"""Checkpoints within a run: the same files as without, whatever is away, and all may leave again."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import delta_torch
from away import ELEMENTS, drive_out, is_away, values
from delta_torch import _C, saving

safetensors = pytest.importorskip("safetensors.torch")

MIB = 2**20
Load = Callable[[], dict[str, torch.Tensor]]
Save = Callable[[dict[str, torch.Tensor], Path], Load]


@pytest.fixture
def run() -> Iterator[delta_torch.Run]:
    with delta_torch.budget(8 * MIB, policy="online", host="1GiB", steps="manual") as run:
        yield run


def to_a_file(state: dict[str, torch.Tensor], folder: Path) -> Load:
    safetensors.save_file(state, folder / "state")
    return lambda: safetensors.load_file(folder / "state")


def to_bytes(state: dict[str, torch.Tensor], _folder: Path) -> Load:
    written = safetensors.save(state)
    return lambda: safetensors.load(written)


@pytest.mark.parametrize("count", [2, 3, 24])
@pytest.mark.parametrize("save", [to_a_file, to_bytes])
def test_all_may_leave_again(
    run: delta_torch.Run, save: Save, count: int, tmp_path: Path
) -> None:
    """Up to three times the budget, on the host and here; nothing stays, and all can be dropped."""
    state = {f"{i}": values(i) + 1 for i in range(count)}
    state["empty"] = torch.empty(0)
    state["numbers"] = torch.arange(5)
    others = drive_out(state["0"])
    load = save(state, tmp_path)
    del others
    for i in range(count):
        others = drive_out(state[f"{i}"])
        del others
    assert run.report().peak_bytes <= 8 * MIB
    assert run.report().addresses == ()
    delta_torch.stop()
    loaded = load()
    assert loaded.keys() == state.keys()
    assert all(torch.equal(loaded[name], state[name]) for name in state)


def test_what_it_was_made_into_can_be_dropped(tmp_path: Path) -> None:
    """An address that is only compared, or written to a file, changes nothing: all of it is known."""
    with delta_torch.budget(8 * MIB, policy="dtr", steps="manual") as run:
        weight = torch.ones(ELEMENTS)
        assert safetensors.load(safetensors.save({"weight": weight}))["weight"].sum() == ELEMENTS
        made = [weight * i for i in range(12)]
        assert run.report().evictions > 4
        assert [m[5].item() for m in made] == list(range(12))


def test_tensors_that_share_memory_are_told(run: delta_torch.Run) -> None:
    whole = values() + 1
    parts = {"left": whole[:100], "right": whole[100:]}
    others = drive_out(whole)
    assert safetensors.storage_ptr(whole) == safetensors.storage_ptr(parts["right"]) != 0
    assert is_away(whole), "to compare nothing has to come back"
    assert {k: v.tolist() for k, v in safetensors.load(safetensors.save(parts)).items()} == {
        k: v.tolist() for k, v in parts.items()
    }
    with pytest.raises(RuntimeError, match="share memory"):
        safetensors.save({"whole": whole, "part": whole[5:]})
    del others


def test_a_call_that_fails_keeps_what_is_held(run: delta_torch.Run) -> None:
    tensors = {f"{i}": values(i) + 1 for i in range(3)}
    held = tensors["0"].const_data_ptr()
    failing = {**tensors, "turned": (values() + 1).view(512, -1).T}
    for _ in range(2):
        with pytest.raises(ValueError, match="contiguous"):
            safetensors.save(failing)
        safetensors.save({"1": tensors["1"]})
        others = [torch.zeros(ELEMENTS) + i for i in range(12)]
        assert ctypes.c_float.from_address(held).value == values(0)[0] + 1
        del others


def test_an_address_of_another_call_is_lent(run: delta_torch.Run) -> None:
    tensor = values() + 1
    safetensors.save({"tensor": tensor})
    ctypes.c_float.from_address(tensor.data_ptr()).value = 50.0
    others = [torch.zeros(ELEMENTS) + i for i in range(12)]
    assert tensor[0] == 50
    del others


@pytest.mark.parametrize("module", sorted({module for module, _ in saving._COMPARING}))
def test_functions_of_others_are_still_there(module: str) -> None:
    """By name: where one is called otherwise, its tensors stay for the step, and nobody would see."""
    if importlib.util.find_spec(module.split(".", maxsplit=1)[0]) is None:
        pytest.skip(f"{module} is not installed")
    names = [function for of, function in saving._COMPARING if of == module]
    there = [name for name in names if hasattr(importlib.import_module(module), name)]
    assert len(there) == len(names), f"{module} has no {set(names) - set(there)}"
    assert _C.active() is False
