"""The writer of little stories, in which heads can be seen to do something.

The grammar of `results/story_grammar.py` tells stories that ask the reader
to look back.  A model with the architecture of `coursekit/minimal.py` learns
them, with one seed or more.  Three gates say whether it does what the figures
show, on pairs that no story had; the seed is kept whose head points most.
"""

import json
from typing import Any, NamedTuple

import torch
from torch import Tensor

from coursekit.config import GPTConfig, TrainConfig
from coursekit.data import Batch
from coursekit.decoder import GPT
from coursekit.saved_models import save_model
from coursekit.tokenizer import BPETokenizer, Tokenizer
from coursekit.training import Progress, train
from coursekit.weights import round_weights
from coursekit_classroom.yourfile.saving import CHOICES
from results import story_grammar as grammar
from results.record import ROOT, options, record
from results.story_gates import (
    GATES,
    MUST_HOLD,
    exam,
    inspect,
    needed,
    questions,
    score,
)

FOLDER = ROOT / "coursekit" / "assets" / "models" / "stories"
CONTEXT, BATCH, WIDTH, HEADS, BLOCKS = 96, 32, 128, 4, 4
STORIES, LARGEST_VOCABULARY, EVERY = 100_000, 1_800, 100
WATCHED = ("cause", "owner", "names")
"""The gates whose scores are noted on the way."""
EXAMPLES = {  # a prompt, the words that may take a place, and the answers
    "cause": (
        "The dog chased the cat because it was hungry. So the",
        ("hungry", "scared"),
        ("dog", "cat"),
    ),
    "owner": (
        "Lily gave Jack the kite. Now",
        ("gave", "showed"),
        ("Jack", "Lily"),
    ),
    "name": (
        "Anna Brown was a painter. The next day Anna",
        ("Brown", "Stone"),
        ("Brown", "Stone"),
    ),
}


class Corpus(NamedTuple):
    """The stories as ids, and where each begins."""

    tokenizer: BPETokenizer
    ids: Tensor
    starts: Tensor


def make_corpus(n_stories: int) -> Corpus:
    """Tell the stories, and learn words from them until each is a token."""
    text = "".join(s + "\n" for s in grammar.stories(n_stories, 0))
    tokenizer = BPETokenizer.train(text, LARGEST_VOCABULARY)
    ids = torch.tensor(tokenizer.encode(text), dtype=torch.int32)
    [newline] = tokenizer.encode("\n")
    starts = (ids[: -CONTEXT - 1] == newline).nonzero()[:, 0] + 1
    return Corpus(tokenizer, ids, starts)


def make_model(vocab_size: int) -> GPT:
    """The model of `coursekit/minimal.py`, as the library expresses it."""
    sizes = {"d_model": WIDTH, "n_heads": HEADS, "n_layers": BLOCKS}
    return GPT(
        GPTConfig(vocab_size=vocab_size, max_len=CONTEXT, **sizes, **CHOICES)
    )


def learn(
    corpus: Corpus, seed: int, steps: int, rate: float
) -> tuple[GPT, list[dict[str, float]]]:
    """Train one model; the gates' scores on the way."""
    torch.manual_seed(seed)
    model = make_model(corpus.tokenizer.vocab_size)
    exams = {
        name: exam(questions(name, n_pairs=50), corpus.tokenizer)
        for name in WATCHED
    }
    curve = []

    def batch(step: int) -> list[Batch]:
        g = torch.Generator().manual_seed(1_000_003 * seed + step)
        rows = torch.randint(len(corpus.starts), (BATCH, 1), generator=g)
        windows = corpus.ids[corpus.starts[rows] + torch.arange(CONTEXT + 1)]
        windows = windows.long()
        return [Batch({"ids": windows[:, :-1]}, windows[:, 1:])]

    def look(progress: Progress) -> None:
        if progress.step % EVERY and not progress.is_last:
            return
        point = {"tokens": progress.tokens, "loss": round(progress.loss, 4)}
        for name, of in exams.items():
            point[name] = score(model, of, GATES[name].first)
        curve.append(point)
        print(seed, progress.step, point, flush=True)

    config = TrainConfig(
        steps=steps,
        batch_size=BATCH,
        context=CONTEXT,
        optimizer="muon",
        learning_rate=rate,
        warmup_steps=30,
        min_lr_ratio=0.03,
        weight_decay=0.05,
        precision="bfloat16",
        seed=seed,
    )
    train(model, batch, config, callbacks=[look], progress=False)
    return model.eval(), curve


# -- what is shipped ---------------------------------------------------------
def merit(gates: dict[str, Any]) -> tuple[bool, float]:
    """True if all gates hold, and how clearly a head shows the cause."""
    right, wrong = gates["cause"]["pointing"]["right and wrong"]
    return all(needed(gates[name]) for name in MUST_HOLD), right - wrong


def examples(gates: dict[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    """Examples that figures show; see the folder's CARD.md."""
    chips = []
    for name, (prompt, words, right) in EXAMPLES.items():
        ids = tokenizer.encode(prompt)
        last = ids[::-1].index(tokenizer.encode(" " + words[0])[0])
        chips.append(
            {
                "name": name,
                "prompt": prompt,
                "place": len(ids) - 1 - last,
                "words": words,
                "answers": right,
                "head": gates[name]["pointing"]["head"],
                "mute": needed(gates[name]),
            }
        )
    words = {
        "animals": grammar.ANIMALS,
        "names": grammar.NAMES,
        "surnames": grammar.SURNAMES,
        "things": grammar.THINGS,
        "verbs": [verb for verb in grammar.VERBS if " " not in verb],
        "adjectives": [*grammar.ACTS],
    }
    return {"walk": chips[0], "chips": chips, "words": words}


def ship(model: GPT, tokenizer: Tokenizer, gates: dict[str, Any]) -> None:
    """Write model, tokenizer and examples where ``coursekit.load`` looks."""
    save_model(FOLDER, model, tokenizer, int8=True)
    text = json.dumps(examples(gates, tokenizer), indent=1) + "\n"
    (FOLDER / "examples.json").write_text(text, "utf8")


parser = options(
    __doc__, seeds=[0], steps=1300, stories=STORIES, rate=5e-3, threads=2
)


def main() -> None:
    """Train with every seed; ship the one whose head points most."""
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    names = ("model.safetensors", "tokenizer.json", "examples.json")
    with record("stories", args.seeds, [FOLDER / n for n in names]) as metrics:
        corpus = make_corpus(args.stories)
        runs, models = [], []
        for seed in args.seeds:
            model, curve = learn(corpus, seed, args.steps, args.rate)
            round_weights(model)
            gates = inspect(model, corpus.tokenizer)
            runs.append({"seed": seed, "gates": gates, "curve": curve})
            models.append(model)
            print(json.dumps(runs[-1]["gates"], indent=1), flush=True)
        best = max(range(len(runs)), key=lambda i: merit(runs[i]["gates"]))
        metrics |= {
            "vocabulary": corpus.tokenizer.vocab_size,
            "stories": args.stories,
            "parameters": sum(p.numel() for p in models[best].parameters()),
            "shipped": runs[best]["seed"],
            "runs": runs,
        }
        ship(models[best], corpus.tokenizer, runs[best]["gates"])


if __name__ == "__main__":
    main()
