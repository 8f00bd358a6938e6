"""The still figures: what each live figure begins with, drawn once.

They stand where there is no JavaScript, in notebooks and on paper, and on a
page until the model is there.
"""

import copy
import math
import textwrap
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from coursekit.attention import attend
from coursekit.generation import beam_search
from coursekit.interpret import watch
from coursekit.positions import frequencies
from coursekit.saved_models import load
from coursekit.steppers import GPTStepper
from coursekit.tokenizer import BPETokenizer, Tokenizer
from coursekit.translate import Translator
from coursekit_classroom import figures
from coursekit_classroom.figures.hero import hero, tint
from coursekit_classroom.figures.style import COLORS, ROLES
from coursekit_classroom.glue import result
from coursekit_classroom.live.costs import calculator
from coursekit_classroom.live.depth import depth
from coursekit_classroom.live.probe import probe
from coursekit_classroom.live.strip import pointing, strip

BARS = 10  # of the next token, as in the live figure


def still(
    figure: str,
    model: str | nn.Module | None = None,
    text: str = "",
    tokenizer: Tokenizer | None = None,
    **options: float | str,
) -> Any:
    """Draw what a live figure shows before its reader touches it.

    Args:
        figure: hero, attention, scores, next-token, beam, translator, bpe,
            positions, checkpoint, temperature, calculator, depth, probe,
            walk or train.
        model: a name for :func:`coursekit.load`, or a model; positions,
            calculator, depth and probe have none.
        text: what it is shown on; train shows a run on ``plays``.
        tokenizer: of the model, if it is not a name.
        options: of the live figure: layer, head, beams, steps, query, key,
            block, swap, temperature, preset, residual, norm, times,
            program.

    Returns:
        Their axes.

    Raises:
        ValueError: if there is no such model or figure, or the figure lacks
            what it is drawn of: model, tokenizer or text.
    """
    if figure not in DRAWN:
        raise ValueError(
            f"a figure must be one of {', '.join(DRAWN)}: got {figure!r}."
        )
    if isinstance(model, nn.Module):
        model = apart(model)
    elif model is not None:
        model, tokenizer = load(model)
    inputs = {"model": model, "tokenizer": tokenizer, "text": text or None}
    needs = NEEDS.get(figure, tuple(inputs))
    if missing := [need for need in needs if inputs[need] is None]:
        raise ValueError(
            f"the figure {figure} is drawn of {', '.join(needs)}: got no "
            f"{', no '.join(missing)}. Pass what is missing."
        )
    # A dollar is a token like others, no beginning of a formula.
    figures.use_style()
    plain: Any = {"text.parse_math": False}
    with torch.no_grad(), figures.plt.rc_context(plain):
        return DRAWN[figure](model, tokenizer, text, **options)


def picture(
    figure: str,
    model: nn.Module | None,
    text: str = "",
    tokenizer: Tokenizer | None = None,
    **options: float | str,
) -> str:
    """Draw a still figure as SVG that says in words what it shows.

    Args:
        figure, model, text, tokenizer, options: as for :func:`still`.

    Returns:
        The ``<svg>`` element.

    Raises:
        ValueError: as :func:`still`.
    """
    ax = still(figure, model, text, tokenizer, **options)
    about = ax.get_title("left")
    caption = SHOWN[figure]
    if "text" in NEEDS.get(figure, ("text",)):
        caption += f" The text: “{text}”."
    title = f"{figure}: {about}" if about else figure
    drawn = figures.svg(ax.figure, f"live-{figure}", title, caption)
    figures.plt.close(ax.figure)  # else a notebook shows it, too
    return drawn


def apart(model: nn.Module) -> Any:
    """A copy to look into, on the CPU: the reader's may be in training."""
    return copy.deepcopy(model).cpu().eval()


def pieces(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """The tokens as text; spaces and line ends can be seen."""
    words = [tokenizer.decode([i]) for i in ids]
    return [w.replace(" ", "␣").replace("\n", "↵") for w in words]


def attention(
    model: Any, tokenizer: Tokenizer, text: str, layer: int = 0, head: int = 0
) -> Any:
    """One head's map: queries are rows, keys are columns."""
    ids = tokenizer.encode(text)
    weights = watch(model, torch.tensor([ids])).weights[layer, 0, head]
    names = pieces(tokenizer, ids)
    height = 0.34 * len(names) + 1.2
    ax = figures.new_figure(height=min(height, 6.0))[1][0]
    title = f"block {layer + 1}, head {head + 1}"
    figures.heatmap(weights, names, names, title, ax, numbers=False)
    ax.tick_params(axis="x", rotation=60)
    ax.set(xlabel="key", ylabel="query")
    return ax


def scores(
    model: Any, tokenizer: Tokenizer, text: str, layer: int = 0, head: int = 0
) -> Any:
    """The last query's row: q · k, scores, weights."""
    ids = tokenizer.encode(text)
    queries_and_keys = []

    def watched(q: Any, k: Any, v: Any, **rest: Any) -> Any:
        queries_and_keys.append((q[0, head, -1], k[0, head]))
        return attend(q, k, v, **rest)

    model.blocks[layer].attention.attend = watched
    model(torch.tensor([ids]))
    ((query, keys),) = queries_and_keys
    products = keys @ query
    shown = products / math.sqrt(len(query))
    columns = torch.stack([products, shown, shown.softmax(0)], 1)
    ax = figures.new_figure(height=0.4 * len(ids) + 1.0)[1][0]
    # Three columns of unlike scales: the numbers say it, the color is theirs.
    colors = columns / columns.abs().amax(0)
    figures.heatmap(
        0.6 * colors, pieces(tokenizer, ids), ["q · k", "score", "weight"],
        f"block {layer + 1}, head {head + 1}", ax, numbers=False,
        limits=(-1, 1) if bool((colors < 0).any()) else (0, 1),
    )  # fmt: skip
    for (row, column), value in zip(
        [(r, c) for r in range(len(ids)) for c in range(3)],
        columns.flatten().tolist(),
        strict=True,
    ):
        number = f"{value:.2f}".replace("-", "−")
        ax.text(column, row, number, ha="center", va="center")
    return ax


def next_token(model: Any, tokenizer: Tokenizer, text: str, **_: int) -> Any:
    """The likeliest next tokens."""
    shares = model(torch.tensor([tokenizer.encode(text)]))[0, -1].softmax(-1)
    best = shares.topk(min(BARS, len(shares)))
    rows = range(len(best.values))
    ax = figures.new_figure(height=3.4)[1][0]
    ax.barh(rows, best.values.tolist(), color=figures.COLORS["blue"])
    ax.set_yticks(rows, pieces(tokenizer, best.indices.tolist()))
    ax.invert_yaxis()
    ax.set(xlabel="probability", title=f"after “{text}”")
    return ax


def beam(
    model: Any, tokenizer: Tokenizer, text: str, beams: int = 3, steps: int = 5
) -> Any:
    """Draw the results of beam search and greedy search."""
    ids, rows = tokenizer.encode(text), {}
    try:
        stops = tokenizer.encode("\n")[:1]
    except ValueError:  # of characters, and no text had lines
        stops = []
    for n, label in ((beams, f"{beams} beams"), (1, "greedy")):
        stepper = GPTStepper(model)
        best = beam_search(stepper, [ids], n, steps, stops)[0][0]
        mean = f"{best.score:.2f}".replace("-", "−")
        heading = f"{label}, a mean of {mean} nats a token"
        rows[heading] = pieces(tokenizer, [*ids, *best.tokens])
    return figures.token_cuts(rows, width=40)


def translator(model: Any, tokenizer: Tokenizer, text: str, **_: int) -> Any:
    """Cross-attention while a sentence is translated: the last block's."""
    translate = Translator(model, tokenizer)
    ids = translate.encode(text)
    (hypothesis,) = translate.search([ids], 4, 1.0)
    target = [translate.bos_id, *hypothesis]
    activations = watch(model, torch.tensor([ids]), torch.tensor([target]))
    weights = activations.cross_weights[-1, 0].mean(0)
    rows = [*pieces(tokenizer, list(hypothesis)), "(end)"]
    columns = [*pieces(tokenizer, ids[:-1]), "(end)"]
    ax = figures.new_figure(height=0.34 * len(rows) + 1.4)[1][0]
    figures.heatmap(weights, rows, columns, "", ax, numbers=False)
    ax.tick_params(axis="x", rotation=60)
    ax.set(xlabel="source", ylabel="translation")
    return ax


def bpe(_: Any, tokenizer: Tokenizer, text: str, **__: int) -> Any:
    """A text before the first merge, and after the last."""
    if not isinstance(tokenizer, BPETokenizer):
        raise ValueError(
            "merges are those of byte pairs: got a "
            f"{type(tokenizer).__name__}. Pass a BPETokenizer."
        )
    tokens = [tokenizer.decode([i]) for i in tokenizer.encode(text)]
    signs = [c for token in tokens for c in token]
    return figures.token_cuts(
        {
            f"before the first merge: {len(signs)} tokens": signs,
            f"after the last: {len(tokens)} tokens": tokens,
        },
        width=40,
    )


def positions(_: Any, __: Any, ___: str, query: int = 12, key: int = 7) -> Any:
    """The dot product of two rotated rows of ones, by distance."""
    speeds = frequencies(16)
    distance = torch.arange(-40, 40.25, 0.25)
    product = (distance[:, None] * speeds).cos().sum(1)
    ax = figures.new_figure(height=2.8)[1][0]
    ax.plot(distance, product)
    here = float(((query - key) * speeds).cos().sum())
    ax.plot([query - key], [here], "o", ms=9)
    ax.set(xlabel="distance: query − key", ylabel="dot product")
    return ax


def checkpoint(model: Any, _: Any, __: str, layer: int = 0) -> Any:
    """A matrix of a model, as the figure paints it."""
    weight = model.blocks[layer].attention.w_q.weight
    ax = figures.new_figure(height=4.2)[1][0]
    figures.heatmap(weight, ax=ax, numbers=False)
    ax.set(xlabel="input", ylabel="output", title=f"blocks.{layer}: w_q")
    ax.set_aspect("equal")
    return ax


def temperature(
    model: Any, tokenizer: Tokenizer, text: str, temperature: float = 1.0,
    **_: int | str,
) -> Any:  # fmt: skip
    """Draw the next token's probabilities at one temperature and others."""
    logits = model(torch.tensor([tokenizer.encode(text)]))[0, -1].double()
    best = logits.topk(min(5, len(logits) - 1)).indices
    heats = torch.logspace(-1, 1, 81, dtype=torch.float64)
    heats = torch.cat([torch.tensor([1.0, temperature]), heats])
    shares = (logits / heats[:, None]).softmax(-1)[:, best]
    rest = 1 - shares.sum(-1, keepdim=True)
    own, made, *bands = torch.cat([shares, rest], -1).tolist()
    others = f"{len(logits) - len(best):,} others"
    names = [*pieces(tokenizer, best.tolist()), others]
    blue, gray = (COLORS[ROLES[role]] for role in ("weight", "token"))
    axes = figures.new_figure(5.2, rows=2, height_ratios=(4, 5))[1]
    rows = range(len(names))
    axes[0].barh(rows, made, color=[*[blue] * len(best), gray], height=0.7)
    axes[0].barh(
        rows, own, color="none", edgecolor=COLORS["black"], height=0.7
    )
    axes[0].set_yticks(rows, names)
    axes[0].invert_yaxis()
    axes[0].set(
        title=f"temperature {temperature:g} (outlines: 1)", xlim=(0, 1)
    )
    depths = (0.9, 0.58, 0.4, 0.27, 0.17)[: len(best)]
    colors = [*(tint(blue, depth) for depth in depths), tint(gray, 0.2)]
    axes[1].stackplot(
        heats[2:], *zip(*bands, strict=True), colors=colors,
        edgecolor="white", linewidth=0.5,
    )  # fmt: skip
    axes[1].axvline(temperature, color=COLORS["black"], linewidth=2)
    axes[1].set_xscale("log")
    ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10]
    axes[1].set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[1].minorticks_off()
    axes[1].set(xlim=(0.1, 10), ylim=(0, 1), xlabel="temperature")
    return axes[0]


def walk(
    model: Any,
    tokenizer: Tokenizer,
    text: str,
    block: int = 0,
    head: int = 0,
    **_: int | str,
) -> Any:
    """Twelve small pictures; block and head count from 1, as readers do."""
    ids = tokenizer.encode(text)
    if not (block and head):
        block, head = (i + 1 for i in pointing(model, ids))
    names = pieces(tokenizer, ids)
    return strip(model, tokenizer, names, ids, block - 1, head - 1)


def train(_: Any, __: Any, ___: str, **____: int | str) -> Any:
    """A run in the page that was recorded: its curve and three samples."""
    run = result("live")["train"]
    steps = [run["bin"] * (i + 0.5) for i in range(len(run["curve"]))]
    guess = math.log(run["vocab_size"])
    axes = figures.new_figure(5.6, rows=2, height_ratios=(5, 6))[1]
    ax = figures.curves(
        {"loss": (steps, run["curve"])},
        {f"uniform guess: ln {run['vocab_size']} = {guess:.2f}": guess},
        ax=axes[0],
    )
    ax.lines[0].set_color(figures.COLORS[ROLES["loss"]])
    ax.set(ylim=(0, math.ceil(guess + 0.2)), xlim=(0, run["steps"]))
    axes[1].axis("off")
    axes[1].set(xlim=(0, 1), ylim=(1, 0))
    for i, sample in enumerate(run["samples"]):
        after = f"After {sample['seconds']:.0f} s, {sample['step']:,} steps"
        title = after if sample["step"] else "Before training"
        text = " ".join((run["prompt"] + sample["text"]).split("\n"))
        lines = textwrap.wrap(text, 60)[:3]
        axes[1].text(0, 0.34 * i, title, va="top", weight="bold")
        axes[1].text(0, 0.34 * i + 0.09, "\n".join(lines), va="top",
                     family="monospace", size=10)  # fmt: skip
    return ax


DRAWN: dict[str, Callable[..., Any]] = {
    "hero": hero,
    "attention": attention,
    "scores": scores,
    "next-token": next_token,
    "beam": beam,
    "translator": translator,
    "bpe": bpe,
    "positions": positions,
    "checkpoint": checkpoint,
    "temperature": temperature,
    "calculator": calculator,
    "depth": depth,
    "probe": probe,
    "walk": walk,
    "train": train,
}
"""Draws each figure of ``(model, tokenizer, text)`` and its options."""
NEEDS = {
    "bpe": ("tokenizer", "text"),
    "positions": (),
    "checkpoint": ("model",),
    "calculator": (),
    "depth": (),
    "probe": (),
    "train": (),
}
"""Of what a figure is drawn, if not of a model, its tokenizer and a text."""
SHOWN = {
    "hero": (
        "The tokens in boxes, a slab for each block, arcs from the tokens at "
        "which a head looks to the last one, and five bars of the next token."
    ),
    "attention": (
        "A map of attention weights: a row for each query, a column for each "
        "key; the darker a cell, the more weight."
    ),
    "scores": (
        "A table with a row for each key: its product with the last query, "
        "the score and the weight."
    ),
    "next-token": "Bars: the likeliest next tokens and their probabilities.",
    "beam": "The tokens that beam search finds, and those of greedy search.",
    "translator": (
        "A map of cross-attention: a row for each token of the translation, "
        "a column for each of the source; the darker a cell, the more weight."
    ),
    "bpe": "The text in tokens, before the first merge and after the last.",
    "positions": (
        "A curve: the dot product of query and key by their distance, with "
        "a point for the two that were chosen."
    ),
    "checkpoint": (
        "A matrix of weights: a column for each input, a row for each "
        "output, a color for each number."
    ),
    "temperature": (
        "Bars: the probabilities of the next token at a temperature, outlined "
        "at temperature 1. Below them bands: the same at each temperature."
    ),
    "calculator": (
        "Three bars, for parameters, FLOPs per token and memory, each cut "
        "into its parts."
    ),
    "depth": (
        "A curve: the size of the residual stream by depth. Below it maps of "
        "the cosines of all positions."
    ),
    "probe": (
        "A map: a row for each position, a column for each token that is "
        "changed, filled where the logits move, crossed where they must not. "
        "Next to it the checks that the program passes and fails."
    ),
    "walk": (
        "Twelve pictures, one for each step from the text to the next token."
    ),
    "train": (
        "A curve of the loss by training step, below that of a uniform guess, "
        "and three samples: before training, after some seconds, and later."
    ),
}
"""Descriptions of the pictures, for their alt texts."""
