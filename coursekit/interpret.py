"""Looking inside: what each part writes, and what happens without it.

Everything here rests on one function: :func:`intervene` shows what passes by
inside a model, and puts something else in its place.  The model itself stays
as it was.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from coursekit.attention import Attend, attention_weights, share_heads
from coursekit.decoder import GPT
from coursekit.generation import evaluating

__all__ = [
    "Seen",
    "head_effects",
    "head_writes",
    "induction_keys",
    "intervene",
    "logit_lens",
    "mean_heads",
    "patch_effects",
    "share_on",
    "silence",
    "watch",
]

Edit = Callable[[int, Tensor], Tensor | None]
"""Takes the number of a block and what passes by; returns what is to go on
in its place, or None to leave it as it is."""


class Seen(NamedTuple):
    """What :func:`watch` saw; L blocks."""

    output: Tensor
    """(B, T, V) logits; of an encoder (B, T, D) vectors."""
    stream: Tensor
    """(L + 1, B, T, D) what enters block 1, and what leaves each block."""
    weights: Tensor
    """(L, B, H, T, T) attention weights."""
    heads: Tensor
    """(L, B, H, T, Dv) heads' outputs, before W_O."""
    networks: Tensor
    """(L, B, T, D) what networks write; empty if there are none."""


# -- to look, and to change ---------------------------------------------------


@contextmanager
def intervene(
    model: nn.Module,
    stream: Edit | None = None,
    weights: Edit | None = None,
    heads: Edit | None = None,
    networks: Edit | None = None,
) -> Iterator[None]:
    """Show, and replace, what passes by inside a model.

    Each of the functions is called as ``edit(i, x)``.  Dropout and gradients
    are off inside.

    Args:
        model: has ``blocks``: a :class:`GPT` or an :class:`Encoder`.
        stream: gets (B, T, D): for i = 0 what enters the first block, for
            i = 1 … L what leaves block i.
        weights: gets (B, H, T, T) attention weights, for i = 0 … L − 1.
        heads: gets (B, H, T, Dv) heads' outputs, before W_O.
        networks: gets (B, T, D) what a network writes.

    Chapter: 16, interpret.
    Test: tests/test_interpret.py::test_an_edit_is_what_goes_on
    """
    blocks = _blocks(model)
    with ExitStack() as undo:
        undo.enter_context(evaluating(model.modules()))
        if stream:
            hook = partial(_before, stream)
            undo.callback(blocks[0].register_forward_pre_hook(hook).remove)
        for i, block in enumerate(blocks):
            attention: Any = block.get_submodule("attention")
            undo.callback(setattr, attention, "attend", attention.attend)
            if weights or heads:
                attention.attend = partial(
                    _attend, i, attention.attend, weights, heads
                )
            if stream:
                hook = partial(_after, stream, i + 1)
                undo.callback(block.register_forward_hook(hook).remove)
            if networks and block.feed_forward is not None:
                hook = partial(_after, networks, i)
                network = block.get_submodule("feed_forward")
                undo.callback(network.register_forward_hook(hook).remove)
        yield


def watch(model: nn.Module, ids: Int[Tensor, "B T"], **options: Any) -> Seen:
    """Run a model and keep what passes by.

    Args:
        model: a :class:`GPT` or an :class:`Encoder`.
        ids: (B, T) token ids.
        options: for the model, such as ``mask``.

    Returns:
        What was seen, on the way up.

    Chapter: 16, interpret.
    Test: tests/test_interpret.py::test_what_is_seen_adds_up
    """
    seen: dict[str, list[Tensor]] = {}

    def keep(name: str) -> Edit:
        return lambda i, x: seen.setdefault(name, []).append(x)

    names = "stream", "weights", "heads", "networks"
    with intervene(model, **{name: keep(name) for name in names}):
        output = model(ids, **options)
    return Seen(
        output,
        *(torch.stack(seen[n]) if n in seen else output[:0] for n in names),
    )


def logit_lens(
    model: GPT, ids: Int[Tensor, "B T"]
) -> Float[Tensor, "L B T V"]:
    """Read logits off the stream at every height, as the model does on top.

    ``lens_i = norm(stream_i) W_U``, with the model's own last norm.

    Args:
        model: a :class:`GPT`.
        ids: (B, T) token ids.

    Returns:
        (L + 1, B, T, V) logits; the last are the model's own.

    Chapter: 16, interpret.
    Source: nostalgebraist2020logit.
    Test: tests/test_interpret.py::test_the_lens_on_top_is_the_model
    """
    with torch.no_grad():
        return model.logits(watch(model, ids).stream)


def head_writes(
    model: nn.Module, heads: Float[Tensor, "L B H T Dv"]
) -> Float[Tensor, "L B H T D"]:
    """What each head adds to the stream.

    Its columns of the outputs, times its rows of W_O.

    Args:
        model: with L blocks.
        heads: (L, B, H, T, Dv) as :func:`watch` saw them.

    Returns:
        (L, B, H, T, D); their sum over the heads, and W_O's bias, is what
        attention adds.

    Chapter: 16, interpret.
    Source: elhage2021mathematical.
    Test: tests/test_interpret.py::test_what_is_seen_adds_up
    """
    rows: list[Tensor] = [
        block.get_parameter("attention.w_o.weight") for block in _blocks(model)
    ]
    with torch.no_grad():
        w_o = torch.stack(rows).mT.unflatten(1, (heads.size(2), -1))
        return heads @ w_o[:, None]


# -- where heads look ---------------------------------------------------------


def induction_keys(ids: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Where a token's follower stands: behind its last earlier appearance.

    In "… A B … A" the last A has B's place.

    Args:
        ids: (B, T) token ids.

    Returns:
        (B, T) places; −1 for a token that did not appear before.

    Chapter: 16, interpret.
    Source: olsson2022context.
    """
    places = torch.arange(ids.size(1), device=ids.device)
    earlier = places < places[:, None]
    same = (ids[:, :, None] == ids[:, None, :]) & earlier
    last = torch.where(same, places, -1).amax(-1)
    return torch.where(last >= 0, last + 1, -1)


def share_on(
    weights: Float[Tensor, "L B H T S"], keys: Int[Tensor, "B T"]
) -> Float[Tensor, "L H"]:
    """Mean weight that each head puts on one key for each query.

    Args:
        weights: (L, B, H, T, S) as :func:`watch` saw them.
        keys: (B, T) a key for each query; −1 for queries that don't count.

    Returns:
        (L, H) shares. With :func:`induction_keys` induction scores, with
        each query's place minus 1 previous-token scores.

    Raises:
        ValueError: if no query counts.

    Chapter: 16, interpret.
    """
    counts = keys >= 0
    if not counts.any():
        raise ValueError(
            "at least one query must count: got keys that are all -1. Take "
            "a text in which something comes back."
        )
    at = keys.clamp(min=0)[None, :, None, :, None]
    at = at.expand(*weights.shape[:-1], 1)
    shares = weights.gather(-1, at)[..., 0].transpose(1, 2)
    return shares[..., counts].mean(-1)


# -- without a part -----------------------------------------------------------


def mean_heads(
    model: nn.Module, ids: Int[Tensor, "B T"]
) -> Float[Tensor, "L H Dv"]:
    """Each head's mean output, over texts and places.

    Args:
        model: with L blocks.
        ids: (B, T) token ids of texts of one length.

    Returns:
        (L, H, Dv).

    Chapter: 16, interpret.
    """
    return watch(model, ids).heads.mean((1, 3))


def silence(
    which: Sequence[tuple[int, int]],
    means: Float[Tensor, "L H Dv"] | None = None,
) -> Edit:
    """Make an edit of ``heads`` that takes away what some of them say.

    Args:
        which: (block, head) of each, from 0.
        means: (L, H, Dv) what they say instead, to any text and at any place
            the same; zeros by default.

    Returns:
        For :func:`intervene`.

    Chapter: 16, interpret.
    """

    def edit(i: int, heads: Tensor) -> Tensor:
        heads = heads.clone()
        for block, head in which:
            if block == i:
                heads[:, head] = 0 if means is None else means[i, head]
        return heads

    return edit


def head_effects(
    model: nn.Module,
    measure: Callable[[], float],
    means: Float[Tensor, "L H Dv"] | None = None,
) -> Float[Tensor, "L H"]:
    """How much a measurement rises when one head after the other is silent.

    Args:
        model: with L blocks.
        measure: runs the model and returns a number, such as its loss.
        means: as in :func:`silence`.

    Returns:
        (L, H) rises.

    Chapter: 16, interpret.
    Source: michel2019sixteen; voita2019analyzing.
    Test: tests/test_interpret.py::test_the_head_that_matters_is_found
    """
    before = measure()
    rows = []
    for i, block in enumerate(_blocks(model)):
        row = []
        attention: Any = block.get_submodule("attention")
        for head in range(attention.n_heads):
            with intervene(model, heads=silence([(i, head)], means)):
                row.append(measure() - before)
        rows.append(row)
    return torch.tensor(rows)


def patch_effects(
    model: nn.Module,
    clean: Int[Tensor, "B T"],
    corrupt: Int[Tensor, "B S"],
    measure: Callable[[Tensor], Tensor],
    heights: Sequence[int] | None = None,
    places: Sequence[int] | None = None,
) -> Float[Tensor, "N B P"]:
    """Put one vector of a clean run into a corrupt one, each in its turn.

    ``(patched − corrupt) / (clean − corrupt)``: 0 where the vector changes
    nothing, 1 where it brings everything back.

    Args:
        model: with L blocks.
        clean: (B, T) texts of one length.
        corrupt: (B, T) the same, with something else in each.
        measure: from the model's output to (B,) numbers.
        heights: of the stream, 0 to L; all by default.
        places: in the text; all by default.

    Returns:
        (heights, B, places) shares that come back.

    Raises:
        ValueError: if the texts differ in length, or measure the same.

    Chapter: 16, interpret.
    Source: vig2020investigating; meng2022locating.
    Test: tests/test_interpret.py::test_a_patch_is_traced
    """
    if clean.shape != corrupt.shape:
        raise ValueError(
            "both texts must have the same number of tokens: got "
            f"{tuple(clean.shape)} and {tuple(corrupt.shape)}. Exchange a "
            "word for one of as many tokens."
        )
    source = watch(model, clean)
    high = measure(source.output)
    with intervene(model):
        low = measure(model(corrupt))
    if (low == high).any():
        raise ValueError(
            "both texts must measure differently, or there is nothing to "
            f"bring back: got {high.tolist()} and {low.tolist()}. Choose "
            "another measure."
        )
    shares = []
    heights = heights or range(len(source.stream))
    places = places or range(clean.size(1))
    for height in heights:
        for place in places:
            new = source.stream[height, :, place]
            put = partial(_put, height, place, new)
            with intervene(model, stream=put):
                shares.append((measure(model(corrupt)) - low) / (high - low))
    rows = torch.stack(shares).unflatten(0, (len(heights), len(places)))
    return rows.mT


# -- helpers ------------------------------------------------------------------


def _blocks(model: nn.Module) -> nn.ModuleList:
    """The model's blocks.

    Raises:
        ValueError: if it has none.
    """
    blocks = getattr(model, "blocks", None)
    if not isinstance(blocks, nn.ModuleList):
        raise ValueError(
            "a model to look into must have blocks, as GPT and Encoder: got "
            f"{type(model).__name__}. Of a Transformer take one side."
        )
    return blocks


def _put(height: int, place: int, new: Tensor, i: int, x: Tensor) -> Any:
    """Put a vector at one height and place of the stream."""
    if i != height:
        return None
    x = x.clone()
    x[:, place] = new
    return x


def _before(edit: Edit, module: nn.Module, args: tuple[Any, ...]) -> Any:
    """Change what enters a block."""
    new = edit(0, args[0])
    return None if new is None else (new, *args[1:])


def _after(edit: Edit, i: int, module: Any, args: Any, out: Tensor) -> Any:
    """Change what leaves a module."""
    return edit(i, out)


def _attend(
    i: int,
    attend: Attend,
    edit_weights: Edit | None,
    edit_heads: Edit | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    dropout_p: float = 0.0,
    **how: Any,
) -> Tensor:
    """Attend, and let edits see and change weights and outputs."""
    if edit_weights is None:
        heads = attend(q, k, v, dropout_p=dropout_p, **how)
    else:
        weights = attention_weights(q, k, **how)
        new = edit_weights(i, weights)
        weights = weights if new is None else new
        heads = weights @ share_heads(v, q)
    new = None if edit_heads is None else edit_heads(i, heads)
    return heads if new is None else new
