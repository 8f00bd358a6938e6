"""Contracts of sampling and the cache."""

import torch
from torch import Tensor

from coursekit_classroom.yourfile.contracts.base import (
    SMALL,
    ContractError,
    File,
    V,
    check_tensor,
    distance,
    kind,
)

MANY = 2000
GREEDY = 1e-6  # a top_p that leaves one token


def sample(file: File) -> None:
    """Sampling: softmax(logits / temperature), from the top-p tokens."""
    p = torch.arange(V, 0, -1).square().double()
    p = (p / p.sum())[torch.randperm(V)]
    logits = p.log().float() + 3  # no probabilities' logarithms
    for temperature in (0.5, 1.0, 2.0):
        hot = (logits.double() / temperature).softmax(-1)
        check_draws(file, logits, temperature, 1.0, hot)
    order = p.sort(descending=True)
    sums = order.values.cumsum(0)
    for n in (3, V - 1, 1):  # tokens that are kept
        top_p = float(sums[n - 1] - 0.3 * order.values[n - 1])
        kept = torch.zeros(V, dtype=torch.double)
        kept[order.indices[:n]] = order.values[:n] / sums[n - 1]
        check_draws(file, logits, 1.0, top_p, kept)


def check_draws(
    file: File, logits: Tensor, temperature: float, top_p: float, p: Tensor
) -> None:
    """Compare many draws with the probabilities that they should have."""
    given = logits.clone().expand(MANY, -1)
    drawn = file["sample"](given, temperature, top_p)
    if not isinstance(drawn, Tensor) or drawn.numel() != MANY:
        raise ContractError(
            f"a token is drawn for each row, in the shape ({MANY}, 1): got "
            f"{kind(drawn)}. Draw with torch.multinomial, from each row."
        )
    drawn = drawn.flatten()
    wanted = p.nonzero().flatten().tolist()
    beyond = sorted(set(drawn.tolist()) - set(wanted))
    missing = sorted(set(wanted) - set(drawn.tolist()))
    if top_p < 1 and (beyond or (missing and p[missing].min() > 0.01)):
        n = len(set(drawn.tolist()))
        hint = "The token that crosses top_p stays: " * (n < len(wanted))
        raise ContractError(
            f"from tokens sorted by probability, as many are kept as reach "
            f"top_p = {top_p:.2f}, here {len(wanted)} of {V}: got {n} that "
            f"were drawn in {MANY:,}. {hint or 'Leave the others out: '}"
            "compare the sum before each token with top_p."
        )
    if distance(drawn, p) > 50:
        hint = "Divide the logits by the temperature."
        if distance(drawn, (logits.double() * temperature).softmax(-1)) < 50:
            hint = "The logits are multiplied by it. Divide."
        if distance(drawn, p.sort(descending=True).values) < 50:
            hint = "It draws ranks. Gather the ids that were sorted."
        top = int(p.argmax())
        raise ContractError(
            f"at temperature {temperature} and top_p {top_p:.2f}, token "
            f"{top} has p = {p[top]:.2f}: it was drawn "
            f"{int((drawn == top).sum())} times in {MANY:,}. {hint}"
        )


def continued(file: File) -> None:
    """Cache: tokens after others get the logits of one reading."""
    model = file.rough_model()
    ids = torch.randint(V, (2, SMALL.context))
    with torch.no_grad():
        whole = model(ids.clone())
    parts = file.observe.read_on(model, ids.split([4, 1, 2, 1, 3], dim=1))
    rule = "logits of the tokens read are"
    actual = check_tensor(torch.cat(parts, 1), tuple(whole.shape), rule)
    errors = (actual - whole).abs().amax((0, 2))
    if errors.max() < 1e-3:
        return
    at = int((errors > 1e-3).nonzero()[0])
    raise ContractError(
        "tokens that are read after others, with the same dictionary, get "
        "the logits that they get in one reading: got a difference of "
        f"{errors[at]:.2f} at position {at}, where 4, 1, 2, 1 and 3 tokens "
        "were read. Let positions begin where they ended, give the mask a "
        "column for each token read before, and join old keys and values in "
        "front of the new ones, in each layer."
    )


def cached(file: File) -> str | None:
    """Generation: with the cache as without it, each token read once."""
    model = file.rough_model()
    prompt, n_new = torch.tensor([[2, 7, 5], [11, 3, 0]]), SMALL.context - 3
    wanted = prompt
    with torch.no_grad():
        for _ in range(n_new):
            new = model(wanted.clone())[:, -1].argmax(-1, keepdim=True)
            wanted = torch.cat([wanted, new], 1)
    actual, read = file.observe.count_reads(
        file["generate"], model, prompt.clone(), n_new, 1.0, GREEDY
    )
    rule = f"{n_new} new tokens make the shape"
    if not check_tensor(actual, tuple(wanted.shape), rule).equal(wanted):
        at = int((actual != wanted).any(0).nonzero()[0])
        raise ContractError(
            "with top_p near 0 each token is the most probable one after "
            "all before it: got another one from position "
            f"{at} on, {actual[0, at]} instead of {wanted[0, at]}. First the "
            "whole prompt is read, then each new token alone, with the same "
            "dictionary, and the last position's logits count."
        )
    if not read:
        return "how often tokens are read is not seen without nn.Embedding"
    most = max(read)
    if most > actual.size(1):
        raise ContractError(
            f"generating {n_new} tokens from 3 reads each token once, "
            f"{actual.size(1)} at most: got {most} readings. Give the model "
            "the new token alone, and the dictionary of those before."
        )
    return f"{most} tokens read; without the cache {sum(range(3, 3 + n_new))}"
