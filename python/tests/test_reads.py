"""Reading tensors whose bytes are away, without an operator: they come back, or it is refused."""

from __future__ import annotations

import copy
import ctypes
import io
import multiprocessing
import pickle
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import delta_torch
from away import ELEMENTS, drive_out, is_away, tensor_away, values
from delta_torch import _C
from matrix_cases import CASES
from training import digest

KIND = torch.float32.itemsize


def through_a_file(value, **options):
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return torch.load(file)


def at_address(address: int) -> torch.Tensor:
    return torch.tensor(np.ctypeslib.as_array((ctypes.c_float * ELEMENTS).from_address(address)))


READS = {
    "tolist": lambda t: torch.tensor(t.tolist()),
    "numpy": lambda t: torch.tensor(t.numpy()),
    "numpy_forced": lambda t: torch.tensor(t.numpy(force=True)),
    "asarray": lambda t: torch.tensor(np.asarray(t)),
    "array_of_a_view": lambda t: torch.tensor(np.array(t.view(2, -1).T)).T.reshape(-1),
    "data_ptr": lambda t: at_address(t.data_ptr()),
    "untyped_storage": lambda t: at_address(t.untyped_storage().data_ptr()),
    "storage": lambda t: torch.cat([torch.tensor([t.storage()[i] for i in range(9)]), t[9:]]),
    "storage_clone": lambda t: torch.empty(0).set_(t.untyped_storage().clone()),
    "storage_bytes": lambda t: torch.tensor(
        np.frombuffer(bytes(t.untyped_storage().tolist()), np.float32)
    ),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda t: pickle.loads(pickle.dumps(t)),
    "save": through_a_file,
    "save_in_the_old_format": lambda t: through_a_file(t, _use_new_zipfile_serialization=False),
    "dlpack": lambda t: torch.from_dlpack(t).clone(),
    "numpy_dlpack": lambda t: torch.tensor(np.from_dlpack(t)),
    "to_dlpack": lambda t: torch.from_dlpack(torch.utils.dlpack.to_dlpack(t)).clone(),
    "apply": lambda t: t.apply_(lambda x: x),
    "item": lambda t: torch.cat([torch.tensor([x.item() for x in t[:9]]), t[9:]]),
    "iteration": lambda t: torch.stack(list(t.view(8, -1))).view(-1),
    "new_tensor": lambda t: torch.cat([t.new_tensor(t[:9]), torch.as_tensor(t[9:])]),
    "state_dict": lambda t: nn.ParameterDict({"t": t}).state_dict()["t"],
}


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated", "ignore:.*read-only")
@pytest.mark.parametrize("policy", ["dtr", "online", "adaptive"])
@pytest.mark.parametrize("read", READS)
def test_the_bytes_come_back(read: str, policy: str) -> None:
    expected = values()
    with tensor_away(policy) as tensor:
        assert is_away(tensor)
        result = READS[read](tensor)
        assert torch.equal(result, expected)
        assert torch.equal(tensor, expected)
    assert torch.equal(tensor, expected)
    assert torch.equal(result, expected)


@pytest.mark.parametrize("read", ["print", "format", "float", "bool", "index", "len", "contains"])
def test_python_protocols(read: str) -> None:
    reads = {
        "print": lambda t: repr(t),
        "format": lambda t: f"{t[5]:.3f}",
        "float": lambda t: float(t[4]) + int(t[3]),
        "bool": lambda t: bool(t[0]) and not bool(t[0] == 7),
        "index": lambda t: "abcdefghij"[t.to(torch.int64)[1]],
        "len": lambda t: len(t),
        "contains": lambda t: 9.0 in t and -1.0 not in t,
    }
    expected = reads[read](values())
    with tensor_away() as tensor:
        assert reads[read](tensor) == expected


class Mine(torch.Tensor):
    """A subclass that changes nothing."""


@pytest.mark.parametrize("kind", [nn.Parameter, lambda t: t.as_subclass(Mine)])
def test_parameters_and_other_subclasses(kind) -> None:
    with delta_torch.budget("8MiB", policy="online", host="1GiB"):
        tensor = kind(values(1.0) + 2)
        others = drive_out(tensor)
        assert type(copy.copy(tensor)) is type(tensor)
        delta_torch.step()  # until here it has been held
        del others
        others = drive_out(tensor)
        assert through_a_file(tensor.detach().as_subclass(torch.Tensor))[3] == 6
        assert (tensor.detach().numpy() == values().numpy()).all()
        del others
    assert torch.equal(tensor.detach(), values())


def test_a_gradient_is_refused_as_ever() -> None:
    with tensor_away(grad=True) as tensor:
        with pytest.raises(RuntimeError, match="requires grad"):
            tensor.numpy()
        assert is_away(tensor), "nothing was pinned for it"
        assert (tensor.numpy(force=True) == values().numpy()).all()


def test_numpy_shares_for_good() -> None:
    with tensor_away() as tensor:
        array = tensor.numpy()
        array[0] = 100.0
        others = [torch.zeros(ELEMENTS) + i for i in range(20)]
        delta_torch.step()
        others += [torch.zeros(ELEMENTS) + i for i in range(20)]
        assert not is_away(tensor)
        assert tensor[0] == 100
        array[1] = 200.0
        assert (tensor + 1)[1] == 201
        tensor[2] = 300.0
        assert array[2] == 300
    assert array[1] == 200 and tensor.data_ptr() == array.ctypes.data


def test_what_was_computed_from_shared_memory_stays_what_it_was() -> None:
    with delta_torch.budget("10MiB", policy="dtr"):
        tensor = torch.ones(ELEMENTS) * 2
        before = tensor * 10
        array = tensor.numpy()
        during = tensor * 10
        array[:] = 7
        after = tensor * 10
        others = [torch.zeros(ELEMENTS) + i for i in range(20)]
        assert (before == 20).all() and (during == 20).all() and (after == 70).all()
        del others


def test_an_address_holds_until_the_end_of_the_step() -> None:
    with tensor_away() as tensor:
        address = tensor.data_ptr()
        others = [torch.zeros(ELEMENTS) + i for i in range(20)]
        assert tensor.data_ptr() == address
        assert torch.equal(at_address(address), values())
        delta_torch.step()
        del others
        others = drive_out(tensor)
        assert torch.equal(tensor, values())
        del others


def test_lengths_that_composites_read() -> None:
    """Operators that are made of others, and read lengths or places without one."""
    rnn = nn.LSTM(4, 8, batch_first=True)
    x = torch.randn(3, 50, 4)
    lengths, sizes = torch.tensor([50, 40, 7]), torch.tensor([3] * 60 + [5] * 60)
    pack, pad = nn.utils.rnn.pack_padded_sequence, nn.utils.rnn.pad_packed_sequence

    def compute(away) -> list[torch.Tensor]:
        data = x.clone().requires_grad_(True)
        packed = pack(data, lengths, batch_first=True)
        away(packed.batch_sizes)
        out = rnn(packed)[0]
        away(out.batch_sizes)
        padded = pad(out, batch_first=True)[0]
        loss = padded.pow(2).sum()
        places = sizes.cumsum(0)
        away(places)
        parts = torch.tensor_split(torch.arange(600.0), places)
        targets, many = torch.ones(30, 2, dtype=torch.long), torch.full((30,), 40)
        away(many)
        ctc = nn.functional.ctc_loss(
            torch.ones(50, 30, 3).log_softmax(-1), targets, many, torch.full((30,), 2)
        )
        away(packed.batch_sizes)
        loss.backward()
        return [loss.detach(), data.grad, ctc, *parts]

    def away(tensor: torch.Tensor) -> None:
        delta_torch.step()  # until here it may have been held
        drive_out(tensor)

    expected = compute(lambda t: None)
    with delta_torch.budget("8MiB", policy="online", host="1GiB", steps="manual"):
        got = compute(away)
    assert all(torch.equal(g, e) for g, e in zip(got, expected, strict=True))


def test_a_storage_is_read_later() -> None:
    with tensor_away() as tensor:
        storage = tensor.untyped_storage()
        assert is_away(tensor)
        assert storage.nbytes() == KIND * ELEMENTS and storage.device.type == "cpu"
        assert bytes(storage[:8].tolist()) == values()[:2].numpy().tobytes()
        delta_torch.step()
        others = drive_out(tensor)
        assert bytes(storage[8:12].tolist()) == values()[2:3].numpy().tobytes()
        storage[8] = 255
        del others
        others = [torch.zeros(ELEMENTS) + i for i in range(20)]
        assert storage[8] == 255 and tensor[2] != values()[2]
        storage.resize_(0)
        assert storage.nbytes() == 0
        del others


def test_a_storage_of_another_size() -> None:
    with tensor_away() as tensor:
        tensor.untyped_storage().resize_(KIND * ELEMENTS * 2)
        assert torch.equal(tensor, values())
        tensor.resize_(2 * ELEMENTS)
        assert torch.equal(tensor[:ELEMENTS], values())
        others = [torch.zeros(ELEMENTS) + i for i in range(20)]
        assert torch.equal(tensor[:ELEMENTS], values())
        del others


def test_more_is_saved_than_the_budget_holds() -> None:
    with delta_torch.budget("8MiB", policy="online", host="1GiB") as run:
        state = {i: torch.ones(ELEMENTS) * i for i in range(24)}
        state["view"] = state[3][10:20]
        loaded = None
        file = io.BytesIO()
        torch.save(state, file)
        assert run.report().peak_bytes <= 8 * 2**20
        assert all(torch.equal(state[i], torch.full((ELEMENTS,), float(i))) for i in range(24))
    file.seek(0)
    loaded = torch.load(file)
    assert all((loaded[i] == i).all() for i in range(24))
    assert loaded["view"].untyped_storage().data_ptr() == loaded[3].untyped_storage().data_ptr()
    with pytest.raises(RuntimeError, match="as different types"):
        torch.save([state[1], state[1].view(torch.int32)], io.BytesIO())


def test_state_within_and_after_a_run() -> None:
    training = CASES["resnet_adamw"]()
    with delta_torch.budget("6MiB", policy="online", host="1GiB"):
        for i in range(2):
            training.step(i)
        saved = through_a_file([training.model.state_dict(), training.optimizer.state_dict()])
        copied = copy.deepcopy(training.model)
        training.model.load_state_dict(saved[0])
        training.optimizer.load_state_dict(copy.deepcopy(saved[1]))  # it takes them as they are
        loaded = through_a_file([training.model.state_dict(), training.optimizer.state_dict()])
        training.step(2)
    assert digest(saved) == digest(loaded)
    assert digest(copied.state_dict()) == digest(saved[0])
    assert digest(training.model.state_dict()) != digest(saved[0])
    training.step(3)


# --- other processes ------------------------------------------------------------------------------


def test_shared_memory_is_refused() -> None:
    with tensor_away() as tensor:
        for share in (tensor.share_memory_, tensor.untyped_storage().share_memory_):
            with pytest.raises(RuntimeError, match=r"call it before delta_torch\.budget"):
                share()
        assert torch.equal(tensor, values())
    tensor.share_memory_()
    assert tensor.is_shared() and torch.equal(tensor, values())


def test_memory_that_was_shared_before() -> None:
    shared = values().share_memory_()
    with delta_torch.budget("8MiB", policy="online", host="1GiB"):
        doubled = shared * 2
        others = [torch.zeros(ELEMENTS) + i for i in range(12)]
        assert shared.is_shared()
        shared.share_memory_()
        shared += 1
        assert torch.equal(shared, values() + 1) and torch.equal(doubled, values() * 2)
        del others
    assert shared.is_shared()


class Rows(torch.utils.data.Dataset):
    """Rows of a tensor that may be the run's."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor.view(64, -1)

    def __len__(self) -> int:
        return len(self.tensor)

    def __getitem__(self, i: int) -> torch.Tensor:
        return self.tensor[i] * 2 - self.tensor[i]


@pytest.mark.parametrize("managed", [False, True], ids=["made_before", "made_within"])
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_data_loader(start: str, managed: bool) -> None:
    before = values()
    # spawned processes import pytest's main module again
    options = {"num_workers": 2, "multiprocessing_context": start, "batch_size": 16}
    weight = torch.ones(ELEMENTS // 64, requires_grad=True)
    with delta_torch.budget("8MiB", policy="online", host="1GiB"):
        tensor = values(1.0) + 2 if managed else before
        others = drive_out(tensor) if managed else []
        for _ in range(2):
            batches = list(torch.utils.data.DataLoader(Rows(tensor), **options))
            assert torch.equal(torch.cat(batches).view(-1), values())
            (batches[0] * weight).sum().backward()
            del batches
            delta_torch.step()
        del others
    assert torch.equal(tensor, values())


def _add_one(come, go) -> None:
    tensor = come.get()
    go.put(tensor + 1)
    come.get()


def test_a_queue() -> None:
    context = multiprocessing.get_context("spawn")
    come, go = torch.multiprocessing.get_context("spawn").Queue(), context.Queue()
    go = torch.multiprocessing.get_context("spawn").Queue()
    with tensor_away() as tensor:
        worker = context.Process(target=_add_one, args=(come, go), daemon=True)
        worker.start()
        come.put(tensor[:100])
        assert torch.equal(go.get(timeout=60).clone(), values()[:100] + 1)
        come.put(None)
        worker.join()
        assert torch.equal(tensor, values())


def _in_a_child(tensor: torch.Tensor, plain: torch.Tensor, results) -> None:
    try:
        results.put((_C.active(), (plain * 2).sum().item(), torch.ones(5).numpy().sum().item()))
        try:
            with delta_torch.budget("8MiB"):
                results.put("a run began")
        except RuntimeError as error:
            results.put(str(error))
        try:
            results.put(torch.equal(tensor, values()))
        except RuntimeError as error:
            results.put(str(error))
    except BaseException as error:  # noqa: BLE001 (the parent waits for it)
        results.put(repr(error))


def test_a_forked_process() -> None:
    plain = torch.ones(10)
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    with tensor_away() as tensor:
        child = context.Process(target=_in_a_child, args=(tensor, plain, results))
        child.start()
        child.join(60)
        assert child.exitcode == 0
        assert results.get() == (False, 20.0, 5.0)
        assert "forked" in results.get()
        away = results.get()
        assert away is True or "delta" in away, "the values, or a sentence; never other values"
        assert torch.equal(tensor, values())
        assert (tensor * 2).sum() == values().sum() * 2


# --- what has no memory, or is not managed --------------------------------------------------------


def test_tensors_without_memory() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with delta_torch.budget("64MiB"):
        assert torch.empty(0).numpy().size == 0 and torch.empty(0).tolist() == []
        assert torch.empty(3, device="meta").untyped_storage().nbytes() == 12
        sparse = torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,))
        assert copy.deepcopy(sparse).to_dense().tolist() == [1.0, 2.0, 0.0]
        assert pickle.loads(pickle.dumps(sparse)).to_dense().tolist() == [1.0, 2.0, 0.0]
        with FakeTensorMode():
            assert (torch.ones(3) * 2).shape == (3,)
        seen = []
        torch.func.vmap(lambda x: seen.append(x.shape) or x * 2)(torch.ones(2, 3))
        assert seen == [torch.Size([3])]
        quantized = torch.quantize_per_tensor(torch.ones(4), 0.5, 0, torch.qint8)
        assert copy.deepcopy(quantized).dequantize().tolist() == [1.0] * 4


def test_memory_of_numpy() -> None:
    array = np.ones(ELEMENTS, np.float32)
    with delta_torch.budget("8MiB", policy="dtr"):
        tensor = torch.from_numpy(array)
        doubled = tensor * 2
        array[:] = 5
        later = tensor * 2
        others = [torch.zeros(ELEMENTS) + i for i in range(20)]
        assert (doubled == 2).all() and (later == 10).all()
        tensor.add_(1)
        assert array[0] == 6 and tensor.data_ptr() == array.ctypes.data
        del others
    assert tensor.data_ptr() == array.ctypes.data


# --- compiled functions ---------------------------------------------------------------------------


def test_compiled_functions_run_operator_by_operator() -> None:
    calls = []

    def backend(graph, inputs):
        calls.append(graph)
        return graph.forward

    before = torch.compile(lambda x: (x * 2 + 1).relu(), backend=backend)
    model = torch.compile(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), backend=backend)
    assert before(torch.ones(3)).tolist() == [3.0] * 3 and len(calls) == 1
    with delta_torch.budget("64MiB") as run:
        operators = run.report().operators
        assert before(torch.ones(4)).tolist() == [3.0] * 4
        with pytest.warns(UserWarning, match=r"torch\.compile has no effect while"):
            within = torch.compile(lambda x: x * 3, backend=backend)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="torch.compile has no effect")
            assert within(torch.ones(2)).tolist() == [3.0] * 2
            model(torch.ones(2, 8)).sum().backward()
        assert len(calls) == 1 and run.report().operators >= operators + 6
    names = {m.name for m in run.report().modules}
    assert "Sequential.0" in names
    assert before(torch.ones(2, 5)).shape == (2, 5) and len(calls) > 1
    with torch.compiler.set_stance("eager_on_recompile"):
        with delta_torch.budget("64MiB"):
            pass
        assert torch._dynamo.eval_frame._stance.stance == "eager_on_recompile"


def test_a_compiled_module_is_said_once() -> None:
    model = torch.compile(nn.Sequential(nn.Linear(8, 8)), backend="eager")
    with delta_torch.budget("64MiB"):
        with pytest.warns(UserWarning, match="Sequential runs operator by operator"):
            model(torch.ones(2, 8))
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="torch.compile has no effect")
            model(torch.ones(2, 8))


def test_cuda_graphs_are_refused() -> None:
    with delta_torch.budget("64MiB"), pytest.raises(RuntimeError, match="CUDA graph cannot be"):
        torch.cuda.CUDAGraph.capture_begin(None)


def read_by_address(tensor: torch.Tensor) -> None:
    """As an extension does: not by what delta_torch wraps in Python."""
    with torch._C.DisableTorchFunctionSubclass():
        torch._C.TensorBase.const_data_ptr(tensor)


_LIBRARY = torch.library.Library("delta_reads", "FRAGMENT")
_LIBRARY.define("by_itself(Tensor x, bool by_hand) -> Tensor")


def _by_itself(x: torch.Tensor, by_hand: bool) -> torch.Tensor:
    made = x * 2
    if by_hand:
        read_by_address(x)
    return made + x


_LIBRARY.impl("by_itself", _by_itself, "CompositeImplicitAutograd")
@pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13),
    reason="before PyTorch 2.13 such reads find a null address",
)
def test_checked_runs_find_operators_that_read_by_themselves() -> None:
    """Also where the bytes are here, so that nothing goes wrong."""
    by_itself = torch.ops.delta_reads.by_itself
    for verify in (False, True):
        with delta_torch.budget("8MiB", policy="online", steps="manual", verify=verify):
            x = values(1.0) + 2
            assert torch.equal(by_itself(x, False), x * 3)
            if not verify:
                by_itself(x, True)
                continue
            with pytest.raises(RuntimeError, match="'delta_reads::by_itself' is made of other") as e:
                by_itself(x, True)
            assert "delta_torch.pin(tensor)" in str(e.value)
            read_by_address(x)  # it is over
            delta_torch.pin(x)
            by_itself(x, True)
    by_itself(x, True)  # and so is the run
