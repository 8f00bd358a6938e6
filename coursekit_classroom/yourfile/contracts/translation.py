"""Contracts of a translator, on small random pairs."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from coursekit_classroom.yourfile.contracts.base import (
    SMALL,
    B,
    ContractError,
    File,
    Sizes,
    V,
    check_tensor,
    kind,
)

PAD, BOS, EOS = 0, 1, 2
S, T = 5, 7
Pairs = list[tuple[list[int], list[int]]]


def made(file: File, vocab_size: int = V, sizes: Sizes = SMALL) -> nn.Module:
    """A model with other weights, so that none of them is 0 or 1."""
    return file.rough(file["translator"](vocab_size, *sizes), "a translator")


def ids(rows: int, length: int) -> Tensor:
    """Tokens other than padding, begin and end."""
    return torch.randint(EOS + 1, V, (rows, length))


@torch.no_grad()
def effect(
    model: nn.Module, source: Tensor, target: Tensor, *other: Tensor
) -> Tensor:
    """The largest change at each target position with other inputs."""
    change = model(source, target) - model(*other)
    return change.abs().amax((0, 2))


def pairs(file: File) -> None:
    """Batches: the decoder reads the target shifted right, behind BOS."""
    pairs: Pairs = [
        ([5, 6, EOS], [7, EOS]),
        ([8, 9, 10, EOS], [11, 12, 3, EOS]),
        ([4, EOS], [6, 6, EOS]),
    ]
    actual = file["pairs"](pairs, 16)
    if not isinstance(actual, tuple | list) or len(actual) != 3:
        raise ContractError(
            "a batch is sources, decoder inputs and targets: got "
            f"{kind(actual)}. Return the three."
        )
    rows = [tensor.tolist() for tensor in actual]
    for source, read, target in zip(*rows, strict=True):
        pair = [x for x in source if x != PAD], [x for x in target if x != PAD]
        if pair not in pairs:
            raise ContractError(
                "a row has a source and its own target, filled up with "
                f"padding: got {source} and {target}. Take both from the "
                "same pair, and keep the end."
            )
        n = len(pair[1])
        if read[:n] != [BOS, *pair[1]][:n]:
            same = "They are the targets themselves. " * (read == target)
            raise ContractError(
                f"for the targets {target} the decoder reads {BOS} (BOS) and "
                f"all but the last of them: got {read}. {same}It may read "
                "no token that it has to predict."
            )


def reads(file: File) -> None:
    """Cross-attention: every target position reads every source token."""
    model, source, target = made(file), ids(1, S), ids(1, T)
    rule = f"logits of 1 × {T} target tokens are"
    check_tensor(model(source, target), (1, T, V), rule)
    for at in range(S):
        other = source.clone()
        other[0, at] = 3 + (source[0, at] - 2) % (V - 3)
        change = effect(model, source, target, other, target)
        if change.min() < 1e-5:
            raise ContractError(
                "each target position reads each source token: with another "
                f"token at source position {at}, the logits at target "
                f"position {int(change.argmin())} stayed. Queries come from "
                "the decoder, keys and values from the memory; add what is "
                "found to x."
            )
    change = effect(model, source, target, source.flip(1), target)
    if change.max() < 1e-5:
        raise ContractError(
            "the order of the source counts: got the same logits for the "
            "source backward. Add positions in the encoder too."
        )


def padding(file: File) -> None:
    """Padding: no token attends to it, so that more of it changes nothing."""
    model, source, target = made(file), ids(B, S), ids(B, T)
    more = torch.cat([source, torch.full((B, 3), PAD)], 1)
    change = effect(model, source, target, more, target).max().item()
    if change > 1e-4:
        raise ContractError(
            "padding behind a source changes no logits: got a change of "
            f"{change:.2f}. Mask it in the encoder and in cross-attention: "
            "True where the id is not PAD."
        )


def causal(file: File) -> None:
    """Decoder: attends to earlier target tokens, and to no later one."""
    model, source, target = made(file), ids(1, S), ids(1, T)
    for at in range(T):
        other = target.clone()
        other[0, at] = 3 + (target[0, at] - 2) % (V - 3)
        change = effect(model, source, target, source, other)
        if at and change[:at].max() > 1e-4:
            raise ContractError(
                "logits depend on no later target token: with another token "
                f"at position {at}, those at position "
                f"{int((change > 1e-4).nonzero()[0])} changed. Give the "
                "decoder's self-attention the causal mask."
            )
        if change[at:].min() < 1e-5:
            raise ContractError(
                "logits depend on the target tokens before them: with "
                f"another token at position {at}, some later ones stayed. "
                "Let the decoder attend to its own tokens."
            )


def loss(file: File) -> None:
    """Loss: the mean over targets that are not padding."""
    model, source, read, target = made(file), ids(B, S), ids(B, T), ids(B, T)
    target[0, 2:] = target[1, 5:] = PAD
    with torch.no_grad():
        logits = model(source, read)
        wanted = nn.functional.cross_entropy(
            logits.flatten(0, 1), target.flatten(), ignore_index=PAD
        ).item()
        actual = file["pair_loss"](model, source, read, target)
    actual = check_tensor(actual, (), "the loss is one number, shape").item()
    if abs(actual - wanted) > 1e-4:
        raise ContractError(
            "the loss is the mean of −ln p(target) over the targets that are "
            f"not padding, here {wanted:.4f}: got {actual:.4f}. Leave out "
            "positions whose target is PAD."
        )


def translate(file: File) -> None:
    """Translation: takes the most probable token until the end."""
    model = made(file)
    sources = [[*ids(1, n)[0].tolist(), EOS] for n in (2, 4, 3, 1)]
    actual = file["translate"](model, sources)
    if not isinstance(actual, list) or len(actual) != len(sources):
        raise ContractError(
            "for each source comes a list of ids, without BOS and EOS: got "
            f"{kind(actual)}. Return a list of lists."
        )
    for source, row in zip(sources, actual, strict=True):
        read = torch.tensor([[BOS, *row]])[:, : SMALL.context]
        with torch.no_grad():
            logits = model(torch.tensor([source]), read)[0]
        # At the end of the context it may stop without EOS.
        tokens = [*row, EOS][: read.size(1)]
        best = logits.max(-1).values
        lost = best - logits[range(len(tokens)), tokens]
        if lost.max() > 1e-3:
            at = int((lost > 1e-3).nonzero()[0])
            raise ContractError(
                "each token is the most probable one after those before it, "
                f"and EOS ends: for the source {source} token {at} is "
                f"{int(logits[at].argmax())}, got {tokens[at]} of {row}. "
                "Begin with BOS, and let padding count for nothing."
            )


CONTRACTS: list[tuple[Callable[[File], None], str]] = [
    (pairs, "pairs"),
    (reads, "translator"),
    (padding, "translator"),
    (causal, "translator"),
    (loss, "pair_loss"),
    (translate, "translate"),
]
