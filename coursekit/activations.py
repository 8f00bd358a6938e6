"""Activations: what passes through a model, to be recorded or replaced.

Everything rests on one function: :func:`intervene` shows the activations
while a model runs, and puts something else in their place.  The model itself
stays as it was.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from coursekit.attention import Attend, attention_weights, share_heads
from coursekit.devices import evaluating

Edit = Callable[[int, Tensor], Tensor | None]
"""Takes the number of a block and an activation; returns what replaces it,
or None to leave it as it is."""


class Activations(NamedTuple):
    """What :func:`watch` records; L blocks.  What a model lacks is empty."""

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
    **how: Any,
) -> Tensor:
    """Attend, and let edits see and replace the weights and the outputs."""
    weights = None
    if edit_weights is not None:
        weights = edit_weights(i, attention_weights(q, k, **how))
    if weights is None:
        heads = attend(q, k, v, dropout_p=dropout_p, **how)
    else:
        heads = weights @ share_heads(v, q)
    new = None if edit_heads is None else edit_heads(i, heads)
    return heads if new is None else new
