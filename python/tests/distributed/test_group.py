"""What ranks tell each other past collectives: reports, shares, timelines and the search for one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import delta_torch


def test_reports_are_gathered(ranks, tmp_path: Path) -> None:
    file = str(tmp_path / "trace.json")
    a, b = ranks.run("group_cases.report", file=file, late_s=0.15)
    group = a["group"]
    assert "group" not in b
    assert group["peaks"] == [a["peak"], b["peak"]]
    assert group["total"] == a["bytes"] + b["bytes"]
    assert a["bytes"] >= 4 * a["gradients"], "each step reduces all gradients"
    assert a["collectives"] == b["collectives"] > 4
    # Rank 0 has waited for rank 1 in each of four steps, but for what is computed meanwhile.
    assert group["slowest"] == 1
    assert group["waited_ns"][1] == 0 and group["waited_ns"][0] > 0.3e9
    assert "the slowest: rank 1" in group["text"]
    assert len(group["json"]["ranks"]) == 2
    assert {p.name for p in tmp_path.iterdir()} == {"trace.rank0.json", "trace.rank1.json"}


def test_a_rank_that_does_not_report_is_named(ranks, tmp_path: Path) -> None:
    file = str(tmp_path / "trace.json")
    a, b = ranks.try_to_run("group_cases.report", file=file, late_s=0, absent=True)
    assert a["result"]["missing"] == [1] and "no report of rank 1" in a["result"]["text"]
    assert "rank 1 failed first: ValueError: injected" in b["trace"]


def test_all_may_ask_at_once(ranks) -> None:
    """Who failed first; and all answer, as none has. One may be late, as another has gone on."""
    for said in ranks.run("group_cases.ask", times=3):
        assert len(said) == 3 and not any("no answer" in sentence for sentence in said), said


@pytest.mark.parametrize("measures", [2, 9])
def test_ranks_agree_on_a_share(ranks, measures: int) -> None:
    """Of the largest peak. One that measures more steps than there are has none, and keeps nobody."""
    a, b = ranks.run("group_cases.share", measures=measures)
    assert 0 <= a["of"] * 6 // 10 - a["budget"] < 64
    if measures == 2:
        assert b == a
    else:
        assert b["budget"] is None


def test_timelines_of_all_ranks(ranks, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    assert ranks.run("group_cases.timeline", file=str(file))[0] == [0, 1]
    events = json.loads(file.read_text())
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {0: "delta, rank 0", 1: "delta, rank 1"}
    # One clock: what ranks compute behind a barrier is behind what the other one did before it.
    at = [[e["ts"] for e in events if e["pid"] == r and e["name"] == "aten::exp"] for r in (0, 1)]
    assert len(at[0]) == len(at[1]) == 5
    for rank in (0, 1):
        for earlier, later in zip(at[rank], at[1 - rank][1:], strict=False):
            assert earlier < later


def test_a_timeline_that_was_cut_off(tmp_path: Path) -> None:
    whole = '[\n{"name":"delta_torch","ph":"M","pid":0,"tid":0,"args":{"rank":0,"unix_ns":%d}}'
    (tmp_path / "t.rank0.json").write_text(whole % 5000 + ',\n{"name":"a","ph":"i","ts":1.5},\n{"na')
    (tmp_path / "t.rank10.json").write_text(whole % 7000 + ',\n{"name":"b","ph":"i","ts":1.5}\n]\n')
    assert delta_torch.merge_timelines(tmp_path / "t.json") == (0, 10)
    events = json.loads((tmp_path / "t.json").read_text())
    assert [(e["pid"], e["ts"]) for e in events if "ts" in e] == [(0, 1.5), (10, 3.5)]
    (tmp_path / "t.rank2.json").write_text("[\n]\n")
    with pytest.raises(ValueError, match="t.rank2.json is no timeline"):
        delta_torch.merge_timelines(tmp_path / "t.json")
    with pytest.raises(FileNotFoundError, match="there is no .*u.rank0.json"):
        delta_torch.merge_timelines(tmp_path / "u.json")


def test_find_budget_tries_the_same_on_all_ranks(ranks) -> None:
    a, b = ranks.run("group_cases.search")
    assert a == b
    results = [result for _, result, _ in a["trials"]]
    assert "out of memory" in results and results[-1] == "confirmed"
    assert all("budget" in error for _, result, error in a["trials"] if result == "out of memory")
