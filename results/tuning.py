"""The writer of little stories learns to answer, in several ways.

Each way takes as many steps on the same questions (`story_questions.py`)
and is asked 180 others, about pairs that neither a story nor a question had.
The loss on stories that no model has seen says what each way has forgotten.
"""

import random
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

import coursekit
from coursekit import tuning
from coursekit.config import TrainConfig
from coursekit.data import Batch
from coursekit.training import evaluate, train
from results import stories as pretraining
from results import story_grammar as grammar
from results.record import ROOT, options, record
from results.story_questions import KINDS, SIX, TEMPLATE, Asked, questions

FOLDER = ROOT / "coursekit/assets/tuning"
ADAPTER = FOLDER / "stories-answers.safetensors"
PAIRS = {  # what the package ships of the questions
    FOLDER / "six-questions.tsv": SIX,
    FOLDER / "story-questions.tsv": [*questions(900, 0)],
}
SHIPPED_WAY = "rank 4"
STEPS, ROWS, EXAMPLES, HELD_OUT, STORIES = 150, 16, 2400, 180, 150
MIXED = 8  # stories in each batch beside the questions
LONGEST = 12  # tokens of an answer
RATE, LORA_RATE = 1e-3, 5e-3
TEMPLATES = {
    "as trained": TEMPLATE,
    "a space at the end": TEMPLATE + " ",
    "other words": "{} Question: {} Answer:",
    "new lines": "{}\nQ: {}\nA:",
    "without A:": "{} Q: {}",
    "none": "{} {}",
}


class Way(NamedTuple):
    """One way to tune."""

    rate: float = RATE
    rank: int = 0  # 0: all parameters
    prompts_too: bool = False
    stories: int = 0  # in each batch


WAYS = {
    "full": Way(),
    "everything": Way(prompts_too=True),
    "mixed": Way(stories=MIXED),
    "full, high rate": Way(rate=LORA_RATE),
    "rank 1": Way(LORA_RATE, rank=1),
    "rank 4": Way(LORA_RATE, rank=4),
}


# -- data --------------------------------------------------------------------
def encode(asked: Asked, tokenizer: Any) -> tuning.Pair:
    """A prompt and its answer as ids."""
    return tuning.encode_pair(tokenizer, asked.prompt(), asked.answer)


def write_pairs() -> None:
    """Write the questions that are shipped, a line each."""
    FOLDER.mkdir(exist_ok=True)
    for path, of in PAIRS.items():
        lines = [f"{asked.prompt()}\t{asked.answer}\n" for asked in of]
        path.write_text("".join(lines), "utf8")


def encode_stories(n: int, seed: int, tokenizer: Any) -> list[tuning.Pair]:
    """Stories as ids: after the first token all is to be predicted."""
    told = (tokenizer.encode(s + "\n") for s in grammar.stories(n, seed))
    return [(ids[:1], ids[1:97]) for ids in told]


def end_of(tokenizer: Any) -> int:
    """The token that ends an answer, as it ends a story."""
    [end] = tokenizer.encode("\n")
    return int(end)


# -- measures ----------------------------------------------------------------
def say(model: nn.Module, tokenizer: Any, prompts: Sequence[str]) -> list[str]:
    """Answers of the model to each prompt."""
    return tuning.replies(model.eval(), tokenizer, prompts, LONGEST)


def accuracy(
    model: nn.Module, tokenizer: Any, template: str = TEMPLATE
) -> dict[str, float]:
    """The fraction of exactly right answers: of all, and of each kind."""
    asked = [*questions(HELD_OUT, 0, held_out=True)]
    said = say(model, tokenizer, [a.prompt(template) for a in asked])
    right = [a.answer == s for a, s in zip(asked, said, strict=True)]
    found = {"all": sum(right) / len(right)}
    for i, name in enumerate(KINDS):
        of_kind = right[i :: len(KINDS)]
        found[name] = sum(of_kind) / len(of_kind)
    return {name: round(value, 4) for name, value in found.items()}


def settings(tokenizer: Any) -> dict[str, Any]:
    """Settings that all methods share."""
    pairs = [encode(asked, tokenizer) for asked in questions(600, 0)]
    n_prompt = sum(len(prompt) - 1 for prompt, _ in pairs)
    n_answer = sum(len(answer) for _, answer in pairs)
    return {
        "steps": STEPS,
        "rows": ROWS,
        "examples": EXAMPLES,
        "held out": HELD_OUT,
        "stories in a batch": MIXED,
        "rate": RATE,
        "LoRA rate": LORA_RATE,
        "pretraining rate": pretraining.parser.parse_args([]).rate,
        "answers' share": round(n_answer / (n_prompt + n_answer), 4),
    }


def measure(model: nn.Module, tokenizer: Any) -> dict[str, Any]:
    """Answers of a model, and its loss on unseen stories."""
    stories = encode_stories(STORIES, 1, tokenizer)
    old = [tuning.answer_batch(stories, end_of(tokenizer))]
    return {
        "accuracy": accuracy(model, tokenizer),
        "old stories": round(evaluate(model, old), 4),
        "six": say(model, tokenizer, [asked.prompt() for asked in SIX]),
    }


# -- tuning ------------------------------------------------------------------
def tune(
    model: nn.Module, tokenizer: Any, way: Way, seed: int, steps: int
) -> list[float]:
    """Tune a model in place; the loss of each step."""
    end = end_of(tokenizer)
    data = [encode(asked, tokenizer) for asked in questions(EXAMPLES, seed)]
    stories = encode_stories(EXAMPLES // 3, seed + 2, tokenizer)
    if way.rank:
        torch.manual_seed(seed)
        tuning.add_lora(model, way.rank)

    def batch(step: int) -> list[Batch]:
        r = random.Random(f"{seed} {step}")
        rows = r.sample(data, ROWS)
        rows += r.sample(stories, way.stories)
        return [tuning.answer_batch(rows, end, way.prompts_too)]

    config = TrainConfig(
        steps=steps,
        batch_size=ROWS,
        learning_rate=way.rate,
        warmup_steps=20,
        weight_decay=0.0,
        seed=seed,
    )
    return train(model, batch, config, progress=False).losses


def run(way: Way, seed: int, steps: int) -> tuple[nn.Module, dict[str, Any]]:
    """Tune the writer of stories in one way, and measure it."""
    model, tokenizer = coursekit.load("stories")
    began = time.process_time()
    losses = tune(model, tokenizer, way, seed, steps)
    seconds = time.process_time() - began
    trained = [p.numel() for p in model.parameters() if p.requires_grad]
    found = measure(model, tokenizer) | {
        "seed": seed,
        "parameters": sum(trained),
        "seconds": round(seconds, 1),
        "losses": [round(loss, 4) for loss in losses[:: steps // 20]],
    }
    return model, found


parser = options(__doc__, seeds=[0, 1, 2], steps=STEPS, threads=1)


def main() -> None:
    """Tune in every way with every seed; ship the first seed's adapter."""
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    write_pairs()
    with record("tuning", args.seeds, [ADAPTER, *PAIRS]) as metrics:
        model, tokenizer = coursekit.load("stories")
        metrics |= {"settings": settings(tokenizer)}
        metrics |= {"before": measure(model, tokenizer)}
        metrics |= {"ways": {name: [] for name in WAYS}, "templates": []}
        for seed in args.seeds:
            for name, way in WAYS.items():
                model, found = run(way, seed, args.steps)
                metrics["ways"][name].append(found)
                print(name, found, flush=True)
                if name != SHIPPED_WAY:
                    continue
                by_template = {
                    said: accuracy(model, tokenizer, template)["all"]
                    for said, template in TEMPLATES.items()
                }
                metrics["templates"].append(by_template)
                if seed == args.seeds[0]:
                    layers = tuning.MATRICES
                    tuning.save_adapter(ADAPTER, model, "stories", layers)


if __name__ == "__main__":
    main()
