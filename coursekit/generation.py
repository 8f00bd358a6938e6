"""Generation: the loops that drive any stepper.

One token after the other, by :func:`stream` and :func:`generate`, or several
texts at once, by :func:`beam_search`.  How a token is chosen from the logits
is passed in, see :mod:`coursekit.sampling`; where the logits come from, a
:class:`coursekit.steppers.Stepper` says.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress

import torch
from jaxtyping import Float
from torch import Tensor

from coursekit.checks import is_integer, is_number, require
from coursekit.sampling import Choose, greedy
from coursekit.steppers import Prompts, Stepper, check_prompts

MOST_BEAMS = 10_000
"""Each beam is a row of every batch, so that more would not end."""


def stream(
    stepper: Stepper,
    prompts: Prompts,
    max_new_tokens: int,
    choose: Choose = greedy,
    stop_ids: Collection[int] = (),
) -> Iterator[list[int | None]]:
    """Generate, and yield each token as soon as it is chosen.

    Args:
        stepper: gives the logits.
        prompts: B lists of token ids, or a (B, T) tensor; the lists may
            differ in length.
        max_new_tokens: most tokens a row gets.
        choose: from (B, V) logits to (B,) ids:
            :func:`coursekit.sampling.greedy`, or what
            :func:`coursekit.sampling.sampler` returns.
        stop_ids: tokens that end a row; they are not yielded.

    Yields:
        At each step B entries: the new token of each row, or None if the row
        is finished.  It ends when all rows are.

    Raises:
        ValueError: at the call, if a prompt is empty, or ``max_new_tokens``
            is negative or above the stepper's limit; later, if an open
            row's logits are not finite.

    Chapter: 12, generation.
    """
    batch = check_prompts(prompts)
    _check_max_new_tokens(stepper, max_new_tokens)
    check_stop_ids(stop_ids)

    def steps() -> Iterator[list[int | None]]:
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

    return steps()  # the checks above must not wait


def generate(
    stepper: Stepper,
    prompts: Prompts,
    max_new_tokens: int,
    choose: Choose = greedy,
    stop_ids: Collection[int] = (),
) -> list[list[int]]:
    """Generate, and return the new tokens.

    Args, Raises: as :func:`stream`.

    Returns:
        For each row its new tokens, without prompt and stop token.  A row
        shorter than ``max_new_tokens`` was ended by a stop token.

    Chapter: 12, generation.
    """
    steps = stream(stepper, prompts, max_new_tokens, choose, stop_ids)
    rows: list[list[int]] = [[] for _ in prompts]
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

    def advance(self, candidates: Sequence[tuple[float, int, int]]) -> None:
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
            elif rank < self.n_beams:  # among the k best, so it counts
                score = log_prob / length**self.length_penalty
                self.finished.append(
                    Hypothesis(tokens, log_prob, score, finished=ends)
                )
        self.finished.sort(key=lambda h: h.score, reverse=True)
        del self.finished[self.n_beams :]
        order = _assign_rows(parents[: self.n_beams])
        self.beams = [beams[i] for i in order]
        self.parents = [parents[i] for i in order]

    def is_over(self) -> bool:
        """True if no open beam can still be among the k best.

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
        bound = log_prob / length**self.length_penalty
        return bound <= self.finished[-1].score


def _assign_rows(parents: Sequence[int]) -> list[int]:
    """The child that each row gets: its own beam's first one, if it has any.

    A beam that stays in its row needs no copy of the cache.
    """
    rows: list[int] = [-1] * len(parents)
    moved = []
    for child, parent in enumerate(parents):
        if parent < len(rows) and rows[parent] < 0:
            rows[parent] = child
        else:
            moved.append(child)
    return [moved.pop(0) if child < 0 else child for child in rows]


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
    a stop token leaves the beams and joins the finished set, ranked by
    ``score = Σ log p / n^length_penalty`` (n tokens, stop token included).
    At ``max_new_tokens`` the open ones join too.

    With ``length_penalty=0``, or with ``exhaustive=False``, one beam is
    greedy search.

    Args:
        stepper: gives the logits.
        prompts: as in :func:`stream`.
        n_beams: k, 1..10,000.
        max_new_tokens: most tokens a hypothesis gets, at least 1.
        stop_ids: tokens that end a hypothesis.
        length_penalty: 0 compares sums, which favors short texts; 1
            compares means; 0..10.
        exhaustive: go on until no open beam can win at any length up to
            ``max_new_tokens``; False stops when the best open one would
            lose if it ended now: sooner, but it may miss a longer text
            that would have won.

    Returns:
        For each prompt up to k hypotheses, best score first.

    Raises:
        ValueError: if a prompt is empty, a value is out of range, or
            logits are not finite.

    Differs from the paper: it divides by ``((5 + n) / 6)^0.6``.
    Chapter: 12, generation.
    Source: vaswani2017attention, section 6.1; wu2016google, section 7.
    Test: test_search.py::test_a_beam_wide_enough_equals_brute_force
    """
    batch = check_prompts(prompts)
    _check_max_new_tokens(stepper, max_new_tokens, at_least=1)
    check_stop_ids(stop_ids)
    check_beams(n_beams, length_penalty)
    searches = [
        _Search(
            n_beams=n_beams,
            max_new_tokens=max_new_tokens,
            stop_ids=stop_ids,
            length_penalty=length_penalty,
            exhaustive=exhaustive,
        )
        for _ in batch
    ]
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
    log_probs = log_probs.unflatten(0, (-1, width))
    # A search with fewer beams than rows has idle rows, which never win.
    idle = [-torch.inf] * width
    so_far = [([beam[0] for beam in s.beams] + idle)[:width] for s in searches]
    total = (log_probs + log_probs.new_tensor(so_far)[..., None]).flatten(1)
    best, where = total.topk(min(n_candidates, total.size(1)))
    return [
        [
            (value, *divmod(index, n_tokens))
            for value, index in zip(values, indices, strict=True)
            if value > -torch.inf
        ]
        for values, indices in zip(best.tolist(), where.tolist(), strict=True)
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


def _check_logits(
    logits: Float[Tensor, "B V"], is_open: Sequence[bool]
) -> None:
    """Refuse logits that are not finite, in rows that are still open.

    Raises:
        ValueError: if the largest of a row is NaN or infinite.
    """
    largest = logits.amax(dim=-1).tolist()
    if not all(map(math.isfinite, compress(largest, is_open))):
        raise ValueError(
            "the largest logit must be a finite number: got "
            f"{largest}. Has the model's training diverged?"
        )


def _check_max_new_tokens(
    stepper: Stepper, max_new_tokens: int, at_least: int = 0
) -> None:
    """Refuse a number of new tokens that the stepper can't give.

    Raises:
        ValueError: if it is no whole number, below ``at_least`` or above the
            limit.
    """
    limit, fits = stepper.limit, is_integer(max_new_tokens, at_least)
    numbers, remedy = f"of at least {at_least}", f"{at_least} or more"
    if limit is not None:
        fits = fits and max_new_tokens <= limit
        numbers = f"in {at_least}..{limit}"
        remedy += f", up to the {limit} that the model's max_len allows"
    require(
        fits,
        f"max_new_tokens must be a whole number {numbers}",
        repr(max_new_tokens),
        f"Ask for {remedy}.",
    )


def check_stop_ids(stop_ids: Collection[int]) -> None:
    """Refuse stop tokens that are no collection of ids.

    Raises:
        ValueError: if they are one id, a text, or hold what is no id.
    """
    ids = stop_ids if isinstance(stop_ids, Collection) else [None]
    if not all(is_integer(i, 0) for i in ids):
        raise ValueError(
            f"stop_ids must be a collection of token ids: got {stop_ids!r}. "
            "Write [id] for one."
        )


def check_beams(n_beams: int, length_penalty: float = 1.0) -> None:
    """Refuse a beam search that can't be done.

    Raises:
        ValueError: if a value is out of range.
    """
    beams_fit = is_integer(n_beams) and n_beams <= MOST_BEAMS
    penalty_fits = is_number(length_penalty) and 0 <= length_penalty <= 10
    if not (beams_fit and penalty_fits):
        raise ValueError(
            "beam search needs n_beams ≥ 1, a whole number of at most "
            f"{MOST_BEAMS}, and length_penalty in 0..10: got n_beams="
            f"{n_beams}, length_penalty={length_penalty}. 4 and 1.0 are "
            "usual."
        )
