"""BERT: an encoder, post-norm, with a norm on the embeddings.

The row of token type 0 is added to each position's.
"""

from pathlib import Path

from coursekit.config import EncoderConfig
from coursekit.encoder import Encoder
from coursekit.models import Loaded
from coursekit.pretrained.formats import (
    built,
    finish,
    per_block,
    read_json,
    read_safetensors,
    rename,
    require,
)
from coursekit.pretrained.wordpiece import WordPieceTokenizer

__all__ = ["load_bert"]


BERT_BLOCK = """
attention.w_q       attention.self.query
attention.w_k       attention.self.key
attention.w_v       attention.self.value
attention.w_o       attention.output.dense
attention_norm      attention.output.LayerNorm
feed_forward.w_in   intermediate.dense
feed_forward.w_out  output.dense
feed_forward_norm   output.LayerNorm
"""


def load_bert(folder: str | Path) -> Loaded:
    """Load a BERT from a folder, as Hugging Face's library writes it.

    Args:
        folder: with config.json, model.safetensors, vocab.txt (uncased).

    Returns:
        An :class:`Encoder` and its :class:`WordPieceTokenizer`.

    Raises:
        ValueError: if something is missing, damaged or of another kind.

    Chapter: 15, modern.
    Source: devlin2019bert.
    Test: tests/test_pipelines.py::test_minilm_has_the_reference_vectors
    """
    folder = Path(folder)
    fields = read_json(folder / "config.json")
    rules = {"model_type": "bert", "hidden_act": "gelu"}
    require(fields, rules | {"position_embedding_type": "absolute"}, folder)
    config = EncoderConfig(
        vocab_size=fields["vocab_size"],
        max_len=fields["max_position_embeddings"],
        d_model=fields["hidden_size"],
        n_heads=fields["num_attention_heads"],
        n_layers=fields["num_hidden_layers"],
        d_ff=fields["intermediate_size"],
        norm_eps=fields["layer_norm_eps"],
        embedding_norm=True,
    )
    path = folder / "model.safetensors"
    theirs = read_safetensors(path)
    layers = "blocks.{}.", "encoder.layer.{}."
    names = per_block(config.n_layers, *layers, BERT_BLOCK) | {
        "embedding": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
        "embedding_norm": "embeddings.LayerNorm",
        "types": "embeddings.token_type_embeddings",
    }
    ours = rename(theirs, names, path)
    # One sentence is all of type 0: its row goes wherever a position goes.
    ours["positions.weight"] += ours.pop("types.weight")[0]
    tokenizer = WordPieceTokenizer.from_vocab(folder / "vocab.txt")
    return finish(built(Encoder, config), ours, tokenizer, path)
