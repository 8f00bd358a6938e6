"""What tests of published models share: the reference, from a config."""

from transformers import WhisperConfig

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
