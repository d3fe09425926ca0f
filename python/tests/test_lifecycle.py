"""Runs: how they begin and end, what they refuse, and that nothing is left behind."""

from __future__ import annotations

import gc
import resource
import signal
import threading
import weakref
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks

import delta_torch
from delta_torch import _C
from delta_torch.modules import ModuleNames
from matrix_cases import CASES, SmallResNet
from training import SEED, managed, measured, unmanaged

MIB = 2**20
TENSOR = 2**18  # elements of a MiB


def nothing_is_managed() -> bool:
    x = torch.ones(TENSOR)
    return not _C.active() and not _C.bring_back(x * 2)


def attributes() -> list:
    """What delta_torch may replace while a run is on."""
    hooks = nn.modules.module
    # __slotnames__ is what the module copyreg remembers of a class that has been pickled once.
    classes = [
        {name: value for name, value in vars(owner).items() if name != "__slotnames__"}
        for owner in (torch.Tensor, torch.UntypedStorage)
    ]
    return [
        *classes,
        {name: vars(torch._C).get(name) for name in ("_to_dlpack", "_to_dlpack_versioned")},
        vars(torch._C.PyTorchFileWriter).get("write_record"),
        torch.utils.dlpack.to_dlpack,
        torch.serialization._save,
        torch.compile,
        ForkingPickler._extra_reducers,
        list(hooks._global_forward_pre_hooks.values()),
        list(hooks._global_forward_hooks.values()),
        list(_global_optimizer_post_hooks.values()),
    ]


BEFORE: list = []


@pytest.fixture(autouse=True)
def remembered():
    """What there was before the test: an earlier one may have imported modules that add to it."""
    BEFORE[:] = attributes()


def nothing_is_wrapped() -> bool:
    return attributes() == BEFORE


# --- beginning and ending -------------------------------------------------------------------------


def test_everything_is_undone() -> None:
    with delta_torch.budget("64MiB"):
        assert not nothing_is_wrapped()
    assert nothing_is_wrapped() and nothing_is_managed()


def test_tensors_of_a_run_outlive_it() -> None:
    with delta_torch.budget("4MiB", policy="online", host="64MiB"):
        tensors = [torch.full((TENSOR,), float(i)) * 2 for i in range(12)]
    assert [t[5].item() for t in tensors] == [2.0 * i for i in range(12)]
    assert all(t.numpy().sum() == 2.0 * i * TENSOR for i, t in enumerate(tensors))


def test_tensors_between_two_runs() -> None:
    with delta_torch.budget("4MiB", policy="dtr"):
        kept = torch.ones(TENSOR) + 1
    kept += 1
    with delta_torch.budget("5MiB", policy="online", host="64MiB"):
        others = [kept[: TENSOR // 2] + i for i in range(9)]
    assert kept[0] == 3 and others[8][0] == 11


def test_a_second_run_is_refused() -> None:
    with delta_torch.budget("64MiB") as first:
        with pytest.raises(RuntimeError, match="there is a run already"):
            delta_torch.budget("32MiB").__enter__()
        x = torch.ones(TENSOR) * 2
        assert first.report().budget_bytes == 64 * MIB
        assert _C.bring_back(x)
    assert nothing_is_managed() and nothing_is_wrapped()


def test_a_run_is_entered_again() -> None:
    run = delta_torch.budget("64MiB")
    for size in (1, 2):
        with run:
            x = torch.ones(TENSOR * size) * 2
            assert run.report().used_bytes >= size * MIB
        assert nothing_is_managed() and nothing_is_wrapped()
        assert run.report().peak_bytes < (size + 1) * 2 * MIB
        assert x.sum() == 2 * TENSOR * size
    with run, pytest.raises(RuntimeError, match="there is a run already"):
        run.__enter__()


def test_each_step_in_a_slot() -> None:
    training = CASES["resnet_adamw"]()
    run = delta_torch.budget("64MiB", policy="online")
    for i in range(3):
        with run.each_step() as entered:
            assert entered is run
            training.step(i)
            with run.each_step():
                training.step(i)
            assert run.report().steps == i, "optimizers end no steps within it"
        assert _C.active() and run.report().steps == i + 1
    training.step(3)
    assert run.report().steps == 3, "nor do they behind it"
    with pytest.raises(LookupError), run.each_step():
        raise LookupError
    assert run.report().steps == run.report().batches == 4
    assert delta_torch.stop() is run.report()
    assert nothing_is_managed() and nothing_is_wrapped()
    with run.each_step():
        delta_torch.stop()
    assert nothing_is_managed() and run.report().steps == 0


def test_stop_ends_the_run_that_is_on() -> None:
    assert delta_torch.stop() is None
    run = delta_torch.budget("64MiB")
    run.__enter__()
    x = torch.ones(TENSOR) * 2
    with pytest.raises(RuntimeError, match=r"end it by delta_torch\.stop\(\)"):
        delta_torch.budget("64MiB").__enter__()
    report = delta_torch.stop()
    assert report is run.report() and report.peak_bytes >= 2 * MIB
    assert nothing_is_managed() and nothing_is_wrapped()
    assert x.sum() == 2 * TENSOR
    run.__exit__(None, None, None)  # what was left already stays so
    with delta_torch.budget("64MiB"):
        delta_torch.stop()
        assert nothing_is_managed()


@pytest.mark.parametrize("in_a_cycle", [False, True])
def test_a_run_that_nobody_owns_gives_way(in_a_cycle: bool) -> None:
    run = delta_torch.budget("64MiB")
    run.__enter__()
    if in_a_cycle:
        run.itself = run
    del run
    x = torch.ones(TENSOR) * 2
    with delta_torch.budget("32MiB", policy="online", host="64MiB") as run:
        many = [x + i for i in range(40)]
        assert run.report().budget_bytes == 32 * MIB
    assert many[39][0] == 41
    assert nothing_is_managed() and nothing_is_wrapped()


def test_within_a_forward_pass() -> None:
    class Model(nn.Module):
        def forward(self, x):
            with delta_torch.budget("64MiB"):
                return x * 2

    with pytest.raises(RuntimeError, match="not within the forward pass of Model"):
        nn.Sequential(Model())(torch.ones(3))
    assert nothing_is_managed() and nothing_is_wrapped()


def test_within_a_backward_pass() -> None:
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: delta_torch.budget("64MiB").__enter__() and None)
    with pytest.raises(RuntimeError, match="within a backward pass"):
        y.sum().backward()
    assert nothing_is_managed()


def test_within_a_transform() -> None:
    def loss(x):
        with delta_torch.budget("64MiB"):
            return (x * x).sum()

    with pytest.raises(RuntimeError, match=r"a transform such as torch\.func\.grad"):
        torch.func.grad(loss)(torch.ones(3))
    assert nothing_is_managed()


def test_a_failed_beginning_leaves_nothing(monkeypatch, tmp_path) -> None:
    def fails(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(ModuleNames, "install", fails)
    run = delta_torch.budget("64MiB")
    with pytest.raises(KeyboardInterrupt):
        run.__enter__()
    assert nothing_is_managed() and nothing_is_wrapped()
    with pytest.raises(RuntimeError, match="has not begun"):
        run.report()
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match="timeline"):
        delta_torch.budget("64MiB", timeline=tmp_path / "no" / "file").__enter__()
    assert nothing_is_managed() and nothing_is_wrapped()
    with delta_torch.budget("64MiB"):
        assert torch.ones(3).sum() == 3


def test_functions_outside_of_a_run() -> None:
    for name, call in {
        "step": delta_torch.step,
        "pin": lambda: delta_torch.pin(torch.ones(1)),
        "attach": delta_torch.attach,
    }.items():
        with pytest.raises(RuntimeError, match=rf"{name}\(\) needs a run"):
            call()
    assert delta_torch.budget("1GiB").error is None


def test_describes_itself() -> None:
    assert repr(delta_torch.budget("1GiB")) == (
        "<delta_torch.Run: 1.0 GiB, policy 'adaptive', not begun>"
    )
    with delta_torch.budget(0.5, policy="dtr") as run:
        assert repr(run) == "<delta_torch.Run: 50% of the peak, policy 'dtr', on>"
    assert repr(run).endswith("ended>")


@pytest.mark.parametrize("policy", delta_torch.policies())
def test_every_policy(policy: str) -> None:
    expected = unmanaged(CASES["resnet_sgd"], 3)
    trained = managed(CASES["resnet_sgd"], 3, "64MiB", policy=policy, host="1GiB")
    assert trained.outcome == expected


# --- steps ----------------------------------------------------------------------------------------


def test_an_optimizer_ends_steps() -> None:
    with delta_torch.budget("64MiB") as run:
        training = CASES["resnet_adamw"]()
        for i in range(3):
            training.step(i)
    assert run.report().steps == 3


def test_steps_by_hand() -> None:
    training = CASES["resnet_adamw"]()
    with delta_torch.budget("64MiB", steps="manual") as run:
        for i in range(4):
            training.step(i)
        assert run.report().steps == 0
        run.step()
        delta_torch.step()
        assert run.report().steps == 2
    with pytest.raises(RuntimeError, match="needs a run that is on"):
        run.step()


def test_share_is_set_after_two_steps() -> None:
    make = CASES["resnet_adamw"]
    peak = measured(make, 2).peak_bytes
    training = make()
    with delta_torch.budget("90%", policy="online", host="1GiB") as run:
        for i in range(2):
            assert run.report().budget_bytes is None
            training.step(i)
        assert run.report().budget_bytes == pytest.approx(0.9 * peak, rel=0.05)
        assert run.report().unmanaged_peak_bytes == pytest.approx(peak, rel=0.05)
        training.step(2)
    assert run.report().peak_bytes <= run.report().budget_bytes


# --- errors within a run --------------------------------------------------------------------------


def test_out_of_memory_and_on() -> None:
    with delta_torch.budget("4MiB", policy="online") as run:
        x = torch.ones(TENSOR)
        with pytest.raises(delta_torch.OutOfMemoryError, match="delta: ") as caught:
            torch.ones(8 * TENSOR)
        assert isinstance(caught.value, torch.OutOfMemoryError)
        assert "\n" not in str(caught.value)
        error = run.error
        assert error["requested"] == 8 * MIB
        assert error["capacity"] == 4 * MIB
        assert error["kind"] == "budget_exceeded"
        assert error["message"] and isinstance(error["holders"], list)
        caught = None
        gc.collect()
        assert (x + 1).sum() == 2 * TENSOR
    assert run.error == error == run.report().error
    assert "last error: " in str(run.report())
    with delta_torch.budget("64MiB") as run:
        assert run.error is None


def test_holders_name_modules() -> None:
    training = CASES["resnet_sgd"]()
    with delta_torch.budget("1500KB", policy="dtr") as run, pytest.raises(torch.OutOfMemoryError):
        training.step(0)
    parameters = dict(training.model.named_parameters())
    for h in run.error["holders"]:
        assert (h["label"] in parameters) == (h["role"] == "parameter")
        assert h["role"] or h["label"] == "data" or "SmallResNet" in h["label"]


def test_an_exception_leaves_nothing() -> None:
    with pytest.raises(ZeroDivisionError), delta_torch.budget("64MiB"):
        x = torch.ones(TENSOR) * 3
        1 / 0  # noqa: B018
    assert nothing_is_managed() and nothing_is_wrapped()
    assert x.sum() == 3 * TENSOR


def test_exceptions_in_a_model() -> None:
    class Fails(nn.Module):
        def forward(self, x):
            y = x * 2
            raise LookupError(y.shape)

    good = nn.Linear(4, 4)
    with delta_torch.budget("64MiB") as run:
        for _ in range(3):
            with pytest.raises(LookupError):
                nn.Sequential(good, Fails())(torch.ones(2, 4))
            with pytest.raises(RuntimeError, match="shapes"):
                good(torch.ones(2, 5))  # a kernel's error
        alone = torch.ones(8, 8) * 2
        good(torch.ones(2, 4)).sum().backward()
    names = {m.name for m in run.report().modules if m.made_bytes}
    assert alone.sum() == 128
    assert "Sequential.1" in names
    assert not any(name.count("Linear") > 1 for name in names), "the stack of modules is right"


def test_exceptions_in_hooks() -> None:
    def before(module, args):
        raise LookupError

    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    first = nn.modules.module.register_module_forward_pre_hook(before)
    try:
        with delta_torch.budget("64MiB") as run:
            with pytest.raises(LookupError):
                model(torch.ones(2, 4))
            first.remove()
            handle = model[1].register_forward_pre_hook(before)
            with pytest.raises(LookupError):
                model(torch.ones(2, 4))
            handle.remove()
            kept = torch.ones(64) * 2
            model(torch.ones(2, 4)).sum().backward()
    finally:
        first.remove()
    assert kept.sum() == 128
    outside = next(m for m in run.report().modules if m.name == "")
    assert outside.made_bytes >= 256


@pytest.fixture
def interruptions():
    """Interrupts raise KeyboardInterrupt, also in a program that a shell has put in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptions")
def test_an_interruption() -> None:
    class Interrupts(nn.Module):
        def forward(self, x):
            y = x * 2
            signal.raise_signal(signal.SIGINT)
            return y

    model = nn.Sequential(nn.Linear(4, 4), Interrupts())
    expected = unmanaged(CASES["resnet_sgd"], 2)
    with pytest.raises(KeyboardInterrupt), delta_torch.budget("64MiB"):
        model(torch.ones(2, 4))
    assert nothing_is_managed() and nothing_is_wrapped()
    with delta_torch.budget("64MiB") as run:
        with pytest.raises(KeyboardInterrupt):
            model(torch.ones(2, 4))
        delta_torch.step()
        x = torch.ones(512) * 2
    assert x.sum() == 1024
    outside = next(m for m in run.report().modules if m.name == "")
    assert outside.made_bytes >= 2048, "after a step no module is called any more"
    assert managed(CASES["resnet_sgd"], 2, "64MiB").outcome == expected


def test_interruptions_at_any_time() -> None:
    expected = unmanaged(CASES["transformer"], 2)
    for delay in (0.003, 0.01, 0.02, 0.04, 0.08):
        training = CASES["transformer"]()
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            with delta_torch.budget("6MiB", policy="online", host="1GiB"):
                signal.setitimer(signal.ITIMER_REAL, delay)
                for i in range(1000):
                    training.step(i)
        except KeyboardInterrupt:
            pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        assert nothing_is_managed() and nothing_is_wrapped()
        assert all(p.isfinite().all() for p in training.model.parameters())
    trained = managed(CASES["transformer"], 2, "6MiB", policy="online", host="1GiB")
    assert trained.outcome == expected


# --- leaks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "size"), [("dtr", 3.0), ("online", 1.6), ("adaptive", 1.6)])
def test_no_leak(policy: str, size: float, everything: bool) -> None:
    steps = 300 if everything else 50
    torch.manual_seed(SEED)
    model = SmallResNet(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(4, 3, 64, 64), torch.randint(10, (4,))
    marks: list[tuple[int, int, int, int, int]] = []
    with delta_torch.budget(int(size * MIB), policy=policy, host="1GiB") as run:
        for i in range(steps):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % (steps // 5) == steps // 5 - 1:
                gc.collect()
                stats = _C.stats()
                marks.append(
                    (
                        len(gc.get_objects()),
                        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
                        stats["live_tensors"],
                        stats["live_records"],
                        stats["used"],
                    )
                )
        report = run.report()
    print(marks, report)
    assert report.evictions + report.offloads > steps
    first, last = marks[1], marks[-1]
    assert last[0] <= first[0] + 100, "Python objects"
    assert last[1] <= first[1] + 4 * 1024, "KiB of memory of the process"
    assert last[2] <= first[2] + 3, "tensors"
    assert last[3] <= first[3] * 1.2 + 20, "records"
    assert report.peak_bytes <= report.budget_bytes


def test_nothing_holds_a_run() -> None:
    training = CASES["resnet_sgd"]()
    with delta_torch.budget("64MiB") as run:
        training.step(0)
    model, ended = weakref.ref(training.model), weakref.ref(run)
    del training, run
    gc.collect()
    assert model() is None and ended() is None


def test_many_runs() -> None:
    expected = unmanaged(CASES["resnet_sgd"], 1)
    for _ in range(20):
        assert managed(CASES["resnet_sgd"], 1, "16MiB", policy="online").outcome == expected


def test_ends_on_another_thread() -> None:
    run = delta_torch.budget("64MiB").__enter__()
    x = torch.ones(TENSOR) * 2
    ending = threading.Thread(target=run.__exit__, args=(None, None, None))
    ending.start()
    ending.join()
    assert not _C.active()
    assert (x * 2).sum() == 4 * TENSOR
