"""GPT-2: a decoder, GELU by tanh, whose matrices are stored transposed."""

from pathlib import Path

from coursekit.config import GPTConfig
from coursekit.decoder import GPT
from coursekit.models import Loaded
from coursekit.pretrained.formats import (
    built,
    finish,
    per_block,
    read_json,
    read_safetensors,
    rename,
    require,
    unfused,
)
from coursekit.tokenizer import BPETokenizer

__all__ = ["load_gpt2"]


GPT2_BLOCK = """
attention_norm      ln_1
attention.w_qkv     attn.c_attn
attention.w_o       attn.c_proj
feed_forward_norm   ln_2
feed_forward.w_in   mlp.c_fc
feed_forward.w_out  mlp.c_proj
"""
GPT2_ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
}


def load_gpt2(folder: str | Path) -> Loaded:
    """Load a GPT-2 from a folder, as Hugging Face's library writes it.

    Args:
        folder: with config.json and model.safetensors.

    Returns:
        A :class:`GPT`, and GPT-2's tokenizer if the vocabulary has its
        50,257 tokens, else None.

    Raises:
        ValueError: if something is missing, damaged or of another kind.

    Chapter: 15, modern.
    Source: radford2019language.
    Test: tests/test_gpt2.py::test_gpt2_from_a_folder
    """
    folder = Path(folder)
    fields = read_json(folder / "config.json")
    rules = {"model_type": "gpt2", "scale_attn_weights": True}
    require(fields, rules | {"add_cross_attention": False}, folder)
    require(fields, {"scale_attn_by_inverse_layer_idx": False}, folder)
    activation = fields.get("activation_function", "gelu_new")
    if activation not in GPT2_ACTIVATIONS:
        raise ValueError(
            f"the activation must be one of {', '.join(GPT2_ACTIVATIONS)}: "
            f"got {activation!r} in {folder}. It is not supported."
        )
    path = folder / "model.safetensors"
    theirs = {
        name.removeprefix("transformer."): tensor
        for name, tensor in read_safetensors(path).items()
    }
    config = GPTConfig(
        vocab_size=fields["vocab_size"],
        max_len=fields["n_positions"],
        d_model=fields["n_embd"],
        n_heads=fields["n_head"],
        n_layers=fields["n_layer"],
        d_ff=fields.get("n_inner"),
        norm_eps=fields.get("layer_norm_epsilon", 1e-5),
        activation=GPT2_ACTIVATIONS[activation],
        tie_embeddings="lm_head.weight" not in theirs,
    )
    names = per_block(config.n_layers, "blocks.{}.", "h.{}.", GPT2_BLOCK)
    names |= {"embedding": "wte", "positions": "wpe", "final_norm": "ln_f"}
    names |= {} if config.tie_embeddings else {"head": "lm_head"}
    ours = rename(theirs, names, path)
    for name in [n for n in ours if n.endswith("weight") and ".w_" in n]:
        ours[name] = ours[name].mT  # (in, out) to (out, in)
    tokenizer = BPETokenizer.gpt2() if config.vocab_size == 50257 else None
    return finish(built(GPT, config), unfused(ours), tokenizer, path)
