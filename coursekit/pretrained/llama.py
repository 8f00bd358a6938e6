"""Llama's kind of decoder, such as SmolLM2, from a GGUF file.

RMSNorm, RoPE (neighbors are pairs), fewer heads for keys and values than for
queries, SwiGLU, no biases.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coursekit.bpe import DIGITS_APART
from coursekit.config import GPTConfig
from coursekit.decoder import GPT
from coursekit.pretrained import formats
from coursekit.saved_models import Loaded
from coursekit.tokenizer import BPETokenizer

GGUF_RULES = {
    "general.architecture": "llama",
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "llama.rope.scaling.type": "none",
}
GGUF_SETTINGS = """
max_len     llama.context_length
d_model     llama.embedding_length
n_heads     llama.attention.head_count
n_kv_heads  llama.attention.head_count_kv
n_layers    llama.block_count
d_ff        llama.feed_forward_length
norm_eps    llama.attention.layer_norm_rms_epsilon
rope_base   llama.rope.freq_base
"""
LLAMA: dict[str, Any] = {
    "norm": "rmsnorm",
    "activation": "swiglu",
    "bias": False,
    "positions": "rope",
    "position_layout": "interleaved",
}
GGUF_WEIGHTS = """
embedding                      token_embd
final_norm                     output_norm
blocks.{}.attention_norm       blk.{}.attn_norm
blocks.{}.attention.w_q        blk.{}.attn_q
blocks.{}.attention.w_k        blk.{}.attn_k
blocks.{}.attention.w_v        blk.{}.attn_v
blocks.{}.attention.w_o        blk.{}.attn_output
blocks.{}.feed_forward_norm    blk.{}.ffn_norm
blocks.{}.feed_forward.w_gate  blk.{}.ffn_gate
blocks.{}.feed_forward.w_in    blk.{}.ffn_up
blocks.{}.feed_forward.w_out   blk.{}.ffn_down
"""
GGUF_HEAD = "head  output"


def load_gguf(path: str | Path) -> Loaded:
    """Load a model of Llama's kind from a GGUF file.

    GGUF has the rows of queries and keys in an order of its own: RoPE's
    pairs are neighbors (``position_layout="interleaved"``), not halves as
    in the files of Hugging Face's library.

    Args:
        path: the file; its tokenizer must be a byte-level BPE.

    Returns:
        A :class:`GPT` and its :class:`BPETokenizer`.  Control tokens come
        last in all our tokenizers, and first in some files: then the rows
        of the embedding move with them.

    Raises:
        MissingModelError: if the package ``gguf`` is not installed.
        ValueError: if the file is missing, damaged, or of another kind.

    Chapter: 15, modern.
    Source: allal2025smollm2.
    Test: test_pipelines.py::test_smollm2_has_the_reference_logits
    """
    path = Path(path)
    fields, theirs = formats.read_gguf(path)
    sizes = formats.settings(fields, GGUF_SETTINGS, path)
    d_head = sizes["d_model"] // sizes["n_heads"]
    formats.require(
        fields, GGUF_RULES | {"llama.rope.dimension_count": d_head}, path
    )
    tokenizer, order = _gguf_tokenizer(fields, path)
    tied = "output.weight" not in theirs
    config = GPTConfig(
        vocab_size=tokenizer.vocab_size, tie_embeddings=tied, **sizes, **LLAMA
    )
    names = GGUF_WEIGHTS if tied else GGUF_WEIGHTS + GGUF_HEAD
    ours = formats.rename(theirs, names, path, config.n_layers)
    for name in {"embedding.weight", "head.weight"} & ours.keys():
        ours[name] = ours[name][order]
    return formats.finish(GPT, config, ours, tokenizer, path)


def _gguf_tokenizer(
    fields: Mapping[str, Any], path: Path
) -> tuple[BPETokenizer, list[int]]:
    """The tokenizer of a GGUF file, and the file's id for each of our ids.

    Raises:
        ValueError: if its merges don't make tokens in the order of ids.
    """
    tokens = fields["tokenizer.ggml.tokens"]
    kinds = fields["tokenizer.ggml.token_type"]
    ordinary = [i for i, kind in enumerate(kinds) if kind == 1]
    special = [i for i, kind in enumerate(kinds) if kind != 1]
    ids = {token: i for i, token in enumerate(tokens)}
    merges = fields["tokenizer.ggml.merges"]
    made = [ids.get(merge.replace(" ", ""), -1) for merge in merges]
    if made != sorted(made) or -1 in made:
        raise ValueError(
            "merges must make tokens in the order of their ids: got "
            f"another order in {path}. Its BPE can't be replayed by ids."
        )
    tokenizer = BPETokenizer(
        [formats.from_printable(tokens[i]) for i in ordinary],
        [tokens[i] for i in special],
        split=DIGITS_APART,
        complete=False,
    )
    return tokenizer, ordinary + special
