"""The transformer, whole, readable and tested.

One line a chapter's module; the tools below load when they are asked for.
"""

import importlib
from typing import Any

from coursekit import aliases
from coursekit.attention import attend, attention_weights, fast_attend
from coursekit.cache import CachedStepper, CachedTranslator, LayerCache
from coursekit.checkpoint import (
    Loaded,
    find_model,
    load,
    load_model,
    round_weights,
    save_model,
    shipped,
)
from coursekit.config import (
    EncoderConfig,
    GPTConfig,
    SpeechConfig,
    TransformerConfig,
    VisionConfig,
)
from coursekit.data import (
    Batch,
    load_pairs,
    load_text,
    random_windows,
    sequential_windows,
    split,
)
from coursekit.decoder import GPT, Block
from coursekit.embedding import TokenEmbedding
from coursekit.encoder import Encoder
from coursekit.fast import for_generation as pack
from coursekit.fast.static import StaticStepper
from coursekit.feedforward import Experts, FeedForward, SwiGLU
from coursekit.generation import beam_search, generate, greedy, sampler
from coursekit.loss import cross_entropy, perplexity
from coursekit.masks import (
    causal_mask,
    combine_masks,
    padding_mask,
    window_mask,
)
from coursekit.multihead import MultiHeadAttention, merge_heads, split_heads
from coursekit.norm import LayerNorm, Residual, RMSNorm
from coursekit.optim import cosine_schedule, noam_schedule, parameter_groups
from coursekit.positions import rotate_pairs, sinusoidal
from coursekit.pretrained.loading import (
    MissingModelError,
    load_gpt2,
    load_published,
)
from coursekit.pretrained.pipelines import (
    align,
    chat,
    complete,
    sentence_vectors,
    transcribe,
)
from coursekit.pretrained.whisper import (
    SpeechTransformer,
    load_speech,
    log_mel,
    read_wav,
)
from coursekit.seq2seq import Transformer
from coursekit.tokenizer import (
    BPETokenizer,
    CharTokenizer,
    WordPieceTokenizer,
)
from coursekit.train_config import TrainConfig, make_optimizer
from coursekit.training import evaluate, train
from coursekit.translate import Translator
from coursekit.vision import (
    ViT,
    load_fashion,
    patchify,
    shuffle_patches,
    unpatchify,
)

aliases.install()

LAZY = {  # tools load when they are first asked for
    **{
        name: f"coursekit.{name}" for name in ("interpret", "probe", "scaling")
    },
    "lesson": "coursekit.classroom.lesson",
    "live": "coursekit.classroom.live",
    "visual": "coursekit.classroom.figures",
    "prose": "coursekit.classroom.glue",
    "check": "coursekit.classroom.check:check",
    "start": "coursekit.classroom.yourfile:start",
    "step": "coursekit.classroom.yourfile:step",
}


def __getattr__(name: str) -> Any:
    """Load a tool when it is first asked for."""
    if name not in LAZY:
        raise AttributeError(f"module 'coursekit' has no attribute {name!r}")
    module, _, member = LAZY[name].partition(":")
    found = importlib.import_module(module)
    return getattr(found, member) if member else found


__all__ = [
    "GPT",
    "BPETokenizer",
    "Batch",
    "Block",
    "CachedStepper",
    "CachedTranslator",
    "CharTokenizer",
    "Encoder",
    "EncoderConfig",
    "Experts",
    "FeedForward",
    "GPTConfig",
    "LayerCache",
    "LayerNorm",
    "Loaded",
    "MissingModelError",
    "MultiHeadAttention",
    "RMSNorm",
    "Residual",
    "SpeechConfig",
    "SpeechTransformer",
    "StaticStepper",
    "SwiGLU",
    "TokenEmbedding",
    "TrainConfig",
    "Transformer",
    "TransformerConfig",
    "Translator",
    "ViT",
    "VisionConfig",
    "WordPieceTokenizer",
    "align",
    "attend",
    "attention_weights",
    "beam_search",
    "causal_mask",
    "chat",
    "combine_masks",
    "complete",
    "cosine_schedule",
    "cross_entropy",
    "evaluate",
    "fast_attend",
    "find_model",
    "generate",
    "greedy",
    "load",
    "load_fashion",
    "load_gpt2",
    "load_model",
    "load_pairs",
    "load_published",
    "load_speech",
    "load_text",
    "log_mel",
    "make_optimizer",
    "merge_heads",
    "noam_schedule",
    "pack",
    "padding_mask",
    "parameter_groups",
    "patchify",
    "perplexity",
    "random_windows",
    "read_wav",
    "rotate_pairs",
    "round_weights",
    "sampler",
    "save_model",
    "sentence_vectors",
    "sequential_windows",
    "shipped",
    "shuffle_patches",
    "sinusoidal",
    "split",
    "split_heads",
    "train",
    "transcribe",
    "unpatchify",
    "window_mask",
]
