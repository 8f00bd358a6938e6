"""Contracts of the whole model, whatever it is made of."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from coursekit_classroom.yourfile.contracts.base import (
    SMALL,
    B,
    ContractError,
    File,
    Sizes,
    T,
    V,
    check_tensor,
)
from coursekit_classroom.yourfile.observe import FIT_STEPS

LARGE = 1e6  # times larger embeddings


def logits(file: File) -> None:
    """Model: ids (B, T) in, logits (B, T, V) out, up to its whole context."""
    model = file.rough_model()
    for length in (T, 1, SMALL.context):
        ids = torch.randint(V, (B, length))
        rule = f"logits of {B} × {length} ids are"
        actual = check_tensor(model(ids), (B, length, V), rule)
        one = torch.ones(B, length)
        if any(torch.allclose(p.sum(-1), one) for p in (actual, actual.exp())):
            raise ContractError(
                "logits are no probabilities, nor their logarithms: got "
                "rows that add up to 1. Leave the softmax to the loss."
            )


def narrow(file: File) -> None:
    """Model: a token is D numbers between embedding and unembedding."""
    d = 4
    sizes = SMALL._replace(d_model=d, n_heads=2)
    ids = torch.arange(V)[:, None]
    with torch.no_grad():
        actual = file.rough_model(sizes)(ids)[:, 0].double()
    # Biases move all rows alike.
    rank = int(torch.linalg.matrix_rank(actual - actual.mean(0), rtol=1e-5))
    if rank > d:
        raise ContractError(
            f"with D = {d}, the logits of {V} tokens differ in at most {d} "
            f"directions: got {rank}. Give each token D numbers, and turn "
            "these into V logits."
        )


def changed_by(model: Callable[[Tensor], Tensor], at: int) -> Tensor:
    """Change of each position's logits when token `at` changes."""
    ids = torch.randint(V, (1, SMALL.context))
    other = ids.clone()
    other[0, at] = (ids[0, at] + 1) % V
    with torch.no_grad():
        return (model(ids) - model(other)).abs().amax((0, 2))


def causal(file: File) -> None:
    """Model: attends to earlier tokens, and to no later one."""
    model = file.rough_model()
    for at in range(1, SMALL.context):
        change = changed_by(model, at)
        if not change[:at].max() <= 1e-4:  # NaN is a change, too
            first = int((~(change <= 1e-4)).nonzero()[0])
            raise ContractError(
                "logits depend on no later token: with another token at "
                f"position {at}, those at position {first} changed. Check "
                "the causal mask: True where key ≤ query."
            )
    if not changed_by(model, 0)[1:].max() >= 1e-4:
        raise ContractError(
            "later logits depend on earlier tokens: with another first "
            "token, none of them changed. Add what attention found to x."
        )


def positions(file: File) -> None:
    """Model: tells positions apart."""
    same = torch.full((1, SMALL.context), 3)
    actual = file.rough_model()(same)[0]
    if not (actual - actual[0]).abs().max() >= 1e-4:
        raise ContractError(
            "the same token at two positions has two logits: got the same "
            f"at all {SMALL.context}. Add the positional embedding to x."
        )


def parameters(sizes: Sizes, vocab_size: int) -> int:
    """V D + T D + L (12 D² + 2 D) + D + D V, as counted by hand."""
    d, block = sizes.d_model, 12 * sizes.d_model**2 + 2 * sizes.d_model
    ends = 2 * vocab_size * d + sizes.context * d + d
    return ends + sizes.n_blocks * block


def stacks(file: File) -> str:
    """Model: each block has parameters of its own."""
    counts = []
    for n_blocks in (1, 2, 3):
        model = file.model(sizes=SMALL._replace(n_blocks=n_blocks))
        counts.append(file.n_parameters(model))
    first, second = counts[1] - counts[0], counts[2] - counts[1]
    if first != second or first <= 0:
        raise ContractError(
            "each block brings as many parameters of its own: models of 1, "
            f"2 and 3 blocks have {counts}. Build n_blocks different "
            "blocks, in an nn.ModuleList."
        )
    by_hand = parameters(SMALL, V)
    return f"{counts[1]:,} parameters; by hand, without biases, {by_hand:,}"


def layered(file: File) -> None:
    """Model: has the parameters of attention and a feed-forward network."""
    model, n_blocks = file.model(), SMALL.n_blocks if file.chapter > 8 else 1
    least = n_blocks * 12 * SMALL.d_model**2
    there = file.n_parameters(model)
    if there < least:
        raise ContractError(
            "a block has 12 D² parameters, 4 D² for attention and 8 D² for "
            f"the feed-forward network, here {least:,} in all: got "
            f"{there:,}, the embeddings included. Make a feed-forward "
            "network in `__init__`, and add what it computes to x in "
            "`forward`."
        )


def used(file: File) -> None:
    """Model: all its parameters take part in the logits."""
    model = file.rough_model()
    ids = torch.randint(V, (B, SMALL.context))
    if idle := file.observe.unused(model, ids):
        raise ContractError(
            "each parameter takes part in the logits: got no gradient for "
            f"{', '.join(idle[:3])}. Call each part in `forward`, and use "
            "what it returns."
        )


def normalized(file: File) -> str | None:
    """Model: each layer reads a normalized x and adds to it."""
    norm = file.observe.weights(file["norm"](SMALL.d_model))
    gains = {name for name, weight in norm.items() if weight.eq(1).all()}
    for name, weight in file.observe.weights(file.model()).items():
        is_gain = weight.dim() == 1 and name.rpartition(".")[2] in gains
        if is_gain and not weight.eq(1).all():
            raise ContractError(
                "a norm's gains begin at 1 in a model too: got "
                f"{weight[0]:.3f} in {name}. Draw the matrices alone, "
                "`if weight.dim() == 2`."
            )
    model = file.rough_model()
    if not file.observe.tables(model):
        return "not checked without an nn.Embedding"
    ids = torch.randint(V, (1, SMALL.context))

    def scaled(factor: float) -> Callable[[Tensor], Tensor]:
        return partial(file.observe.read_scaled, model, factor)

    with torch.no_grad():
        size = scaled(1.0)(ids)[0].abs().max()
        negative = scaled(-LARGE)(ids)[0]
        both = scaled(LARGE)(ids)[0] + negative  # twice the biases
    large = negative.abs().max()
    effect = changed_by(scaled(1.0), 0)[1:].max()
    left = changed_by(scaled(LARGE), 0)[1:].max()
    if not large < 10 * size:
        raise ContractError(
            "the unembedding reads a normalized x: with embeddings "
            f"{LARGE:,.0f} times larger, the largest logit went from "
            f"{size:.1f} to {large:,.1f}. Apply the last norm to x."
        )
    odd = (both - both[0]).abs().max()
    if not left < 0.1 * effect:
        seen = f"the first token changed later logits by {left:.2f}"
    elif not odd < 0.1 * size:
        seen = (
            "logits of the negative embeddings are not the negative logits: "
            f"they differ by {odd:.2f}"
        )
    else:
        return None
    raise ContractError(
        "a layer reads a normalized x and adds to x itself: next to "
        f"embeddings {LARGE:,.0f} times larger, what layers add should count "
        f"for nothing, but {seen}. Write x = x + layer(norm(x)), for each "
        "layer."
    )


def overfits(file: File) -> str:
    """Model and loss: one batch is learned by heart, as far as they can."""
    ids = torch.randint(V, (4, SMALL.context + 1))
    ids[:, 0] = torch.arange(4)  # the first token tells which row it is
    inputs, targets = ids[:, :-1], ids[:, 1:]
    bound = 0.1
    if file.chapter < 4:  # one token tells no more than what follows it
        pairs = torch.zeros(V, V)
        index = inputs.flatten(), targets.flatten()
        pairs.index_put_(index, torch.tensor(1.0), accumulate=True)
        p = pairs / pairs.sum(1, keepdim=True)
        entropy = -torch.xlogy(pairs, p.nan_to_num()).sum() / inputs.numel()
        bound += entropy.item()
    model = file.model().eval()
    rate = 0.3 if file.chapter < 2 else 0.01
    n_steps, value, scores = file.observe.fit(
        model, file["loss"], inputs, targets, rate, bound
    )
    # A loss of theirs may fall without the model.
    true = nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
    if value < bound and true < bound:
        return f"below {bound:.2f} nats after {n_steps} steps"
    raise ContractError(
        f"in {FIT_STEPS} steps on one batch, the loss falls below "
        f"{bound:.2f}: got {value:.3f}. Follow one token through `forward`: "
        "is each result used?"
    )
