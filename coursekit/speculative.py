"""Speculative decoding: a small model drafts, the large one verifies.

The large model, the *target*, reads several drafted tokens in one run and
keeps as many as its own distribution p allows.  The text is then
distributed exactly as if the target had drawn every token itself, whatever
the draft's distribution q; only how many tokens a run brings depends on it.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from coursekit.cache import make_cache
from coursekit.checks import is_integer, require
from coursekit.decoder import GPT
from coursekit.devices import device_of, evaluating
from coursekit.generation import check_stop_ids
from coursekit.sampling import apply_temperature, sampler
from coursekit.steppers import check_prompts

Result = TypeVar("Result", bound=Hashable)
Draw = Callable[[Tensor], int]
"""Called with (V,) probabilities, it gives a token; all that is random."""
Reader = Callable[[Sequence[int], int], Tensor]
"""Called with a text and n, it gives (n, V), a row for each of the last n."""


def acceptance(
    p: Float[Tensor, "*B V"], q: Float[Tensor, "*B V"]
) -> Float[Tensor, "*B"]:
    """The probability that a drafted token is accepted.

    ``α = Σ min(p, q)``: 1 if the two agree, 0 if they share no token.

    Args:
        p: (..., V) the target's distribution.
        q: (..., V) the draft's.

    Returns:
        (...).

    Chapter: 21, inference.
    Source: leviathan2023fast, section 3.1.
    """
    return torch.minimum(p, q).sum(dim=-1)


def residual(
    p: Float[Tensor, "*B V"], q: Float[Tensor, "*B V"]
) -> Float[Tensor, "*B V"]:
    """Distribution to draw from after a rejected draft: max(0, p − q), scaled.

    ``max(0, p − q)``, divided by its sum; p itself where p = q, when
    nothing is ever rejected.

    Args:
        p: (..., V) the target's distribution.
        q: (..., V) the draft's.

    Returns:
        (..., V).

    Chapter: 21, inference.
    Source: leviathan2023fast, section 2.3.
    """
    owed = (p - q).clamp(min=0)
    total = owed.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, owed / total, p)


def verify(
    drafted: Sequence[int],
    p: Float[Tensor, "M V"],
    q: Float[Tensor, "N V"],
    draw: Draw,
) -> list[int]:
    """Keep drafted tokens while they are accepted, and add one.

    Token x is accepted with probability ``min(1, p(x) / q(x))``.  The first
    that is not is replaced by a draw from :func:`residual`; if all are
    accepted, one more is drawn from p.

    Args:
        drafted: N tokens, each drawn from its row of q.
        p: (N + 1, V) the target's distributions; the last comes after all
            drafted tokens.
        q: (N, V) the draft's.
        draw: takes (V,) probabilities to a token.

    Returns:
        1 to N + 1 tokens, distributed as the target's own.

    Chapter: 21, inference.
    Source: leviathan2023fast, algorithm 1; chen2023accelerating, algorithm 2.
    Test: test_speculative.py::test_every_branch_adds_up_to_the_target
    """
    for n, token in enumerate(drafted):
        accept = (p[n, token] / q[n, token]).clamp(max=1)
        if draw(torch.stack((accept, 1 - accept))) == 1:
            return [*drafted[:n], draw(residual(p[n], q[n]))]
    return [*drafted, draw(p[len(drafted)])]


def expected_tokens(acceptance_rate: float, n_draft: int) -> float:
    """Expected number of tokens per run of the target model.

    ``(1 − α^(γ+1)) / (1 − α)``, if each of γ drafted tokens is accepted
    with probability α, independently of the others.

    Args:
        acceptance_rate: α in 0..1.
        n_draft: γ ≥ 0.

    Returns:
        Tokens, 1 to γ + 1.

    Chapter: 21, inference.
    Source: leviathan2023fast, equation 1.
    Test: test_speculative.py::test_expected_tokens_by_counting_runs
    """
    return float(sum(acceptance_rate**n for n in range(n_draft + 1)))


@dataclass(frozen=True)
class Speculation:
    """Result of :func:`speculate`: tokens and statistics.

    Attributes:
        tokens: the new tokens.
        drafted: for each run of the target, how many tokens it verified.
        generated: for each run, how many tokens it brought, 1 to
            drafted + 1; of the last, a stop token and what came after it
            are not in ``tokens``.
    """

    tokens: tuple[int, ...]
    drafted: tuple[int, ...]
    generated: tuple[int, ...]

    @property
    def acceptance_rate(self) -> float:
        """Accepted tokens as a fraction of those that were looked at."""
        runs = zip(self.generated, self.drafted, strict=True)
        looked_at = sum(min(run) for run in runs)
        return (sum(self.generated) - len(self.generated)) / max(looked_at, 1)


def speculate(
    target: Reader,
    draft: Reader,
    prompt: Sequence[int] | Tensor,
    max_new_tokens: int,
    n_draft: int,
    draw: Draw,
    stop_ids: Collection[int] = (),
) -> Speculation:
    """Generate with a draft: its tokens, verified by the target.

    Args:
        target: whose distribution the text has.
        draft: proposes ``n_draft`` tokens at a time.
        prompt: ids, at least one; a list or a (T,) tensor.
        max_new_tokens: most tokens to generate.
        n_draft: γ ≥ 1; fewer are drafted when fewer are missing.
        draw: takes (V,) probabilities to a token; see :func:`draw_with`.
        stop_ids: tokens that end the text; they are not returned.

    Returns:
        The tokens and what each run of the target brought.

    Raises:
        ValueError: if the prompt is empty, a number is out of range, or
            target and draft have other vocabularies.

    Chapter: 21, inference.
    Source: leviathan2023fast, algorithm 1.
    Test: test_speculative.py::test_a_greedy_text_stays_the_same
    """
    if isinstance(prompt, Tensor):
        prompt = prompt.tolist()
    [text] = check_prompts([prompt])
    check_stop_ids(stop_ids)
    require(
        is_integer(n_draft) and is_integer(max_new_tokens, 0),
        "n_draft must be a whole number of at least 1, max_new_tokens of 0",
        f"n_draft={n_draft}, max_new_tokens={max_new_tokens}",
        "3 to 7 drafted tokens are usual.",
    )
    tokens: list[int] = []
    n_drafted, n_generated = [], []
    while (missing := max_new_tokens - len(tokens)) > 0:
        drafted: list[int] = []
        rows: list[Tensor] = []
        for _ in range(min(n_draft, missing - 1)):
            rows.append(draft([*text, *tokens, *drafted], 1)[0])
            drafted.append(draw(rows[-1]))
            if drafted[-1] in stop_ids:
                break
        p = target([*text, *tokens, *drafted], len(drafted) + 1)
        q = torch.stack(rows) if rows else p[:0]
        require(
            p.size(-1) == q.size(-1),
            "target and draft must have the same tokens",
            f"{p.size(-1)} of the target and {q.size(-1)} of the draft",
            "Take a draft that was trained with the target's tokenizer.",
        )
        new = verify(drafted, p, q, draw)
        tokens += new
        n_drafted.append(len(drafted))
        n_generated.append(len(new))
        if stops := [i for i, token in enumerate(tokens) if token in stop_ids]:
            tokens = tokens[: stops[0]]
            break
    return Speculation(tuple(tokens), tuple(n_drafted), tuple(n_generated))


class CachedReader:
    """Reads a growing text with a GPT, each token once, and takes back.

    Called with a text that differs from the last one near its end, it drops
    the keys and values that are no longer valid, and computes the rest.

    Args:
        model: a GPT.
        temperature: of the distributions; 0 gives all to the likeliest.

    Chapter: 21, inference.
    Test: test_speculative.py::test_a_reader_takes_back_what_was_rejected
    """

    def __init__(self, model: GPT, temperature: float = 1.0) -> None:
        self.model = model
        self.temperature = temperature
        self.cache = make_cache(model, 1)
        self.text: list[int] = []

    def __call__(self, text: Sequence[int], n_last: int) -> Tensor:
        """Probabilities of what follows each of a text's last tokens.

        Args:
            text: ids, at most ``max_len``.
            n_last: how many rows are wanted.

        Returns:
            (n_last, V) probabilities.

        Raises:
            ValueError: if the text is longer than ``max_len``.
        """
        same = 0
        for old, new in zip(
            self.text, text[: len(text) - n_last], strict=False
        ):
            if old != new:
                break
            same += 1
        for layer in self.cache:
            layer.length = same
        ids = torch.tensor([text[same:]], device=device_of(self.model))
        with evaluating(self.model.modules()):
            logits = self.model(ids, cache=self.cache)[0, -n_last:]
        self.text = [*text]
        if self.temperature == 0:
            first = logits.argmax(dim=-1, keepdim=True)
            return torch.zeros_like(logits).scatter_(-1, first, 1.0)
        return apply_temperature(logits, self.temperature).softmax(dim=-1)


# -- chance ------------------------------------------------------------------
def draw_with(generator: torch.Generator | None = None) -> Draw:
    """Draw tokens at random.

    Args:
        generator: source of the random numbers, for repeatable text.

    Returns:
        From (V,) probabilities to a token.

    Chapter: 21, inference.
    """
    choose = sampler(generator=generator)
    return lambda probabilities: int(choose(probabilities.log()[None]))


def every_outcome(run: Callable[[Draw], Result]) -> dict[Result, float]:
    """Run a random program through each of its branches.

    Args:
        run: a program whose only randomness is the ``draw`` that it is given.

    Returns:
        The probability of each result, exactly, up to rounding.

    Chapter: 21, inference.
    Test: test_speculative.py::test_every_outcome_of_two_dice
    """
    totals: dict[Result, float] = defaultdict(float)
    waiting: list[list[int]] = [[]]  # the first draws of branches to be run
    while waiting:
        branch = _Branch(waiting.pop(), waiting)
        result = run(branch.draw)
        totals[result] += branch.probability
    return dict(totals)


class _Branch:
    """One run: its first draws are given, then it takes the first token.

    What else it could have taken is left to runs that come later.
    """

    def __init__(self, path: list[int], waiting: list[list[int]]) -> None:
        self.path, self.waiting = path, waiting
        self.probability, self.n_drawn = 1.0, 0

    def draw(self, probabilities: Float[Tensor, "V"]) -> int:
        """Take the next token of the path, or begin to make one."""
        possible = probabilities.nonzero()[:, 0].tolist()
        if self.n_drawn == len(self.path):
            self.waiting += [[*self.path, other] for other in possible[1:]]
            self.path.append(possible[0])
        token = self.path[self.n_drawn]
        self.n_drawn += 1
        self.probability *= float(probabilities[token])
        return token
