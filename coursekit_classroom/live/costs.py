"""Costs of models of well-known sizes: the calculator's presets and still."""

from typing import Any

from coursekit.cache import cache_bytes
from coursekit.config import GPTConfig
from coursekit.scaling import count_parameters, forward_flops, meta_model
from coursekit_classroom import figures
from coursekit_classroom.figures.hero import percent, tint
from coursekit_classroom.figures.style import COLORS, ROLES, Number

__all__ = ["PRESETS", "calculator", "costs"]

LLAMA: dict[str, Any] = {
    "positions": "rope", "norm": "rmsnorm", "activation": "swiglu",
    "bias": False,
}  # fmt: skip
PRESETS = {
    "minimal.py": GPTConfig(
        vocab_size=66, max_len=64, d_model=64, n_heads=4, n_layers=4,
        bias=False, tie_embeddings=False,
    ),
    "GPT-2 small": GPTConfig(
        vocab_size=50_257, max_len=1024, d_model=768, n_heads=12,
        n_layers=12,
    ),
    "SmolLM2-135M": GPTConfig(
        vocab_size=49_152, max_len=8192, d_model=576, n_heads=9,
        n_kv_heads=3, n_layers=30, d_ff=1536, **LLAMA,
    ),
    "LLaMA-7B": GPTConfig(
        vocab_size=32_000, max_len=2048, d_model=4096, n_heads=32,
        n_layers=32, d_ff=11_008, tie_embeddings=False, **LLAMA,
    ),
    "GPT-3": GPTConfig(
        vocab_size=50_257, max_len=2048, d_model=12_288, n_heads=96,
        n_layers=96,
    ),
}  # fmt: skip
"""Sizes from radford2019language, allal2025smollm2, touvron2023llama and
brown2020language; minimal.py's are those with which it trains."""
STATE = 16  # bytes per parameter: itself, its gradient, AdamW's two
NAMES = {
    "tokens": "embedding", "norms": "norms", "network": "FFN",
    "projections": "projections", "scores": "scores, mixing",
    "head": "unembedding", "weights": "parameters", "cache": "KV cache",
}  # fmt: skip
PARTS = {  # in the order of their bars, with their roles
    "tokens": "token", "positions": "token", "attention": "query",
    "projections": "query", "scores": "weight", "network": "ffn",
    "norms": "norm", "head": "token", "weights": "token", "cache": "key",
}  # fmt: skip


def costs(config: GPTConfig, bits: int = 16) -> dict[str, dict[str, Number]]:
    """Count what a model costs at its full context.

    Args:
        config: of the model.
        bits: of a stored parameter, and of an entry of the cache.

    Returns:
        By part: ``parameters``; ``flops`` of the forward pass per token;
        ``memory`` for generating one text, in bytes.
    """
    length = config.max_len
    parameters = count_parameters(meta_model(config))
    flops = forward_flops(config, length)
    cache = cache_bytes(
        config.n_layers, config.kv_heads, length, config.head_size, 1
    )
    return {
        "parameters": dict(parameters),
        "flops": {part: n / length for part, n in flops.items()},
        "memory": {
            "weights": sum(parameters.values()) * bits / 8,
            "cache": cache * bits / 8,
        },
    }


def calculator(
    _: Any, __: Any, ___: str, preset: str = "minimal.py", **____: int | str
) -> Any:
    """A bar for each cost, cut into its parts."""
    config = PRESETS[preset]
    cost = costs(config)
    n = sum(cost["parameters"].values())
    heads = {
        "parameters": f"{amount(n)} parameters",
        "flops": f"{amount(sum(cost['flops'].values()))} FLOPs per token",
        "memory": f"{amount(sum(cost['memory'].values()), 'B')} to generate "
        f"{config.max_len:,} tokens in 16-bit numbers",
    }
    ax = figures.new_figure(height=3.7)[1][0]
    ax.set(xlim=(0, 1), ylim=(2.8, 0))
    ax.axis("off")
    ax.set_title(preset, weight="bold")
    for row, (name, head) in enumerate(heads.items()):
        parts = {p: cost[name][p] for p in PARTS if cost[name].get(p)}
        total: Number = sum(parts.values())
        left: Number = 0
        ax.text(0, row + 0.1, head, va="center")
        for part, n in parts.items():
            depth = 0.5 if part == "positions" else 1
            color = tint(COLORS[ROLES[PARTS[part]]], depth)
            share = n / total
            box = figures.Rectangle((left, row + 0.25), share, 0.28,
                            facecolor=color, edgecolor="white")  # fmt: skip
            ax.add_patch(box)
            left += share
        shares = {part: n / total for part, n in parts.items()}
        lines = [
            f"{NAMES.get(part, part)} {percent(share)}"
            for part, share in shares.items()
            if share > 0.0005
        ]
        ax.text(0, row + 0.68, " · ".join(lines), va="center", size=10)
    return ax


def amount(n: Number, unit: str = "") -> str:
    """124 million, 8.03 billion; or 250 MB."""
    power = max(i for i in range(5) if i == 0 or n >= 1000**i)
    words = ("", " million", " billion", " trillion")
    digits = f"{float(f'{n / 1000**power:.3g}'):,g}"
    if unit:
        return f"{digits} {' kMGT'[power].strip()}{unit}"
    if power < 2:
        return f"{float(f'{n:.3g}'):,.0f}"
    return digits + words[power - 1]
