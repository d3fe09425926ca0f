"""Trains BERT-base with 4 layers and a head that finds spans, on made text, without a budget and under
half of its peak; prints both runs' losses as JSON.

The text: random words with a marked span of some of them; the head is to find where it begins and ends.
In a quarter of the texts the answer is all of it, by chance, so that losses do not end at nought.
"""

import json

import delta_torch
import torch
from transformers import BertConfig, BertForQuestionAnswering

WORDS, TOKENS, BATCH, STEPS, PERCENT = 1000, 64, 8, 40, 50


def batches():
    random = torch.Generator().manual_seed(7)
    for _ in range(STEPS):
        text = torch.randint(10, WORDS, (BATCH, TOKENS), generator=random)
        start = torch.randint(1, TOKENS - 12, (BATCH,), generator=random)
        end = start + torch.randint(1, 8, (BATCH,), generator=random)
        for row in range(BATCH):
            text[row, start[row]], text[row, end[row]] = 1, 2
            if torch.rand(1, generator=random) < 0.25:
                start[row], end[row] = 0, TOKENS - 1
        yield text, start, end


def train(steps):
    """Every step's loss."""
    torch.manual_seed(3)
    model = BertForQuestionAnswering(BertConfig(num_hidden_layers=4, vocab_size=WORDS))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-5, foreach=False)
    losses = []
    for text, start, end in list(batches())[:steps]:
        optimizer.zero_grad()
        loss = model(input_ids=text, start_positions=start, end_positions=end).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def managed(budget, steps, **options):
    with delta_torch.budget(budget, **options) as run:
        losses = train(steps)
    return losses, run.report().peak_bytes


def main():
    torch.set_num_threads(2)
    plain = train(STEPS)  # by PyTorch alone
    _, peak = managed(None, 2)
    losses, used = managed(peak * PERCENT // 100, STEPS, policy="adaptive", host="8GiB")
    print(json.dumps({"plain": plain, "managed": losses, "percent": PERCENT, "peak": peak,
                      "managed_peak": used}))


if __name__ == "__main__":
    main()
