"""What tests of published models share: the reference, from a config."""

import json
import struct

import torch

EAGER = {"attn_implementation": "eager"}
END = "<|endoftext|>"
GGUF_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def whisper_config(**options):
    from transformers import WhisperConfig  # half a second, for few

    return WhisperConfig(
        bos_token_id=1,
        eos_token_id=options["vocab_size"] - 1,
        pad_token_id=0,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
        **EAGER,
        **options,
    )


def numbers(*shape, seed=3, top=31):
    """Token ids, at random but the same."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, top, shape, generator=generator)


def edit_config(folder, **changes):
    """Change fields of a published configuration."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changes))


def write_model_bin(path, weights, second_names=(), version=6):
    """CTranslate2's format, written by these tests."""

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
