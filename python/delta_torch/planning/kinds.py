"""PyTorch's operators: the kind of each, by which it is priced, beside what a run knows of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .. import _C

# By the operator's name without its namespace, overload and trailing underscore; of several
# endings the first that fits. What is in no list is elementwise.
_BY_NAME: dict[str, frozenset[str]] = {
    "matmul": frozenset(
        "mm addmm bmm baddbmm addbmm dot vdot mv addmv _scaled_mm _int_mm linear".split()
    ),
    "embedding": frozenset(
        "embedding embedding_dense_backward embedding_bag _embedding_bag index index_select gather "
        "index_add index_put _unsafe_index_put _index_put_impl index_copy index_fill scatter "
        "scatter_add scatter_reduce take nonzero masked_select slice_backward select_backward "
        "sort topk".split()
    ),
    "softmax": frozenset(
        "_softmax _softmax_backward_data _log_softmax _log_softmax_backward_data logsumexp "
        "_safe_softmax nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward "
        "cumsum cumprod".split()
    ),
    "reduction": frozenset(
        "sum mean amax amin max min any all prod var std var_mean norm linalg_vector_norm argmax "
        "argmin _foreach_norm".split()
    ),
    "pooling": frozenset(
        "avg_pool2d avg_pool2d_backward max_pool2d_with_indices max_pool2d_with_indices_backward "
        "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward upsample_bilinear2d "
        "upsample_bilinear2d_backward upsample_nearest2d upsample_nearest2d_backward".split()
    ),
    "random": frozenset(
        "bernoulli native_dropout rand rand_like randn randn_like normal uniform randint "
        "randint_like randperm exponential".split()
    ),
}
_NOTHING = frozenset(
    "empty empty_like empty_strided new_empty new_empty_strided empty_permuted _local_scalar_dense "
    "resize set is_same_size _unsafe_view".split()
)


def kind_of(name: str) -> str:
    """The kind of an operator, by its name without namespace: "matmul" of "addmm"."""
    name = name.removesuffix("_")
    for kind, names in _BY_NAME.items():
        if name in names:
            return kind
    if name in _NOTHING:
        return "nothing"
    if "attention" in name:
        return "attention"
    if "convolution" in name:
        return "convolution"
    if "norm" in name and not name.startswith("_foreach"):
        return "normalisation"
    if name.startswith(("_foreach_", "_fused_", "_amp_foreach")):
        return "optimizer"
    return "elementwise"


@dataclass(frozen=True)
class Operator:
    """What has to be known of an operator: its kind, and what a run knows of it."""

    name: str  # "aten::addmm"
    kind: str
    arguments: list[str]  # their names, in order
    written: list[bool]  # by argument
    running: list[bool]  # by argument: written where `conditions` hold
    conditions: list[int]  # the arguments that say, all of them, that it trains
    random: bool  # draws from a generator
    statistics: bool  # writes running statistics, on which its outputs do not depend
    advances: bool  # what it writes where `conditions` hold is a state: not repeated then
    any_order: bool  # an accelerator may add in another order when it is repeated
    repeatable: bool  # neither gives an argument another size, nor may hide a tensor in one
    composite: bool  # made of others
    unseen: bool  # that, or metadata alone


def look_up(func: torch._ops.OpOverload) -> Operator:
    """What the extension knows of an operator, by its schema."""
    schema = func._schema
    return Operator(
        name=schema.name,
        kind=kind_of(schema.name.rpartition("::")[2]),
        arguments=[a.name for a in schema.arguments],
        **_C.operator_rules(schema.name, schema.overload_name),
    )


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of an argument or result: itself, or those in lists and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part)
