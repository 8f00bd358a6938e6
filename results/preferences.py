"""The model of stories learns from rewards.

Half of the prompts ask who *gave* a thing, which the model was never asked
before, half who *has* it.  Three programs reward an answer: one asks for
exactly the right answer, one shuffles these rewards among the answers to a
prompt, and one is content if the right name occurs somewhere.
"""

import copy
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
from results.story_questions import SIX, Asked, ask_owner, spell
from results.tuning import accuracy, encode, end_of, say

FOLDER = ROOT / "coursekit/assets/tuning"
SHIPPED = FOLDER / "giver-questions.tsv"
LONGEST = 12  # tokens of an answer
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


def text(tokenizer: Any, answer: Sequence[int]) -> str:
    """An answer without what ends it."""
    return str(tokenizer.decode(answer)).strip()


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
    """Learn from rewards, with every seed."""
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    write_pairs()
    with record("preferences", args.seeds, [SHIPPED]) as metrics:
        first, tokenizer = coursekit.load_tuned("stories-answers")
        metrics |= {
            "settings": {
                "steps": STEPS,
                "prompts": PROMPTS,
                "group": GROUP,
                "rate": RATE,
                "held out": N_HELD_OUT,
            },
            "before": before(first, tokenizer),
            "rewards": {name: [] for name in REWARDS},
        }
        for seed in args.seeds:
            for name, (check, shuffle) in REWARDS.items():
                found = rewarded(first, tokenizer, check, shuffle, seed)
                metrics["rewards"][name].append(found)
                print(name, seed, found, flush=True)


if __name__ == "__main__":
    main()
