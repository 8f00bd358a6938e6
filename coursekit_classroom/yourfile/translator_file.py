"""The file of the second capstone: an encoder-decoder, after chapter 14.

It holds the parts of `minimal.py` that `minimal_seq2seq.py` uses, and those
of the latter, so that it imports nothing of the package.
"""

import ast
import re
from collections.abc import Callable
from pathlib import Path

from coursekit_classroom import lesson

CHAPTER = 14
FILE = "my_translator.py"
GIVEN = (  # of chapters 4 to 12
    *("attention", "causal_mask", "MultiHeadAttention", "LayerNorm"),
    *("FeedForward", "Block", "cross_entropy", "learning_rate"),
    "make_optimizer",
)
WRITTEN: tuple[str, ...] = (
    "get_batch",
    "DecoderBlock",
    "Transformer",
    "loss_of",
    "translate",
)
PARTS = {
    "get_batch": "pairs",
    "Transformer": "translator",
    "loss_of": "pair_loss",
    "train": "train",
    "translate": "translate",
}
HEAD = '''"""My translator, after chapter 14 of The Executable Transformer.

Shapes: B pairs; a source has S tokens, its target T tokens.
"""

import math

import torch
from torch import nn

'''
LAST = """

# What `coursekit capstone` checks, and which of your names is which part.
chapter = {}
parts = {{
{}
}}
"""


def seq2seq() -> str:
    """The book's second file, without its imports and its script."""
    path = Path(lesson.PACKAGE, "minimal_seq2seq.py")
    source = path.read_text("utf-8")
    body = source[source.index("# Ids of three") : source.index("if __name__")]
    return re.sub(r"minimal\.(?!py)", "", body).rstrip()


def text(stub: Callable[[str], str] | None = None) -> str:
    """The file with which a learner begins the translator.

    Args:
        stub: what becomes of the parts to be written; without it they are
            filled in too.

    Returns:
        Python source.
    """
    given = "\n\n\n".join(
        lesson.part(name, lesson.LAST_CHAPTER) for name in GIVEN
    )
    whole = body = seq2seq()
    for node in ast.parse(whole).body:
        if stub and getattr(node, "name", "") in WRITTEN:
            part = ast.get_source_segment(whole, node) or ""
            body = body.replace(part, stub(part))
    entries = [f'    "{part}": {name},' for name, part in PARTS.items()]
    end = LAST.format(CHAPTER, "\n".join(entries))
    return f"{HEAD}\n{given}\n\n\n{body}\n{end}"
