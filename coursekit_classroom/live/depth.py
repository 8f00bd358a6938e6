"""The residual stream of a deep, untrained model, measured.

A live figure has no room for the weights of a model that nobody trained: it
draws them, by the same generator as this file.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from coursekit.config import GPTConfig
from coursekit.decoder import GPT
from coursekit_classroom import figures
from coursekit_classroom.figures.hero import tint
from coursekit_classroom.figures.style import COLORS, ROLES

__all__ = ["SIZES", "depth", "streams", "untrained"]

SIZES: dict[str, Any] = {
    "vocab": 8,
    "length": 8,
    "width": 64,
    "heads": 4,
    "blocks": 12,
}
"""Of the model that the figure shows, as in js/figures/depth.js."""
MAP = 1.8  # the side of a map of cosines, in blocks
STEP = 0x6D2B79F5  # from one state of the generator to the next


def untrained(
    vocab: int, length: int, width: int, heads: int, blocks: int,
    seed: int = 0, times: float = 1.0, **choices: bool | str,
) -> GPT:  # fmt: skip
    """Build the model of ``Untrained`` in js/figures/untrained.js.

    Its matrices are those of minimal.py before training: normal with a
    standard deviation of ``0.5 / √D``, those that write to the residual
    stream divided by ``√(2 L)``; all are multiplied by ``times``.

    Args:
        vocab: V, different tokens.
        length: T, longest text in tokens.
        width: D.
        heads: H.
        blocks: L.
        seed: of the generator.
        times: a factor for every matrix.
        choices: other fields of the configuration, such as ``norm_first``.

    Returns:
        The model, in evaluation mode.
    """
    fields: dict[str, Any] = {"bias": False, "tie_embeddings": False}
    config = GPTConfig(
        vocab_size=vocab, max_len=length, d_model=width, n_heads=heads,
        n_layers=blocks, **(fields | choices),
    )  # fmt: skip
    model: Any = GPT(config).eval()
    std = 0.5 / width**0.5
    last = std / (2 * blocks) ** 0.5  # each block adds twice
    matrices = [(model.embedding, std), (model.positions, std)]
    for block in model.blocks:
        parts = block.attention
        matrices += [(w, std) for w in (parts.w_q, parts.w_k, parts.w_v)]
        matrices += [(parts.w_o, last), (block.feed_forward.w_in, std)]
        matrices += [(block.feed_forward.w_out, last)]
    matrices += [(model.head, std)]
    fill(matrices, seed, times)
    return model


def fill(
    matrices: list[tuple[nn.Module, float]], seed: int, times: float
) -> None:
    """Give each module's matrix the next numbers, of its deviation."""
    weights: list[Any] = [module.weight for module, _ in matrices]
    drawn = normals(seed, sum(weight.numel() for weight in weights))
    with torch.no_grad():
        for weight, (_, std) in zip(weights, matrices, strict=True):
            some, drawn = np.split(drawn, [weight.numel()])
            # Rounded first and multiplied then, as in the page.
            values = torch.from_numpy((std * some).astype(np.float32))
            weight.copy_(times * values.view_as(weight))


def normals(seed: int, n: int) -> NDArray[np.float64]:
    """Draw n normal numbers, by Box and Muller, as the page does."""
    state = np.arange(1, 2 * n + 1, dtype=np.uint64) * STEP + seed
    s = state.astype(np.uint32)
    t = (s ^ (s >> 15)) * (s | 1)
    t = (t + (t ^ (t >> 7)) * (t | 61)) ^ t
    uniform = (t ^ (t >> 14)).astype(np.float64) / 2**32
    radius = np.sqrt(-2 * np.log(1 - uniform[0::2]))
    return radius * np.cos(2 * np.pi * uniform[1::2])


def streams(model: Any) -> list[Float[Tensor, "T D"]]:
    """The stream of tokens 0, 1, 2, …: at first, and after each block."""
    ids = torch.arange(model.config.max_len)
    x = model.positions(model.embedding(ids[None]), ids)
    stream = [x[0]]
    for block in model.blocks:
        x = block(x, causal=True)
        stream.append(x[0])
    return stream


def measured(x: Float[Tensor, "T D"]) -> tuple[float, Float[Tensor, "T T"]]:
    """The size of a stream's entries (root mean square), and its cosines."""
    unit = nn.functional.normalize(x, dim=-1)
    return x.square().mean().sqrt().item(), unit @ unit.mT


def depth(
    _: Any, __: Any, ___: str, seed: int = 0, times: float = 4,
    residual: int = 1, norm: str = "pre",
) -> Any:  # fmt: skip
    """The size of the stream by depth, and how alike the positions are."""
    kind = "none" if norm == "none" else "layernorm"
    choices: dict[str, Any] = {"norm": kind, "norm_first": norm != "post"}
    model = untrained(
        **SIZES, seed=seed, times=times, residual=bool(residual), **choices
    )
    by_depth = [measured(x) for x in streams(model)]
    color = COLORS[ROLES["stream"]]
    sizes, last = [size for size, _ in by_depth], len(by_depth) - 1
    ax, below = figures.new_figure(
        3.6, rows=2, height_ratios=(5, 2), sharex=True
    )[1]
    ax.plot(range(len(by_depth)), sizes, "o-", color=color)
    ax.set_yscale("log")
    ax.set(ylim=(0.01, 1e4), title="how large: the size of an entry")
    ax.annotate(f"{sizes[-1]:.2g}", (last, sizes[-1]), (0, 8),
                textcoords="offset points", ha="center")  # fmt: skip
    below.set(xlim=(-0.95, last + 0.95), ylim=(MAP, 0), aspect="equal",
              xlabel="blocks", yticks=[], xticks=range(0, last + 1, 2),
              title="how alike: the cosine of each two positions")  # fmt: skip
    below.spines[:].set_visible(False)
    below.tick_params(length=0)
    for block in range(0, last + 1, 2):
        tile(below, block - MAP / 2, by_depth[block][1], color)
    return ax


def tile(ax: Any, left: float, cosines: Tensor, color: str) -> None:
    """A small map of cosines; none is below 0."""
    side = MAP / len(cosines)
    for t, row in enumerate(cosines.clamp(min=0).tolist()):
        for s, cosine in enumerate(row):
            ax.add_patch(
                figures.Rectangle((left + s * side, t * side), side, side,
                          facecolor=tint(color, cosine), linewidth=0)
            )  # fmt: skip
    ax.add_patch(
        figures.Rectangle((left, 0), MAP, MAP, fill=False, linewidth=0.7,
                  edgecolor=COLORS["gray"])
    )  # fmt: skip
