"""Reads of a tensor past PyTorch's dispatcher, where its bytes are away: they come back."""

from __future__ import annotations

import copy
import io
import pickle

import numpy
import pytest
import torch

import delta_torch

N = 1 << 16
BUDGET = 8 * N * 4


def saved(value) -> torch.Tensor:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file)


READS = {
    "operator": lambda t: t.sum().item(),
    "item": lambda t: t[5].item(),
    "print": repr,
    "tolist": lambda t: t.tolist()[:3],
    "numpy": lambda t: t.numpy()[:3].tolist(),
    "asarray": lambda t: numpy.asarray(t)[:3].tolist(),
    "data_ptr": lambda t: t.data_ptr() != 0,
    "storage": lambda t: t.untyped_storage()[0],
    "save": lambda t: saved(t)[:3].tolist(),
    "save_state": lambda t: saved({"weights": [t, t * 1]})["weights"][0][:3].tolist(),
    "deepcopy": lambda t: copy.deepcopy(t)[:3].tolist(),
    "pickle": lambda t: pickle.loads(pickle.dumps(t))[:3].tolist(),
    "dlpack": lambda t: torch.utils.dlpack.from_dlpack(t)[:3].tolist(),
    "numpy of a clone": lambda t: t.clone().numpy()[:3].tolist(),
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("policy", ["dtr", "online"])
def test_bytes_come_back(name: str, policy: str) -> None:
    expected = READS[name](torch.ones(N) * 3)
    with delta_torch.budget(BUDGET, policy=policy, host="1GiB") as run:
        t = torch.ones(N) * 3
        others = [torch.zeros(N) + i for i in range(12)]
        report = run.report()
        assert report.evictions + report.offloads > 0
        assert READS[name](t) == expected
        del others
    assert t.tolist() == [3.0] * N


class Squares(torch.utils.data.Dataset):
    """Eight tensors."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.full((16,), float(i)) ** 2


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_of_a_data_loader(start: str) -> None:
    weight = torch.randn(16, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with delta_torch.budget("8MiB", policy="online", host="1GiB"):
        loader = torch.utils.data.DataLoader(
            Squares(), batch_size=4, num_workers=2, multiprocessing_context=start
        )
        seen = []
        for batch in loader:
            seen.append(batch[:, 0].tolist())
            (batch * weight).sum().backward()
            optimizer.step()
    assert seen == [[0.0, 1.0, 4.0, 9.0], [16.0, 25.0, 36.0, 49.0]]


def test_sharing_is_refused() -> None:
    with delta_torch.budget("8MiB"):
        t = torch.ones(N) + 1
        with pytest.raises(RuntimeError, match="share"):
            t.share_memory_()
        assert float(t.sum()) == 2 * N


def test_a_model_survives_the_run() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.AdamW(model.parameters())
    with delta_torch.budget("1MiB", policy="online", host="1GiB"):
        for _ in range(3):
            model(torch.randn(32, 64)).pow(2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    loaded = saved(model.state_dict())
    assert all(torch.equal(loaded[name], before[name]) for name in before)
    model(torch.randn(32, 64)).sum().backward()
    optimizer.step()
