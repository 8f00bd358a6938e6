"""A small student of the writer of stories: taught by it, or by its texts.

Both students begin with the same weights and see the same windows in the same
order.  One learns the token that came next, the other the distribution that
the teacher gives for it.  The first taught student is shipped: it drafts for
its teacher in speculative decoding.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from coursekit.config import GPTConfig, TrainConfig
from coursekit.data import Batch
from coursekit.decoder import GPT
from coursekit.loss import Loss, token_loss
from coursekit.saved_models import load, save_model
from coursekit.tokenizer import Tokenizer
from coursekit.training import evaluate, train
from coursekit.weights import round_weights
from coursekit_classroom.yourfile.saving import CHOICES
from results import story_grammar as grammar
from results.record import ROOT, options, record
from results.story_gates import GATES, MUST_HOLD, exam, questions, score

FOLDER = ROOT / "coursekit" / "assets" / "models" / "stories-student"
CONTEXT, BATCH, WIDTH, HEADS, BLOCKS = 96, 16, 64, 4, 1
STORIES, HELD_OUT = 20_000, 300
LEARNING, TESTING = 0, 1
"""Seeds of the stories: no student or teacher has learned from the second."""


def windows(tokenizer: Tokenizer, n_stories: int, seed: int) -> Tensor:
    """All windows that begin with a story, (N, CONTEXT + 1)."""
    text = "".join(story + "\n" for story in grammar.stories(n_stories, seed))
    ids = torch.tensor(tokenizer.encode(text))
    [newline] = tokenizer.encode("\n")
    starts = (ids[: -CONTEXT - 1] == newline).nonzero()[:, 0] + 1
    return ids[starts[:, None] + torch.arange(CONTEXT + 1)]


def held_out(tokenizer: Tokenizer, n_stories: int = HELD_OUT) -> list[Batch]:
    """Stories that nobody has learned from: every fourth window."""
    rows = windows(tokenizer, n_stories, TESTING)[::4]
    return [
        Batch({"ids": part[:, :-1]}, part[:, 1:]) for part in rows.split(64)
    ]


def taught_by(teacher: GPT) -> Loss:
    """The cross-entropy against the teacher's distribution, summed."""

    def loss(model: Any, inputs: dict[str, Tensor], _: Tensor) -> Tensor:
        with torch.no_grad():
            expected = teacher(**inputs).softmax(-1).flatten(0, 1)
        logits = model(**inputs).flatten(0, 1)
        return F.cross_entropy(logits, expected, reduction="sum")

    return loss


def make_student(vocab_size: int) -> GPT:
    """A fifth of the teacher: one block, half as wide."""
    sizes = {"d_model": WIDTH, "n_heads": HEADS, "n_layers": BLOCKS}
    return GPT(
        GPTConfig(vocab_size=vocab_size, max_len=CONTEXT, **sizes, **CHOICES)
    )


def learn(
    rows: Tensor, vocab_size: int, seed: int, steps: int, loss: Loss
) -> GPT:
    """Train one student."""
    torch.manual_seed(seed)
    student = make_student(vocab_size)

    def batch(step: int) -> list[Batch]:
        g = torch.Generator().manual_seed(1_000_003 * seed + step)
        part = rows[torch.randint(len(rows), (BATCH,), generator=g)]
        return [Batch({"ids": part[:, :-1]}, part[:, 1:])]

    config = TrainConfig(
        steps=steps,
        batch_size=BATCH,
        context=CONTEXT,
        optimizer="muon",
        learning_rate=5e-3,
        warmup_steps=30,
        min_lr_ratio=0.03,
        weight_decay=0.05,
        seed=seed,
    )
    train(student, batch, config, progress=False, loss=loss)
    return student.eval()


def gates(model: GPT, tokenizer: Tokenizer) -> dict[str, float]:
    """Answers of a model to the gates of the story writer."""
    return {
        name: score(model, exam(questions(name), tokenizer), GATES[name].first)
        for name in MUST_HOLD
    }


parser = options(__doc__, teacher="stories", steps=300, seeds=[0, 1, 2])


def main() -> None:
    """Train two students for each seed; ship the first that was taught."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    names = ("config.json", "model.safetensors", "tokenizer.json")
    with record("distill", args.seeds, [FOLDER / n for n in names]) as metrics:
        teacher, tokenizer = load(args.teacher)
        rows = windows(tokenizer, STORIES, LEARNING)
        test = held_out(tokenizer)
        metrics |= {
            "teacher": round(evaluate(teacher, test), 4),
            "tokens": args.steps * BATCH * CONTEXT,
            "test tokens": sum(batch.targets.numel() for batch in test),
            "runs": [],
        }
        for seed in args.seeds:
            run: dict[str, Any] = {"seed": seed}
            for kind, loss in (
                ("text", token_loss),
                ("teacher", taught_by(teacher)),
            ):
                student = learn(
                    rows, tokenizer.vocab_size, seed, args.steps, loss
                )
                nats = round(evaluate(student, test), 4)
                run[kind] = {"loss": nats, "gates": gates(student, tokenizer)}
                if seed == args.seeds[0] and kind == "teacher":
                    round_weights(student)
                    save_model(FOLDER, student, tokenizer, int8=True)
                    metrics["parameters"] = sum(
                        p.numel() for p in student.parameters()
                    )
                    metrics["shipped"] = round(evaluate(student, test), 4)
            print(run, flush=True)
            metrics["runs"].append(run)


if __name__ == "__main__":
    main()
