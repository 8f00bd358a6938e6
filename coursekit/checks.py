"""Checks of input: each rule with its error message, in one place."""

import operator
from collections.abc import Iterable
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


class TrainingDiverged(ValueError):  # noqa: N818 (an end, as StopIteration)
    """A loss, gradient or weight is no longer a number."""


def require(holds: bool, rule: str, received: str, remedy: str) -> None:
    """Refuse what breaks a rule.

    Raises:
        ValueError: with the rule, what was received, and what to do.
    """
    if not holds:
        raise ValueError(f"{rule}: got {received[:500]}. {remedy}")


def check_choice(
    name: str,
    value: Any,
    choices: Iterable[str],
    remedy: str = "Choose one of these.",
) -> None:
    """Refuse a name that is not among the choices.

    Raises:
        ValueError: with all of them.
    """
    choices = tuple(choices)
    rule = f"{name} must be one of {', '.join(choices)}"
    require(value in choices, rule, repr(value), remedy)


def is_number(value: Any) -> bool:
    """True for a real number, but not for a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_integer(n: Any, least: int = 1) -> bool:
    """True for an integer, not a bool, of at least `least`."""
    return isinstance(n, Integral) and is_number(n) and int(n) >= least


def is_packaged(
    name: str | Path, packaged: Iterable[str], is_here: bool
) -> bool:
    """True if a name is that of a packaged model; False for any Path.

    Args:
        name: as the user gave it.
        packaged: the names that the package has for such things.
        is_here: whether the name is also a path to one.

    Raises:
        ValueError: if it could mean either.
    """
    if not isinstance(name, str) or name not in packaged:
        return False
    require(
        not is_here,
        "a name must mean one thing",
        f"{name!r}, which the package ships and which is in this folder too",
        f"Write ./{name} for the one here; rename it to use the package's.",
    )
    return True


def check_id_list(ids: Iterable[Any]) -> list[int]:
    """Return ids as a list of integers.

    Raises:
        ValueError: if one is none, as 1.0 or True.
    """
    if isinstance(ids, Tensor):
        ids = ids.tolist()
    try:
        listed = [*ids]
        if any(isinstance(i, bool) for i in listed):
            raise TypeError
        return [operator.index(i) for i in listed]
    except TypeError:
        raise ValueError(
            f"token ids must be integers: got {str(ids)[:80]}. Encode a text "
            "by the tokenizer of the model."
        ) from None


def check_integers(**sizes: Any) -> None:
    """Refuse sizes that are not integers of at least 1.

    Raises:
        ValueError: with the name of the first.
    """
    for name, size in sizes.items():
        rule = f"{name} must be an integer of at least 1"
        received = f"{name}={size!r}"
        require(is_integer(size), rule, received, "Give a positive integer.")


def check_heads(
    d_model: int, n_heads: int, n_kv_heads: int, d_head: int | None = None
) -> None:
    """Refuse heads that don't share the width, or each other, evenly.

    Raises:
        ValueError: if D is not a multiple of H (and no size of a head is
            given), or H not one of G.
    """
    require(
        is_integer(n_heads)
        and is_integer(d_model)
        and (d_model % n_heads == 0 if d_head is None else is_integer(d_head)),
        "d_model must be divisible by n_heads, or a d_head above 0 be given",
        f"d_model={d_model}, n_heads={n_heads}, d_head={d_head}",
        "Choose d_model a multiple of n_heads.",
    )
    require(
        is_integer(n_kv_heads) and n_heads % n_kv_heads == 0,
        "n_heads must be a multiple of n_kv_heads",
        f"n_heads={n_heads}, n_kv_heads={n_kv_heads}",
        "Each key/value head serves the same number of query heads.",
    )


# -- tokens and positions ----------------------------------------------------


def check_ids(
    ids: Tensor,
    vocab_size: int,
    max_len: int | None = None,
    n_old: int = 0,
    positions: Tensor | None = None,
) -> None:
    """Refuse ids that are not in the vocabulary, or no batch for a model.

    On a GPU a look at the values would stall the queue, so there they are
    left to the device's own assertion.

    Args:
        ids: token ids in 0..V-1; of any shape, or (B, T) if there is a
            ``max_len``.
        vocab_size: V.
        max_len: most tokens that a model takes.
        n_old: how many of them a cache holds already.
        positions: (T,) or (B, T) in 0..max_len-1, if they are given.

    Raises:
        ValueError: if an id is not in the vocabulary; and, for a model, if
            ``ids`` are not whole numbers of shape (B, T), T is 0, there are
            too many, or the positions don't fit them.
    """
    ranges = [("token ids", ids, vocab_size, WRONG_ID)]
    if max_len is not None:
        kind = getattr(ids, "dtype", type(ids))
        if kind not in (torch.int64, torch.int32):
            raise ValueError(
                "token ids must be a tensor of int64 or int32: got "
                f"{kind}. Encode the text, then torch.tensor(ids).long()."
            )
        if ids.dim() != 2 or ids.size(1) == 0:
            raise ValueError(
                "token ids must be (B, T) with at least 1 token: got "
                f"{tuple(ids.shape)}. For one sequence write ids[None]."
            )
        check_length(n_old + ids.size(1), max_len)
        if positions is not None:
            check_positions(positions, ids)
            ranges.append(("positions", positions, max_len, WRONG_POSITION))
    for name, values, n, remedy in ranges:
        hidden = values.device.type != "cpu" or torch.compiler.is_compiling()
        if hidden or values.numel() == 0:
            continue
        low, high = map(int, values.aminmax())
        if low < 0 or high >= n:
            raise ValueError(
                f"{name} must lie in 0..{n - 1}: got {low}..{high}. {remedy}"
            )


WRONG_ID = "Was the text encoded with another model's tokenizer?"
WRONG_POSITION = (
    "Count from 0 at the first real token (padding on the left may have any "
    "position, as it is masked), or raise max_len."
)


def check_length(length: int, max_len: int) -> None:
    """Refuse a sequence that the model has no positions for.

    Raises:
        ValueError: if ``length`` exceeds ``max_len``.
    """
    if length > max_len:
        raise ValueError(
            f"a sequence may have at most max_len={max_len} tokens: got "
            f"{length}. Keep the last {max_len}, or build the model with a "
            "larger max_len."
        )


def check_positions(positions: Tensor, ids: Tensor) -> None:
    """Refuse positions that are not one integer for each token.

    Raises:
        ValueError: if they are not integers, or the shape is neither (T,)
            nor (B, T).
    """
    kind = getattr(positions, "dtype", type(positions))
    shape = tuple(getattr(positions, "shape", ()))
    fits = kind in (torch.int64, torch.int32) and shape[-1:] == ids.shape[1:]
    require(
        fits and shape[:-1] in ((), ids.shape[:1], (1,)),
        "positions must be int64 or int32, (T,) or (B, T), one for each token",
        f"{shape} for ids {tuple(ids.shape)}, {kind}",
        "Without positions the model counts by itself.",
    )


def not_finite(tensors: dict[str, Tensor]) -> str:
    """The name of the first tensor that holds NaN or infinity, or ""."""
    for name, tensor in tensors.items():
        if not (tensor.is_floating_point() and tensor.numel()):
            continue
        # NaN is passed on; isfinite on each entry takes 40 times as long.
        if not torch.stack(tensor.detach().aminmax()).isfinite().all():
            return name
    return ""


def check_scores(model: nn.Module) -> None:
    """Refuse a model whose scores would be NaN, before it generates.

    NaN anywhere else reaches the logits.  In the maps to queries and keys, a
    CPU's fused attention turns it into zeros while the text is short, see
    :func:`coursekit.attention.fast_attend`.

    Raises:
        ValueError: with the name of the weight.
    """
    maps: dict[str, Tensor] = {
        name: weight
        for name, weight in model.named_parameters()
        if weight.device.type == "cpu" and {"w_q", "w_k"} & {*name.split(".")}
    }
    bad = not_finite(maps)
    require(
        not bad,
        "weights must be finite numbers",
        f"NaN or infinity in {bad}",
        "Load the last good checkpoint.",
    )


# -- attention ---------------------------------------------------------------


def check_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout_p: float = 0.0,
) -> None:
    """Refuse shapes that don't fit, before broadcasting hides it.

    Args:
        q: (..., H, T, Dh) queries.
        k: (..., G, S, Dh) keys.
        v: (..., G, S, Dv) values.
        mask: booleans that broadcast to (..., H, T, S).
        dropout_p: share of weights zeroed.

    Dtypes are left to PyTorch, which refuses different ones by a
    ``RuntimeError``: under autocast they may differ.

    Raises:
        ValueError: with the rule, the shapes received and the remedy.
    """
    if dropout_p != 0:
        check_dropout(dropout_p)
    kinds = [*map(type, (q, k, v))]
    if not all(map(issubclass, kinds, [Tensor] * 3)):
        names = ", ".join(kind.__name__ for kind in kinds)
        rule = "q, k and v must be tensors"
        raise ValueError(f"{rule}: got {names}. Call torch.tensor.")
    if not q.dim() == k.dim() == v.dim() >= 2:
        rule = "q, k and v must have the same number of axes, (..., T, Dh)"
        remedy = "Split all three into heads, or none."
    elif q.size(-1) != k.size(-1):
        rule = "queries and keys must have the same size Dh"
        remedy = "Project both to the same number of columns."
    elif k.shape[:-1] != v.shape[:-1]:
        rule = "each key needs one value"
        remedy = "Make keys and values from the same tokens."
    elif q.shape[:-3] != k.shape[:-3]:
        rule = "queries and keys must come from one batch"
        remedy = "Expand the smaller one if all should share it."
    elif q.dim() > 2 and (not k.size(-3) or q.size(-3) % k.size(-3)):
        rule = "query heads must be a multiple of key/value heads"
        remedy = "Attention takes (B, H, T, Dh): are heads and time swapped?"
    elif mask is not None:
        return check_mask(mask, (*q.shape[:-1], k.size(-2)))
    else:
        return None
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    raise ValueError(f"{rule}: got {shapes}. {remedy}")


def check_dropout(p: float) -> None:
    """Refuse what is no probability to be dropped.

    Raises:
        ValueError: if it does not lie in 0..1.
    """
    require(
        is_number(p) and 0 <= p <= 1,
        "dropout must be a probability, in 0..1",
        repr(p),
        "0 turns it off; 0.1 is usual.",
    )


def check_mask(mask: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse a mask of numbers, or one of another shape.

    Raises:
        ValueError: if it is not boolean, or does not broadcast to ``shape``.
    """
    check_boolean(mask)
    require(
        _broadcasts(mask, shape),
        "a mask must broadcast to (..., T, S)",
        f"mask {tuple(mask.shape)} for {shape}",
        "Add axes of size 1, as mask[:, None, None, :] for padding.",
    )


def check_bias(bias: Tensor, q: Tensor, k: Tensor) -> None:
    """Refuse a bias of what is no real number, or of another shape.

    Raises:
        ValueError: if it can't be added to the scores of ``q`` and ``k``.
    """
    shape = (*q.shape[:-1], k.size(-2))
    kind = getattr(bias, "dtype", type(bias))
    fits = isinstance(bias, Tensor) and _broadcasts(bias, shape)
    require(
        fits and kind != torch.bool and not kind.is_complex,
        "a bias must be a tensor of real numbers that broadcast to "
        "(..., T, S)",
        f"{kind} {tuple(getattr(bias, 'shape', ()))} for {shape}",
        "They are added to the scores; booleans go into `mask`.",
    )


def _broadcasts(x: Tensor, shape: tuple[int, ...]) -> bool:
    """True if a tensor has a shape or broadcasts to it."""
    try:
        return torch.broadcast_shapes(x.shape, shape) == shape
    except RuntimeError:
        return False


def check_boolean(mask: Tensor) -> None:
    """Refuse a mask of numbers.

    Raises:
        ValueError: if it is no boolean tensor.
    """
    kind = getattr(mask, "dtype", type(mask))
    require(
        kind == torch.bool,
        "a mask must be a boolean tensor, True where a query may attend",
        str(kind) if isinstance(mask, Tensor) else type(mask).__name__,
        "Compare first (mask > 0); numbers that are added to the scores go "
        "into `bias`.",
    )


def check_causal(n_queries: int, n_keys: int) -> None:
    """Refuse causal attention of more queries than keys.

    Raises:
        ValueError: if T > S, or T < 0.
    """
    require(
        0 <= n_queries <= n_keys,
        "causal attention needs at least as many keys as queries",
        f"T={n_queries} queries and S={n_keys} keys",
        "Queries are the last positions of the keys; for cross-attention "
        "use causal=False.",
    )
