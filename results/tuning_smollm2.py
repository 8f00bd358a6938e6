"""A published chat model learns to answer as briefly as chapter 20's model.

SmolLM2-135M-Instruct (a third party's 4-bit file, unpacked to float32) is
tuned on the questions about little stories, with LoRA and in full, and asked
180 others.  What it says to an old question and its loss on old text show
what it has forgotten; time and memory of a step, what the low rank saves.

    make models && python -m results.tuning_smollm2
"""

import multiprocessing
import random
import resource
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

import coursekit
from coursekit import tuning
from coursekit.config import TrainConfig
from coursekit.data import Batch
from coursekit.pretrained.pipelines import chat, chat_ids
from coursekit.pretrained.published import PUBLISHED, load_published
from coursekit.training import evaluate, train
from results import tuning as small
from results.published import QUESTION
from results.record import options, record
from results.story_questions import SIX, questions

LAYERS = (*tuning.MATRICES, "w_gate")
STEPS, ROWS = 60, 8
WINDOWS, LENGTH = 8, 256  # of Shakespeare's last tenth
KIB, MB = 1024, 10**6


class Way(NamedTuple):
    """One way to tune."""

    rate: float
    rank: int = 0  # 0: all parameters


WAYS = {"LoRA": Way(3e-4, rank=8), "full": Way(1e-4)}


def chat_answers(
    model: nn.Module, tokenizer: Any, prompts: Sequence[str]
) -> list[str]:
    """Answers in the model's own chat format."""
    ids = [chat_ids(tokenizer, [("user", prompt)]) for prompt in prompts]
    end = tokenizer.special_tokens["<|im_end|>"]
    said = tuning.answers(model.eval(), ids, end, 2 * small.LONGEST)
    return [tokenizer.decode(answer).strip() for answer in said]


def chat_accuracy(model: nn.Module, tokenizer: Any) -> float:
    """The fraction of exactly right answers in its own chat format."""
    asked = [*questions(small.HELD_OUT, 0, held_out=True)]
    said = chat_answers(model, tokenizer, [a.prompt("{} {}") for a in asked])
    right = [a.answer == s for a, s in zip(asked, said, strict=True)]
    return round(sum(right) / len(right), 4)


def old_text(tokenizer: Any) -> list[Batch]:
    """Text that has nothing to do with the questions."""
    text = coursekit.load_text("shakespeare")
    ids = tokenizer.encode(text[-len(text) // 10 :])
    rows = [ids[i * LENGTH :][: LENGTH + 1] for i in range(WINDOWS)]
    return [tuning.answer_batch([(row[:1], row[1:])], 0) for row in rows]


def measure(model: nn.Module, tokenizer: Any) -> dict[str, Any]:
    """Answers to old and new prompts, and the loss on old text."""
    return {
        "accuracy": small.accuracy(model, tokenizer),
        "as a chat": chat_accuracy(model, tokenizer),
        "six": small.say(model, tokenizer, [asked.prompt() for asked in SIX]),
        "six as a chat": chat_answers(
            model, tokenizer, [asked.prompt("{} {}") for asked in SIX]
        ),
        "an old question": chat(model, tokenizer, QUESTION),
        "old text": round(evaluate(model, old_text(tokenizer)), 4),
    }


def run(way: Way, seed: int, steps: int, threads: int) -> dict[str, Any]:
    """Tune in one way, and measure it; in a process of its own."""
    torch.set_num_threads(threads)
    model, tokenizer = load_published("smollm2")
    data = [
        small.encode(asked, tokenizer)
        for asked in questions(small.EXAMPLES, seed)
    ]
    if way.rank:
        torch.manual_seed(seed)
        tuning.add_lora(model, way.rank, layers=LAYERS)

    def batch(step: int) -> list[Batch]:
        rows = random.Random(f"{seed} {step}").sample(data, ROWS)
        return [tuning.answer_batch(rows, 0)]

    config = TrainConfig(
        steps=steps,
        batch_size=ROWS,
        learning_rate=way.rate,
        warmup_steps=max(1, steps // 10),
        weight_decay=0.0,
        seed=seed,
    )
    trained = [p.numel() for p in model.parameters() if p.requires_grad]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    losses = train(model, batch, config, progress=False).losses
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = {
        "seed": seed,
        "parameters": sum(trained),
        "CPU seconds per step": round(seconds / steps, 2),
        "memory before, MB": round(before * KIB / MB),
        "peak memory, MB": round(peak * KIB / MB),
        "losses": [round(loss, 4) for loss in losses[:: max(1, steps // 20)]],
    }
    return found | measure(model, tokenizer)


def untuned(threads: int) -> dict[str, Any]:
    """Answers of the model before tuning, in a separate process."""
    torch.set_num_threads(threads)
    return measure(*load_published("smollm2"))


parser = options(__doc__, seeds=[0, 1, 2], steps=STEPS, threads=1)


def main() -> None:
    """Tune in both ways with every seed."""
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    # A process's peak of memory is its own.
    alone = multiprocessing.get_context("spawn")
    with record("tuning_smollm2", args.seeds) as metrics:
        metrics |= {"model": PUBLISHED["smollm2"].requirement}
        metrics |= {"steps": args.steps, "rows": ROWS, "length": LENGTH}
        metrics |= {"settings": {k: w._asdict() for k, w in WAYS.items()}}
        with alone.Pool(1, maxtasksperchild=1) as pool:
            metrics["before"] = pool.apply(untuned, [args.threads])
            print(metrics["before"], flush=True)
            metrics["ways"] = {name: [] for name in WAYS}
            for seed in args.seeds:
                for name, way in WAYS.items():
                    of = [way, seed, args.steps, args.threads]
                    metrics["ways"][name].append(pool.apply(run, of))
                    print(name, metrics["ways"][name][-1], flush=True)


if __name__ == "__main__":
    main()
