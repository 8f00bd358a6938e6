"""The model of stories learns from comparisons of its own answers.

Of the model's own answers to a question, a right one is preferred to a wrong
one.  They train a reward model, and by DPO the model itself; labels from a
coin are the control.  DPO also gets ten times as many, in as many steps.
"""

import copy
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

import coursekit
from coursekit import preferences as pf
from coursekit.config import TrainConfig
from coursekit.decoder import GPT
from coursekit.training import train
from results.preferences import LONGEST, text
from results.record import options, record
from results.story_questions import SIX, Asked, questions
from results.tuning import accuracy, encode, end_of, say

SEED = 7  # of the questions
N_ASKED, N_MANY, N_DRAWN, N_TEST = 300, 3000, 5, 1200
STEPS, ROWS, BETA, RATE = 50, 16, 0.1, 2e-4


def compare(
    model: GPT, tokenizer: Any, asked: Sequence[Asked], seed: int
) -> list[tuple[Any, Any, Any]]:
    """A right and a wrong answer of the model's own to each question.

    Questions that it answered always rightly or always wrongly give none.
    """
    end = end_of(tokenizer)
    generator = torch.Generator().manual_seed(seed)
    found = []
    prompts = [encode(each, tokenizer)[0] for each in asked]
    drawn = pf.sample_answers(model, prompts, N_DRAWN, end, LONGEST, generator)
    for i, each in enumerate(asked):
        own = [answer for _, answer in drawn[i * N_DRAWN : (i + 1) * N_DRAWN]]
        is_right = [text(tokenizer, a) == each.answer for a in own]
        if any(is_right) and not all(is_right):
            pair = own[is_right.index(True)], own[is_right.index(False)]
            found.append((prompts[i], *pair))
    return found


def flipped(comparisons: Sequence[Any], seed: int) -> list[Any]:
    """The same comparisons, labeled by a coin."""
    r = random.Random(f"coin {seed}")
    return [
        (prompt, *((b, a) if r.random() < 0.5 else (a, b)))
        for prompt, a, b in comparisons
    ]


def fit(
    model: Any, batch: Callable[[list[Any]], Any], rows: Sequence[Any],
    loss: Any, seed: int,
) -> list[float]:  # fmt: skip
    """Train on comparisons; the loss of each step."""

    def batches(step: int) -> list[Any]:
        return [batch(random.Random(f"{seed} {step}").sample(rows, ROWS))]

    config = TrainConfig(
        steps=STEPS,
        batch_size=ROWS,
        learning_rate=RATE,
        warmup_steps=10,
        weight_decay=0.0,
        seed=seed,
    )
    return train(model, batches, config, progress=False, loss=loss).losses


def reward_model(
    first: GPT, rows: Sequence[Any], test: Sequence[Any], end: int, seed: int
) -> dict[str, Any]:
    """Train a reward model: how often is it right about new comparisons?"""
    made = pf.RewardModel(copy.deepcopy(first))
    losses = fit(
        made, lambda r: pf.reward_batch(r, end), rows, pf.reward_model_loss,
        seed,
    )  # fmt: skip
    texts = pf.reward_batch(test, end).inputs
    texts = {name: x.flatten(0, 1) for name, x in texts.items()}
    with torch.no_grad():
        better, worse = made.eval()(**texts).view(-1, 2).unbind(1)
    nats = pf.pairwise_loss(better, worse).item()
    return {
        "right": round((better > worse).float().mean().item(), 4),
        "loss": round(nats, 4),
        "losses": [round(loss, 4) for loss in losses[::5]],
    }


def preferred(
    first: GPT, tokenizer: Any, rows: Any, test: Any, seed: int
) -> dict[str, Any]:
    """DPO: what the model answers, and which answers it has made likelier."""
    model, end = copy.deepcopy(first), end_of(tokenizer)
    began = time.process_time()
    losses = fit(
        model, lambda r: pf.dpo_batch(r, first, end), rows,
        pf.make_dpo_loss(BETA), seed,
    )  # fmt: skip
    seconds = time.process_time() - began
    model.eval()
    rows = pf.dpo_batch(test, first, end).inputs
    rows = {name: x.flatten(0, 1) for name, x in rows.items()}
    with torch.no_grad():
        own = pf.answer_log_probs(model, rows["ids"], rows["answers"])
    change = own.sum(1) - rows["reference"]
    better, worse = change.view(-1, 2).unbind(1)
    return {
        "accuracy": accuracy(model, tokenizer),
        "right": round((better > worse).float().mean().item(), 4),
        "change of better": round(better.mean().item(), 3),
        "change of worse": round(worse.mean().item(), 3),
        "losses": [round(loss, 4) for loss in losses[::5]],
        "seconds": round(seconds, 1),
        "six": say(model, tokenizer, [asked.prompt() for asked in SIX]),
    }


def from_comparisons(first: GPT, tokenizer: Any, seed: int) -> dict[str, Any]:
    """A reward model and DPO, with labels and with a coin's."""
    end = end_of(tokenizer)
    rows = compare(first, tokenizer, [*questions(N_ASKED, SEED)], seed)
    many = compare(first, tokenizer, [*questions(N_MANY, SEED)], seed)
    by_coin = flipped(rows, seed)
    test = compare(
        first, tokenizer, [*questions(N_TEST, SEED, held_out=True)], seed
    )
    return {
        "seed": seed,
        "comparisons": len(rows),
        "many comparisons": len(many),
        "held-out comparisons": len(test),
        "reward model": reward_model(first, rows, test, end, seed),
        "coin's reward model": reward_model(first, by_coin, test, end, seed),
        "DPO": preferred(first, tokenizer, rows, test, seed),
        "coin": preferred(first, tokenizer, by_coin, test, seed),
        "many": preferred(first, tokenizer, many, test, seed),
    }


parser = options(__doc__, seeds=[0, 1, 2], threads=1)


def main() -> None:
    """Learn from comparisons, with every seed."""
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with record("comparisons", args.seeds) as metrics:
        first, tokenizer = coursekit.load_tuned("stories-answers")
        metrics |= {
            "settings": {
                "asked": N_ASKED,
                "asked for many": N_MANY,
                "drawn": N_DRAWN,
                "steps": STEPS,
                "pairs in a batch": ROWS,
                "beta": BETA,
                "rate": RATE,
            },
            "runs": [],
        }
        for seed in args.seeds:
            found = from_comparisons(first, tokenizer, seed)
            metrics["runs"].append(found)
            print(seed, found, flush=True)


if __name__ == "__main__":
    main()
