"""The transformer, whole, readable and tested.

One line a chapter's module; the tools below load when they are asked for.
"""

import importlib
from pathlib import Path
from typing import Any

from torch import device as _device

from coursekit.attention import attend, attention_weights, fast_attend
from coursekit.cache import CachedStepper, CachedTranslator, LayerCache
from coursekit.checkpoint import Loaded, load_model, save_model
from coursekit.config import (
    EncoderConfig,
    GPTConfig,
    TrainConfig,
    TransformerConfig,
)
from coursekit.data import (
    Batch,
    load_text,
    random_windows,
    sequential_windows,
    split,
)
from coursekit.decoder import GPT, Block
from coursekit.embedding import TokenEmbedding
from coursekit.encoder import Encoder
from coursekit.feedforward import FeedForward, SwiGLU
from coursekit.generation import beam_search, generate, greedy, sampler
from coursekit.loss import cross_entropy, perplexity
from coursekit.masks import causal_mask, combine_masks, padding_mask
from coursekit.multihead import MultiHeadAttention, merge_heads, split_heads
from coursekit.norm import LayerNorm, Residual, RMSNorm
from coursekit.optim import cosine, make_optimizer, noam, parameter_groups
from coursekit.positions import rotate_pairs, sinusoidal
from coursekit.seq2seq import Transformer
from coursekit.tokenizer import BPETokenizer, CharTokenizer
from coursekit.training import evaluate, train

TOOLS = (
    "exercises",
    "interpret",
    "live",
    "probe",
    "prose",
    "scaling",
    "visual",
)
MODELS = Path(__file__).parent / "assets" / "models"


def load(name: str | Path, device: str | _device = "cpu") -> Loaded:
    """Load a trained model and its tokenizer.

    Args:
        name: of a model that the package ships, such as ``"running"``, or a
            run's folder.
        device: where the model goes.

    Returns:
        ``(model, tokenizer)``, the model in evaluation mode.

    Raises:
        ValueError: if there is no such model, or it is damaged.
    """
    return load_model(find_model(name), device)


def find_model(name: str | Path) -> Path:
    """The folder of a run, or of a model that the package ships.

    Raises:
        ValueError: if there is neither.
    """
    if str(name) in shipped():
        return MODELS / name
    if Path(name).is_dir():
        return Path(name)
    raise ValueError(
        "a model must be a run's folder or one that the package ships "
        f"({', '.join(shipped()) or 'none yet'}): got {str(name)!r}. Check "
        "the path, or train it first: coursekit train --out FOLDER."
    )


def shipped() -> list[str]:
    """Names of the models in the package."""
    return sorted(path.parent.name for path in MODELS.glob("*/config.json"))


def __getattr__(name: str) -> Any:
    """Load a tool when it is first asked for."""
    if name in TOOLS:
        return importlib.import_module(f"coursekit.{name}")
    if name == "check":
        return importlib.import_module("coursekit.exercises").check
    raise AttributeError(f"module 'coursekit' has no attribute {name!r}")


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
    "FeedForward",
    "GPTConfig",
    "LayerCache",
    "LayerNorm",
    "Loaded",
    "MultiHeadAttention",
    "RMSNorm",
    "Residual",
    "SwiGLU",
    "TokenEmbedding",
    "TrainConfig",
    "Transformer",
    "TransformerConfig",
    "attend",
    "attention_weights",
    "beam_search",
    "causal_mask",
    "combine_masks",
    "cosine",
    "cross_entropy",
    "evaluate",
    "fast_attend",
    "find_model",
    "generate",
    "greedy",
    "load",
    "load_model",
    "load_text",
    "make_optimizer",
    "merge_heads",
    "noam",
    "padding_mask",
    "parameter_groups",
    "perplexity",
    "random_windows",
    "rotate_pairs",
    "sampler",
    "save_model",
    "sequential_windows",
    "shipped",
    "sinusoidal",
    "split",
    "split_heads",
    "train",
]
