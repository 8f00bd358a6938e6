"""The still figures: what each live figure begins with, drawn once.

They stand where there is no JavaScript, in notebooks and on paper, and on a
page until the model is there.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from coursekit import visual
from coursekit.attention import attend, attention_weights
from coursekit.cache import CachedStepper
from coursekit.checkpoint import load
from coursekit.generation import beam_search
from coursekit.interpret import watch
from coursekit.positions import frequencies
from coursekit.tokenizer import BPETokenizer, Tokenizer
from coursekit.translate import Translator

BARS = 10  # of the next token, as in the live figure


def still(figure: str, model: str = "", text: str = "", **options: int) -> Any:
    """Draw what a live figure shows before its reader touches it.

    Args:
        figure: attention, scores, next-token, beam, translator, bpe,
            positions or checkpoint.
        model: a name for :func:`coursekit.load`; positions has none.
        text: what it is shown on.
        options: of the live figure: layer, head, beams, steps, query, key.

    Returns:
        Their axes.

    Raises:
        ValueError: if there is no such figure.
    """
    if figure not in DRAWN:
        raise ValueError(
            f"a figure must be one of {', '.join(DRAWN)}: got {figure!r}."
        )
    with torch.no_grad():
        return DRAWN[figure](model, text, **options)


def pieces(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """The tokens as text; spaces and line ends can be seen."""
    words = [tokenizer.decode([i]) for i in ids]
    return [w.replace(" ", "␣").replace("\n", "↵") for w in words]


def attention(name: str, text: str, layer: int = 0, head: int = 0) -> Any:
    """One head's map: queries are rows, keys are columns."""
    model, tokenizer = load(name)
    ids = tokenizer.encode(text)
    weights = watch(model, torch.tensor([ids])).weights[layer, 0, head]
    names = pieces(tokenizer, ids)
    height = 0.34 * len(names) + 1.2
    ax = visual.new_figure(height=min(height, 6.0))[1][0]
    title = f"layer {layer + 1}, head {head + 1}"
    visual.heatmap(weights, names, names, title, ax, numbers=False)
    ax.tick_params(axis="x", rotation=60)
    ax.set(xlabel="key", ylabel="query")
    return ax


def scores(name: str, text: str, layer: int = 0, head: int = 0) -> Any:
    """The last query's row: q · k, scores, weights."""
    model, tokenizer = load(name)
    ids = tokenizer.encode(text)
    kept = []

    def watched(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        kept.append((q[0, head, -1], k[0, head]))
        return attend(q, k, v, *rest)

    block = model.blocks[layer].attention
    usual, block.attend = block.attend, watched
    model(torch.tensor([ids]))
    block.attend = usual
    ((query, keys),) = kept
    products = keys @ query
    shown = products / math.sqrt(len(query))
    columns = torch.stack([products, shown, shown.softmax(0)], 1)
    ax = visual.new_figure(height=0.4 * len(ids) + 1.0)[1][0]
    # Three columns of unlike scales: the numbers say it, the color is theirs.
    colors = columns / columns.abs().amax(0)
    visual.heatmap(
        colors, pieces(tokenizer, ids), ["q · k", "score", "weight"],
        f"layer {layer + 1}, head {head + 1}", ax, numbers=False,
    )  # fmt: skip
    for (row, column), value in zip(
        [(r, c) for r in range(len(ids)) for c in range(3)],
        columns.flatten().tolist(),
        strict=True,
    ):
        dark = abs(float(colors[row, column])) > 0.6
        ax.text(
            column, row, f"{value:.2f}".replace("-", "−"), ha="center",
            va="center", color="white" if dark else visual.COLORS["black"],
        )  # fmt: skip
    return ax


def next_token(name: str, text: str, **_: int) -> Any:
    """The likeliest next tokens."""
    model, tokenizer = load(name)
    shares = model(torch.tensor([tokenizer.encode(text)]))[0, -1].softmax(-1)
    best = shares.topk(BARS)
    ax = visual.new_figure(height=3.4)[1][0]
    ax.barh(range(BARS), best.values.tolist(), color=visual.COLORS["blue"])
    ax.set_yticks(range(BARS), pieces(tokenizer, best.indices.tolist()))
    ax.invert_yaxis()
    ax.set(xlabel="probability", title=f"after “{text}”")
    return ax


def beam(name: str, text: str, beams: int = 3, steps: int = 5) -> Any:
    """What beam search and greedy search come to."""
    model, tokenizer = load(name)
    ids, rows = tokenizer.encode(text), {}
    stops = tokenizer.encode("\n")[:1]
    for n, what in ((beams, f"{beams} beams"), (1, "greedy")):
        stepper = CachedStepper(model)
        best = beam_search(stepper, [ids], n, steps, stops)[0][0]
        mean = f"{best.score:.2f}".replace("-", "−")
        heading = f"{what}, a mean of {mean} nats a token"
        rows[heading] = pieces(tokenizer, [*ids, *best.tokens])
    return visual.token_cuts(rows, width=40)


def translator(name: str, text: str, **_: int) -> Any:
    """Cross-attention while a sentence is translated: the last block's."""
    translate = Translator.load(name)
    ids = translate.encode(text)
    (found,) = translate.search([ids], 4, 1.0)
    kept = []

    def watched(q: Any, k: Any, v: Any, mask: Any = None, *rest: Any) -> Any:
        kept.append(attention_weights(q, k, mask)[0].mean(0))
        return attend(q, k, v, mask, *rest)

    model: Any = translate.model.eval()
    model.blocks[-1].cross_attention.attend = watched
    target = [translate.bos_id, *found]
    model(torch.tensor([ids]), torch.tensor([target]))
    rows = [*pieces(translate.tokenizer, list(found)), "(end)"]
    columns = [*pieces(translate.tokenizer, ids[:-1]), "(end)"]
    ax = visual.new_figure(height=0.34 * len(rows) + 1.4)[1][0]
    visual.heatmap(kept[0], rows, columns, "", ax, numbers=False)
    ax.tick_params(axis="x", rotation=60)
    ax.set(xlabel="source", ylabel="translation")
    return ax


def bpe(name: str, text: str, **_: int) -> Any:
    """A text before the first merge, and after the last."""
    tokenizer = load(name).tokenizer
    assert isinstance(tokenizer, BPETokenizer)
    tokens = [tokenizer.decode([i]) for i in tokenizer.encode(text)]
    signs = [c for token in tokens for c in token]
    return visual.token_cuts(
        {
            f"before the first merge: {len(signs)} tokens": signs,
            f"after the last: {len(tokens)} tokens": tokens,
        },
        width=40,
    )


def positions(_: str, __: str, query: int = 12, key: int = 7) -> Any:
    """The dot product of two rotated rows of ones, by distance."""
    speeds = frequencies(16)
    distance = torch.arange(-40, 40.25, 0.25)
    product = (distance[:, None] * speeds).cos().sum(1)
    ax = visual.new_figure(height=2.8)[1][0]
    ax.plot(distance, product)
    here = float(((query - key) * speeds).cos().sum())
    ax.plot([query - key], [here], "o", ms=9)
    ax.set(xlabel="distance: query − key", ylabel="dot product")
    return ax


def checkpoint(name: str, _: str = "", layer: int = 0) -> Any:
    """A matrix of a model, as the figure paints it."""
    model, _tokenizer = load(name)
    weight = model.blocks[layer].attention.w_q.weight
    ax = visual.new_figure(height=4.2)[1][0]
    visual.heatmap(weight, ax=ax, numbers=False)
    ax.set(xlabel="input", ylabel="output", title=f"blocks.{layer}: w_q")
    ax.set_aspect("equal")
    return ax


DRAWN: dict[str, Callable[..., Any]] = {
    "attention": attention,
    "scores": scores,
    "next-token": next_token,
    "beam": beam,
    "translator": translator,
    "bpe": bpe,
    "positions": positions,
    "checkpoint": checkpoint,
}
