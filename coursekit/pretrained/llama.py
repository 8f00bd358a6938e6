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
from coursekit.models import Loaded
from coursekit.pretrained.formats import (
    built,
    finish,
    from_printable,
    per_block,
    read_gguf,
    rename,
    require,
)
from coursekit.tokenizer import BPETokenizer

__all__ = ["load_gguf"]


GGUF_BLOCK = """
attention_norm       attn_norm
attention.w_q        attn_q
attention.w_k        attn_k
attention.w_v        attn_v
attention.w_o        attn_output
feed_forward_norm    ffn_norm
feed_forward.w_gate  ffn_gate
feed_forward.w_in    ffn_up
feed_forward.w_out   ffn_down
"""


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
    Test: tests/test_pipelines.py::test_smollm2_has_the_reference_logits
    """
    path = Path(path)
    fields, theirs = read_gguf(path)
    size = (
        fields["llama.embedding_length"]
        // fields["llama.attention.head_count"]
    )
    rules: dict[str, Any] = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "llama.rope.dimension_count": size,
        "llama.rope.scaling.type": "none",
    }
    require(fields, rules, path)
    tokenizer, order = gguf_tokenizer(fields, path)
    config = GPTConfig(
        vocab_size=tokenizer.vocab_size,
        max_len=fields["llama.context_length"],
        d_model=fields["llama.embedding_length"],
        n_heads=fields["llama.attention.head_count"],
        n_kv_heads=fields["llama.attention.head_count_kv"],
        n_layers=fields["llama.block_count"],
        d_ff=fields["llama.feed_forward_length"],
        norm_eps=fields["llama.attention.layer_norm_rms_epsilon"],
        rope_base=fields["llama.rope.freq_base"],
        tie_embeddings="output.weight" not in theirs,
        norm="rmsnorm",
        activation="swiglu",
        bias=False,
        positions="rope",
        position_layout="interleaved",
    )
    names = per_block(config.n_layers, "blocks.{}.", "blk.{}.", GGUF_BLOCK)
    names |= {"embedding": "token_embd", "final_norm": "output_norm"}
    names |= {} if config.tie_embeddings else {"head": "output"}
    ours = rename(theirs, names, path)
    for name in {"embedding.weight", "head.weight"} & ours.keys():
        ours[name] = ours[name][order]
    return finish(built(GPT, config), ours, tokenizer, path)


def gguf_tokenizer(
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
        [from_printable(tokens[i]) for i in ordinary],
        [tokens[i] for i in special],
        split=DIGITS_APART,
        complete=False,
    )
    return tokenizer, ordinary + special
