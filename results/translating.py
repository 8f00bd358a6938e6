"""Pairs, training and BLEU that the translators' results share."""

import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from coursekit.checkpoint import load_checkpoint, save_checkpoint
from coursekit.config import TrainConfig, TransformerConfig
from coursekit.data import Batch, Pairs, load_pairs
from coursekit.saved_models import create_run, read_config
from coursekit.seq2seq import Transformer
from coursekit.tokenizer import BPETokenizer, Tokenizer
from coursekit.training import Progress, new_state, train
from coursekit.translate import SPECIALS, Translator, special_ids
from coursekit.weights import (
    average_weights,
    own_weights,
    put_weights,
    read_weights,
    save_weights,
)

DATA, TEST = "multi30k", "test_2016_flickr"
Direction = tuple[str, str]
SPELLINGS = 8  # of the whole text; epochs take them in turn
LONGEST = 150  # tokens; a pair with more of them is left out
KEPT, OF = 10, 50  # states that are averaged, of all that a run saves


def learn_vocabulary(size: int) -> BPETokenizer:
    """One vocabulary for German and English, from the training part."""
    text = "\n".join(side for pair in load_pairs(DATA) for side in pair)
    return BPETokenizer.train(text, size - len(SPECIALS), SPECIALS)


def make_model(tokenizer: Tokenizer, seed: int, **changes: Any) -> Transformer:
    """A fresh model; ``changes`` are fields of its configuration."""
    torch.manual_seed(seed)
    fields: dict[str, Any] = {
        "vocab_size": tokenizer.vocab_size,
        "pad_id": special_ids(tokenizer)[0],
        "max_len": 200,
        "d_model": 128,
        "n_heads": 4,
        "d_ff": 512,
        "norm_first": True,
        "final_norm": True,
        "attention_bias": False,
        "tie_embeddings": True,
    }
    return Transformer(TransformerConfig(**(fields | changes)))


def make_batches(
    tokenizer: BPETokenizer,
    directions: Sequence[Direction],
    max_tokens: int,
    bpe_dropout: float,
    seed: int,
) -> Callable[[int], list[Batch]]:
    """The batches of each step.

    Args:
        tokenizer: of both languages.
        directions: (source, target) languages.  No token says which way to
            go: the source's own language does.
        max_tokens: the most in a batch, on each side.
        bpe_dropout: how often a merge is overlooked.
        seed: of the batches and the spellings.
    """
    ids = special_ids(tokenizer)
    texts = [p for d in directions for p in load_pairs(DATA, *d)]

    def spelled(number: int) -> Pairs:
        chance = random.Random(f"{seed} {number}")

        def encode(text: str) -> list[int]:
            if bpe_dropout == 0:
                return tokenizer.encode(text)
            return tokenizer.encode_with_dropout(text, bpe_dropout, chance)

        pairs = [([*encode(a), ids[2]], encode(b)) for a, b in texts]
        pairs = [p for p in pairs if max(map(len, p)) < LONGEST]
        return Pairs(pairs, max_tokens, *ids, seed)

    corpora = [spelled(k) for k in range(SPELLINGS if bpe_dropout else 1)]
    epoch = len(corpora[0])
    return lambda step: [corpora[step // epoch % len(corpora)].batch(step)]


def learn(
    model: Transformer,
    tokenizer: BPETokenizer,
    data: dict[str, Any],
    budget: TrainConfig,
    folder: Path,
) -> dict[str, Any]:
    """Train a model, from where the folder's checkpoint stands.

    The model gets the mean of the last :data:`KEPT` states, and the last
    state is left in the folder too.

    Args:
        model: fresh, or where an earlier training has left it.
        tokenizer: of both languages.
        data: arguments of :func:`make_batches`.
        budget: how to train.
        folder: of this run alone.

    Returns:
        CPU and wall seconds, over all the times that it was gone on with,
        and the number of targets.

    Raises:
        ValueError: if the folder holds a run with other settings.
    """
    begin(folder, model, tokenizer, data, budget)
    checkpoint, clock = folder / "checkpoint.safetensors", folder / "time.json"
    state = new_state(model, budget)
    spent = {"cpu_seconds": 0.0, "wall_seconds": 0.0}
    if checkpoint.exists():
        load_checkpoint(checkpoint, model, state)
        spent = json.loads(clock.read_text("utf8"))
    began = {
        "cpu_seconds": spent["cpu_seconds"] - time.process_time(),
        "wall_seconds": spent["wall_seconds"] - time.perf_counter(),
    }

    apart = max(1, budget.steps // OF)

    def keep(progress: Progress) -> None:
        if progress.step % apart and not progress.is_last:
            return
        save_weights(folder / f"state{progress.step:06d}.safetensors", model)
        for old in states(folder)[:-KEPT]:
            old.unlink()
        spent["cpu_seconds"] = began["cpu_seconds"] + time.process_time()
        spent["wall_seconds"] = began["wall_seconds"] + time.perf_counter()
        save_checkpoint(checkpoint, model, state)
        clock.write_text(json.dumps(spent), "utf8")
        loss = statistics.fmean(state.losses[-apart:])
        print(f"{folder.name} {progress.step} loss {loss:.3f}", flush=True)

    if state.step < budget.steps:
        batches = make_batches(tokenizer, seed=budget.seed, **data)
        train(
            model,
            batches,
            budget,
            callbacks=[keep],
            state=state,
            progress=False,
        )
    put_weights(model, average_states(folder), folder)
    return {k: round(v, 1) for k, v in spent.items()} | {
        "targets": state.tokens
    }


def begin(
    folder: Path,
    model: Transformer,
    tokenizer: BPETokenizer,
    data: dict[str, Any],
    budget: TrainConfig,
) -> None:
    """Note a run's settings in its folder; refuse one begun with others.

    At a constant rate, a run may be made longer than it was meant to be.
    """
    wanted = {
        "config": model.config.to_dict(),
        "train": budget.to_dict(),
        "data": json.loads(json.dumps(data)),
    }
    if not (folder / "config.json").exists():
        create_run(folder, model, tokenizer, budget, data)
    found = read_config(folder)
    if budget.schedule == "constant":
        found["train"]["steps"] = wanted["train"]["steps"]
    for part, fields in wanted.items():
        for name, value in fields.items():
            if found[part].get(name) != value:
                raise ValueError(
                    "a run goes on with the settings that it began with: got "
                    f"{name}={value!r}, and {folder} has "
                    f"{found[part].get(name)!r}. Take another folder, or "
                    "delete this one."
                )


def states(folder: Path) -> list[Path]:
    """The states that were kept, oldest first."""
    return sorted(folder.glob("state*.safetensors"))


def average_states(folder: Path) -> dict[str, torch.Tensor]:
    """The mean of the states that were kept."""
    return average_weights([read_weights(path) for path in states(folder)])


def count(model: Transformer) -> int:
    """Parameters, a shared one once."""
    return sum(tensor.numel() for tensor in own_weights(model).values())


def bleu(
    translator: Translator,
    direction: Direction,
    part: str,
    first: int | None = None,
    **search: Any,
) -> dict[str, Any]:
    """Corpus BLEU of raw text against raw text, and how it was counted.

    Args:
        translator: of this direction.
        direction: (source, target) languages.
        part: of the data.
        first: take these many pairs; by default all.
        search: as for a call of the translator.
    """
    # Of the extra `bleu`; imported here, so that `--help` needs it not.
    from sacrebleu.metrics import BLEU

    pairs = load_pairs(DATA, *direction, part)[:first]
    sources, references = zip(*pairs, strict=True)
    metric = BLEU()
    score = metric.corpus_score(
        translator(sources, **search), [list(references)]
    )
    return {
        "bleu": round(score.score, 2),
        "brevity": round(score.bp, 3),
        "signature": str(metric.get_signature()),
    }
