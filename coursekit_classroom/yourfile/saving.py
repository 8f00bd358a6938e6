"""The learner's trained GPT as a file that the package and the pages open.

Every class of the book's file has its counterpart in the library, under other
names: :func:`to_library` says which is which.
"""

import tempfile
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
from torch import nn

from coursekit import minimal
from coursekit.config import GPTConfig, TransformerConfig
from coursekit.decoder import GPT
from coursekit.saved_models import save_model
from coursekit.seq2seq import Transformer
from coursekit.tokenizer import CharTokenizer

# Names in the file, and what the library calls the same.
NAMES = {
    "norm_1.gain": "attention_norm.weight",
    "norm_cross.gain": "cross_attention_norm.weight",
    "norm_2.gain": "feed_forward_norm.weight",
    "norm.gain": "final_norm.weight",
    "unembed.": "head.",
    "attention.query": "attention.w_q",
    "attention.key": "attention.w_k",
    "attention.value": "attention.w_v",
    "attention.output": "attention.w_o",
    "feed_forward.hidden": "feed_forward.w_in",
    "feed_forward.output": "feed_forward.w_out",
}
# What the file has no options for.
CHOICES: dict[str, Any] = {
    "bias": False,
    "tie_embeddings": False,
    "positions": "learned",
    "norm_first": True,
    "final_norm": True,
    "activation": "gelu",
    "scale_embedding": False,
    "dropout": 0.0,
}


def library_name(name: str) -> str:
    """Library name of a parameter of the file."""
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    return name


def to_library(model: Any) -> nn.Module:
    """The library's model with the weights of one of the book's files.

    Args:
        model: a ``GPT`` of `minimal.py`, or a ``Transformer`` of
            `minimal_seq2seq.py`; also of an edited file.
    """
    vocab_size, d_model = model.unembed.weight.shape
    sizes: dict[str, Any] = {
        "vocab_size": vocab_size,
        "max_len": model.context,
        "d_model": d_model,
        "n_heads": model.blocks[0].attention.n_heads,
    }
    library: nn.Module
    if hasattr(model, "encoder"):
        depths: dict[str, Any] = {
            "n_encoder_layers": len(model.encoder.blocks),
            "n_decoder_layers": len(model.blocks),
        }
        library = Transformer(TransformerConfig(**sizes, **depths, **CHOICES))
    else:
        depth = len(model.blocks)
        library = GPT(GPTConfig(**sizes, n_layers=depth, **CHOICES))
    weights = model.state_dict().items()
    library.load_state_dict({library_name(k): v for k, v in weights})
    return library.to(model.unembed.weight.dtype)


@torch.no_grad()
def save_as_zip(
    path: Path, model: nn.Module, tokenizer: Any, sizes: tuple[int, ...]
) -> str:
    """Write a trained GPT of the learner's to a zip; a sentence about it.

    The zip holds the library's model and tokenizer, so a GPT that computes
    something else, or numbers characters in another order, is not written.

    Args:
        path: of the zip, which is overwritten.
        model: of the learner's file.
        tokenizer: of the learner's file, with a token for each character.
        sizes: with which the model was made: V, then the others.
    """
    characters = "".join(tokenizer.decode([i]) for i in range(sizes[0]))
    vocabulary = CharTokenizer(characters)
    if vocabulary.chars != characters:
        return (
            f"{path.name} is not written, because your tokenizer's ids don't "
            "follow the sorted characters. Sort its vocabulary, and train "
            "again."
        )
    book = minimal.GPT(*sizes)
    weights = model.state_dict()
    if weights.keys() != book.state_dict().keys():
        # Under other names, perhaps in the same order: the logits will tell.
        weights = dict(zip(book.state_dict(), weights.values(), strict=False))
    ids = torch.arange(book.context)[None] % vocabulary.vocab_size
    try:
        book.load_state_dict(weights)
        same = torch.allclose(model(ids), book(ids), atol=1e-3)
    except RuntimeError:  # other shapes
        same = False
    if not same:
        return (
            f"{path.name} is not written, because your GPT doesn't compute "
            "what the book's would from its weights. Compare its parts with "
            "the chapters' listings."
        )
    with tempfile.TemporaryDirectory() as folder:
        save_model(folder, to_library(book), vocabulary)
        with ZipFile(path, "w") as file:
            for part in sorted(Path(folder).iterdir()):
                file.write(part, part.name)
    return (
        f"Your model is in {path.name}. Open it on the page of the walk, or "
        f'in Python: coursekit.load("{path.name}")'
    )
