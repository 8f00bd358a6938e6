"""Generation: one token after the other, from any stepper.

How a token is chosen from the logits is passed in, see
:mod:`coursekit.sampling`; where the logits come from, a
:class:`coursekit.steppers.Stepper` says.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import compress

from jaxtyping import Float
from torch import Tensor

from coursekit.sampling import Choose, greedy
from coursekit.steppers import Prompts, Stepper, check_prompts

__all__ = ["check_logits", "check_max_new_tokens", "generate", "stream"]


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
    check_max_new_tokens(stepper, max_new_tokens)

    def steps() -> Iterator[list[int | None]]:
        logits = stepper.prefill(batch)
        is_open = [True] * len(batch)
        for n in range(max_new_tokens):
            check_logits(logits, is_open)
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


def check_logits(
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


def check_max_new_tokens(
    stepper: Stepper, max_new_tokens: int, at_least: int = 0
) -> None:
    """Refuse a number of new tokens that the stepper can't give.

    Raises:
        ValueError: if it is below ``at_least`` or above the limit.
    """
    limit = stepper.limit
    is_long = limit is not None and max_new_tokens > limit
    if max_new_tokens < at_least or is_long:
        remedy = "The limit is the model's max_len."
        if not is_long:
            remedy = f"Ask for {at_least} or more."
        raise ValueError(
            f"max_new_tokens must lie in {at_least}..{limit or '∞'}: got "
            f"{max_new_tokens}. {remedy}"
        )
