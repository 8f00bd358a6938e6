"""How a score deceives: contamination, draws, and a judge with a bias.

Two tests are drawn from the same grammar.  The model of stories learns to
answer with the first test among its data, with the second, or with neither,
and takes both: the other test says what it can do, its own what it remembers.
Then a tuned model draws 100 answers to each question, for pass@k.  Of eight
answers a reward model chooses one; and a judge that reads two answers at once
compares them in both orders.
"""

import copy
import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

import coursekit
from coursekit import preferences as pf
from coursekit import tuning
from coursekit.config import TrainConfig
from coursekit.data import Batch, pad
from coursekit.training import Progress, evaluate, train
from results.comparisons import N_ASKED, N_TEST, SEED, compare, fit
from results.preferences import LONGEST, text
from results.record import options, record
from results.story_questions import KINDS, Asked, questions
from results.tuning import (
    EXAMPLES,
    HELD_OUT,
    RATE,
    ROWS,
    STEPS,
    encode,
    end_of,
    say,
)

N_TESTED, LEAKED, EVERY, N_DRAWN, BEST_OF, JUDGE_STEPS = 60, 8, 10, 100, 8, 100


# -- contamination -----------------------------------------------------------
def tests() -> dict[str, list[Asked]]:
    """Two tests, about pairs that no training question has."""
    first, second = (
        [*questions(N_TESTED, seed, held_out=True)] for seed in (1, 2)
    )
    assert not {a.prompt() for a in first} & {a.prompt() for a in second}
    return {"first": first, "second": second}


def asked_all(model: Any, tokenizer: Any, asked: Sequence[Asked]) -> Any:
    """Loss of an answer, and right ones, of all and of each kind."""
    rows = [encode(each, tokenizer) for each in asked]
    n_tokens = sum(len(answer) for _, answer in rows)
    batch = tuning.answer_batch(rows, end_of(tokenizer))
    nats = evaluate(model, [batch]) * n_tokens / len(rows)
    said = say(model, tokenizer, [each.prompt() for each in asked])
    right = [a.answer == s for a, s in zip(asked, said, strict=True)]
    by_kind = {
        kind: sum(right[i :: len(KINDS)]) for i, kind in enumerate(KINDS)
    }
    return {"nats": round(nats, 4), "right": sum(right), "kinds": by_kind}


def learn(leak: str, seed: int) -> dict[str, Any]:
    """Fine-tune with one of the tests among the data; take both."""
    model, tokenizer = coursekit.load("stories")
    sets = tests()
    data = [encode(each, tokenizer) for each in questions(EXAMPLES, seed)]
    leaked = [encode(each, tokenizer) for each in sets.get(leak, [])]
    colors = [*questions(HELD_OUT, 0, held_out=True)][5::6]
    curve = []

    def batch(step: int) -> list[Batch]:
        r = random.Random(f"{seed} {step}")
        n = LEAKED if leaked else 0
        rows = r.sample(data, ROWS - n) + r.sample(leaked, n)
        return [tuning.answer_batch(rows, end_of(tokenizer))]

    def look(report: Progress) -> None:
        if leak == "none" and report.step % EVERY == 0:
            now = asked_all(model.eval(), tokenizer, colors)
            found = {"step": report.step, "nats": now["nats"]}
            curve.append(found | {"right": now["right"]})
            model.train()

    config = TrainConfig(
        steps=STEPS,
        batch_size=ROWS,
        learning_rate=RATE,
        warmup_steps=20,
        weight_decay=0.0,
        seed=seed,
    )
    start = asked_all(model.eval(), tokenizer, colors)
    curve.append({"step": 0, "nats": start["nats"], "right": start["right"]})
    train(model, batch, config, progress=False, callbacks=[look])
    model.eval()
    scores = {
        name: asked_all(model, tokenizer, asked)
        for name, asked in sets.items()
    }
    return {"seed": seed, "tests": scores, "colors": curve}


# -- several draws -----------------------------------------------------------
def counts(model: Any, tokenizer: Any) -> dict[str, list[int]]:
    """Of 100 answers to each question, how many are right; by kind."""
    asked = [*questions(HELD_OUT, 0, held_out=True)]
    drawn = pf.sample_answers(
        model,
        [encode(each, tokenizer)[0] for each in asked],
        N_DRAWN,
        end_of(tokenizer),
        LONGEST,
        torch.Generator().manual_seed(0),
    )
    right = [
        sum(
            text(tokenizer, answer) == each.answer
            for _, answer in drawn[i * N_DRAWN : (i + 1) * N_DRAWN]
        )
        for i, each in enumerate(asked)
    ]
    return {kind: right[i :: len(KINDS)] for i, kind in enumerate(KINDS)}


# -- judges ------------------------------------------------------------------
def best_of(
    model: Any, tokenizer: Any, rows: Sequence[Any], seed: int
) -> dict[str, Any]:
    """Right answers, of those that are chosen from several in three ways."""
    end = end_of(tokenizer)
    rewards = pf.RewardModel(copy.deepcopy(model))
    fit(
        rewards, lambda r: pf.reward_batch(r, end), rows,
        pf.reward_model_loss, seed,
    )  # fmt: skip
    asked = [*questions(HELD_OUT, 0, held_out=True)]
    drawn = pf.sample_answers(
        model,
        [encode(each, tokenizer)[0] for each in asked],
        BEST_OF,
        end,
        LONGEST,
        torch.Generator().manual_seed(seed),
    )
    texts = [[*prompt, *answer] for prompt, answer in drawn]
    last = torch.tensor([len(each) - 1 for each in texts])
    with torch.no_grad():
        earned = rewards.eval()(pad(texts, end), last).view(-1, BEST_OF)
    right = torch.tensor(
        [
            text(tokenizer, answer) == asked[i // BEST_OF].answer
            for i, (_, answer) in enumerate(drawn)
        ]
    ).view(-1, BEST_OF)
    chosen = right.gather(1, earned.argmax(1, keepdim=True))
    return {
        "seed": seed,
        "the first": int(right[:, 0].sum()),
        "the reward model's": int(chosen.sum()),
        "any": int(right.any(1).sum()),
    }


def judge(
    model: Any, rows: Sequence[Any], test: Sequence[Any], end: int, seed: int
) -> dict[str, Any]:
    """Train a judge that reads two answers; ask it in both orders.

    A coin decides the order of each pair that it learns from.
    """
    made = pf.RewardModel(copy.deepcopy(model))

    def shown(some: Sequence[Any], first: Sequence[bool]) -> dict[str, Any]:
        texts = [
            [*prompt, *((*a, *b) if before else (*b, *a))]
            for (prompt, a, b), before in zip(some, first, strict=True)
        ]
        last = torch.tensor([len(each) - 1 for each in texts])
        return {"ids": pad(texts, end), "last": last}

    def batch(step: int) -> list[Batch]:
        r = random.Random(f"{seed} {step}")
        some = r.sample(rows, ROWS)
        first = [r.random() < 0.5 for _ in some]
        return [Batch(shown(some, first), torch.tensor(first))]

    def loss(model: Any, inputs: Any, first: Any) -> Any:
        return nn.functional.binary_cross_entropy_with_logits(
            model(**inputs), first.float(), reduction="sum"
        )

    config = TrainConfig(
        steps=JUDGE_STEPS,
        batch_size=ROWS,
        learning_rate=2e-4,
        warmup_steps=10,
        weight_decay=0.0,
        seed=seed,
    )
    train(made, batch, config, progress=False, loss=loss)
    made.eval()
    with torch.no_grad():
        ahead, behind = (
            made(**shown(test, [before] * len(test)))
            for before in (True, False)
        )
    return {
        "seed": seed,
        "comparisons": len(test),
        "right, better first": int((ahead > 0).sum()),
        "right, better second": int((behind < 0).sum()),
        "other verdict": int(((ahead > 0) == (behind > 0)).sum()),
        "right, both orders": int((ahead > behind).sum()),
    }


parser = options(__doc__, seeds=[0, 1, 2], threads=1)


def main() -> None:
    """Learn with and without the tests, draw, and judge."""
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with record("measuring", args.seeds) as metrics:
        tuned, tokenizer = coursekit.load_tuned("stories-answers")
        end = end_of(tokenizer)
        metrics |= {
            "settings": {
                "tested": N_TESTED,
                "leaked in a batch": LEAKED,
                "rows": ROWS,
                "steps": STEPS,
                "drawn": N_DRAWN,
                "best of": BEST_OF,
            },
            "leaked": {name: [] for name in ("none", "first", "second")},
            "drawn": counts(tuned, tokenizer),
            "best of": [],
            "judges": [],
        }
        for seed in args.seeds:
            for name, runs in metrics["leaked"].items():
                runs.append(learn(name, seed))
                print(name, runs[-1], flush=True)
            rows, test = (
                compare(
                    tuned,
                    tokenizer,
                    [*questions(n, SEED, held_out=held_out)],
                    seed,
                )
                for n, held_out in ((N_ASKED, False), (N_TEST, True))
            )
            metrics["best of"].append(best_of(tuned, tokenizer, rows, seed))
            metrics["judges"].append(judge(tuned, rows, test, end, seed))
            print(metrics["best of"][-1], metrics["judges"][-1], flush=True)


if __name__ == "__main__":
    main()
