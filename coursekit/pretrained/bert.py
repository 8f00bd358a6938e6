"""BERT: an encoder, post-norm, with a norm on the embeddings.

The row of token type 0 is added to each position's.
"""

from pathlib import Path

from coursekit.config import EncoderConfig
from coursekit.encoder import Encoder
from coursekit.pretrained import formats
from coursekit.pretrained.wordpiece import WordPieceTokenizer
from coursekit.saved_models import Loaded

BERT_RULES = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
}
BERT_SETTINGS = """
vocab_size  vocab_size
max_len     max_position_embeddings
d_model     hidden_size
n_heads     num_attention_heads
n_layers    num_hidden_layers
d_ff        intermediate_size
norm_eps    layer_norm_eps
"""
BERT_WEIGHTS = """
embedding                      embeddings.word_embeddings
positions                      embeddings.position_embeddings
types                          embeddings.token_type_embeddings
embedding_norm                 embeddings.LayerNorm
blocks.{}.attention.w_q        encoder.layer.{}.attention.self.query
blocks.{}.attention.w_k        encoder.layer.{}.attention.self.key
blocks.{}.attention.w_v        encoder.layer.{}.attention.self.value
blocks.{}.attention.w_o        encoder.layer.{}.attention.output.dense
blocks.{}.attention_norm       encoder.layer.{}.attention.output.LayerNorm
blocks.{}.feed_forward.w_in    encoder.layer.{}.intermediate.dense
blocks.{}.feed_forward.w_out   encoder.layer.{}.output.dense
blocks.{}.feed_forward_norm    encoder.layer.{}.output.LayerNorm
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
    Test: test_pipelines.py::test_minilm_has_the_reference_vectors
    """
    folder = Path(folder)
    fields = formats.read_json(folder / "config.json")
    formats.require(fields, BERT_RULES, folder)
    sizes = formats.settings(fields, BERT_SETTINGS, folder)
    config = EncoderConfig(**sizes, embedding_norm=True)
    path = folder / "model.safetensors"
    theirs = formats.read_safetensors(path)
    ours = formats.rename(theirs, BERT_WEIGHTS, path, config.n_layers)
    # One sentence is all of type 0: its row goes wherever a position goes.
    ours["positions.weight"] += ours.pop("types.weight")[0]
    tokenizer = WordPieceTokenizer.from_vocab(folder / "vocab.txt")
    return formats.finish(Encoder, config, ours, tokenizer, path)
