"""Black-box probes: change the input, and see what moves in the output.

A probe needs nothing but a model from token ids (B, T) to logits (B, T, V):
a module, or any function, as ``lambda ids: model(ids).logits``.  It returns a
small report: ``report.ok``, the numbers behind it, and ``str(report)``, one
sentence.  The model is left as it was: its weights, gradients and buffers,
its mode, and the state of the random numbers.  Two probes examine what uses
the model: :func:`asks_for` the loss, :func:`same_in_use` the loop that
generates.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit.loss import cross_entropy
from coursekit.steppers import Stepper

Model = Callable[[Tensor], Tensor]
"""From (B, T) token ids to (B, T, V) logits."""
TOLERANCE = 1e-5
"""Changes below this fraction of the logits' spread are rounding."""


@dataclass(frozen=True)
class Report:
    """Base of the probes' reports; as a string, one sentence."""

    ok: bool


def _random_ids(
    model: Any, vocab_size: int, batch: int, length: int
) -> Int[Tensor, "B T"]:
    """Random ids; in a row they differ as long as the vocabulary lasts."""
    if vocab_size < 2 or length < 2:
        raise ValueError(
            "a probe changes tokens and looks at others: got "
            f"vocab_size={vocab_size}, length={length}. Both must be at "
            "least 2."
        )
    generator = torch.Generator().manual_seed(0)
    n_orders = -(-length // vocab_size)
    orders = [
        torch.randperm(vocab_size, generator=generator, device="cpu")
        for _ in range(batch * n_orders)
    ]
    ids = torch.cat(orders).view(batch, -1)[:, :length].contiguous()
    parameter = next(_as_module(model).parameters(), torch.empty(0))
    return ids.to(parameter.device)


def _as_module(model: Any) -> nn.Module:
    """The model; an empty module for a function."""
    return model if isinstance(model, nn.Module) else nn.Module()


def _modes(model: Model) -> tuple[bool, ...]:
    """Evaluation and training mode; a function has no modes."""
    return (False, True) if isinstance(model, nn.Module) else (False,)


@contextmanager
def _undisturbed(model: Model, training: bool, seed: int) -> Iterator[None]:
    """Restore modes, buffers and the state of random numbers afterward."""
    module = _as_module(model)
    was_training = {m: m.training for m in module.modules()}
    buffers = {b: b.clone() for b in module.buffers()}
    try:
        with torch.random.fork_rng():
            torch.default_generator.manual_seed(seed)
            if torch.accelerator.is_available():  # takes 100 times as long
                torch.manual_seed(seed)
            if set(was_training.values()) != {training}:
                module.train(training)
            yield
    finally:
        for m, mode in was_training.items():
            if m.training != mode:  # to set it takes as long as a small layer
                m.training = mode
        with torch.no_grad():
            for buffer, value in buffers.items():
                buffer.copy_(value)


@torch.no_grad()
def _logits(
    model: Model,
    ids: Int[Tensor, "B T"],
    training: bool = False,
    seed: int = 0,
) -> Float[Tensor, "B T V"]:
    """Run the model; the same dropout in each call with the same shape."""
    with _undisturbed(model, training, seed):
        return model(ids).float()


def _change(
    a: Float[Tensor, "B T V"], b: Float[Tensor, "B T V"]
) -> Float[Tensor, "B T"]:
    """Largest change of a logit, row by row; infinite where one is NaN."""
    return (a - b).abs().amax(-1).nan_to_num(nan=math.inf)


def _above(values: Float[Tensor, "N"], limit: float) -> set[int]:
    """Indices of the values that are not within the limit."""
    return {i for i, v in enumerate(values.tolist()) if not v <= limit}


def _join(numbers: Iterable[int]) -> str:
    """The numbers, with commas between them."""
    return ", ".join(map(str, numbers))


@dataclass(frozen=True)
class Causality(Report):
    """Report of :func:`causality`."""

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
            f"not causal: position {_join(self.positions)} sees what comes "
            f"later; changing token {self.token} moved earlier logits by "
            f"{self.leak:.2g}"
        )


@dataclass(frozen=True)
class BatchIndependence(Report):
    """Report of :func:`batch_independence`."""

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
                f"not independent: row {_join(self.company)} alone comes out "
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
    """Report of :func:`uses_context`."""

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
                f"{_join(self.ignored)}"
            )
        return "blind to order: reversing the earlier tokens changed nothing"


@dataclass(frozen=True)
class Repeats(Report):
    """Report of :func:`repeats`."""

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
    model: Model, vocab_size: int, length: int = 8, batch: int = 2
) -> Causality:
    """Change one token after the other: nothing before it may move.

    Modules are probed in evaluation and in training mode.

    Args:
        model: from (B, T) ids to (B, T, V) logits.
        vocab_size: V; ids are drawn from 0..V-1.
        length: T, at least 2.
        batch: B.

    Returns:
        A report.

    Raises:
        ValueError: if ``vocab_size`` or ``length`` is below 2.

    Chapter: 19, debugging.
    """
    ids = _random_ids(model, vocab_size, batch, length)
    worst, token, positions = 0.0, None, set()
    for training in _modes(model):
        run = partial(_logits, model, training=training)
        steps = {1, vocab_size // 2}
        moved, limit = _token_effects(run, ids, vocab_size, steps)
        leaks = moved.amax(1).tril(-1)  # of token t on what comes before it
        positions |= _above(leaks.amax(0)[:-1], limit)
        leak = float(leaks.max())
        if leak > worst:
            worst, token = leak, int(leaks.amax(1).argmax())
    return Causality(not positions, worst, tuple(sorted(positions)), token)


def batch_independence(
    model: Model, vocab_size: int, length: int = 8, batch: int = 3
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
    ids = _random_ids(model, vocab_size, max(batch, 2), length)
    worst, pairs = 0.0, set()
    for training in _modes(model):
        run = partial(_logits, model, training=training)
        before = run(ids)
        limit = TOLERANCE * float(before.std())
        for row in range(ids.size(0)):
            other = ids.clone()
            other[row] = (ids[row] + 1) % vocab_size
            moved = _change(before, run(other)).amax(1)
            moved[row] = 0.0
            pairs |= {(row, r) for r in _above(moved, limit)}
            worst = max(worst, float(moved.max()))
    company, leak = _changed_by_company(model, ids)
    ok, worst = not pairs and not company, max(worst, leak)
    return BatchIndependence(ok, worst, tuple(sorted(pairs)), company)


def _changed_by_company(
    model: Model, ids: Int[Tensor, "B T"]
) -> tuple[tuple[int, ...], float]:
    """Rows whose logits are others when the row is alone, and by how much."""
    together = _logits(model, ids)
    # Noise that is left on is drawn again for another shape.
    if not torch.equal(together, _logits(model, ids, seed=1)):
        return (), 0.0
    alone = torch.cat([_logits(model, row[None]) for row in ids])
    moved = _change(together, alone).amax(1)
    # Another shape may take its sums in another order.
    limit = 10 * TOLERANCE * float(together.std())
    rows = sorted(_above(moved, limit))
    return tuple(rows), float(moved.max()) if rows else 0.0


def reach(
    model: Model, vocab_size: int, length: int = 8
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
    ids = _random_ids(model, vocab_size, 2, length)
    run = partial(_logits, model)
    moved, limit = _token_effects(run, ids, vocab_size)
    return moved.amax(1).T.cpu() > limit


def _token_effects(
    run: Callable[[Tensor], Tensor],
    ids: Int[Tensor, "B T"],
    vocab_size: int,
    steps: Iterable[int] = (1,),
) -> tuple[Float[Tensor, "T B T"], float]:
    """Change of the logits when each token in turn is replaced.

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
            moved.append(_change(before, run(other)))
        effects.append(torch.stack(moved).amax(0))
    return torch.stack(effects), TOLERANCE * float(before.std())


def repeats(model: Model, vocab_size: int, length: int = 8) -> Repeats:
    """Run the same ids twice in evaluation mode, with other random numbers.

    Args, Raises: as :func:`causality`.

    Returns:
        A report.

    Chapter: 19, debugging.
    """
    ids = _random_ids(model, vocab_size, 2, length)
    first = _logits(model, ids)
    again = _logits(model, ids, seed=1)
    gap = float(_change(first, again).max())
    return Repeats(gap <= TOLERANCE * float(first.std()), gap)


def uses_context(
    model: Model, vocab_size: int, length: int = 8, batch: int = 2
) -> UsesContext:
    """Change each earlier token, and their order: the last logits must move.

    Args, Raises: as :func:`causality`.

    Returns:
        A report.

    Chapter: 19, debugging.
    """
    ids = _random_ids(model, vocab_size, batch, length)
    run = partial(_logits, model)
    moved, limit = _token_effects(run, ids, vocab_size)
    effects = moved[:-1, :, -1].amax(1).tolist()
    reversed_ids = torch.cat((ids[:, :-1].flip(1), ids[:, -1:]), dim=1)
    order = float(_change(run(ids), run(reversed_ids))[:, -1].max())
    ignored = tuple(t for t, e in enumerate(effects) if not e > limit)
    ok = not ignored and (order > limit or length == 2)
    return UsesContext(ok, tuple(effects), order, ignored)


@dataclass(frozen=True)
class PrefixGap(Report):
    """Report of :func:`prefix_gap`."""

    gaps: tuple[float, ...]
    """Loss with the whole text minus loss with the prefix, by position."""
    largest: float
    """Largest difference for a single token, in nats."""

    def __str__(self) -> str:
        """One sentence."""
        if self.ok:
            return "honest: the text that follows changes no prediction"
        t = max(range(len(self.gaps)), key=lambda i: abs(self.gaps[i]))
        side = "lower" if self.gaps[t] < 0 else "higher"
        return (
            f"not honest: at position {t} the loss is {abs(self.gaps[t]):.2g} "
            f"nats {side} when the model is given the text that follows"
        )


@dataclass(frozen=True)
class SameInUse(Report):
    """Report of :func:`same_in_use`."""

    gaps: tuple[float, ...]
    """Largest difference of a logit: the prompt's, then of each new token."""
    first: int | None
    """First difference: 0 at the prompt, n at new token n."""

    def __str__(self) -> str:
        """One sentence."""
        if self.ok:
            return "the same in use: both loops give the same logits"
        where = f"new token {self.first}" if self.first else "the prompt"
        return (
            f"not the same in use: the two loops part at {where}, by up to "
            f"{max(self.gaps):.2g}"
        )


def prefix_gap(
    model: Model, ids: Int[Tensor, "B T"], tolerance: float = 1e-4
) -> PrefixGap:
    """Compare the loss on whole texts with the loss on their prefixes alone.

    In training a model is handed the text that it is asked to predict; in
    use it is not.  For an honest model that makes no difference.

    Args:
        model: from (B, T) ids to (B, T, V) logits.
        ids: (B, T) held-out text, T at least 2.
        tolerance: largest difference that is rounding, in nats.

    Returns:
        A report.

    Raises:
        ValueError: if the text has fewer than 2 tokens.

    Chapter: 19, debugging.
    """
    if ids.size(1) < 2:
        raise ValueError(
            "a text must have at least 2 tokens, one to predict the other: "
            f"got {tuple(ids.shape)}. Give (B, T) ids of held-out text."
        )
    inputs, targets = ids[:, :-1], ids[:, 1:]
    prefixes = [inputs[:, : t + 1] for t in range(inputs.size(1))]
    last = [_logits(model, prefix)[:, -1] for prefix in prefixes]
    on_whole, on_prefixes = (
        cross_entropy(scores, targets, reduction="none")
        for scores in (_logits(model, inputs), torch.stack(last, dim=1))
    )
    gap = on_whole - on_prefixes
    largest = float(gap.abs().max())
    return PrefixGap(
        largest <= tolerance, tuple(gap.mean(0).tolist()), largest
    )


def same_in_use(
    stepper: Stepper, plain: Stepper, ids: Sequence[int], n_prompt: int = 4
) -> SameInUse:
    """Compare the logits of two generation loops at each step of a text.

    Args:
        stepper: the fast loop, usually a :class:`GPTStepper`.
        plain: the slow one that is trusted, one without a cache.
        ids: the text; what follows the prompt is read token by token.
        n_prompt: how many of them are the prompt.

    Returns:
        A report.

    Raises:
        ValueError: if nothing, or everything, is the prompt.

    Chapter: 19, debugging.
    """
    if not 0 < n_prompt < len(ids):
        raise ValueError(
            "the prompt must be a part of the text: got "
            f"n_prompt={n_prompt} of {len(ids)} tokens. Take at least 1, and "
            "leave at least 1."
        )
    a = stepper.prefill([ids[:n_prompt]])
    b = plain.prefill([ids[:n_prompt]])
    limit = 10 * TOLERANCE * float(b.std())
    gaps = [float((a - b).abs().max())]
    for token in ids[n_prompt:]:
        a = stepper.step(torch.tensor([token], device=a.device))
        b = plain.step(torch.tensor([token], device=b.device))
        gaps.append(float((a - b).abs().max()))
    first = min(_above(torch.tensor(gaps), limit), default=None)
    return SameInUse(first is None, tuple(gaps), first)


Loss = Callable[[Model, Tensor], Tensor]
"""From a model and (B, T) ids of whole texts to nats."""


@dataclass(frozen=True)
class TrainsEverything(Report):
    """Report of :func:`trains_everything`."""

    loss: float
    """Loss on random tokens, in nats."""
    uniform: float
    """ln V: the loss of a model that knows nothing."""
    n_parameters: int
    """Number of parameters; shared ones count once."""
    problems: tuple[str, ...]
    """Faults, one sentence each."""

    def __str__(self) -> str:
        """One sentence."""
        if self.ok:
            return (
                f"trains everything: all {self.n_parameters:,} parameters "
                f"have a gradient; the loss of {self.loss:.2f} is near "
                f"ln V = {self.uniform:.2f}"
            )
        return f"does not train everything: {'; '.join(self.problems)}"


@dataclass(frozen=True)
class AsksFor(Report):
    """Report of :func:`asks_for`."""

    offset: int | None
    """How far on the token stands that is asked for; None: no such token."""
    losses: Mapping[int, float]
    """Loss of an oracle that knows the token so far on, in nats."""

    def __str__(self) -> str:
        """One sentence."""
        if self.ok:
            return "asks for the next token: who knows it has a loss of 0"
        if self.offset is None:
            low = min(self.losses.values())
            return (
                "asks for no token near by: of all oracles, the best has a "
                f"loss of {low:.2g}"
            )
        if self.offset == 1:
            return (
                "asks for the next token, and for more: who knows it still "
                f"has a loss of {self.losses[1]:.2g}"
            )
        return f"asks for the token {self.offset:+d} places on, not +1"


def trains_everything(
    model: nn.Module,
    vocab_size: int,
    length: int = 8,
    expected: int | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> TrainsEverything:
    """Look for parameters that will not learn, and for a start too sure.

    Each parameter must get a gradient that is finite and not all zero.  The
    loss of an untrained model is near ln V; only above ln V + 5 is it wrong.

    Args:
        model, vocab_size, length: as in :func:`causality`.
        expected: the number of parameters by the formula, if known: layers
            in a plain list are not found.
        optimizer: must hold every parameter, if given.

    Returns:
        A report.

    Raises:
        ValueError: as :func:`causality`.

    Chapter: 19, debugging.
    """
    ids = _random_ids(model, vocab_size, 4, length + 1)
    with _undisturbed(model, True, 0), torch.enable_grad():
        loss = cross_entropy(model(ids[:, :-1]).float(), ids[:, 1:])
        problems = _without_gradient(model, loss)
    if optimizer is not None:
        problems += _not_held(model, optimizer)
    count = sum(p.numel() for p in model.parameters())
    if expected is not None and count != expected:
        problems.append(f"{count:,} parameters instead of {expected:,}")
    value, uniform = float(loss.detach()), math.log(vocab_size)
    if not value <= uniform + 5:
        problems.append(f"loss {value:.2f} at the start, ln V {uniform:.2f}")
    return TrainsEverything(
        not problems, value, uniform, count, tuple(problems)
    )


def _without_gradient(model: nn.Module, loss: Tensor) -> list[str]:
    """Faults of the parameters' gradients, one sentence each."""
    named = dict(model.named_parameters())
    trained = {n: p for n, p in named.items() if p.requires_grad}
    problems = [f"{n} is frozen" for n in named.keys() - trained.keys()]
    gradients: tuple[Tensor | None, ...] = (None,) * len(trained)
    if loss.requires_grad:
        gradients = torch.autograd.grad(
            loss, list(trained.values()), allow_unused=True
        )
    for name, g in zip(trained, gradients, strict=True):
        if g is None or not g.any():
            problems.append(f"{name} gets no gradient")
        elif not g.isfinite().all():
            problems.append(f"{name} gets a gradient that is not finite")
    return problems


def _not_held(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Parameters that an optimizer lacks, one sentence each."""
    optimized = {id(p) for g in optimizer.param_groups for p in g["params"]}
    return [
        f"the optimizer does not hold {name}"
        for name, p in model.named_parameters()
        if id(p) not in optimized
    ]


def asks_for(loss: Loss, vocab_size: int, length: int = 8) -> AsksFor:
    """Hand a program's loss models that know too much, one after the other.

    An oracle knows the token that stands k places on.  The loss of the one
    with k = 1, and of no other, must be 0.

    Args:
        loss: takes a model and whole texts, (B, T) ids; it cuts inputs and
            targets from them itself, runs the model on the inputs, which
            begin where the text begins, and returns nats.
        vocab_size, length: as in :func:`causality`.

    Returns:
        A report.

    Raises:
        ValueError: as :func:`causality`.

    Chapter: 19, debugging.
    """
    ids = _random_ids(loss, vocab_size, 4, length)
    sure = 30 * F.one_hot(ids, vocab_size).float()
    losses = {}
    for k in (-1, 0, 1, 2, 3):

        def oracle(inputs: Tensor, k: int = k) -> Tensor:
            # Where there is no token k positions on, it knows nothing.
            n = inputs.size(1)
            padded = F.pad(sure, (0, 0, max(-k, 0), max(k, 0) + n))
            return padded[:, max(k, 0) :][:, :n]

        with torch.no_grad():
            losses[k] = float(loss(oracle, ids))
    best = min(losses, key=lambda k: losses[k])
    offset = best if abs(losses[best]) < math.log(vocab_size) / 2 else None
    return AsksFor(abs(losses[1]) < 1e-3, offset, losses)
