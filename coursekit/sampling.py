"""From logits to the next token: greedy, temperature, top-k and top-p.

Pure functions of logits; which model gave them does not matter.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from coursekit.checks import is_integer, is_number

Choose = Callable[[Tensor], Tensor]
"""From (B, V) logits to (B,) token ids."""


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
        temperature: τ > 0; 1 changes nothing, toward 0 it becomes greedy.

    Returns:
        (..., V) logits.

    Raises:
        ValueError: if τ is not positive.

    Chapter: 12, generation.
    """
    if not (is_number(temperature) and temperature > 0):
        raise ValueError(
            f"temperature must be above 0: got {temperature}. "
            "For the limit 0, choose greedily."
        )
    return logits / temperature


def keep_top_k(logits: Float[Tensor, "*B V"], k: int) -> Float[Tensor, "*B V"]:
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
    if not is_integer(k):
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
    if not (is_number(p) and 0 < p <= 1):
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
        generator: source of the random numbers, for repeatable text: one
            on the CPU gives the same draws whatever the device. By default
            PyTorch's own, on the device of the logits.

    Returns:
        A function from (B, V) logits to (B,) token ids.

    Raises:
        ValueError: if a value is out of range, at once, not at the draw.

    Chapter: 12, generation.
    """

    tiny = torch.finfo(torch.float32).tiny  # below it, τ is 0
    is_greedy = is_number(temperature) and 0 <= temperature < tiny

    def filtered(logits: Tensor) -> Tensor:
        # The largest becomes 0, so that a small τ can't overflow.
        logits = logits.float() - logits.amax(dim=-1, keepdim=True)
        logits = apply_temperature(logits, 1.0 if is_greedy else temperature)
        if top_k is not None:
            logits = keep_top_k(logits, top_k)
        return logits if top_p is None else keep_top_p(logits, top_p)

    def draw(logits: Tensor) -> Tensor:
        # Inverse-CDF sampling: one uniform number per row. It gives the same
        # tokens on every machine, which torch.multinomial does not promise.
        device = logits.device if generator is None else generator.device
        probabilities = filtered(logits).softmax(dim=-1).to(device)
        # Apple's GPUs have no float64.
        precise = torch.float32 if device.type == "mps" else torch.float64
        sums = probabilities.cumsum(dim=-1, dtype=precise)
        size = len(sums), 1
        uniform = torch.rand(
            size, generator=generator, dtype=precise, device=device
        )
        drawn = torch.searchsorted(sums, uniform * sums[:, -1:], right=True)
        # A product that was rounded up to the sum would be one too far.
        return drawn[:, 0].clamp(max=sums.size(1) - 1).to(logits.device)

    filtered(torch.zeros(1, 1))  # refuses bad values
    return greedy if is_greedy else draw
