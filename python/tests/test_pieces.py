"""Operators over lists of tensors, as optimizers with foreach or fused run them: in pieces where
the budget asks for it, whole where it does not, and always the same bits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

import delta_torch
from bits import Bits, bits_of, difference
from delta_torch import _C

LENGTH = 24
SIDE = 64  # a weight of 16 KiB

FOREACH: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "Adam": {},
    "AdamW": {"amsgrad": True},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "Adagrad": {"lr_decay": 0.1},
    "NAdam": {"weight_decay": 0.1},
    "RAdam": {"lr": 0.1},
    "Adamax": {},
    "Adadelta": {},
    "Rprop": {},
    "ASGD": {"lr": 0.1},
}
FUSED = {name: FOREACH[name] for name in ("SGD", "Adam", "AdamW", "Adagrad")}
LISTS = [(name, "foreach") for name in FOREACH] + [(name, "fused") for name in FUSED]


def weights_of(length: int = LENGTH) -> list[torch.nn.Parameter]:
    """Of different sizes, the largest SIDE by SIDE."""
    torch.manual_seed(5)
    return [torch.nn.Parameter(torch.randn(SIDE, SIDE - i % 5)) for i in range(length)]


def training(
    name: str, after_backward: Callable[[list], None] = lambda _: None, **how: bool
) -> Callable[[], Any]:
    """Three steps for weights that are most of what there is; gives them and their state."""
    weights = weights_of()
    optimizer = getattr(torch.optim, name)(weights, **FOREACH[name], **how)

    def run() -> Any:
        for i in range(3):
            optimizer.zero_grad()
            x = torch.full((2, SIDE), 0.1 * (i + 1))
            sum((x @ w).tanh().sum() for w in weights).backward()
            after_backward(weights)
            optimizer.step()
        return weights, optimizer.state_dict()["state"]

    return run


def bits_within(
    size: int | str | None, program: Callable[[], Any], **options: Any
) -> tuple[list[Bits], dict[str, Any]]:
    """What it gives in a run, and the run's numbers."""
    with delta_torch.budget(size, **options) as run:
        results = program()
        numbers = run.stats()
    return bits_of(results), numbers


def fits(size: int, program: Callable[[], Any], **options: Any) -> bool:
    try:
        bits_within(size, program, **options)
    except torch.OutOfMemoryError:
        return False
    return True


@pytest.mark.parametrize("policy", ["online", "adaptive"])
@pytest.mark.parametrize(("name", "way"), LISTS)
def test_an_optimizer_in_pieces(name: str, way: str, policy: str) -> None:
    right = bits_of(training(name, **{way: True})())
    whole, numbers = bits_within(None, training(name, **{way: True}), policy=policy)
    assert difference(right, whole) is None
    # Of what one list takes, a half.
    cut, in_pieces = bits_within(
        LENGTH * 8 << 10, training(name, **{way: True}), policy=policy, host="1GiB"
    )
    assert difference(right, cut) is None
    assert in_pieces["operators"] > numbers["operators"]


@pytest.mark.parametrize("verify", [True, "tensors"])
@pytest.mark.parametrize(("host", "size"), [(0, LENGTH * 82 << 10), ("1GiB", LENGTH * 8 << 10)])
def test_pieces_are_verified(host: int | str, size: int, verify: bool | str) -> None:
    run = training("AdamW", foreach=True)
    got, numbers = bits_within(size, run, policy="adaptive", host=host, verify=verify)
    assert difference(bits_of(training("AdamW", foreach=True)()), got) is None
    assert numbers["evictions"] + numbers["offloads"] > 0


@pytest.mark.parametrize("host", [0, "1GiB"])
@pytest.mark.parametrize(
    ("name", "way"),
    [("Adam", "foreach"), ("AdamW", "foreach"), ("RMSprop", "foreach"), ("Adam", "fused")],
)
def test_where_one_weight_at_a_time_does(name: str, way: str, host: int | str) -> None:
    """One list alone is four times the budget that is found with host memory; without it lists of
    temporaries may take some more."""
    options = {"policy": "adaptive", "host": host}
    least, enough = 16 << 10, 8 << 20
    while enough - least > 4 << 10:
        size = (least + enough) // 2
        if fits(size, training(name, foreach=False), **options):
            enough = size
        else:
            least = size
    more = 160 << 10 if host == 0 else 16 << 10  # a weight's
    got, _ = bits_within(enough + more, training(name, **{way: True}), **options)
    assert difference(bits_of(training(name, **{way: True})()), got) is None


@pytest.mark.parametrize(("name", "way"), LISTS)
def test_where_there_is_room_nothing_is_cut(name: str, way: str) -> None:
    _, unlimited = bits_within(None, training(name, **{way: True}), policy="adaptive")
    for host in (0, "1GiB"):
        size = 2 * unlimited["peak_bytes"]
        _, numbers = bits_within(
            size, training(name, **{way: True}), policy="adaptive", host=host
        )
        assert numbers["operators"] == unlimited["operators"]


def test_an_operator_is_one_where_it_fits() -> None:
    tensors = [torch.ones(4096) for _ in range(8)]
    for size, count in (("4MiB", 1), ("130KiB", 1), ("128KiB", 4)):
        with delta_torch.budget(size, host="1MiB", policy="online"):
            before = _C.stats()["operators"]
            torch._foreach_mul_(tensors, 2)
            assert _C.stats()["operators"] - before == count


def test_gradients_are_clipped() -> None:
    norms: list[torch.Tensor] = []

    def program() -> Any:
        run = training("SGD", clip, foreach=True)
        return lambda: (norms.clear(), run(), norms)

    def clip(weights: list) -> None:
        norms.append(torch.nn.utils.clip_grad_norm_(weights, 0.5, foreach=True))

    right = bits_of(program()())
    got, _ = bits_within(LENGTH * 8 << 10, program(), policy="online", host="1GiB")
    assert difference(right, got) is None


@pytest.mark.parametrize("bad", [None, 1, LENGTH - 1])
def test_gradients_are_unscaled(bad: int | None) -> None:
    """Of whichever piece a gradient is that is not finite, the step is left out."""

    def program() -> Any:
        weights = weights_of()
        optimizer = torch.optim.SGD(weights, lr=0.1, foreach=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        for _ in range(2):
            optimizer.zero_grad()
            scaler.scale(sum(w.pow(2).sum() for w in weights)).backward()
            if bad is not None:
                weights[bad].grad[0, 0] = torch.inf
            scaler.step(optimizer)
            scaler.update()
        return weights, [w.grad for w in weights], scaler.get_scale()

    right = bits_of(program())
    whole, unlimited = bits_within(None, program, policy="online")
    got, numbers = bits_within(LENGTH * 8 << 10, program, policy="online", host="1GiB")
    assert difference(right, whole) is None and difference(right, got) is None
    assert numbers["operators"] > unlimited["operators"]


@pytest.mark.parametrize("policy", ["dtr", "adaptive"])
def test_lists_that_were_dropped_are_computed_again(policy: str) -> None:
    def program() -> list:
        x = torch.linspace(0.1, 2, 4096)
        made = [x * (i + 1) for i in range(LENGTH)]
        roots = torch._foreach_sqrt(made)
        torch._foreach_div_(roots, [float(i + 1) for i in range(LENGTH)])
        mantissas = torch._foreach_add(roots, made, alpha=2)
        torch._foreach_addcdiv_(mantissas, made, roots, torch.arange(LENGTH) + 0.5)
        return [t.sum() for t in mantissas + roots]

    right = bits_of(program())
    got, numbers = bits_within("640KiB", program, policy=policy, host=0)
    assert difference(right, got) is None
    assert numbers["recomputes"] > 0


def test_tensors_that_share_memory_are_in_one_piece() -> None:
    """As the views of a flat buffer are: all of it has to be on the device anyway."""
    flat, away = torch.ones(4096 * 8), torch.ones(4096 * 8)
    with delta_torch.budget("160KiB", host="1MiB", policy="online"):
        flat.add_(1)
        away.add_(1)
        before = _C.stats()["operators"]
        torch._foreach_mul_(list(flat.split(4096)), 3)
        assert _C.stats()["operators"] - before == 1
    assert torch.equal(flat, torch.full_like(flat, 6))


def test_a_tensor_that_comes_twice_is_changed_twice() -> None:
    def program() -> Any:
        a = [torch.full((4096,), float(i)) for i in range(8)]
        torch._foreach_add_(a + a, [a[7 - i % 8] for i in range(16)])
        return a

    got, _ = bits_within("96KiB", program, policy="online", host="1MiB")
    assert difference(bits_of(program()), got) is None


def test_errors_are_pytorchs() -> None:
    a = [torch.ones(4096) for _ in range(8)]
    wrong: list[Callable[[], Any]] = [
        lambda: torch._foreach_add_(a, a[1:]),
        lambda: torch._foreach_add_(a, [1.0] * 7),
        lambda: torch._foreach_addcmul_(a, a, a, torch.ones(7)),
        lambda: torch._foreach_add_([], 1.0),
    ]
    for call in wrong:
        with pytest.raises(RuntimeError) as right:
            call()
        with delta_torch.budget("256KiB", host="1MiB", policy="online"):
            others = torch.ones(40_000)  # without which all of the lists would fit at once
            with pytest.raises(RuntimeError) as got:
                call()
            del others
            assert str(got.value) == str(right.value)


Call = tuple[Any, tuple, dict]

# Overloads that PyTorch's database does not call, and whose calls are made of another's.
LAST_AS_TENSOR = {
    "_foreach_add.Tensor": "_foreach_add.Scalar",
    "_foreach_add_.Tensor": "_foreach_add_.Scalar",
    "_foreach_addcdiv.Tensor": "_foreach_addcdiv.ScalarList",
    "_foreach_addcdiv_.Tensor": "_foreach_addcdiv_.ScalarList",
    "_foreach_addcmul.Tensor": "_foreach_addcmul.ScalarList",
    "_foreach_addcmul_.Tensor": "_foreach_addcmul_.ScalarList",
}
AS_IT_IS = {
    "_foreach_copy": "_foreach_copy_",
    "_foreach_zero": "_foreach_zero_",
    "_foreach_powsum.Scalar": "_foreach_norm.Scalar",
}
SWAPPED = {"_foreach_pow.ScalarAndTensor": "_foreach_pow.Scalar"}

CUT = "it was cut"
WHOLE = "it was not cut"
REFUSED = "PyTorch refuses it"  # as some samples are wrong on purpose
SHORT = "it has one tensor"


class Calls(TorchDispatchMode):
    """Keeps what comes to the dispatcher, with its arguments as they are before."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, list[Call]] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        if func.name().startswith("aten::_foreach_"):
            self.of.setdefault(_name(func), []).append((func, *_copied((args, kwargs or {}))))
        return func(*args, **(kwargs or {}))


def _name(func: Any) -> str:
    return func.name().removeprefix("aten::")


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


@functools.cache
def _overloads(prefix: str) -> set[str]:
    return {
        (schema.name + (f".{schema.overload_name}" if schema.overload_name else "")).removeprefix(
            "aten::"
        )
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith(f"aten::{prefix}")
    }


def _copied(values: Any) -> Any:
    return tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, values)


def _try(call: Callable, args: tuple, kwargs: dict) -> Any:
    """What it gives; None where PyTorch refuses it."""
    try:
        return call(*args, **kwargs)
    except (RuntimeError, IndexError, TypeError):
        return None


def _of_the_database() -> dict[str, list[Call]]:
    """By overload; those that it does not call, too."""
    from torch.testing._internal.common_methods_invocations import foreach_op_db

    with Calls() as seen:
        for info in foreach_op_db:
            for sample in info.sample_inputs("cpu", torch.float32, noncontiguous=False):
                for call in (info.method_variant, info.inplace_variant):
                    if call is not None:
                        _try(call, _copied((sample.input, *sample.args)), sample.kwargs)
    calls = seen.of
    for name, like in {**LAST_AS_TENSOR, **AS_IT_IS, **SWAPPED}.items():
        if name not in _overloads("_foreach_"):
            continue  # PyTorch 2.11 has no powsum
        for _, args, kwargs in calls[like]:
            if name in LAST_AS_TENSOR:
                args = (*args[:-1], torch.tensor(args[-1]))
            elif name in SWAPPED:
                args = args[::-1]
            calls.setdefault(name, []).append((_overload(name), args, kwargs))
    for call in [c for known in calls.values() for c in known]:
        for func, *arguments in _with_out(*call):
            calls.setdefault(_name(func), []).append((func, *arguments))
    return calls


def _with_out(func: Any, args: tuple, kwargs: dict) -> Iterator[Call]:
    """The same call with `out=`, where there is such an overload."""
    packet, _, overload = _name(func).partition(".")
    out = f"{packet}.{overload}_out" if overload else f"{packet}.out"
    if out in _overloads(packet):
        made = _try(func, _copied(args), kwargs)
        if made is not None:
            yield _overload(out), args, {**kwargs, "out": [torch.zeros_like(t) for t in made]}


def _by_schema(name: str) -> Call:
    """A call of an operator that is an optimizer, or GradScaler's."""
    torch.manual_seed(7)
    func = _overload(name)
    args, kwargs = [], {}
    for a in func._schema.arguments:
        kind = str(a.type)
        if kind == "List[Tensor]":
            shape = (1,) if a.name == "state_steps" else (64, 8)
            value: Any = [torch.rand(shape) + i + 1 for i in range(16)]
        elif kind == "Tensor":
            value = torch.zeros(1) if a.name == "found_inf" else torch.full((1,), 0.1)
            value = value.squeeze() if a.name == "lr" else value
        elif kind == "Optional[Tensor]":
            value = None
        else:
            value = a.name == "amsgrad" if kind == "bool" else 0.1
        kwargs.update({a.name: value}) if a.kwarg_only else args.append(value)
    return func, tuple(args), kwargs


def _in_pieces(func: Any, args: tuple, kwargs: dict) -> str:
    """What has come of it, within a budget as small as one of its tensors allows."""
    mine, named = _copied((args, kwargs))
    try:
        right = bits_of((func(*mine, **named), mine, named))
    except (RuntimeError, IndexError):
        return REFUSED
    if max(len(a) for a in args if isinstance(a, list)) == 1:
        return SHORT
    size = sum(t.nbytes for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor))
    for part in (8, 5, 3, 2, 1.5, 1, 0.5):
        mine, named = _copied((args, kwargs))
        with delta_torch.budget(int(size / part) + 512, host="1GiB", policy="online"):
            before = _C.stats()["operators"]
            try:
                results = func(*mine, **named)
            except torch.OutOfMemoryError:
                continue  # for one of its tensors alone
            pieces = _C.stats()["operators"] - before
        wrong = difference(right, bits_of((results, mine, named)))
        return wrong or (CUT if pieces > 1 else WHOLE)
    return "it does not fit"


def test_foreach_by_pytorchs_samples() -> None:
    calls = _of_the_database()
    found = {name: [_in_pieces(*call) for call in known] for name, known in calls.items()}
    wrong = {name: set(what) - {CUT, REFUSED, SHORT} for name, what in found.items()}
    assert not {name: what for name, what in wrong.items() if what}
    assert {name for name, what in found.items() if CUT in what} == _overloads("_foreach_")


def test_fused_and_unscaling_by_schema() -> None:
    names = set().union(*map(_overloads, ("_fused_ad", "_fused_sgd", "_amp_foreach_")))
    found = {name: _in_pieces(*_by_schema(name)) for name in names}
    # It gives one tensor for all of the list.
    assert found.pop("_amp_foreach_non_finite_check_and_unscale") == WHOLE
    assert len(found) > 20
    assert set(found.values()) == {CUT}, found
