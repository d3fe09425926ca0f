"""What a plan predicts of two unmodified PyTorch models on this machine's CPU, and what their steps
take under these budgets; prints both as JSON, by model and part of the peak.

"managing" is what a run with memory to spare takes longer, as a part of the step: there nothing leaves.
A step is recorded with its operators' times, and replayed. Measured is the processor time of the
fastest step, as other work only adds to it: rounds with and without a budget in turn. One thread.
"""

import argparse
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python/tests"), str(ROOT / "python/bench")]

import delta_torch  # noqa: E402
import torch  # noqa: E402
from real_models import torchvision_model, training_of  # noqa: E402
from time_for_memory import fastest  # noqa: E402
from training import SEED, measured  # noqa: E402

HOST = "8GiB"
LEARNING, STEPS, ROUNDS = 8, 6, 4


def bert():
    from transformers import BertConfig, BertForSequenceClassification

    model = BertForSequenceClassification(BertConfig(
        num_hidden_layers=4, hidden_size=256, num_attention_heads=4, intermediate_size=1024,
        vocab_size=1000))
    text, labels = torch.randint(0, 1000, (8, 128)), torch.randint(0, 2, (8,))
    return model, lambda: model(input_ids=text, labels=labels).loss


MODELS = {
    "EfficientNet-B0, 96 x 96, batch 16": lambda: torchvision_model("efficientnet_b0", 96, 16),
    "BERT, 4 layers of 256, 8 x 128 tokens": bert,
}


def under(make, size):
    """Seconds of the fastest step in that budget, and operators recomputed a step; None: it does not
    fit."""
    try:
        with delta_torch.budget(size, policy="adaptive", host=HOST) as run:
            took = fastest(make, STEPS, LEARNING)
    except torch.OutOfMemoryError:
        return None
    report = run.report()
    return took, report.recomputes / report.steps


def compared(make, parts):
    peak = measured(make, 2).peak_bytes
    torch.manual_seed(SEED)
    training = make()
    recording = delta_torch.record(lambda: training.step(0), repeats=5)
    (plan,) = delta_torch.plan(recording, device="cpu", shares=parts, host=HOST).batches
    said = {part: min(plan.points, key=lambda p: abs(p.share - part)) for part in parts}
    plain, ample, managed = [], [], {part: [] for part in parts}
    for _ in range(ROUNDS):
        plain.append(fastest(make, STEPS, LEARNING))
        ample.append(under(make, 4 * peak)[0])
        for part in parts:
            managed[part].append(under(make, int(peak * part)))
    found = {}
    for part in parts:
        ran = [m for m in managed[part] if m is not None]
        took, recomputes = min(ran) if ran else (None, None)
        found[part] = {
            "predicted": said[part].overhead if said[part].fits else None,
            "measured": took and took / min(plain),
            "managing": min(ample) / min(plain) - 1,
            "recomputes": [said[part].recomputes, recomputes],
        }
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+", type=float, help="budgets, of the peak")
    parts = parser.parse_args().parts
    torch.set_num_threads(1)
    print(json.dumps({model: compared(training_of(make), parts) for model, make in MODELS.items()}))


if __name__ == "__main__":
    main()
