"""Which positions, and which rows of a batch, the logits depend on."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from coursekit.probe.running import (
    TOLERANCE,
    Model,
    Report,
    above,
    change,
    join,
    logits,
    modes,
    random_ids,
)


@dataclass(frozen=True)
class Causality(Report):
    """What :func:`causality` saw."""

    leak: float
    """Largest change of a logit when a later token changed."""
    positions: tuple[int, ...]
    """Positions that saw what comes later."""
    token: int | None
    """The later token that was seen the most."""

    def __str__(self) -> str:
        """One sentence."""
        if self.ok:
            return "causal: no position sees a later token"
        return (
            f"not causal: position {join(self.positions)} sees what comes "
            f"later; changing token {self.token} moved earlier logits by "
            f"{self.leak:.2g}"
        )


@dataclass(frozen=True)
class BatchIndependence(Report):
    """What :func:`batch_independence` saw."""

    leak: float
    """Largest change of a logit when another row changed, or was gone."""
    pairs: tuple[tuple[int, int], ...]
    """(changed row, row that moved)."""
    company: tuple[int, ...] = ()
    """Rows whose logits are others when the row is alone."""

    def __str__(self) -> str:
        """One sentence."""
        if self.ok:
            return "independent: no row of the batch sees another"
        if not self.pairs:
            return (
                f"not independent: row {join(self.company)} alone comes out "
                f"otherwise than in a batch; largest change of a logit "
                f"{self.leak:.2g}"
            )
        changed, moved = self.pairs[0]
        return (
            f"not independent: changing row {changed} moved row {moved}; "
            f"largest change of a logit {self.leak:.2g}"
        )


@dataclass(frozen=True)
class UsesContext(Report):
    """What :func:`uses_context` saw."""

    effects: tuple[float, ...]
    """Change of the last logits when token t changed, for each earlier t."""
    order: float
    """Change of the last logits when the earlier tokens were reversed."""
    ignored: tuple[int, ...]
    """Earlier tokens that have no effect."""

    def __str__(self) -> str:
        """One sentence."""
        if self.ok:
            return "uses its context: every earlier token counts, and order"
        if self.ignored:
            return (
                "ignores context: the last logits do not depend on token "
                f"{join(self.ignored)}"
            )
        return "blind to order: reversing the earlier tokens changed nothing"


@dataclass(frozen=True)
class Repeats(Report):
    """What :func:`repeats` saw."""

    change: float
    """Largest difference between two runs of the same ids."""

    def __str__(self) -> str:
        """One sentence."""
        if self.ok:
            return (
                "repeats itself: in evaluation mode nothing is left to chance"
            )
        return (
            "does not repeat itself: the same ids, run twice in evaluation "
            f"mode, differ by {self.change:.2g}"
        )


def causality(
    model: Model,
    vocab_size: int,
    length: int = 8,
    batch: int = 2,
    seed: int = 0,
) -> Causality:
    """Change one token after the other: nothing before it may move.

    Modules are probed in evaluation and in training mode.

    Args:
        model: from (B, T) ids to (B, T, V) logits.
        vocab_size: V; ids are drawn from 0..V-1.
        length: T, at least 2.
        batch: B.
        seed: of the ids, and of the model's own dropout.

    Returns:
        A report.

    Raises:
        ValueError: if ``vocab_size`` or ``length`` is below 2.

    Chapter: 19, debugging.
    """
    ids = random_ids(model, vocab_size, batch, length, seed)
    worst, token, positions = 0.0, None, set()
    for training in modes(model):
        run = partial(logits, model, training=training, seed=seed)
        steps = {1, vocab_size // 2}
        moved, limit = token_effects(run, ids, vocab_size, steps)
        leaks = moved.amax(1).tril(-1)  # of token t on what comes before it
        positions |= above(leaks.amax(0)[:-1], limit)
        leak = float(leaks.max())
        if leak > worst:
            worst, token = leak, int(leaks.amax(1).argmax())
    return Causality(not positions, worst, tuple(sorted(positions)), token)


def batch_independence(
    model: Model,
    vocab_size: int,
    length: int = 8,
    batch: int = 3,
    seed: int = 0,
) -> BatchIndependence:
    """Change one row after the other: no other row may move.

    Then run each row alone: in evaluation mode it must come out the same.
    A model that does not even repeat itself there is not asked: see
    :func:`repeats`.

    Args, Raises: as :func:`causality`; ``batch`` at least 2.

    Returns:
        A report.

    Chapter: 19, debugging.
    """
    ids = random_ids(model, vocab_size, max(batch, 2), length, seed)
    worst, pairs = 0.0, set()
    for training in modes(model):
        run = partial(logits, model, training=training, seed=seed)
        before = run(ids)
        limit = TOLERANCE * float(before.std())
        for row in range(ids.size(0)):
            other = ids.clone()
            other[row] = (ids[row] + 1) % vocab_size
            moved = change(before, run(other)).amax(1)
            moved[row] = 0.0
            pairs |= {(row, r) for r in above(moved, limit)}
            worst = max(worst, float(moved.max()))
    company, leak = _changed_by_company(model, ids, seed)
    ok, worst = not pairs and not company, max(worst, leak)
    return BatchIndependence(ok, worst, tuple(sorted(pairs)), company)


def _changed_by_company(
    model: Model, ids: Int[Tensor, "B T"], seed: int
) -> tuple[tuple[int, ...], float]:
    """Rows whose logits are others when the row is alone, and by how much."""
    together = logits(model, ids, seed=seed)
    # Noise that is left on is drawn again for another shape.
    if not torch.equal(together, logits(model, ids, seed=seed + 1)):
        return (), 0.0
    alone = torch.cat([logits(model, row[None], seed=seed) for row in ids])
    moved = change(together, alone).amax(1)
    # Another shape may take its sums in another order.
    limit = 10 * TOLERANCE * float(together.std())
    rows = sorted(above(moved, limit))
    return tuple(rows), float(moved.max()) if rows else 0.0


def reach(
    model: Model,
    vocab_size: int,
    length: int = 8,
    batch: int = 2,
    seed: int = 0,
) -> Bool[Tensor, "T T"]:
    """Change one token after the other, and note which positions move.

    Row i, column j is True if the logits at position i move when token j
    changes: for a causal model that uses all of its context, the lower
    triangle with its diagonal.

    Args, Raises: as :func:`causality`.

    Returns:
        (T, T) booleans, in evaluation mode.

    Chapter: 19, debugging.
    """
    ids = random_ids(model, vocab_size, batch, length, seed)
    run = partial(logits, model, seed=seed)
    moved, limit = token_effects(run, ids, vocab_size)
    return moved.amax(1).T.cpu() > limit


def token_effects(
    run: Callable[[Tensor], Tensor],
    ids: Int[Tensor, "B T"],
    vocab_size: int,
    steps: Iterable[int] = (1,),
) -> tuple[Float[Tensor, "T B T"], float]:
    """How far the logits move when one token after the other changes.

    Args:
        run: gives the logits of ids.
        ids: (B, T).
        vocab_size: V.
        steps: what is added to an id, modulo V, each in its turn.

    Returns:
        Entry [j, b, i]: the largest change of row b's logits at position i
        when token j changes; and the change up to which it is rounding.
    """
    before, effects = run(ids), []
    for j in range(ids.size(1)):
        moved = []
        for step in steps:
            other = ids.clone()
            other[:, j] = (ids[:, j] + step) % vocab_size
            moved.append(change(before, run(other)))
        effects.append(torch.stack(moved).amax(0))
    return torch.stack(effects), TOLERANCE * float(before.std())


def repeats(
    model: Model,
    vocab_size: int,
    length: int = 8,
    batch: int = 2,
    seed: int = 0,
) -> Repeats:
    """Run the same ids twice in evaluation mode, with other random numbers.

    Args, Raises: as :func:`causality`.

    Returns:
        A report.

    Chapter: 19, debugging.
    """
    ids = random_ids(model, vocab_size, batch, length, seed)
    first = logits(model, ids, seed=seed)
    again = logits(model, ids, seed=seed + 1)
    gap = float(change(first, again).max())
    return Repeats(gap <= TOLERANCE * float(first.std()), gap)


def uses_context(
    model: Model,
    vocab_size: int,
    length: int = 8,
    batch: int = 2,
    seed: int = 0,
) -> UsesContext:
    """Change each earlier token, and their order: the last logits must move.

    Args, Raises: as :func:`causality`.

    Returns:
        A report.

    Chapter: 19, debugging.
    """
    ids = random_ids(model, vocab_size, batch, length, seed)
    run = partial(logits, model, seed=seed)
    moved, limit = token_effects(run, ids, vocab_size)
    effects = moved[:-1, :, -1].amax(1).tolist()
    reversed_ids = torch.cat((ids[:, :-1].flip(1), ids[:, -1:]), dim=1)
    order = float(change(run(ids), run(reversed_ids))[:, -1].max())
    ignored = tuple(t for t, e in enumerate(effects) if not e > limit)
    ok = not ignored and (order > limit or length == 2)
    return UsesContext(ok, tuple(effects), order, ignored)
