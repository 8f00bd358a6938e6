"""The model of stories learns to look something up, and to read the result.

It is asked who has a thing, without any story.  Some rows show it the call,
some the result of a call and the answer.  A shelf of stories about other
things is between it and the answer; a shelf in which each call finds the
story of another thing is the control.
"""

import random
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

import coursekit
from coursekit import tuning
from coursekit.config import TrainConfig
from coursekit.data import Batch
from coursekit.tools import use_tools
from coursekit.training import train
from results.record import options, record
from results.story_grammar import has_held_out
from results.story_questions import Asked, ask_owner, questions, spell
from results.tuning import FOLDER, LORA_RATE, encode, end_of, measure

ADAPTER = FOLDER / "stories-looks.safetensors"
STEPS, ROWS, EXAMPLES, RANK = 150, 8, 2400, 4  # ROWS of each kind
SHELVES, ON_SHELF = 25, 4


def thing(asked: Asked) -> str:
    """What a question asks about, as the story calls it."""
    return asked.question.removeprefix("Who has the ").removesuffix("?")


def looks(asked: Asked) -> list[tuple[str, str]]:
    """A prompt with its call, and the whole up to the answer."""
    prompt = f"Q: {asked.question} A:"
    call = f"Look: {thing(asked)}"
    return [
        (prompt, call),
        (f"{prompt} {call}\n{asked.story} A:", asked.answer),
    ]


def owners(n: int, seed: int, held_out: bool) -> list[Asked]:
    """Questions who has a thing."""
    r = random.Random(f"owners {seed} {held_out}")
    drawn = (spell(ask_owner(r)) for _ in iter(int, 1))
    right = (a for a in drawn if has_held_out(a.story) == held_out)
    return [next(right) for _ in range(n)]


def learn(seed: int) -> tuple[Any, Any]:
    """Tune the model of stories on calls, results and plain questions."""
    model, tokenizer = coursekit.load("stories")
    plain = [encode(asked, tokenizer) for asked in questions(EXAMPLES, seed)]
    looked = [
        tuning.encode_pair(tokenizer, *pair)
        for asked in owners(EXAMPLES, seed, held_out=False)
        for pair in looks(asked)
    ]
    torch.manual_seed(seed)
    tuning.add_lora(model, RANK)

    def batch(step: int) -> list[Batch]:
        r = random.Random(f"{seed} {step}")
        rows = r.sample(plain, ROWS) + r.sample(looked, ROWS)
        return [tuning.answer_batch(rows, end_of(tokenizer))]

    config = TrainConfig(
        steps=STEPS,
        batch_size=2 * ROWS,
        learning_rate=LORA_RATE,
        warmup_steps=20,
        weight_decay=0.0,
        seed=seed,
    )
    train(model, batch, config, progress=False)
    return model.eval(), tokenizer


class Shelf(NamedTuple):
    """Stories about different things, by thing."""

    asked: dict[str, Asked]

    def look(self, name: str) -> str:
        """The story about a thing."""
        found = self.asked.get(name)
        return found.story if found else "Nothing."

    def look_wrong(self, name: str) -> str:
        """The story about the next thing on the shelf."""
        names = [*self.asked]
        if name not in names:
            return "Nothing."
        return self.look(names[names.index(name) - 1])


def shelves() -> list[Shelf]:
    """Shelves whose names never met in a training question."""
    drawn = iter(owners(40 * SHELVES, 0, held_out=True))
    found = []
    for _ in range(SHELVES):
        asked: dict[str, Asked] = {}
        while len(asked) < ON_SHELF:
            each = next(drawn)
            answers = {a.answer for a in asked.values()}
            if each.answer not in answers:  # a wrong story: a wrong answer
                asked.setdefault(thing(each), each)
        found.append(Shelf(asked))
    return found


def ask(model: Any, tokenizer: Any) -> dict[str, float]:
    """Calls and answers that are right, with each kind of shelf."""

    def say(text: str) -> str:
        return tuning.replies(model, tokenizer, [text])[0]

    def share(values: Sequence[bool]) -> float:
        return round(statistics.mean(values), 4)

    calls, right, wrong, direct = [], [], [], []
    for shelf in shelves():
        for name, asked in shelf.asked.items():
            prompt = f"Q: {asked.question} A:"
            text = use_tools(say, prompt, {"Look": shelf.look})
            calls.append(text.startswith(f"{prompt} Look: {name}\n"))
            right.append(text.endswith(f" A: {asked.answer}"))
            text = use_tools(say, prompt, {"Look": shelf.look_wrong})
            wrong.append(text.endswith(f" A: {asked.answer}"))
            text = say(asked.prompt())
            direct.append(text == asked.answer)
    return {
        "calls": share(calls),
        "right": share(right),
        "another thing's story": share(wrong),
        "with the story": share(direct),
    }


parser = options(__doc__, seeds=[0, 1, 2], threads=1)


def main() -> None:
    """Tune with each seed, ask, and ship the first seed's adapter."""
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with record("tools", args.seeds, [ADAPTER]) as metrics:
        before, tokenizer = coursekit.load_tuned("stories-answers")
        metrics |= {
            "settings": {
                "steps": STEPS,
                "rows of each kind": ROWS,
                "rank": RANK,
                "asked": SHELVES * ON_SHELF,
            },
            "before": ask(before, tokenizer),
            "runs": [],
        }
        for seed in args.seeds:
            model, tokenizer = learn(seed)
            found = ask(model, tokenizer) | measure(model, tokenizer)
            metrics["runs"].append({"seed": seed} | found)
            print(metrics["runs"][-1], flush=True)
            if seed == args.seeds[0]:
                tuning.save_adapter(ADAPTER, model, "stories", tuning.MATRICES)


if __name__ == "__main__":
    main()
