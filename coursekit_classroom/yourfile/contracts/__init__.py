"""Contracts of the parts of the learner's file, whatever their names.

A contract calls a part with inputs of its own.  It raises ContractError with
a sentence, or returns what is worth knowing next to its check mark.  Where it
needs weights, it finds them by what they do, not by name: heads must agree
with a computation of ours for some order of their matrices, hidden units are
counted from slopes, and pre-norm is seen when the embeddings grow a million
times.
"""

from collections.abc import Callable
from typing import NamedTuple

from coursekit_classroom.yourfile.contracts.base import File
from coursekit_classroom.yourfile.contracts.layers import (
    attention,
    causality_check,
    feed_forward,
    mask,
    norm,
)
from coursekit_classroom.yourfile.contracts.model import (
    causal,
    layered,
    logits,
    narrow,
    normalized,
    overfits,
    positions,
    stacks,
    used,
)
from coursekit_classroom.yourfile.contracts.multihead import heads
from coursekit_classroom.yourfile.contracts.optimization import (
    evaluation,
    follows,
    optimizer,
    schedule,
)
from coursekit_classroom.yourfile.contracts.sampling import (
    cached,
    continued,
    sample,
)
from coursekit_classroom.yourfile.contracts.texts import (
    bpe,
    get_batch,
    merge,
    tokenizer,
)
from coursekit_classroom.yourfile.contracts.training import (
    generate,
    learns,
    loss,
    stable,
)


class Contract(NamedTuple):
    """A promise of a part; the first line of the docstring says which."""

    since: int
    """The chapter from which on it holds, where the file has the part."""
    check: Callable[[File], str | None]
    part: str
    """The part that is at fault."""


# In the order in which a file is checked: a part before those that use it.
CONTRACTS = [
    Contract(0, tokenizer, "tokenizer"),
    Contract(1, merge, "merge"),
    Contract(1, bpe, "bpe"),
    Contract(0, get_batch, "get_batch"),
    Contract(4, attention, "attention"),
    Contract(5, mask, "mask"),
    Contract(6, heads, "heads"),
    Contract(7, norm, "norm"),
    Contract(8, feed_forward, "feed_forward"),
    Contract(0, logits, "model"),
    Contract(2, narrow, "model"),
    Contract(4, causal, "model"),
    Contract(3, positions, "model"),
    Contract(9, stacks, "model"),
    Contract(8, layered, "model"),
    Contract(2, used, "model"),
    Contract(7, normalized, "model"),
    Contract(12, continued, "model"),
    Contract(5, causality_check, "probe"),
    Contract(0, loss, "loss"),
    Contract(10, stable, "loss"),
    Contract(0, overfits, "model"),
    Contract(11, schedule, "schedule"),
    Contract(11, optimizer, "optimizer"),
    Contract(11, follows, "train"),
    Contract(0, learns, "train"),
    Contract(11, evaluation, "evaluation"),
    Contract(12, sample, "sample"),
    Contract(0, generate, "generate"),
    Contract(12, cached, "generate"),
]


def due(chapter: int, parts: set[str]) -> list[Contract]:
    """The contracts of a chapter whose file has these parts."""
    return [c for c in CONTRACTS if c.since <= chapter and c.part in parts]
