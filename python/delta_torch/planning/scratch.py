"""What kernels take for themselves while they run, where it matters: convolutions on processors.

oneDNN computes convolutions in layouts of its own, so it copies the image, the weight and the
result. That was read off the allocations of PyTorch 2.15's kernels on x86. What cuDNN would take is
chosen while it runs, and is not known here: on GPUs it counts as nothing.
"""

from __future__ import annotations

from typing import Any

import torch

from .kinds import Operator


def workspace(op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Bytes of an operator's own, beside its arguments and results."""
    if op.kind != "convolution" or kwargs or len(args) < 6:
        return 0
    if op.name == "aten::convolution":
        image, weight, made = args[0], args[1], result
        if made.device.type != "cpu" or not _reordered(weight, args[3]):
            return 0
        return weight.nbytes + max(image.nbytes, made.nbytes)
    if op.name == "aten::convolution_backward":
        made, image, weight = args[:3]
        if made.device.type != "cpu" or not _reordered(weight, args[4]):
            return 0
        held = [t.nbytes for t in result if isinstance(t, torch.Tensor)]
        # First the image's gradient, then the weight's.
        for_image = image.nbytes + weight.nbytes + made.nbytes
        for_weight = sum(held) + max(weight.nbytes, image.nbytes + made.nbytes)
        return max(0, max(for_image, for_weight) - sum(held))
    return 0


def _reordered(weight: torch.Tensor, stride: Any) -> bool:
    return weight.dim() == 4 and (weight.shape[2:].numel() > 1 or max(stride) > 1)
