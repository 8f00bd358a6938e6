"""GPT-2: a decoder, GELU by tanh, whose matrices are stored transposed."""

import re
from pathlib import Path

from coursekit.checks import check_choice
from coursekit.config import GPTConfig
from coursekit.decoder import GPT
from coursekit.pretrained import formats
from coursekit.saved_models import Loaded
from coursekit.tokenizer import BPETokenizer

GPT2_RULES = {
    "model_type": "gpt2",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}
GPT2_DEFAULTS = {
    "n_inner": None,
    "layer_norm_epsilon": 1e-5,
    "activation_function": "gelu_new",
}
GPT2_SETTINGS = """
vocab_size  vocab_size
max_len     n_positions
d_model     n_embd
n_heads     n_head
n_layers    n_layer
d_ff        n_inner
norm_eps    layer_norm_epsilon
activation  activation_function
"""
GPT2_ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
}
GPT2_WEIGHTS = """
embedding                     wte
positions                     wpe
final_norm                    ln_f
blocks.{}.attention_norm      h.{}.ln_1
blocks.{}.attention.w_qkv     h.{}.attn.c_attn
blocks.{}.attention.w_o       h.{}.attn.c_proj
blocks.{}.feed_forward_norm   h.{}.ln_2
blocks.{}.feed_forward.w_in   h.{}.mlp.c_fc
blocks.{}.feed_forward.w_out  h.{}.mlp.c_proj
"""
GPT2_HEAD = "head  lm_head"


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
    Test: test_gpt2.py::test_gpt2_from_a_folder
    """
    folder = Path(folder)
    fields = GPT2_DEFAULTS | formats.read_json(folder / "config.json")
    formats.require(fields, GPT2_RULES, folder)
    settings = formats.settings(fields, GPT2_SETTINGS, folder)
    remedy = f"Models such as {folder} are not supported."
    activation = settings["activation"]
    check_choice("the activation", activation, GPT2_ACTIVATIONS, remedy)
    settings["activation"] = GPT2_ACTIVATIONS[activation]
    path = folder / "model.safetensors"
    theirs = _read_weights(path)
    tied = "lm_head.weight" not in theirs
    config = GPTConfig(**settings, tie_embeddings=tied)
    names = GPT2_WEIGHTS if tied else GPT2_WEIGHTS + GPT2_HEAD
    ours = formats.rename(theirs, names, path, config.n_layers)
    tokenizer = BPETokenizer.gpt2() if config.vocab_size == 50257 else None
    return formats.finish(GPT, config, ours, tokenizer, path)


def _read_weights(path: Path) -> formats.Tensors:
    """The weights by their short names; matrices are (out, in), as ours."""
    weights = {}
    for name, tensor in formats.read_safetensors(path).items():
        is_transposed = re.search(r"\.c_\w+\.weight$", name)
        short = name.removeprefix("transformer.")
        weights[short] = tensor.mT if is_transposed else tensor
    return weights
