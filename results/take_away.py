"""Take away: the finished model of chapter 9 without one of its parts.

The ladder shows what a part gains when it is added, which depends on the
order.  Here each part is taken out of the finished model, as an edit of its
file, and the rest is trained with the ladder's steps, over three seeds.
Without the mask a model can read its own answers, so that one is measured a
second time where no answer can be read: on the last token of each window.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

from results.ladder import CONTEXT, Corpus, Edits, characters, climb, sample
from results.record import options, record, summary

FINISHED = 9  # the chapter of the finished model
RESIDUAL = [
    ("x = x + self.attention(", "x = self.attention("),
    ("x = x + self.feed_forward(", "x = self.feed_forward("),
]
NORMS = [
    ("        y = self.norm_1(x)\n", "        y = x\n"),
    ("self.feed_forward(self.norm_2(x))", "self.feed_forward(x)"),
    ("self.unembed(self.norm(x))", "self.unembed(x)"),
]
FEED_FORWARD = "        x = x + self.feed_forward(self.norm_2(x))\n"
CAUSAL = "    scores = scores.masked_fill(~mask, -math.inf)\n"
MODELS: list[tuple[str, str, Edits]] = [  # name, label, edits
    ("whole", "the whole model", []),
    (
        "positions",
        "− positions",
        [(" + self.positions(torch.arange(ids.size(1)))", "")],
    ),
    ("residual", "− residual", RESIDUAL),
    ("norm", "− norm", NORMS),
    ("feedforward", "− feed-forward", [(FEED_FORWARD, "")]),
    (
        "nonlinearity",
        "− nonlinearity",
        [("nn.functional.gelu(self.hidden(x))", "self.hidden(x)")],
    ),
    (
        "heads",
        "− heads: one",
        [("self.n_heads = n_heads", "self.n_heads = 1")],
    ),
    ("depth", "− depth: one block", [("in range(n_blocks)", "in range(1)")]),
    ("mask", "− mask (cheats)", [(CAUSAL, "")]),
]


@torch.no_grad()
def last_token_loss(
    file: ModuleType, model: torch.nn.Module, corpus: Corpus
) -> float:
    """Mean loss on the last token of each window: nothing stands behind it."""
    windows = corpus.held_out.unfold(0, CONTEXT + 1, CONTEXT)
    total = 0.0
    for batch in windows.split(64):
        logits = model(batch[:, :-1])[:, -1]
        loss = file.cross_entropy(logits, batch[:, -1]).item()
        total += loss * len(batch)
    return total / len(windows)


def measure(
    corpus: Corpus, seeds: Sequence[int], steps: int, edits: Edits
) -> dict[str, Any]:
    """Both losses over seeds, and the first seed's sample."""
    losses, last, text = [], [], ""
    for seed in seeds:
        file, model, loss = climb(FINISHED, corpus, seed, steps, edits)
        losses.append(round(loss, 4))
        last.append(round(last_token_loss(file, model, corpus), 4))
        text = text or sample(file, model, corpus.tokenizer)
    return {
        "loss": summary(losses),
        "last_token_loss": summary(last),
        "sample": text,
    }


parser = options(__doc__, seeds=[0, 1, 2], steps=2000)


def main() -> None:
    """Train every model with every seed."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    corpus = characters()
    with record("take_away", args.seeds) as metrics:
        metrics["unit"] = "nats per character, held-out tenth"
        metrics["models"] = []
        for name, label, edits in MODELS:
            row = measure(corpus, args.seeds, args.steps, edits)
            metrics["models"].append({"name": name, "label": label, **row})
            print(
                f"{name:12} {row['loss']['values']}"
                f" {row['last_token_loss']['values']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
