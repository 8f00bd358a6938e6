"""Llama from a GGUF file: a small random one, as `transformers` has it."""

import os

import pytest
import torch
from compare import close, shake
from references import EAGER, GGUF_NAMES, numbers
from tokenizers import pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from coursekit.pretrained.llama import load_gguf

D, HEADS, MAX, DFF = 42, 3, 17, 29


def write_gguf(path, tied=True, **changes):
    """A small random Llama in GGUF, by the format's own library."""
    if os.environ.get("MODELS") != "1":  # asked for, it must be there
        pytest.importorskip("gguf", reason="make models installs it")
    import gguf

    config = LlamaConfig(
        vocab_size=262,
        hidden_size=D,
        intermediate_size=DFF,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=1,
        max_position_embeddings=MAX,
        rms_norm_eps=1e-3,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        tie_word_embeddings=tied,
        **EAGER,
    )
    theirs = shake(LlamaForCausalLM(config), std=0.15).eval()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = ["Ġ t", "h e", "Ġt he"]
    tokens = ["<|a|>", *letters, "Ġt", "he", "Ġthe", "<|b|>", "<|c|>"]
    fields = {
        "llama.context_length": MAX,
        "llama.embedding_length": D,
        "llama.block_count": 2,
        "llama.feed_forward_length": DFF,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": 1,
        "llama.rope.dimension_count": D // HEADS,
        "llama.rope.freq_base": 500.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-3,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [
            3 if t[:2] == "<|" else 1 for t in tokens
        ],
        "tokenizer.ggml.merges": merges,
    } | changes
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in fields.items():
        if isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_uint32(name, value)
    for name, tensor in gguf_weights(theirs, tied).items():
        writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return theirs


def gguf_weights(theirs, tied):
    """The reference's weights by the file's names, rows as neighbors."""
    state = theirs.state_dict()
    parts = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
    parts |= {} if tied else {"output": "lm_head"}
    for i in range(2):
        for a, b in GGUF_NAMES.items():
            parts[f"blk.{i}.{a}"] = f"model.layers.{i}.{b}"
    found = {}
    for a, b in parts.items():
        tensor = state[f"{b}.weight"]
        if a.endswith(("attn_q", "attn_k")):
            heads = HEADS if a.endswith("q") else 1
            apart = tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2)
            tensor = apart.flatten(0, 2).contiguous()
        found[f"{a}.weight"] = tensor
    return found


@pytest.mark.parametrize("tied", [True, False])
def test_llama_from_a_file(tmp_path, tied):
    """Rows in the file's order; control tokens on both sides moved."""
    path = tmp_path / "model.gguf"
    theirs = write_gguf(path, tied)
    model, tokenizer = load_gguf(path)
    assert (model.head is None) == tied
    names = {"<|a|>": 259, "<|b|>": 260, "<|c|>": 261}
    assert tokenizer.special_tokens == names
    assert tokenizer.encode(" the") == [258]
    ids = numbers(2, 7, top=262)
    right_ids = torch.where(ids < 259, ids + 1, ids)
    right_ids[ids == 259] = 0
    with torch.no_grad():
        z = theirs(right_ids).logits
        z = torch.cat((z[..., 1:260], z[..., :1], z[..., 260:]), dim=-1)
        close(model(ids), z, 1e-5)


@pytest.mark.parametrize(
    ("changes", "received"),
    [
        ({"tokenizer.ggml.pre": "llama-bpe"}, "pre must be 'smollm'.*bpe'"),
        ({"tokenizer.ggml.model": "llama"}, "model must be 'gpt2'.*'llama'"),
        ({"llama.rope.dimension_count": 4}, "count must be 14.*got 4"),
        ({"llama.rope.scaling.type": "yarn"}, "'none'.*got 'yarn'"),
        ({"tokenizer.ggml.merges": ["h e", "Ġ t"]}, "merges must make"),
        ({"tokenizer.ggml.merges": ["h x"]}, "merges must make"),
    ],
)
def test_another_kind_of_gguf_is_refused(tmp_path, changes, received):
    path = tmp_path / "model.gguf"
    write_gguf(path, **changes)
    with pytest.raises(ValueError, match=received):
        load_gguf(path)


def test_a_damaged_gguf_is_refused(tmp_path):
    path = tmp_path / "model.gguf"
    write_gguf(path)
    whole = path.read_bytes()
    for n in (0, 3, 100, 4000, len(whole) - 40):
        path.write_bytes(whole[:n])
        with pytest.raises(ValueError, match="whole GGUF file: got"):
            load_gguf(path)


def test_a_gguf_whose_lengths_are_damaged_is_refused_at_once(tmp_path):
    """The format's own library would count to 2⁶⁰."""
    path = tmp_path / "model.gguf"
    write_gguf(path)
    whole = path.read_bytes()
    name = b"tokenizer.ggml.tokens"
    at = whole.index(name) + len(name) + 8  # the array's length
    path.write_bytes(whole[:at] + (2**60).to_bytes(8, "little"))
    with pytest.raises(ValueError, match=r"whole GGUF file: got.*ends at"):
        load_gguf(path)
