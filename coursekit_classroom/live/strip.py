"""The walk and its zoom as still pictures: paper, and no JavaScript."""

import textwrap
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from coursekit.attention import attend, attention_weights
from coursekit.interpret import watch
from coursekit.tokenizer import Tokenizer
from coursekit_classroom import figures
from coursekit_classroom.figures import COLORS, ROLES, Rectangle
from coursekit_classroom.figures.hero import percent
from coursekit_classroom.live.walk import TITLES

__all__ = ["States", "levels", "pointing", "states", "strip"]

CELLS = 16  # of many dimensions, as in the live figure
UNITS = 32  # hidden units in a row
BEST = 6  # of the next token


class States(NamedTuple):
    """Activations of one block, and after it, at the last token."""

    names: list[str]
    """T tokens, as they are shown."""
    ids: list[int]
    embedded: Tensor
    """(D,) the row of E."""
    x: Tensor
    """(D,) with its position, what enters the first block."""
    entered: Tensor
    """(D,) what enters the block shown; ``normed``: after its norm."""
    normed: Tensor
    q: Tensor
    """(H, Dh) queries of the last token; then (H, T, Dh) keys, values."""
    k: Tensor
    v: Tensor
    weights: Tensor
    """(H, T) attention weights of the last token."""
    attended: Tensor
    """(D,) what attention adds; ``hidden``: (Dff,) active units;
    ``written``: (D,) what the network adds."""
    hidden: Tensor
    written: Tensor
    logits: Tensor
    """(L + 1, V) read off before the first block and after each."""


def states(model: Any, ids: list[int], names: list[str], block: int) -> States:
    """Run a GPT and keep what the strip shows.

    Args:
        model: a pre-norm GPT whose network is a FeedForward.
        ids, names: of T tokens.
        block: the one that is shown, from 0.
    """
    stored: dict[str, Tensor] = {}
    streams: list[Tensor] = []
    chosen = model.blocks[block]

    def watched(q: Any, k: Any, v: Any, **rest: Any) -> Any:
        stored.update(q=q[0, :, -1], k=k[0], v=v[0])
        options = {name: rest[name] for name in ("mask", "causal", "bias")}
        stored["weights"] = attention_weights(q, k, **options)[0, :, -1]
        return attend(q, k, v, **rest)

    hooks = _hooks(model, chosen, stored, streams)
    before = chosen.attention.attend
    chosen.attention.attend = watched
    try:
        model(torch.tensor([ids]))
    finally:
        chosen.attention.attend = before
        for hook in hooks:
            hook.remove()
    logits = model.logits(torch.stack(streams)[None])[0]
    return States(
        names=names,
        ids=ids,
        x=streams[0],
        entered=streams[block],
        logits=logits,
        **stored,
    )


def _hooks(
    model: Any, chosen: Any, stored: dict[str, Tensor], streams: list[Tensor]
) -> list[Any]:
    """Hooks that store what modules compute at the last token."""

    def keep(name: str) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            stored[name] = output[0, -1]

        return hook

    def enters(_: nn.Module, args: Any) -> None:
        streams.append(args[0][0, -1])

    def closes(_: nn.Module, args: Any) -> None:
        stored["hidden"] = args[0][0, -1]

    parts = {
        "embedded": model.embedding,
        "normed": chosen.attention_norm,
        "attended": chosen.attention,
        "written": chosen.feed_forward,
    }
    return [
        *(part.register_forward_hook(keep(n)) for n, part in parts.items()),
        *(each.register_forward_pre_hook(enters) for each in model.blocks),
        chosen.feed_forward.w_out.register_forward_pre_hook(closes),
        model.blocks[-1].register_forward_hook(
            lambda _, __, output: streams.append(output[0, -1])
        ),
    ]


def pointing(model: Any, ids: list[int]) -> tuple[int, int]:
    """The head that looks hardest from the last token at the model's answer.

    Args:
        model: as for :func:`states`.
        ids: of a text.

    Returns:
        Its block and its number in it, from 0; the first head if the answer
        does not stand in the text.
    """
    activations = watch(model, torch.tensor([ids]))
    answer = activations.output[0, -1].argmax()
    shares = activations.weights[:, 0, :, -1] * (torch.tensor(ids) == answer)
    block, head = divmod(int(shares.amax(-1).argmax()), shares.size(1))
    return block, head


def strip(
    model: Any,
    tokenizer: Tokenizer,
    names: list[str],
    ids: list[int],
    block: int,
    head: int,
) -> Any:
    """Draw the twelve steps for the last token of a text.

    Args:
        model: as for :func:`states`.
        tokenizer: of its text.
        names, ids: of the tokens.
        block, head: which are shown, from 0.

    Returns:
        The first picture's axes.
    """
    recorded = states(model, ids, names, block)
    figure, axes = figures.new_figure(height=12.6, columns=2, rows=6)
    figure.set_layout_engine("constrained", hspace=0.06, wspace=0.06)
    for step, ax in enumerate(axes, 1):
        _head(ax, f"{step}. {TITLES[f'{step}']}")
    _tokens(axes[0], recorded)
    _rows(axes[1], _table(model, recorded))
    place = recorded.x - recorded.embedded
    _rows(axes[2], {"E": recorded.embedded, "+ P": place, "= x": recorded.x})
    _projections(axes[3], recorded, head)
    _scores(axes[4], recorded, head)
    _bars(axes[5], recorded.names, recorded.weights[head])
    _mix(axes[6], recorded, head)
    _heads(axes[7], recorded)
    middle = recorded.entered + recorded.attended
    rows = {"x": recorded.entered, "+": recorded.attended, "=": middle}
    _rows(axes[8], rows)
    _hidden(axes[9], recorded.hidden)
    _depth(axes[10], tokenizer, recorded)
    best = (
        recorded.logits[-1]
        .softmax(-1)
        .topk(min(BEST, recorded.logits.size(-1)))
    )
    names = [_shown(tokenizer, i) for i in best.indices.tolist()]
    _bars(axes[11], names, best.values)
    return axes[0]


def levels(model: Any, tokenizer: Tokenizer, text: str) -> Any:
    """Draw the four levels of the zoom for the last token of a text.

    The head is that of :func:`pointing`, the key the one that gets most.

    Args:
        model: as for :func:`states`.
        tokenizer: of its text.
        text: what it reads.

    Returns:
        The first picture's axes.
    """
    figures.use_style()
    ids = tokenizer.encode(text)
    names = [_shown(tokenizer, i) for i in ids]
    with torch.no_grad():
        block, head = pointing(model, ids)
        recorded = states(model, ids, names, block)
        maps = watch(model, torch.tensor([ids])).weights[:, 0]
    key = int(recorded.weights[head].argmax())
    captions = {
        "n": len(maps), "h": maps.size(1), "b": block + 1,
        "token": names[-1], "key": names[key],
    }  # fmt: skip
    figure, axes = figures.new_figure(height=7.4, columns=2, rows=2)
    figure.set_layout_engine("constrained", hspace=0.08, wspace=0.06)
    for ax, level in zip(axes, ("model", "block", "head", "dot"), strict=True):
        if level == "head":
            captions["h"] = head + 1
        _head(ax, TITLES[level].format(**captions))
    heads = maps[:, :, -1].flatten(0, 1)
    _cells(axes[0], heads, "weight")
    axes[0].set_yticks(
        range(0, len(heads), maps.size(1)),
        [f"block {b + 1}" for b in range(len(maps))],
    )
    _named(axes[0], names)
    rows = {
        "x": recorded.entered,
        "attention": recorded.attended,
        "network": recorded.written,
        "new x": recorded.entered + recorded.attended + recorded.written,
    }
    _rows(axes[1], rows)
    _cells(axes[2], maps[block, head], "weight")
    axes[2].set_yticks(range(len(names)), names, size=9)
    _named(axes[2], names)
    products = recorded.q[head] * recorded.k[head, key]
    _products(axes[3], products, recorded.weights[head, key].item())
    return axes[0]


def _head(ax: Any, title: str) -> None:
    """Above a picture what it shows; no frame."""
    ax.set_title("\n".join(textwrap.wrap(title, 27)), size=11)
    ax.tick_params(labelsize=10, length=0)
    ax.spines[:].set_visible(False)


def _named(ax: Any, names: list[str]) -> None:
    """The tokens below the columns."""
    ax.set_xticks(range(len(names)), names, rotation=90, size=9)


def _products(ax: Any, products: Tensor, share: float) -> None:
    """The products of a query and a key, and what they come to."""
    values = products.tolist()
    kinds = [ROLES["weight" if value > 0 else "loss"] for value in values]
    ax.bar(range(len(values)), values, color=[COLORS[kind] for kind in kinds])
    total = products.sum().item()
    score = total / len(values) ** 0.5
    label = f"sum {total:.2f}, score {score:.2f}\nweight {percent(share)}"
    ax.text(0, max(values), label.replace("-", "−"), va="top", size=10)
    ax.set_xticks([])


def _shown(tokenizer: Tokenizer, i: int) -> str:
    """A token as it is shown."""
    return tokenizer.decode([i]).replace(" ", "␣").replace("\n", "↵")


def _cells(ax: Any, grid: Tensor, role: str) -> None:
    """Cells in the color of a role; the more opaque, the larger a number."""
    size = grid.abs()
    limit = float(size.max()) or 1.0
    color = ROLES[role]
    figures.heatmap(
        size, ax=ax, numbers=False, limits=(0, limit), color=color,
        title=ax.get_title("left"),
    )  # fmt: skip
    ax.set_xticks([])


def _rows(ax: Any, rows: dict[str, Tensor]) -> None:
    """Rows of the stream, one above the other."""
    grid = torch.stack([row[:CELLS] for row in rows.values()])
    _cells(ax, grid, "stream")
    ax.set_yticks(range(len(rows)), rows)


def _table(model: Any, recorded: States) -> dict[str, Tensor]:
    """The rows of E around that of the last token."""
    table = model.embedding.weight
    first = max(0, min(len(table) - 5, recorded.ids[-1] - 2))
    shown = range(first, min(len(table), first + 5))
    return {
        f"→ {i}" if i == recorded.ids[-1] else f"{i}": table[i] for i in shown
    }


def _tokens(ax: Any, recorded: States) -> None:
    """Boxes with the tokens and, below them, their ids."""
    x, y = 0.0, 0.0
    last = len(recorded.ids) - 1
    for t, (name, i) in enumerate(
        zip(recorded.names, recorded.ids, strict=True)
    ):
        width = max(len(name), len(str(i))) + 1.0
        if x + width > 28:
            x, y = 0.0, y + 2.6
        color = COLORS[ROLES["stream" if t == last else "token"]]
        box = Rectangle(
            (x, y), width - 0.3, 2.2, facecolor="none", edgecolor=color
        )
        ax.add_patch(box)
        ax.text(x + width / 2, y + 0.7, name, ha="center", va="center", size=9)
        ax.text(x + width / 2, y + 1.6, i, ha="center", va="center", size=9)
        x += width
    ax.set(xlim=(0, 28), ylim=(max(y + 2.4, 8), -0.2), xticks=[], yticks=[])


def _projections(ax: Any, recorded: States, head: int) -> None:
    """The normed x, and its query, key and value."""
    n = min(CELLS, recorded.q.size(-1))
    rows = {
        "norm(x)": (recorded.normed, "stream"),
        "q": (recorded.q[head], "query"),
        "k": (recorded.k[head, -1], "key"),
        "v": (recorded.v[head, -1], "value"),
    }
    for y, (row, role) in enumerate(rows.values()):
        limit = float(row[:n].abs().max()) or 1.0
        for i, value in enumerate(row[:n].tolist()):
            color = COLORS[ROLES[role]]
            ax.add_patch(
                Rectangle(
                    (i, y), 1, 0.7, color=color, alpha=abs(value) / limit
                )
            )
    ax.set(xlim=(0, n), ylim=(len(rows), -0.1), xticks=[])
    ax.set_yticks([y + 0.35 for y in range(len(rows))], rows)


def _scores(ax: Any, recorded: States, head: int) -> None:
    """Each key in its cells; beside it, its score."""
    keys, query = recorded.k[head], recorded.q[head]
    _cells(ax, keys[:, :CELLS], "key")
    ax.set_yticks(range(len(keys)), recorded.names, size=9)
    right = min(CELLS, keys.size(1))
    for s, score in enumerate((keys @ query / query.numel() ** 0.5).tolist()):
        number = f"{score:.1f}".replace("-", "−")
        ax.text(right, s, number, va="center", size=9)
    ax.set_xlim(-0.5, right + 2.5)


def _bars(ax: Any, names: list[str], shares: Tensor) -> None:
    """A bar and a percentage for each name."""
    ax.barh(range(len(names)), shares.tolist(), color=COLORS[ROLES["weight"]])
    ax.set_yticks(range(len(names)), names, size=9)
    for y, share in enumerate(shares.tolist()):
        ax.text(share, y, f" {percent(share)}", va="center", size=9)
    ax.set(xlim=(0, 1.25 * float(shares.max())), xticks=[])
    ax.invert_yaxis()


def _mix(ax: Any, recorded: States, head: int) -> None:
    """Each value times its weight, and below them their sum."""
    parts = recorded.weights[head][:, None] * recorded.v[head]
    grid = torch.cat([parts, parts.sum(0, keepdim=True)])[:, :CELLS]
    _cells(ax, grid, "value")
    ax.set_yticks(range(len(grid)), [*recorded.names, "Σ"], size=9)


def _heads(ax: Any, recorded: States) -> None:
    """Draw attention of the last token: a row per head, a column per token."""
    _cells(ax, recorded.weights, "weight")
    heads = range(len(recorded.weights))
    ax.set_yticks(heads, [f"head {h + 1}" for h in heads])
    _named(ax, recorded.names)


def _hidden(ax: Any, units: Tensor) -> None:
    """All hidden units, row by row."""
    rows = -(-len(units) // UNITS)
    grid = torch.zeros(rows * UNITS)
    grid[: len(units)] = units
    _cells(ax, grid.view(rows, UNITS), "ffn")
    ax.set_yticks([])


def _depth(ax: Any, tokenizer: Tokenizer, recorded: States) -> None:
    """The likeliest next token, read off after each block."""
    best = recorded.logits.softmax(-1).max(-1)
    names = [
        f"{d if d else 'E'}: {_shown(tokenizer, i)}"
        for d, i in enumerate(best.indices.tolist())
    ]
    _bars(ax, names, best.values)
