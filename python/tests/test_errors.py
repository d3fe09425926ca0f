"""What errors about memory say: words that other libraries know, the program's names, what helps."""

from __future__ import annotations

import concurrent.futures
import gc

import pytest
import torch
from torch import nn

import delta_torch

BEGINNING = "delta: out of memory. "


def out_of_memory(size: str, call, **options) -> tuple[str, dict]:
    """The text of the error that `call` ends with, and what the run knows of it."""
    with delta_torch.budget(size, **options) as run:
        with pytest.raises(torch.OutOfMemoryError) as caught:
            call()
        return str(caught.value), run.error


def on_another_thread(call) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        threads.submit(call).result()


def train(model: nn.Module, *inputs: torch.Tensor) -> None:
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(*inputs).pow(2).mean().backward()
        optimizer.step()


def test_other_libraries_know_it() -> None:
    text, error = out_of_memory("1MiB", lambda: torch.ones(2**20))
    assert text.startswith(BEGINNING + error["message"])  # accelerate looks for " out of memory."
    assert "DefaultCPUAllocator: can't allocate memory" in text  # Lightning, on a CPU
    assert "\n" not in text


def test_an_optimizers_lists_of_temporaries() -> None:
    """What helps is said: with weight decay they are made from the weights that change."""

    def optimizer(foreach: bool) -> torch.optim.Optimizer:
        weights = [nn.Parameter(torch.ones(4096)) for _ in range(12)]
        for w in weights:
            w.grad = torch.ones(4096)
        return torch.optim.SGD(weights, weight_decay=0.1, foreach=foreach)

    text, error = out_of_memory("448KiB", optimizer(True).step, policy="online")
    assert "an optimizer with foreach=False makes temporaries for one weight at a time" in text
    assert error["smallest_budget"] > 448 << 10
    with delta_torch.budget("448KiB", policy="online"):
        optimizer(False).step()


def test_accelerate_finds_a_batch_size() -> None:
    memory = pytest.importorskip("accelerate.utils.memory")

    @memory.find_executable_batch_size(starting_batch_size=64)
    def run(batch_size: int) -> int:
        gc.collect()
        with delta_torch.budget("4MiB"):
            nn.Linear(256, 256)(torch.randn(batch_size * 64, 256)).sum().backward()
        return batch_size

    assert 16 <= run() < 64


def test_lightning_knows_it() -> None:
    memory = pytest.importorskip("lightning.pytorch.utilities.memory")
    with delta_torch.budget("1MiB"), pytest.raises(torch.OutOfMemoryError) as caught:
        torch.ones(2**20)
    assert memory.is_oom_error(caught.value)


def test_parameters_have_their_names() -> None:
    model = nn.Sequential(nn.Embedding(512, 256), nn.Linear(256, 256))
    text, error = out_of_memory("1.5MiB", lambda: train(model, torch.arange(64)))
    known = {h["label"]: h for h in error["holders"]}
    assert known["0.weight"]["role"] == known["1.weight"]["role"] == "parameter"
    assert known["0.weight"]["bytes"] == model[0].weight.nbytes
    assert "0.weight (parameter, 0.5 MiB, " in text
    assert "1.weight (parameter, 0.2 MiB, " in text  # its operators saw a view, t()


def test_optimizer_state_has_its_parameters_name() -> None:
    model = nn.Sequential(nn.Linear(64, 256), nn.Linear(256, 256))
    optimizer = torch.optim.Adam(model.parameters())

    def run() -> None:
        for _ in range(2):
            model(torch.randn(4, 64)).sum().backward()
            optimizer.step()
        torch.ones(2**20)

    text, error = out_of_memory("3MiB", run, host="1KiB")
    roles = {h["label"]: h["role"] for h in error["holders"]}
    assert roles["1.weight's exp_avg"] == roles["1.weight's exp_avg_sq"] == "optimizer state"
    assert "1.weight's exp_avg (optimizer state, 0.2 MiB, " in text or "1.weight (par" in text


def test_a_budget_that_is_named_behind_a_step_is_for_steps_like_it() -> None:
    def second_step() -> None:
        train(nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 256)), torch.ones(4, 256))
        torch.ones(2**20)

    text, _ = out_of_memory("3MiB", second_step)
    assert "smallest budget known to work" in text and "no step has ended yet" not in text
    assert "; other steps than those so far may need more" in text


def test_reading_many_tensors() -> None:
    tensors = []

    def read() -> None:
        tensors.extend(torch.ones(2**16) * i for i in range(16))
        for tensor in tensors:
            tensor.numpy()

    text, _ = out_of_memory("2MiB", read, policy="swap_lru", host="1GiB")
    assert "out of memory. reading a tensor needs 0.2 MiB" in text
    assert "; what is read stays until the step's end, so reading more needs more" in text


def test_names_are_of_living_tensors() -> None:
    # Storages that take the place of named ones have no names.
    generator = torch.Generator()
    first = nn.Linear(4, 4)
    with delta_torch.budget("1MiB", policy="dtr") as run:
        first(torch.ones(1, 4))
        for _ in range(8):
            gone = nn.Linear(16, 16)
            gone(torch.ones(1, 16))
            del gone
        kept = []
        with pytest.raises(torch.OutOfMemoryError):
            while True:  # a generator of the program's own: none of them can leave
                kept.append(torch.rand(2**15, generator=generator))
    assert len(run.error["holders"]) == 6
    assert {h["role"] for h in run.error["holders"]} == {""}


def test_another_modules_names_begin_with_its_own() -> None:
    first, second = nn.Sequential(nn.Linear(64, 64)), nn.Sequential(nn.Linear(512, 512))

    def both() -> None:
        first(torch.ones(1, 64))
        train(second, torch.ones(1, 512))

    _, error = out_of_memory("2200KiB", both)
    sizes = {h["label"]: h["bytes"] for h in error["holders"]}
    assert sizes["Sequential#2.0.weight"] == second[0].weight.nbytes
    assert sizes.get("0.weight", 2**14) == first[0].weight.nbytes


@pytest.mark.parametrize("policy", ["adaptive", "online", "dtr"])
def test_what_the_hosts_memory_would_do(policy: str) -> None:
    """It is known before a step has ended, and of a policy that never copies."""
    model = nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 256))
    size, host, first = 700 << 10, 0, 0
    while True:
        gc.collect()
        with delta_torch.budget(size, host=host, policy="online" if host else policy) as run:
            try:
                train(model, torch.ones(4, 256))
                break
            except torch.OutOfMemoryError as error:
                text = str(error)
        reasons = [text, *(holder["why"] for holder in run.error["holders"])]
        assert host or all("the host has no room" not in reason for reason in reasons)
        assert "smallest budget known to work" in text and "pass host=" not in text
        assert host < run.error["enough_host"]
        assert ('policy="online" with host="' in text) == (policy == "dtr" and host == 0)
        assert "enough, though on a CPU copies take the same RAM; no step has ended yet, so " in text
        assert "may need more, and what copies take is not known" in text
        first = first or run.error["smallest_budget"]
        size, host = max(size, run.error["budget_with_host"]), run.error["enough_host"]
    assert 0 < size < first


def test_no_operator_is_the_managers_own() -> None:
    before = torch.ones(2**19)
    text, error = out_of_memory("1MiB", lambda: before + 1)
    assert "a tensor of before the run needs 2.0 MiB (2097152 bytes) more" in text
    assert "make_room" not in text + error["operation"]
    text, error = out_of_memory("1MiB", lambda: on_another_thread(lambda: torch.empty(2**19)))
    assert "memory that is taken outside of operators needs 2.0 MiB" in text
    assert "take_block" not in text + error["operation"]
    model = nn.Linear(1024, 512)
    text, _ = out_of_memory("1MiB", lambda: model(torch.ones(1, 1024)))
    assert "'weight', a parameter of before the run, needs 2.0 MiB" in text
