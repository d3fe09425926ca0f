"""Budgets as people write them."""

from __future__ import annotations

import numpy as np
import pytest

import delta_torch
from delta_torch import host_memory
from delta_torch.options import Options
from delta_torch.sizes import Share, format_bytes, parse_budget, parse_host


@pytest.mark.parametrize(
    ("written", "count"),
    [
        ("4GiB", 4 * 2**30),
        ("1.5 GB", 1_500_000_000),
        ("512MiB", 512 * 2**20),
        (" 64 kib ", 64 * 1024),
        (".5TiB", 2**39),
        ("10 B", 10),
        ("7 KB", 7000),
        (123456, 123456),
        (np.int64(5), 5),
    ],
)
def test_bytes(written, count: int) -> None:
    assert parse_budget(written) == count
    assert parse_host(written) == count


@pytest.mark.parametrize(
    ("written", "share"),
    [
        (0.4, 0.4),
        ("40%", 0.4),
        ("12.5 %", 0.125),
        ("100%", 1.0),
        (1.0, 1.0),
        (np.float32(0.5), 0.5),
    ],
)
def test_shares(written, share: float) -> None:
    assert parse_budget(written) == Share(pytest.approx(share))


def test_share_of_a_peak() -> None:
    assert Share(0.4).bytes_of(1001) == 400


@pytest.mark.parametrize(
    "written",
    [
        "4 GigaBytes?", "4", "GiB", "", "-4GiB", "4GiB 5GiB", "1e3 MB", "nan", "0%", "101%", "0 B",
        "0.1 B", "65 TiB", 0, -1, 2**47, 0.0, -0.4, 1.5, 4e9, float("nan"), float("inf"), True,
        False, None, [4], b"4GiB", 1j,
    ],
)  # fmt: skip
def test_anything_else_is_one_sentence(written) -> None:
    with pytest.raises(ValueError) as error:
        parse_budget(written)
    text = str(error.value)
    assert repr(written) in text
    assert "\n" not in text and len(text) < 200


@pytest.mark.parametrize("written", [-1, 0.4, "40%", True, None, "much"])
def test_host_memory_is_bytes(written) -> None:
    with pytest.raises(ValueError, match="host memory|memory is"):
        parse_host(written)


def test_no_host_memory() -> None:
    assert parse_host(0) == parse_host("0 B") == 0


def test_host_memory_where_nobody_says_how_much(monkeypatch) -> None:
    assert parse_host("auto") is None
    assert Options(device="cpu").host == 0
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    monkeypatch.setattr(host_memory, "free_memory", lambda: 8 << 30)
    assert host_memory.usual_host("cpu") == 0
    assert host_memory.usual_host("cuda") == 4 << 30
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert host_memory.usual_host("cuda") == 1 << 30


@pytest.mark.parametrize(
    ("groups", "free"),
    [
        ({}, 1000 << 10),
        ({"/sys/fs/cgroup": ("max", "7", "inactive_file 3")}, 1000 << 10),
        ({"/sys/fs/cgroup/a/b": ("5000", "4000", "anon 9\ninactive_file 300")}, 1300),
        (
            {
                "/sys/fs/cgroup/a/b": ("90000", "4000", "inactive_file 0"),
                "/sys/fs/cgroup/a": ("9000", "4000", "inactive_file 0"),
            },
            5000,
        ),
        ({"/sys/fs/cgroup/a": ("3000", "4000", "inactive_file 0")}, 0),
    ],
)
def test_free_memory_is_what_the_limits_leave(monkeypatch, groups: dict, free: int) -> None:
    files = {
        "/proc/meminfo": "MemTotal: 5000 kB\nMemAvailable:  1000 kB",
        "/proc/self/cgroup": "1:cpu:/x\n0::/a/b",
    }
    for group, texts in groups.items():
        for name, text in zip(("max", "current", "stat"), texts, strict=True):
            files[f"{group}/memory.{name}"] = text
    monkeypatch.setattr(host_memory, "_lines", lambda file: files.get(str(file), "").splitlines())
    assert host_memory.free_memory() == free


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (412 * 2**20, "412 MiB"),
        (3.2 * 2**30, "3.2 GiB"),
        (5 * 2**40, "5.0 TiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_for_people(count: float, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"size": "much"}, "a budget is a number with a unit"),
        ({"size": "1GiB", "host": -1}, "memory is 0 bytes or more"),
        ({"size": "1GiB", "policy": "best"}, "there is no policy 'best'; there are unmanaged, "),
        ({"size": "1GiB", "steps": "epochs"}, "steps is 'optimizer' or 'manual'"),
        ({"size": "1GiB", "on_oom": "lift"}, "on_oom is 'raise' or 'abort', not 'lift'"),
    ],
)
def test_budget_refuses_at_once(arguments: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        delta_torch.budget(**arguments)
