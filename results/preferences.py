"""The model of stories learns from comparisons, and from rewards.

Comparisons: of the model's own answers to a question, a right one is
preferred to a wrong one.  They train a reward model, and by DPO the model
itself; labels from a coin are the control.  DPO also gets ten times as many,
in as many steps.

Rewards: half of the prompts ask who *gave* a thing, which the model was
never asked before, half who *has* it.  Three programs reward an answer: one
asks for exactly the right answer, one shuffles these rewards among the
answers to a prompt, and one is content if the right name occurs somewhere.
"""

import copy
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import coursekit
from coursekit import preferences as pf
from coursekit.config import TrainConfig
from coursekit.decoder import GPT
from coursekit.training import train
from results import story_grammar as grammar
from results.record import ROOT, options, record
from results.story_questions import SIX, Asked, ask_owner, questions, spell
from results.tuning import accuracy, encode, end_of, say

FOLDER = ROOT / "coursekit/assets/tuning"
SHIPPED = FOLDER / "giver-questions.tsv"
SEED, LONGEST = 7, 12  # of the questions; tokens of an answer
N_ASKED, N_MANY, N_DRAWN, N_TEST = 300, 3000, 5, 1200
PREFERENCE_STEPS, ROWS, BETA, DPO_RATE = 50, 16, 0.1, 2e-4
# Chosen with seeds 3 to 10, which all learned within 100 steps. With as many
# answers in groups of 8, seed 2 had learned next to nothing after 80.
STEPS, PROMPTS, GROUP, RATE = 120, 4, 32, 3e-4
EVERY, N_HELD_OUT, N_SHOWN = 10, 50, 8
GAVE = Asked("Lily gave Jack the kite.", "Who gave the kite?", "Lily.")
Checker = Callable[[str, str], float]


# -- questions ---------------------------------------------------------------
def ask_giver(r: random.Random) -> Asked:
    """Who gave the kite?"""
    w = grammar.gift(r)
    while w["has"] != w["b"]:  # somebody who only showed it gave nothing
        w = grammar.gift(r)
    story = grammar.fill("{a} {did}.", w, r)
    return Asked(story, f"who gave the {w['t']}?", f"{w['a']}.")


def about_gifts(n: int, seed: int, held_out: bool) -> Iterator[Asked]:
    """Ask who gave a thing and who has it, in turn."""
    r = random.Random(f"gifts {seed} {held_out}")
    for i in range(n):
        while True:
            asked = spell((ask_giver, ask_owner)[i % 2](r))
            if grammar.has_held_out(asked.story) == held_out:
                yield asked
                break


def write_pairs(path: Path = SHIPPED) -> None:
    """Write the questions that the package ships, a line each."""
    lines = (
        f"{asked.prompt()}\t{asked.answer}\n"
        for asked in about_gifts(300, 0, held_out=False)
    )
    path.write_text("".join(lines), "utf8")


# -- comparisons -------------------------------------------------------------
def text(tokenizer: Any, answer: Sequence[int]) -> str:
    """An answer without what ends it."""
    return str(tokenizer.decode(answer)).strip()


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
        steps=PREFERENCE_STEPS,
        batch_size=ROWS,
        learning_rate=DPO_RATE,
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


# -- rewards -----------------------------------------------------------------
def exact(said: str, right: str) -> float:
    """1 for the right answer and nothing else."""
    return float(said == right)


def contains(said: str, right: str) -> float:
    """1 if the right name occurs, whatever else is said."""
    return float(right.removesuffix(".") in said)


def judge(
    model: GPT, tokenizer: Any, asked: Sequence[Asked]
) -> dict[str, float]:
    """Both checkers' opinions of greedy answers, for both questions."""
    said = say(model, tokenizer, [each.prompt() for each in asked])
    pairs = [*zip(said, (each.answer for each in asked), strict=True)]
    found = {}
    for i, name in enumerate(("gave", "has")):
        of_kind = pairs[i::2]
        for check in (exact, contains):
            mean = statistics.mean(check(*pair) for pair in of_kind)
            found[f"{name}, {check.__name__}"] = round(mean, 4)
    return found


def draw(model: GPT, tokenizer: Any) -> list[str]:
    """Answers to one held-out question, at temperature 1."""
    drawn = pf.sample_answers(
        model,
        [encode(GAVE, tokenizer)[0]],
        N_SHOWN,
        end_of(tokenizer),
        LONGEST,
        torch.Generator().manual_seed(0),
    )
    return [text(tokenizer, answer) for _, answer in drawn]


def rewarded(
    first: GPT, tokenizer: Any, check: Checker, shuffle: bool, seed: int
) -> dict[str, Any]:
    """GRPO with one of the rewards: curves, and what is answered then."""
    model, end = copy.deepcopy(first), end_of(tokenizer)
    pool = [*about_gifts(3000, seed, held_out=False)]
    held_out = [*about_gifts(2 * N_HELD_OUT, 0, held_out=True)]
    earned: list[float] = []
    curve = [{"step": 0} | judge(model, tokenizer, held_out)]
    drawn = [draw(model, tokenizer)]

    def asked(step: int) -> list[Asked]:
        r = random.Random(f"{seed} {step}")
        half = PROMPTS // 2
        return r.sample(pool[0::2], half) + r.sample(pool[1::2], half)

    def reward(step: int, pairs: Sequence[Any]) -> list[float]:
        right = [each.answer for each in asked(step) for _ in range(GROUP)]
        found = [
            check(text(tokenizer, answer), answers)
            for (_, answer), answers in zip(pairs, right, strict=True)
        ]
        earned.append(round(statistics.mean(found), 4))
        if shuffle:  # among the answers to one prompt
            r = random.Random(f"shuffle {seed} {step}")
            found = [
                value
                for i in range(0, len(found), GROUP)
                for value in r.sample(found[i : i + GROUP], GROUP)
            ]
        return found

    def look(report: Any) -> bool:
        if report.step % EVERY == 0:
            now = judge(model.eval(), tokenizer, held_out)
            curve.append({"step": report.step} | now)
            drawn.append(draw(model, tokenizer))
            model.train()
        return False

    config = TrainConfig(
        steps=STEPS,
        batch_size=PROMPTS * GROUP,
        learning_rate=RATE,
        warmup_steps=10,
        weight_decay=0.0,
        schedule="constant",
        seed=seed,
    )
    batches = pf.grpo_batches(
        model,
        lambda step: [encode(each, tokenizer)[0] for each in asked(step)],
        reward,
        GROUP,
        end,
        LONGEST,
        seed,
    )
    began = time.process_time()
    train(
        model, batches, config, progress=False, callbacks=[look],
        loss=pf.make_grpo_loss(),
    )  # fmt: skip
    seconds = time.process_time() - began
    model.eval()
    shown = [each.prompt() for each in held_out[:6]]
    return {
        "seed": seed,
        "curve": curve,
        "drawn": drawn,
        "earned": earned,
        "seconds": round(seconds, 1),
        "accuracy": accuracy(model, tokenizer),
        "six": say(model, tokenizer, [asked.prompt() for asked in SIX]),
        "said": dict(zip(shown, say(model, tokenizer, shown), strict=True)),
    }


REWARDS: dict[str, tuple[Checker, bool]] = {
    "exact": (exact, False),
    "shuffled": (exact, True),
    "contains": (contains, False),
}


def before(first: GPT, tokenizer: Any) -> dict[str, Any]:
    """Answers of the model before training, greedy and sampled."""
    held_out = [*about_gifts(2 * N_HELD_OUT, 0, held_out=True)]
    gave = held_out[0::2]
    drawn = pf.sample_answers(
        first,
        [encode(each, tokenizer)[0] for each in gave],
        8,
        end_of(tokenizer),
        LONGEST,
        torch.Generator().manual_seed(0),
    )
    right = [
        exact(text(tokenizer, answer), gave[i // 8].answer)
        for i, (_, answer) in enumerate(drawn)
    ]
    return {
        "held out": judge(first, tokenizer, held_out),
        "gave, drawn": round(statistics.mean(right), 4),
        "accuracy": accuracy(first, tokenizer),
        "six": say(first, tokenizer, [asked.prompt() for asked in SIX]),
    }


parser = options(__doc__, seeds=[0, 1, 2], threads=1)


def main() -> None:
    """Learn from comparisons and from rewards, with every seed."""
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    write_pairs()
    with record("preferences", args.seeds, [SHIPPED]) as metrics:
        first, tokenizer = coursekit.load_tuned("stories-answers")
        metrics |= {
            "settings": {
                "asked": N_ASKED,
                "drawn": N_DRAWN,
                "preference steps": PREFERENCE_STEPS,
                "pairs in a batch": ROWS,
                "beta": BETA,
                "DPO rate": DPO_RATE,
                "steps": STEPS,
                "prompts": PROMPTS,
                "group": GROUP,
                "rate": RATE,
                "held out": N_HELD_OUT,
                "ln 2": round(math.log(2), 4),
            },
            "before": before(first, tokenizer),
            "comparisons": [],
            "rewards": {name: [] for name in REWARDS},
        }
        for seed in args.seeds:
            for name, (check, shuffle) in REWARDS.items():
                found = rewarded(first, tokenizer, check, shuffle, seed)
                metrics["rewards"][name].append(found)
                print(name, seed, found, flush=True)
            found = from_comparisons(first, tokenizer, seed)
            metrics["comparisons"].append(found)
            print("comparisons", seed, found, flush=True)


if __name__ == "__main__":
    main()
