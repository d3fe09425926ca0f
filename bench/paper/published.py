"""What the DELTA paper (Tang et al. 2022) published, as its tables and figures have it: MB are as
printed there, times in seconds or, of c_s and c_r, microseconds."""

# Memory of ResNet-50 by batch; None: out of memory. (Fig. "memory consumption", its table.)
RESNET50_MB = {
    "baseline": {128: 11482, 256: 21846, 512: 42574, 1024: None, 2048: None},
    "DTR": {128: 10771, 256: 19264, 512: 25220, 1024: 32943, 2048: None},
    "DELTA": {128: 4210, 256: 8597, 512: 16980, 1024: 25894, 2048: 64119},
}

# Memory of typical models. The saving of BERT is 4.1 % by the table and "nearly 7.5 %" by the text.
MODELS_MB = {
    "ResNet-101": {"baseline": 16553, "DTR": 16059, "DELTA": 4577},
    "ResNeXt-50": {"baseline": 14726, "DTR": 13988, "DELTA": 5356},
    "BERT-base": {"baseline": 19845.4, "DTR": 19071.3, "DELTA": 19023.5},
}

# The largest batch on one A100 with 80 GB, and the memory that it took in GB.
MAX_BATCH = {
    "ResNet-50": {"baseline": (891, 71.54), "DTR": (1072, 32.87), "DELTA": (1814, 62.6)},
    "ResNet-101": {"baseline": (594, 71.54), "DTR": (761, 28.65), "DELTA": (1336, 45.05)},
}

# Seconds a step, ResNet-50, batch 128.
STEP_SECONDS = {"baseline": 0.450, "DELTA": 0.551, "DELTA without overlap": 0.667}

# c_s and c_r of tensors, us. What can't be: a batch norm's output that takes 96 ms to copy has, at
# 22.4 GB/s, some 2 GB, and can't be computed in 6 us: that is the launch, not the kernel.
COSTS_US = {
    "BNForward(4034)": (96318, 6),
    "BNForward(6463)": (22230, 4),
    "BNForward(6526)": (22237, 4),
    "BNForward(6590)": (11148, 4),
    "ConvForward(96640)": (22805, 69),
    "PoolingForward(33219)": (11641, 25),
}

FINAL_LOSS = {"baseline": 1.5947, "DELTA": 1.6054}


def saving(numbers):
    """Of the baseline, which part DELTA saves."""
    return 1 - numbers["DELTA"] / numbers["baseline"]
