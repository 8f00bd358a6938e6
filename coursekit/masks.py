"""Boolean attention masks, True where a query may attend to a key."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from coursekit.checks import check_boolean, check_causal, is_integer, require


def causal_mask(
    n_queries: int,
    n_keys: int | None = None,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "T S"]:
    """Causal mask: each position attends to itself and earlier ones.

    Query i may see key j if and only if j ≤ i + (S − T): the queries are the
    *last* T of S positions, as when new tokens meet a cache of old keys.

    Args:
        n_queries: T.
        n_keys: S; T if not given.
        device: where the mask lives.

    Returns:
        (T, S) booleans, True where query (row) may attend to key (column).

    Raises:
        ValueError: if there are more queries than keys.

    Chapter: 5, masks.
    Source: vaswani2017attention, section 3.2.3.
    Test: test_masks.py::test_causal_cell_by_cell
    """
    if n_keys is None:
        n_keys = n_queries
    check_causal(n_queries, n_keys)
    shape = (n_queries, n_keys)
    ones = torch.ones(shape, dtype=torch.bool, device=device)
    return ones.tril(n_keys - n_queries)


def window_mask(
    size: int,
    n_queries: int,
    n_keys: int | None = None,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "T S"]:
    """Window mask: each position attends to itself and a few earlier ones.

    Query i may see key j if and only if i + (S − T) − size < j ≤ i + (S − T).

    Args:
        size: how many keys a query sees, itself included.
        n_queries, n_keys, device: as in :func:`causal_mask`.

    Returns:
        (T, S) booleans, True where query (row) may attend to key (column).

    Raises:
        ValueError: if the window is empty, or there are more queries than
            keys.

    Chapter: 15, modern.
    Source: beltagy2020longformer, section 3.1.
    Test: test_masks.py::test_window_cell_by_cell
    """
    require(
        is_integer(size),
        "a window must have at least one key, the query's own",
        f"size={size}",
        "Give a larger one.",
    )
    causal = causal_mask(n_queries, n_keys, device)
    return causal.triu(causal.size(1) - n_queries - size + 1)


def padding_mask(
    ids: Int[Tensor, "B S"], pad_id: int
) -> Bool[Tensor, "B 1 1 S"]:
    """Padding mask: no query attends to padding.

    Args:
        ids: (B, S) token ids.
        pad_id: the token that fills up short sequences.

    Returns:
        (B, 1, 1, S) booleans, True where the key is a real token.

    Chapter: 5, masks.
    """
    return (ids != pad_id)[:, None, None, :]


def combine_masks(*masks: Tensor | None) -> Tensor | None:
    """Allow only what every mask allows; ``None`` allows everything.

    Args:
        masks: boolean masks that broadcast together, or ``None``.

    Returns:
        Their conjunction, or ``None`` if all are ``None``.

    Raises:
        ValueError: if a mask is not boolean.

    Chapter: 5, masks.
    """
    combined = None
    for mask in masks:
        if mask is None:
            continue
        check_boolean(mask)
        combined = mask if combined is None else combined & mask
    return combined
