"""Writing: from logits to tokens, one at a time or several beams at once.

Three parts that know little of each other.  Pure functions choose a token
from logits.  A :class:`Stepper` gives the logits: it hides the model, its
positions, its padding and its cache.  :func:`stream`, :func:`generate` and
:func:`beam_search` drive any stepper.
"""

import math
import operator
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Sequence,
    Sized,
)
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from coursekit.decoder import GPT
from coursekit.seq2seq import Transformer

__all__ = [
    "Hypothesis",
    "PlainStepper",
    "PlainTranslator",
    "Stepper",
    "apply_temperature",
    "beam_search",
    "check_prompts",
    "check_rows",
    "evaluating",
    "generate",
    "greedy",
    "keep_top_k",
    "keep_top_p",
    "pad_rows",
    "sampler",
    "stream",
]

Choose = Callable[[Tensor], Tensor]
Prompts = Sequence[Sequence[int]] | Tensor


# --- Choosing a token from logits -----------------------------------------


def greedy(logits: Float[Tensor, "B V"]) -> Int[Tensor, "B"]:
    """Take the likeliest token of each row; the lowest id wins a tie.

    Args:
        logits: (B, V).

    Returns:
        (B,) token ids.

    Chapter: 12, generation.
    """
    return logits.argmax(dim=-1)


def apply_temperature(
    logits: Float[Tensor, "*B V"], temperature: float
) -> Float[Tensor, "*B V"]:
    """Sharpen (below 1) or flatten (above 1) a distribution.

    ``z / τ``: the probabilities become ``p^(1/τ)``, normalized.

    Args:
        logits: (..., V).
        temperature: τ > 0; 1 changes nothing, towards 0 it becomes greedy.

    Returns:
        (..., V) logits.

    Raises:
        ValueError: if τ is not positive.

    Chapter: 12, generation.
    """
    if not temperature > 0:
        raise ValueError(
            f"temperature must be above 0: got {temperature}. "
            "For the limit 0, choose greedily."
        )
    return logits / temperature


def keep_top_k(
    logits: Float[Tensor, "*B V"],
    k: int,
) -> Float[Tensor, "*B V"]:
    """Keep the k likeliest tokens; the others get probability 0.

    Tokens that tie with the k-th are kept too.

    Args:
        logits: (..., V).
        k: at least 1; V or more keeps all.

    Returns:
        (..., V) logits, −∞ where a token is dropped.

    Raises:
        ValueError: if k is no whole number of at least 1.

    Chapter: 12, generation.
    Source: fan2018hierarchical, section 5.4.
    """
    if not isinstance(k, int) or k < 1:
        raise ValueError(
            "top_k must be a whole number of at least 1: got "
            f"{k}. None keeps all tokens."
        )
    best = logits.topk(min(k, logits.size(-1)), dim=-1).values
    return logits.masked_fill(logits < best[..., -1:], -torch.inf)


def keep_top_p(
    logits: Float[Tensor, "*B V"], p: float
) -> Float[Tensor, "*B V"]:
    """Keep the smallest set of tokens whose probability reaches p.

    A token stays while the mass *before* it, likeliest first, is below p:
    the token that crosses p is kept, so the likeliest always is.

    Args:
        logits: (..., V).
        p: in (0, 1]; 1 keeps all.

    Returns:
        (..., V) logits, −∞ where a token is dropped.

    Raises:
        ValueError: if p lies outside (0, 1].

    Chapter: 12, generation.
    Source: holtzman2020curious, section 3.1.
    """
    if not 0 < p <= 1:
        raise ValueError(
            f"top_p must lie in (0, 1]: got {p}. 1 keeps all tokens."
        )
    if p == 1:  # rounding must not drop the tail
        return logits
    ordered, ids = logits.sort(dim=-1, descending=True, stable=True)
    # In bfloat16 a sum near 1 is known to 1/256 only.
    precise = torch.promote_types(logits.dtype, torch.float32)
    probabilities = ordered.softmax(dim=-1, dtype=precise)
    mass_before = probabilities.cumsum(dim=-1) - probabilities
    is_late = mass_before >= p
    is_late[..., 0] = False  # even of a p that rounds to 0
    drop = torch.empty_like(is_late).scatter_(-1, ids, is_late)
    return logits.masked_fill(drop, -torch.inf)


def sampler(
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Choose:
    """Make a function that draws a token for each row of logits.

    The order is temperature, then top-k, then top-p of what is left.

    Args:
        temperature: τ ≥ 0; 0 is greedy.
        top_k: keep the k likeliest; None keeps all.
        top_p: keep the smallest set that reaches p; None keeps all.
        generator: where chance comes from, for repeatable text; the same
            seed on the CPU gives the same draws whatever the device.

    Returns:
        A function from (B, V) logits to (B,) token ids.

    Raises:
        ValueError: if a value is out of range, at once, not at the draw.

    Chapter: 12, generation.
    """

    def filtered(logits: Tensor) -> Tensor:
        # The largest becomes 0, so that a tiny τ can't overflow.
        logits = logits.float() - logits.amax(dim=-1, keepdim=True)
        logits = apply_temperature(logits, temperature)
        if top_k is not None:
            logits = keep_top_k(logits, top_k)
        return logits if top_p is None else keep_top_p(logits, top_p)

    def draw(logits: Tensor) -> Tensor:
        # One uniform number a row, looked up in the running sum: the same
        # tokens on every machine, which torch.multinomial does not promise.
        device = "cpu" if generator is None else generator.device
        probabilities = filtered(logits).softmax(dim=-1).to(device)
        sums = probabilities.double().cumsum(dim=-1)
        chance = torch.rand_like(sums[:, :1], generator=generator)
        drawn = (sums <= chance * sums[:, -1:]).sum(dim=-1)
        return drawn.to(logits.device)

    if 0 <= temperature < torch.finfo(torch.float32).tiny:
        return greedy
    filtered(torch.zeros(1, 1))  # refuses bad values
    return draw


# --- Steppers: where the logits come from ---------------------------------


@runtime_checkable
class Stepper(Protocol):
    """A batch of texts in the making.

    A stepper serves one batch at a time; ``prefill`` begins anew and
    forgets all before.
    """

    @property
    def limit(self) -> int | None:
        """Most tokens a row can get after its prompt; None: no limit."""
        ...

    def prefill(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Read the prompts; return (B, V) logits of each first token."""
        ...

    def step(self, tokens: Tensor) -> Tensor:
        """Append (B,) tokens; return (B, V) logits of the next ones."""
        ...

    def reorder(self, index: Tensor) -> None:
        """Let row i go on from what is now row index[i]; B may change."""
        ...


@contextmanager
def evaluating(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Switch dropout and gradients off, and back to what they were.

    Args:
        modules: usually ``model.modules()``.

    Chapter: 12, generation.
    """
    training = [module for module in modules if module.training]
    for module in training:
        vars(module)["training"] = False  # nn.Module's own way is slow
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            vars(module)["training"] = True


def pad_rows(
    rows: Sequence[Sequence[int]],
    left: bool,
    pad_id: int = 0,
    device: torch.device | str | None = None,
) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """Put rows of unequal length into one tensor.

    Args:
        rows: B lists of token ids.
        left: pad on the left, so that all rows *end* together, which a
            decoder needs; otherwise on the right.
        pad_id: what fills the gaps; any valid id, as the mask hides it.
        device: where the tensors live.

    Returns:
        (B, T) ids and (B, T) booleans, True = real token.

    Chapter: 12, generation.
    """
    longest = max(len(row) for row in rows)
    ids, real = [], []
    for row in rows:
        gap = longest - len(row)
        padding, kept = [pad_id] * gap, [True] * len(row)
        ids.append([*padding, *row] if left else [*row, *padding])
        real.append([False] * gap + kept if left else kept + [False] * gap)
    return (
        torch.tensor(ids, dtype=torch.long, device=device),
        torch.tensor(real, device=device),
    )


class PlainStepper:
    """Steps a GPT and reads the whole text again each time: the reference.

    Rows of unequal length are padded on the left, the padding is masked, and
    each row counts its positions from its first real token, so that a row
    gets the logits that it would get alone.

    The model sees at most ``window`` tokens.  The rule, row by row: a prompt
    that is longer is cut to its *last* ``window`` tokens; a row that is full
    is cut to its last ``keep`` tokens before the next is added, and these
    are numbered from 0 again.

    Args:
        model: the GPT; it is put into evaluation mode for each call only.
        window: most tokens seen at once; default and maximum ``max_len``.
        keep: tokens kept of a full row, 0..window − 1; default half of the
            window, so that a cache is filled anew only now and then.
            ``window − 1`` slides by one token each step.

    Raises:
        ValueError: if ``window`` or ``keep`` is out of range.

    Chapter: 12, generation.
    """

    limit: int | None = None

    def __init__(
        self,
        model: GPT,
        window: int | None = None,
        keep: int | None = None,
    ) -> None:
        max_len = model.config.max_len
        self.model = model
        self.window = max_len if window is None else window
        self.keep = self.window // 2 if keep is None else keep
        self.rows: list[list[int]] = []
        if not 1 <= self.window <= max_len:
            raise ValueError(
                f"window must lie in 1..max_len={max_len}: got {window}. "
                "The model has no positions beyond."
            )
        if not 0 <= self.keep < self.window:
            raise ValueError(
                f"keep must lie in 0..{self.window - 1}: got {keep}. "
                "A full row must make room for a new token."
            )

    def prefill(
        self, prompts: Sequence[Sequence[int]]
    ) -> Float[Tensor, "B V"]:
        """Read the prompts.

        Args:
            prompts: B lists of token ids, none empty.

        Returns:
            (B, V) logits of the first new token.

        Raises:
            ValueError: if there is no prompt, or one is empty.
        """
        check_prompts(prompts)
        self.rows = [list(prompt)[-self.window :] for prompt in prompts]
        self.modules = list(self.model.modules())  # listed once
        return self.read()

    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Append a token to each row.

        Args:
            tokens: (B,) token ids.

        Returns:
            (B, V) logits of the next token.
        """
        self.append(tokens)
        return self.read()

    def reorder(self, index: Int[Tensor, "N"]) -> None:
        """Let row i go on from what is now row index[i].

        Args:
            index: (N,) rows; one may come twice, or not at all.
        """
        self.rows = [list(self.rows[i]) for i in index.tolist()]

    def append(self, tokens: Int[Tensor, "B"]) -> None:
        """Add a token to each row, after making room in the full ones.

        Raises:
            ValueError: if there is not one token for each row.
        """
        check_rows(tokens, len(self.rows))
        for row, token in zip(self.rows, tokens.tolist(), strict=True):
            if len(row) >= self.window:
                del row[: len(row) - self.keep]
            row.append(token)

    def read(self) -> Float[Tensor, "B V"]:
        """Run the model over all rows, from their first token."""
        device = next(self.model.parameters()).device
        ids, real = pad_rows(self.rows, left=True, device=device)
        positions = (real.cumsum(dim=1) - 1).clamp(min=0)
        with evaluating(self.modules):
            x = self.model.hidden(ids, positions, real[:, None, None])
            return self.model.logits(x[:, -1])


class PlainTranslator:
    """Steps a Transformer and reads the whole target again each time.

    A prompt is a *source*; each target begins with ``start``.

    Args:
        model: the Transformer; in evaluation mode for each call only.
        start: ids that every target begins with, as (BOS,).

    Raises:
        ValueError: if ``start`` is empty or fills ``max_len``.

    Chapter: 14, encoder and decoder together.
    """

    def __init__(self, model: Transformer, start: Sequence[int]) -> None:
        max_len = model.config.max_len
        if not 1 <= len(start) <= max_len:
            raise ValueError(
                f"start must hold 1..max_len={max_len} tokens: got "
                f"{len(start)}. Begin with the token that training began with."
            )
        self.model = model
        self.start = list(start)
        self.targets = torch.empty(0, 0, dtype=torch.long)

    @property
    def limit(self) -> int:
        """Most tokens a target can get: the last need not be read."""
        return self.model.config.max_len - len(self.start) + 1

    def prefill(
        self, prompts: Sequence[Sequence[int]]
    ) -> Float[Tensor, "B V"]:
        """Read the sources, padded on the right, and the start tokens.

        Args:
            prompts: B lists of source ids, none empty.

        Returns:
            (B, V) logits of the first target token.

        Raises:
            ValueError: if there is no source, one is empty, or one is longer
                than ``max_len``: a source is never cut.
        """
        check_prompts(prompts)
        model = self.model
        device = next(model.parameters()).device
        src, real = pad_rows(prompts, False, model.config.pad_id, device)
        mask = None if bool(real.all()) else real[:, None, None]
        with evaluating(model.modules()):
            return self.begin(model.encode(src, mask), mask)

    def begin(
        self,
        memory: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B 1 1 S"] | None = None,
    ) -> Float[Tensor, "B V"]:
        """Start from what an encoder has read, whatever that was.

        Args:
            memory: (B, S, D) the encoder's output.
            mask: True where it may be seen.

        Returns:
            (B, V) logits of the first target token.
        """
        self.memory, self.mask = memory, mask
        done = set(self.model.encoder.modules())
        self.modules = [m for m in self.model.modules() if m not in done]
        start = torch.tensor(self.start, device=memory.device)
        self.targets = start.expand(memory.size(0), -1)
        return self.read()

    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Append a token to each target; see :meth:`PlainStepper.step`.

        Raises:
            ValueError: if there is not one token for each target, or the
                target would be longer than ``max_len``.
        """
        check_rows(tokens, self.targets.size(0))
        self.targets = torch.cat((self.targets, tokens[:, None]), dim=1)
        return self.read()

    def reorder(self, index: Int[Tensor, "N"]) -> None:
        """Let row i go on from what is now row index[i]."""
        self.targets = self.targets[index]
        self.memory = self.memory[index]
        if self.mask is not None:
            self.mask = self.mask[index]

    def read(self) -> Float[Tensor, "B V"]:
        """Run the decoder over all targets, from their first token."""
        with evaluating(self.modules):
            logits = self.model.decode(self.targets, self.memory, self.mask)
        return logits[:, -1]


# --- Writing --------------------------------------------------------------


def stream(
    stepper: Stepper,
    prompts: Prompts,
    max_new_tokens: int,
    choose: Choose = greedy,
    stop_ids: Collection[int] = (),
) -> Iterator[list[int | None]]:
    """Write, and hand out each token as soon as it is chosen.

    Args:
        stepper: gives the logits.
        prompts: B lists of token ids, or a (B, T) tensor; the lists may
            differ in length.
        max_new_tokens: most tokens a row gets.
        choose: from (B, V) logits to (B,) ids: :func:`greedy`, or what
            :func:`sampler` returns.
        stop_ids: tokens that end a row; they are not handed out.

    Yields:
        At each step B entries: the new token of each row, or None if the row
        is finished, for good.  It ends when all rows are.

    Raises:
        ValueError: at the call, if a prompt is empty, or ``max_new_tokens``
            is negative or above the stepper's limit; later, if an open
            row's logits are not finite.

    Chapter: 12, generation.
    """
    batch = _as_lists(prompts)
    _check_budget(stepper, max_new_tokens)

    def write() -> Iterator[list[int | None]]:
        logits = stepper.prefill(batch)
        is_open = [True] * len(batch)
        for n in range(max_new_tokens):
            _check_logits(logits, is_open)
            tokens = choose(logits)
            chosen = tokens.tolist()
            for row, token in enumerate(chosen):
                is_open[row] &= token not in stop_ids
            if not any(is_open):
                return
            yield [
                token if is_open[row] else None
                for row, token in enumerate(chosen)
            ]
            if n + 1 < max_new_tokens:
                logits = stepper.step(tokens)

    return write()


def generate(
    stepper: Stepper,
    prompts: Prompts,
    max_new_tokens: int,
    choose: Choose = greedy,
    stop_ids: Collection[int] = (),
) -> list[list[int]]:
    """Write, and return what was written.

    Args, Raises: as :func:`stream`.

    Returns:
        For each row its new tokens, without prompt and stop token.  A row
        shorter than ``max_new_tokens`` was ended by a stop token.

    Chapter: 12, generation.
    """
    batch = _as_lists(prompts)
    rows: list[list[int]] = [[] for _ in batch]
    steps = stream(stepper, batch, max_new_tokens, choose, stop_ids)
    for tokens in steps:
        for row, token in zip(rows, tokens, strict=True):
            if token is not None:
                row.append(token)
    return rows


@dataclass(frozen=True)
class Hypothesis:
    """One text that a beam search found.

    Attributes:
        tokens: the new tokens, without prompt and stop token.
        log_prob: log-probability of all of them, stop token included, nats.
        score: ``log_prob / n^length_penalty``, n counting the stop token.
        finished: whether a stop token ended it.
    """

    tokens: tuple[int, ...]
    log_prob: float
    score: float
    finished: bool


@dataclass
class _Search:
    """The open beams and the finished hypotheses of one prompt."""

    n_beams: int
    max_new_tokens: int
    stop_ids: Collection[int]
    length_penalty: float
    exhaustive: bool

    def __post_init__(self) -> None:
        self.beams: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
        self.parents: list[int] = []  # the beam that each comes from
        self.finished: list[Hypothesis] = []

    def advance(
        self,
        candidates: Sequence[tuple[float, int, int]],
    ) -> None:
        """Take one step, given (log_prob, beam, token), best first."""
        length = len(self.beams[0][1]) + 1
        full = length == self.max_new_tokens
        beams, parents = [], []
        for rank, (log_prob, beam, token) in enumerate(candidates):
            tokens = self.beams[beam][1]
            ends = token in self.stop_ids
            if not ends:
                tokens = (*tokens, token)
            if not (ends or full):
                beams.append((log_prob, tokens))
                parents.append(beam)
            elif rank < self.n_beams:  # it won a place, and gives it up
                score = log_prob / length**self.length_penalty
                found = Hypothesis(tokens, log_prob, score, ends)
                self.finished.append(found)
        self.finished.sort(key=lambda h: h.score, reverse=True)
        del self.finished[self.n_beams :]
        order = _stay(parents[: self.n_beams])
        self.beams = [beams[i] for i in order]
        self.parents = [parents[i] for i in order]

    def is_over(self) -> bool:
        """Whether no open beam can still get among the best.

        A text's log-probability only falls as it grows, and is at most 0,
        so its score can't exceed the present sum over the greatest length's
        power: that bound holds for every penalty ≥ 0.
        """
        if not self.beams:
            return True
        if len(self.finished) < self.n_beams:
            return False
        log_prob, tokens = max(self.beams)
        length = self.max_new_tokens if self.exhaustive else len(tokens)
        hope = log_prob / length**self.length_penalty
        return hope <= self.finished[-1].score


def _stay(parents: Sequence[int]) -> list[int]:
    """Which child goes on in which row: the first of each in its parent's.

    What stays in its row need not be copied.
    """
    rows: list[int] = [-1] * len(parents)
    movers = []
    for child, parent in enumerate(parents):
        if parent < len(rows) and rows[parent] < 0:
            rows[parent] = child
        else:
            movers.append(child)
    return [movers.pop(0) if child < 0 else child for child in rows]


def beam_search(
    stepper: Stepper,
    prompts: Prompts,
    n_beams: int,
    max_new_tokens: int,
    stop_ids: Collection[int] = (),
    length_penalty: float = 1.0,
    exhaustive: bool = True,
) -> list[list[Hypothesis]]:
    """Follow the k likeliest beginnings at once; return the best texts.

    Each step extends k open beams by all V tokens, ranks the k·V candidates
    by their summed log-probability, and keeps the k best.  One that ends in
    a stop token leaves the race and joins the finished set, ranked by
    ``score = Σ log p / n^length_penalty`` (n tokens, stop token included).
    At ``max_new_tokens`` the open ones join too.

    With ``length_penalty=0``, or with ``exhaustive=False``, one beam is
    greedy search.

    Args:
        stepper: gives the logits.
        prompts: as in :func:`stream`.
        n_beams: k, at least 1.
        max_new_tokens: most tokens a hypothesis gets, at least 1.
        stop_ids: tokens that end a hypothesis.
        length_penalty: 0 compares sums, which favors short texts; 1
            compares means; 0..10.
        exhaustive: go on until no open beam can win at any length up to
            ``max_new_tokens``; False stops when the best open one would
            lose if it ended now: sooner, but a longer text that would
            have won is missed.

    Returns:
        For each prompt up to k hypotheses, best score first.

    Raises:
        ValueError: if a prompt is empty, a value is out of range, or
            logits are not finite.

    Differs from the paper: it divides by ``((5 + n) / 6)^0.6``.
    Chapter: 12, generation.
    Source: vaswani2017attention, section 6.1; wu2016google, section 7.
    Test: tests/test_generation.py::test_a_beam_wide_enough_equals_brute_force
    """
    batch = _as_lists(prompts)
    _check_budget(stepper, max_new_tokens, at_least=1)
    if n_beams < 1 or not 0 <= length_penalty <= 10:
        raise ValueError(
            "beam search needs n_beams ≥ 1 and length_penalty in 0..10: got "
            f"n_beams={n_beams}, length_penalty={length_penalty}. "
            "4 and 1.0 are usual."
        )
    rules = (n_beams, max_new_tokens, stop_ids, length_penalty, exhaustive)
    searches = [_Search(*rules) for _ in batch]
    active, width, logits = searches, 1, stepper.prefill(batch)
    while True:
        _check_logits(logits, [True] * len(logits))
        # Each beam may lose one candidate to each stop token.
        n_candidates = n_beams * (1 + len(stop_ids))
        ranked = _rank(logits, active, width, n_candidates)
        for search, candidates in zip(active, ranked, strict=True):
            search.advance(candidates)
        going = [i for i, s in enumerate(active) if not s.is_over()]
        if not going:
            return [search.finished for search in searches]
        rows, tokens = _rows(active, going, width, n_beams)
        if rows != list(range(len(active) * width)):
            stepper.reorder(torch.tensor(rows, device=logits.device))
        active, width = [active[i] for i in going], n_beams
        logits = stepper.step(torch.tensor(tokens, device=logits.device))


def _rank(
    logits: Float[Tensor, "N V"],
    searches: Sequence[_Search],
    width: int,
    n_candidates: int,
) -> list[list[tuple[float, int, int]]]:
    """The best (log_prob, beam, token) of each search, best first."""
    n_tokens = logits.size(-1)
    precise = torch.promote_types(logits.dtype, torch.float32)
    log_probs = logits.log_softmax(dim=-1, dtype=precise)
    # A search with fewer beams than rows has idle rows, which never win.
    idle = (-torch.inf, ())
    so_far = [
        [beam[0] for beam in (s.beams + [idle] * width)[:width]]
        for s in searches
    ]
    total = log_probs.view(len(searches), width, n_tokens)
    total = total + total.new_tensor(so_far)[..., None]
    total = total.flatten(1)
    best, where = total.topk(min(n_candidates, total.size(1)))
    return [
        [
            (value, place // n_tokens, place % n_tokens)
            for value, place in zip(values, places, strict=True)
            if value > -torch.inf
        ]
        for values, places in zip(best.tolist(), where.tolist(), strict=True)
    ]


def _rows(
    searches: Sequence[_Search], going: list[int], width: int, n_beams: int
) -> tuple[list[int], list[int]]:
    """For the next step: the row each beam comes from, and its new token."""
    rows, tokens = [], []
    for i in going:
        search = searches[i]
        idle = n_beams - len(search.beams)
        parents = search.parents + [0] * idle
        rows += [i * width + parent for parent in parents]
        last = [beam[1][-1] for beam in search.beams]
        tokens += last + last[:1] * idle
    return rows, tokens


def check_prompts(prompts: Sequence[Sequence[int]]) -> None:
    """Refuse a batch with nothing to go on.

    Raises:
        ValueError: if there is no prompt, or one is empty.
    """
    if len(prompts) == 0:
        raise ValueError(
            "a batch needs at least one prompt: got none. Give a list of "
            "lists of token ids."
        )
    for row, prompt in enumerate(prompts):
        if len(prompt) == 0:
            raise ValueError(
                f"a prompt needs at least one token: got an empty prompt in "
                f"row {row} of {len(prompts)}. Begin with a newline or an "
                "end-of-text token."
            )


def _check_logits(
    logits: Float[Tensor, "B V"], is_open: Sequence[bool]
) -> None:
    """Refuse logits that are no numbers, in rows that are still open.

    Raises:
        ValueError: if the largest of a row is NaN or infinite.
    """
    largest = logits.amax(dim=-1).tolist()
    if not all(map(math.isfinite, compress(largest, is_open))):
        raise ValueError(
            "the largest logit must be a finite number: got "
            f"{largest}. Has the model's training diverged?"
        )


def check_rows(tokens: Int[Tensor, "B"], n_rows: int) -> None:
    """Refuse a step that does not fit what was prefilled.

    Raises:
        ValueError: if there is not one token for each row.
    """
    if tokens.size(0) != n_rows:
        raise ValueError(
            f"a step needs one token for each row: got {tokens.size(0)} "
            f"for {n_rows} rows. Call prefill first, with as many prompts."
        )


def _as_lists(prompts: Prompts) -> list[list[int]]:
    if isinstance(prompts, Tensor):
        prompts = prompts.tolist()
    if not all(isinstance(prompt, Sized) for prompt in prompts):
        raise ValueError(
            f"prompts are a batch, a list of lists of ids: got {prompts}. "
            "Write [ids] for one prompt."
        )
    check_prompts(prompts)
    try:
        return [[operator.index(token) for token in row] for row in prompts]
    except TypeError as error:
        raise ValueError(
            f"a prompt holds ids, whole numbers: got {prompts}. Encode texts "
            "first, by the tokenizer of the model."
        ) from error


def _check_budget(
    stepper: Stepper, max_new_tokens: int, at_least: int = 0
) -> None:
    limit = stepper.limit
    if max_new_tokens < at_least or (limit and max_new_tokens > limit):
        remedy = f"Ask for {at_least} or more."
        if limit and max_new_tokens > limit:
            remedy = "The limit is the model's max_len."
        raise ValueError(
            f"max_new_tokens must lie in {at_least}..{limit or '∞'}: got "
            f"{max_new_tokens}. {remedy}"
        )
