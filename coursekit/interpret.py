"""Looking inside: what each part of a model does, and what it is needed for.

Everything rests on one function: :func:`intervene` shows the activations
while a model runs, and puts something else in their place.  The model itself
stays as it was.
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
from coursekit.devices import device_of, evaluating

Edit = Callable[[int, Tensor], Tensor | None]
"""Takes the number of a block and an activation; returns what replaces it,
or None to leave it as it is."""


class Activations(NamedTuple):
    """Recorded activations of a model with L blocks; empty where absent."""

    output: Tensor
    """(B, T, V) logits; of an encoder (B, T, D) vectors."""
    stream: Tensor
    """(L + 1, B, T, D) what enters block 1, and what leaves each block."""
    weights: Tensor
    """(L, B, H, T, T) attention weights."""
    heads: Tensor
    """(L, B, H, T, Dv) heads' outputs, before W_O."""
    ffn: Tensor
    """(L, B, T, D) outputs of the feed-forward networks."""
    cross_weights: Tensor
    """(L, B, H, T, S) weights of the attention to the encoder's output."""
    cross_heads: Tensor
    """(L, B, H, T, Dv) outputs of its heads, before W_O."""


@contextmanager
def intervene(
    model: nn.Module,
    stream: Edit | None = None,
    weights: Edit | None = None,
    heads: Edit | None = None,
    ffn: Edit | None = None,
    cross_weights: Edit | None = None,
    cross_heads: Edit | None = None,
) -> Iterator[None]:
    """Show, and replace, the activations of a model.

    Each of the functions is called as ``edit(i, x)``.  Dropout and gradients
    are off inside.

    Args:
        model: has ``blocks``: a :class:`GPT`, an :class:`Encoder`, or a
            :class:`Transformer`, whose blocks are the decoder's.
        stream: gets (B, T, D): for i = 0 what enters the first block, for
            i = 1 … L what leaves block i.
        weights: gets (B, H, T, T) attention weights, for i = 0 … L − 1.
        heads: gets (B, H, T, Dv) heads' outputs, before W_O.
        ffn: gets (B, T, D) the output of a feed-forward network.
        cross_weights, cross_heads: as ``weights`` and ``heads``, of the
            attention to the encoder's output.

    Chapter: 16, interpret.
    Test: test_activations.py::test_an_edit_replaces_the_stream
    """
    attentions = {
        "attention": (weights, heads),
        "cross_attention": (cross_weights, cross_heads),
    }
    blocks = blocks_of(model)
    with ExitStack() as undo:
        undo.enter_context(evaluating(model.modules()))
        if stream:
            before = partial(_before, stream)
            undo.callback(blocks[0].register_forward_pre_hook(before).remove)
        for i, block in enumerate(blocks):
            for name, edits in attentions.items():
                attention: Any = getattr(block, name, None)
                if attention is not None and any(edits):
                    attend = attention.attend
                    undo.callback(setattr, attention, "attend", attend)
                    attention.attend = partial(_attend, i, attend, *edits)
            outputs = {block: (stream, i + 1), block.feed_forward: (ffn, i)}
            for module, (edit, number) in outputs.items():
                if isinstance(module, nn.Module) and edit:
                    after = partial(_after, edit, number)
                    undo.callback(module.register_forward_hook(after).remove)
        yield


@contextmanager
def record(model: nn.Module, *names: str) -> Iterator[dict[str, list[Tensor]]]:
    """Record activations while a model runs, as often as it runs.

    Args:
        model: as for :func:`intervene`.
        names: of its edits, such as ``"cross_weights"``.

    Yields:
        For each name a list that grows by an activation per block.

    Chapter: 16, interpret.
    Test: test_activations.py::test_cross_attention_is_recorded
    """
    recorded: dict[str, list[Tensor]] = {name: [] for name in names}

    def keep(name: str) -> Edit:
        return lambda i, x: recorded[name].append(x)

    with intervene(model, **{name: keep(name) for name in names}):
        yield recorded


def watch(model: nn.Module, *inputs: Tensor, **options: Any) -> Activations:
    """Run a model and record all its activations.

    Args:
        model: as for :func:`intervene`.
        inputs: for the model, such as (B, T) token ids.
        options: for the model, such as ``mask``.

    Returns:
        The activations, from the first block to the last.

    Chapter: 16, interpret.
    Test: test_activations.py::test_the_parts_add_up
    """
    names = Activations._fields[1:]
    with record(model, *names) as recorded:
        output = model(*inputs, **options)
    return Activations(
        output,
        *(torch.stack(x) if x else output[:0] for x in recorded.values()),
    )


def blocks_of(model: nn.Module) -> nn.ModuleList:
    """The model's blocks.

    Raises:
        ValueError: if it has none.
    """
    blocks = getattr(model, "blocks", None)
    if not isinstance(blocks, nn.ModuleList):
        raise ValueError(
            "a model to look into must have blocks, as GPT and Encoder: got "
            f"{type(model).__name__}. Give the model that holds them."
        )
    return blocks


def _before(edit: Edit, module: nn.Module, args: tuple[Any, ...]) -> Any:
    """Replace what enters a block."""
    new = edit(0, args[0])
    return None if new is None else (new, *args[1:])


def _after(edit: Edit, i: int, module: Any, args: Any, out: Tensor) -> Any:
    """Replace what leaves a module."""
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
    **options: Any,
) -> Tensor:
    """Attend, and let edits see and replace the weights and the outputs."""
    weights = None
    if edit_weights is not None:
        weights = edit_weights(i, attention_weights(q, k, **options))
    if weights is None:
        heads = attend(q, k, v, dropout_p=dropout_p, **options)
    else:
        heads = weights @ share_heads(v, q)
    new = None if edit_heads is None else edit_heads(i, heads)
    return heads if new is None else new


def logit_lens(
    model: GPT, ids: Int[Tensor, "B T"]
) -> Float[Tensor, "L B T V"]:
    """Read logits off the stream at every depth, as the model does at the end.

    ``lens_i = norm(stream_i) W_U``, with the model's own last norm.

    Args:
        model: a :class:`GPT`.
        ids: (B, T) token ids.

    Returns:
        (L + 1, B, T, V) logits; the last are the model's own.

    Chapter: 16, interpret.
    Source: nostalgebraist2020logit.
    Test: test_interpret.py::test_the_lens_on_top_is_the_model
    """
    with torch.no_grad():
        return model.logits(watch(model, ids).stream)


def head_contributions(
    model: nn.Module, heads: Float[Tensor, "L B H T Dv"]
) -> Float[Tensor, "L B H T D"]:
    """Contribution of each head to the residual stream.

    Its columns of the outputs, times its rows of W_O.

    Args:
        model: with L blocks.
        heads: (L, B, H, T, Dv) as :func:`watch` records them.

    Returns:
        (L, B, H, T, D); their sum over the heads, and W_O's bias, is what
        attention adds.

    Chapter: 16, interpret.
    Source: elhage2021mathematical.
    Test: test_activations.py::test_the_parts_add_up
    """
    blocks = blocks_of(model)
    name = "attention.w_o.weight"
    with torch.no_grad():
        rows = torch.stack([block.get_parameter(name).T for block in blocks])
        w_o = rows.unflatten(1, (heads.size(2), -1))
        return heads @ w_o[:, None]


# -- where heads look ---------------------------------------------------------


def induction_keys(ids: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """The position after a token's last earlier occurrence.

    In "… A B … A" the last A has the position of B.

    Args:
        ids: (B, T) token ids.

    Returns:
        (B, T) positions; −1 for a token that did not occur before.

    Chapter: 16, interpret.
    Source: olsson2022context.
    """
    positions = torch.arange(ids.size(1), device=ids.device)
    earlier = positions < positions[:, None]
    same = (ids[:, :, None] == ids[:, None, :]) & earlier
    last = torch.where(same, positions, -1).amax(-1)
    return torch.where(last >= 0, last + 1, -1)


def mean_weight_on(
    weights: Float[Tensor, "L B H T S"], keys: Int[Tensor, "B T"]
) -> Float[Tensor, "L H"]:
    """Mean weight that each head puts on one key for each query.

    Args:
        weights: (L, B, H, T, S) as :func:`watch` records them.
        keys: (B, T) a key for each query; −1 for queries that don't count.

    Returns:
        (L, H) means. With :func:`induction_keys` induction scores, with
        each query's position minus 1 previous-token scores.

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
    on_keys = weights.gather(-1, at)[..., 0].transpose(1, 2)
    return on_keys[..., counts].mean(-1)


# -- without a part -----------------------------------------------------------


def mean_heads(
    model: nn.Module, ids: Int[Tensor, "B T"]
) -> Float[Tensor, "L H Dv"]:
    """Each head's mean output, over texts and positions.

    Args:
        model: with L blocks.
        ids: (B, T) token ids of texts of one length.

    Returns:
        (L, H, Dv).

    Chapter: 16, interpret.
    """
    return watch(model, ids).heads.mean((1, 3))


def ablate(
    which: Sequence[tuple[int, int]],
    means: Float[Tensor, "L H Dv"] | None = None,
) -> Edit:
    """Make an edit of ``heads`` that ablates some of them.

    Args:
        which: (block, head) of each, from 0.
        means: (L, H, Dv) what replaces their outputs, the same for any text
            and position; zeros by default.

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
    """Change of a measurement when each head is ablated in turn.

    Args:
        model: with L blocks.
        measure: runs the model and returns a number, such as its loss.
        means: as in :func:`ablate`.

    Returns:
        (L, H) rises.

    Chapter: 16, interpret.
    Source: michel2019sixteen; voita2019analyzing.
    Test: test_interpret.py::test_the_head_that_matters_is_found
    """
    with intervene(model):  # without dropout, as all that follow
        before = measure()
    rows = []
    for i, block in enumerate(blocks_of(model)):
        row = []
        attention: Any = block.get_submodule("attention")
        for head in range(attention.n_heads):
            with intervene(model, heads=ablate([(i, head)], means)):
                row.append(measure() - before)
        rows.append(row)
    return torch.tensor(rows, device=device_of(model))


def patch_effects(
    model: nn.Module,
    clean: Int[Tensor, "B T"],
    corrupt: Int[Tensor, "B S"],
    measure: Callable[[Tensor], Tensor],
    depths: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
) -> Float[Tensor, "N B P"]:
    """Patch each vector of a clean run into a corrupt one, in turn.

    ``(patched − corrupt) / (clean − corrupt)``: 0 where the vector changes
    nothing, 1 where it brings everything back.

    Args:
        model: with L blocks.
        clean: (B, T) texts of one length.
        corrupt: (B, T) the same, with something else in each.
        measure: from the model's output to (B,) numbers.
        depths: of the stream, 0 to L; all by default.
        positions: in the text; all by default.

    Returns:
        (depths, B, positions) fractions that come back.

    Raises:
        ValueError: if the texts differ in length, or measure the same.

    Chapter: 16, interpret.
    Source: vig2020investigating; meng2022locating.
    Test: test_interpret.py::test_a_patch_is_traced
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
    effects = []
    depths = depths or range(len(source.stream))
    positions = positions or range(clean.size(1))
    for depth in depths:
        for position in positions:
            new = source.stream[depth, :, position]
            edit = partial(_replace, depth, position, new)
            with intervene(model, stream=edit):
                effects.append((measure(model(corrupt)) - low) / (high - low))
    rows = torch.stack(effects).unflatten(0, (len(depths), len(positions)))
    return rows.mT


def _replace(depth: int, position: int, new: Tensor, i: int, x: Tensor) -> Any:
    """Replace the vector at one depth and position of the stream."""
    if i != depth:
        return None
    x = x.clone()
    x[:, position] = new
    return x
