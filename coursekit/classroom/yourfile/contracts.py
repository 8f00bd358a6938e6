"""What each part of the learner's file has to do, whatever it is called.

A contract calls a part with inputs of its own.  It raises ContractError with
a sentence, or returns what is worth knowing beside its check mark.
Sizes differ from each other, so that swapped axes are seen.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

BATCH = 32
B, T, V = 5, 7, 13
TEXT = "First Citizen:\nBefore we proceed any further, hear me speak."


class Sizes(NamedTuple):
    """What a model is built with, after the size of its vocabulary."""

    context: int
    d_model: int
    n_heads: int
    n_blocks: int


SMALL = Sizes(context=11, d_model=28, n_heads=7, n_blocks=2)


class ContractError(Exception):
    """A contract that does not hold, in a sentence."""


@dataclass(frozen=True)
class File:
    """The learner's file: which of its names plays which part."""

    chapter: int
    parts: Mapping[str, Any]

    def __getitem__(self, part: str) -> Any:
        """The learner's class or function."""
        if part not in self.parts:
            raise ContractError(
                f"`parts` names each part of chapter {self.chapter}: got "
                f"{', '.join(self.parts) or 'none'}. Add {part!r}."
            )
        return self.parts[part]

    def model(self, vocab_size: int = V, sizes: Sizes = SMALL) -> nn.Module:
        """A model; chapters 2 and 9 give it more sizes."""
        given = 1 if self.chapter < 2 else 2 if self.chapter < 9 else 4
        model = self["model"](vocab_size, *sizes[:given])
        if not isinstance(model, nn.Module):
            raise ContractError(
                f"a model is an nn.Module: got {kind(model)}. Write `class "
                "Model(nn.Module)`."
            )
        return model

    def rough_model(self) -> nn.Module:
        """A model whose logits differ clearly, however it began."""
        model = self.model().eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight), alpha=0.3)
        return model

    def train(
        self,
        model: nn.Module,
        ids: Tensor,
        steps: int,
        rate: float | None = None,
    ) -> None:
        """Train as the book does; chapter 11 has its own learning rate."""
        rates = [rate or default_rate(self.chapter)]
        given = rates if self.chapter < 11 else []
        self["train"](model, ids, steps, *given, BATCH)


def default_rate(chapter: int) -> float:
    """The ladder's learning rate: a table of logits takes a higher one."""
    return 0.03 if chapter < 2 else 1e-3


def kind(value: object) -> str:
    """A value as an error shows it."""
    if isinstance(value, Tensor):
        return f"shape {tuple(value.shape)}"
    if value is None:
        return "None (is a `return` missing?)"
    return repr(value)[:60]


def check_tensor(value: object, shape: tuple[int, ...], rule: str) -> Tensor:
    """The value, if it is a tensor of that shape with finite entries."""
    if not isinstance(value, Tensor) or value.shape != shape:
        raise ContractError(
            f"{rule} {shape}: got {kind(value)}. Compare the axes."
        )
    if not value.isfinite().all():
        raise ContractError(
            f"{rule} {shape}, all finite: got {value.flatten()[:3].tolist()}"
            "…. NaN comes from a row without a key to attend to, or from "
            "the logarithm of 0."
        )
    return value


def tokenizer(file: File) -> None:
    """Tokenizer: decode(encode(text)) is the text."""
    made = file["tokenizer"](TEXT)
    ids, n = made.encode(TEXT), len(set(TEXT))
    if not isinstance(ids, list) or set(ids) != set(range(n)):
        raise ContractError(
            f"{n} different characters have the ids 0 to {n - 1}, in a "
            f"list: got {kind(ids)}. Number the sorted set of characters."
        )
    if made.decode(ids[::-1]) != TEXT[::-1]:
        raise ContractError(
            f"decode turns ids back into their text, {TEXT[:-6:-1]!r}…: got "
            f"{kind(made.decode(ids[::-1]))}. Join the characters of the ids."
        )


def get_batch(file: File) -> None:
    """Batches: windows from random positions, targets one step ahead."""
    ids = torch.arange(100, 141)
    starts = set()
    for _ in range(8):
        batch = file["get_batch"](ids, B, T)
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise ContractError(
                f"a batch is the pair inputs, targets: got {kind(batch)}. "
                "Return both."
            )
        inputs = check_tensor(batch[0], (B, T), "inputs have the shape")
        targets = check_tensor(batch[1], (B, T), "targets have the shape")
        if not inputs.diff(dim=1).eq(1).all():
            raise ContractError(
                "a row is a stretch of the text: from the text 100, 101, … "
                f"got {inputs[0].tolist()}. Take T tokens in a row."
            )
        if not targets.equal(inputs + 1):
            raise ContractError(
                "the target of a token is the token after it: for the "
                f"inputs {inputs[0].tolist()} got {targets[0].tolist()}. "
                "Move the targets by one."
            )
        starts |= set(inputs[:, 0].tolist())
    if len(starts) < 15:  # 40 draws from 34 positions
        raise ContractError(
            "windows start at random positions: 40 of them began at "
            f"{len(starts)} different ones. Draw one for each row."
        )


def attended(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *wrong: str
) -> Tensor:
    """Attention in float64, one query at a time; or with a mistake."""
    if "mask inverted" in wrong:
        mask = ~mask
    q, k, v = q.double(), k.double(), v.double()
    scale = 1.0 if "the scores without 1/√D_h" in wrong else q.size(-1) ** 0.5
    scores = torch.einsum("bid,bjd->bij", q, k) / scale
    weights = scores.exp()
    if "mask not used" not in wrong:
        weights = weights * mask
    axis = -2 if "softmax over the queries" in wrong else -1
    weights = weights / weights.sum(axis, keepdim=True)
    return torch.einsum("bij,bjd->bid", weights, v)


MISTAKES = [
    "the scores without 1/√D_h",
    "mask inverted",
    "mask not used",
    "softmax over the queries",
]


def attention(file: File) -> None:
    """Attention: softmax(q kᵀ / √D_h) v over the keys that the mask shows."""
    q, k, v = torch.randn(2, T, 3), torch.randn(2, B, 3), torch.randn(2, B, 17)
    mask = torch.rand(T, B) < 0.5
    mask[range(T), torch.arange(T) % B] = True  # each query has a key
    mask[range(T), (torch.arange(T) + 2) % B] = False
    wanted = attended(q, k, v, mask)
    found = check_tensor(
        file["attention"](q, k, v, mask),
        (2, T, 17),
        "attention has for each query the mean of values, in all",
    )
    error = (found - wanted).abs().max().item()
    if error > 1e-5:
        same = [
            name
            for name in MISTAKES
            if torch.allclose(
                found.double(),
                attended(q, k, v, mask, name),
                atol=1e-5,
                equal_nan=True,
            )
        ]
        hint = f"It is exactly: {same[0]}. " if same else ""
        raise ContractError(
            "attention agrees with softmax(q kᵀ / √D_h) v, where the mask "
            "is True: got a maximum difference of "
            f"{error:.3f}. {hint}Compare scale, mask and axis."
        )


def logits(file: File) -> None:
    """Model: ids (B, T) in, logits (B, T, V) out, up to its whole context."""
    model = file.rough_model()
    for length in (T, 1, SMALL.context):
        ids = torch.randint(V, (B, length))
        check_tensor(
            model(ids), (B, length, V), f"logits of {B} × {length} ids are"
        )


def changed_by(model: nn.Module, at: int) -> Tensor:
    """How much each position's logits change with the token at one."""
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
        if change[:at].max() > 1e-4:
            first = int((change > 1e-4).nonzero()[0])
            raise ContractError(
                "logits depend on no later token: with another token at "
                f"position {at}, those at position {first} changed. Check "
                "the causal mask: True where key ≤ query."
            )
    if changed_by(model, 0)[1:].max() < 1e-4:
        raise ContractError(
            "later logits depend on earlier tokens: with another first "
            "token, none of them changed. Add what attention found to x."
        )


def positions(file: File) -> None:
    """Model: tells positions apart."""
    same = torch.full((1, SMALL.context), 3)
    found = file.rough_model()(same)[0]
    if (found - found[0]).abs().max() < 1e-4:
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
    """Model: each block has its parameters, and all of them take part."""
    counts = []
    for n_blocks in (1, 2, 3):
        model = file.model(sizes=SMALL._replace(n_blocks=n_blocks))
        counts.append(sum(p.numel() for p in model.parameters()))
    first, second = counts[1] - counts[0], counts[2] - counts[1]
    if first != second or first <= 0:
        raise ContractError(
            "each block brings as many parameters of its own: models of 1, "
            f"2 and 3 blocks have {counts}. Build n_blocks different "
            "blocks, in an nn.ModuleList."
        )
    model = file.rough_model()
    model(torch.randint(V, (B, SMALL.context))).square().sum().backward()
    idle = [
        name
        for name, p in model.named_parameters()
        if p.grad is None or not p.grad.any()
    ]
    if idle:
        raise ContractError(
            "each parameter takes part in the logits: got no gradient for "
            f"{', '.join(idle[:3])}. Call each part in `forward`, one block "
            "after the other."
        )
    by_hand = parameters(SMALL, V)
    return f"{counts[1]:,} parameters; by hand, without biases, {by_hand:,}"


def loss(file: File) -> None:
    """Loss: the mean of −ln p(target), ln V where all logits are equal."""
    targets = torch.randint(V, (B, T))
    for scores in (torch.full((B, T, V), 2.0), 3 * torch.randn(B, T, V)):
        p = scores.double().exp()
        p = p / p.sum(-1, keepdim=True)
        each = [
            -math.log(row[target])
            for row, target in zip(
                p.flatten(0, 1), targets.flatten(), strict=True
            )
        ]
        wanted = sum(each) / len(each)
        found = check_tensor(
            file["loss"](scores, targets), (), "the loss is one number, shape"
        ).item()
        if abs(found - wanted) > 1e-4:
            n = found / wanted
            hint = "It is the sum. " if abs(n - len(each)) < 0.01 else ""
            raise ContractError(
                f"the loss is the mean of −ln p(target), here {wanted:.4f}: "
                f"got {found:.4f}. {hint}Take log-softmax over the "
                "vocabulary, the targets' entries, minus their mean."
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
    optimizer = torch.optim.Adam(model.parameters(), rate)
    for n_steps in range(1, 201):
        value = file["loss"](model(inputs), targets)
        if value < bound:
            return f"below {bound:.2f} nats after {n_steps} steps"
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    raise ContractError(
        f"in 200 steps on one batch, the loss falls below {bound:.2f}: got "
        f"{value.item():.3f}. Follow one token through `forward`: is each "
        "result used?"
    )


def learns(file: File) -> None:
    """Training: lowers the loss."""
    ids = torch.arange(201) * 5 % V  # what follows is certain
    model = file.model()
    inputs, targets = ids[None, :10], ids[None, 1:11]

    def value() -> float:
        with torch.no_grad():
            scores = model(inputs).flatten(0, 1)
        return nn.functional.cross_entropy(scores, targets.flatten()).item()

    before = value()
    file.train(model, ids, 60)
    if not (after := value()) < before - 0.1:
        raise ContractError(
            "training lowers the loss: in 60 steps it went from "
            f"{before:.3f} to {after:.3f}. In each step: batch, loss, "
            "zero_grad, backward, step."
        )


def generate(file: File) -> None:
    """Generation: continues the ids, by draws from the model's softmax."""
    model, n = file.rough_model(), SMALL.context
    prompt = torch.tensor([[2, 7, 5], [11, 3, 0]])

    def draw(ids: Tensor, n_new: int) -> Tensor:
        torch.manual_seed(1)
        shape = (len(ids), ids.size(1) + n_new)
        found = file["generate"](model, ids, n_new)
        return check_tensor(found, shape, f"{n_new} new tokens make the shape")

    long = draw(prompt, n)  # more than the context holds
    if not long[:, :3].equal(prompt):
        raise ContractError(
            f"the prompt stays, here {prompt[0].tolist()}: got "
            f"{long[0, :3].tolist()} at its place. Append the new ids to it."
        )
    if not long.equal(draw(prompt, n)):
        raise ContractError(
            "the same seed gives the same tokens: got two different "
            "continuations. Draw with torch.multinomial alone."
        )
    many = 2000
    drawn = draw(prompt[:1].expand(many, -1), 1)[:, -1]
    p = model(prompt[:1])[0, -1].softmax(-1)
    counts = torch.bincount(drawn, minlength=V)
    # Chi-square with 12 degrees of freedom: above 50 once in a million.
    distance = ((counts - many * p).square() / (many * p)).sum().item()
    if distance > 50:
        top = int(p.argmax())
        raise ContractError(
            f"tokens are drawn with the model's probabilities: token {top} "
            f"has p = {p[top]:.2f} and was drawn {counts[top]} times in "
            f"{many:,}. Take the softmax of the last position's logits."
        )


class Contract(NamedTuple):
    """What a part promises, in the first line of the check's docstring."""

    since: int
    """The chapter from which on it holds."""
    check: Callable[[File], str | None]
    part: str
    """Which part is at fault."""


# In the order in which a file is checked: a part before those that use it.
CONTRACTS = [
    Contract(0, tokenizer, "tokenizer"),
    Contract(0, get_batch, "get_batch"),
    Contract(4, attention, "attention"),
    Contract(0, logits, "model"),
    Contract(4, causal, "model"),
    Contract(3, positions, "model"),
    Contract(9, stacks, "model"),
    Contract(0, loss, "loss"),
    Contract(0, overfits, "model"),
    Contract(0, learns, "train"),
    Contract(0, generate, "generate"),
]
