"""GPT-2 from a folder: a small random one that `transformers` has written."""

import pytest
import torch
from compare import close, shake
from references import edit_config, numbers
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

from coursekit.pretrained.gpt2 import load_gpt2

D, HEADS, V, MAX, DFF = 42, 3, 31, 17, 29


def write_gpt2(folder, **changes):
    options = {
        "vocab_size": V,
        "n_positions": MAX,
        "n_embd": D,
        "n_layer": 2,
        "n_head": HEADS,
        "n_inner": DFF,
        "layer_norm_epsilon": 1e-3,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    config = GPT2Config(**options | changes)
    theirs = shake(GPT2LMHeadModel(config)).eval()
    theirs.save_pretrained(folder)
    return theirs


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"n_inner": None},
        {"activation_function": "relu"},
        {"tie_word_embeddings": False},
    ],
    ids=str,
)
def test_gpt2_from_a_folder(tmp_path, changes):
    """A small random one that transformers wrote; tied or not."""
    theirs = write_gpt2(tmp_path, **changes)
    model, tokenizer = load_gpt2(tmp_path)
    assert tokenizer is None  # not GPT-2's 50,257 tokens
    with torch.no_grad():
        close(model(numbers(2, 7)), theirs(numbers(2, 7)).logits, 1e-5)


def test_gpt2_with_its_own_tokens_and_names(tmp_path):
    """OpenAI's file has no "transformer." before names, and stores masks."""
    write_gpt2(tmp_path, vocab_size=50_257, n_embd=6, n_head=1)
    path = tmp_path / "model.safetensors"
    bare = {
        name.removeprefix("transformer."): tensor
        for name, tensor in load_file(path).items()
    }
    with_prefix = load_gpt2(tmp_path)
    bare["h.0.attn.bias"] = torch.ones(1, 1, MAX, MAX).tril()
    save_file(bare, path)
    model, tokenizer = load_gpt2(tmp_path)
    assert tokenizer.vocab_size == 50_257
    ids = torch.tensor([tokenizer.encode("Hello, world")])
    with torch.no_grad():
        assert torch.equal(model(ids), with_prefix.model(ids))


@pytest.mark.parametrize(
    ("changes", "received"),
    [
        ({"model_type": "gptj"}, "got 'gptj'"),
        ({"activation_function": "x"}, "got 'x'"),
        ({"scale_attn_weights": False}, "got False"),
        ({"vocab_size": 50_257}, "has shape"),
        ({"n_positions": 2**31}, "has shape"),  # 360 GB
    ],
)
def test_a_folder_that_does_not_fit(tmp_path, changes, received):
    write_gpt2(tmp_path)
    edit_config(tmp_path, **changes)
    with pytest.raises(ValueError, match=received):
        load_gpt2(tmp_path)


@pytest.mark.parametrize(
    ("name", "data", "received"),
    [
        ("config.json", None, "must hold a config.json"),
        ("config.json", b"{", "must hold a config.json"),
        ("config.json", b"[1]", r"fields by name: got \[1\]"),
        ("model.safetensors", None, "Pickles .* are never opened"),
        ("model.safetensors", b"1234567", "one whole safetensors file"),
    ],
)
def test_a_damaged_folder(tmp_path, name, data, received):
    write_gpt2(tmp_path)
    (tmp_path / name).unlink()
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=received):
        load_gpt2(tmp_path)
