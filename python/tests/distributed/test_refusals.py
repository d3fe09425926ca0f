"""What is not tested under a run is refused by its name, and errors begin with the rank."""

from __future__ import annotations

import pytest

REFUSED = {
    "backend": "'c10d::allreduce_' can't run within delta_torch.budget: delta orders collectives "
    "of the backend gloo alone; leave the run first",
    "sparse": "'c10d::allreduce_' can't run within delta_torch.budget: delta orders collectives of "
    "dense tensors alone; leave the run first",
    "operator": "'symm_mem::one_shot_all_reduce' can't run within delta_torch.budget: it was not "
    "tested there; leave the run first",
    "builtin_hook": "the communication hook BuiltinCommHookType.FP16_COMPRESS",
    "old_fsdp": "does not manage FullyShardedDataParallel yet",
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(ranks, name: str) -> None:
    for rank, said in enumerate(ranks.run(f"refusal_cases.{name}")):
        for sentence in said if isinstance(said, list) else [said]:
            assert REFUSED[name] in sentence
            if sentence.startswith("delta: "):
                assert sentence.startswith(f"delta: rank {rank}: ")


def test_an_unknown_operator_writes_all_it_is_given(ranks) -> None:
    for without, within in ranks.run("refusal_cases.unknown"):
        assert within == without


def test_out_of_memory_names_rank_and_collective(ranks) -> None:
    for rank, sentence in enumerate(ranks.run("refusal_cases.out_of_memory")):
        assert f"delta: out of memory. rank {rank}: " in sentence
        assert "in a collective)" in sentence
