"""Exercises of chapter 9: the decoder."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit import probe
from coursekit.classroom.check.call import explain
from coursekit.classroom.check.core import (
    NONE,
    Bug,
    Case,
    Exercise,
    Switches,
    generator,
)
from coursekit.config import GPTConfig
from coursekit.decoder import GPT
from coursekit.feedforward import FeedForward
from coursekit.multihead import MultiHeadAttention
from coursekit.norm import LayerNorm

float64 = torch.float64
Part = Callable[[Tensor], Tensor]


# -- implement: count --------------------------------------------------------
def count(
    vocab_size: int,
    max_len: int,
    d_model: int,
    n_layers: int,
    tied: bool,
    small: bool,
    *,
    on: Switches = NONE,
) -> int:
    """The number of parameters of a GPT, as an exact whole number.

    `D` is `d_model`. The table of the tokens has `vocab_size` rows of `D`. The
    head is the same table if `tied`, else a second one; it has no bias. Each
    of `n_layers` blocks has attention with four `D × D` matrices (queries,
    keys, values, output) and a network from `D` to `4 D` and back.
    If `small` is False, only these tables and matrices count. If True, the
    rest counts too: a table of `max_len` positions, `D` numbers each; a bias
    for each of a block's six matrices, of as many numbers as come out; two
    norms a block and one after the last, each with `D` scales and `D` shifts.
    """
    d = d_model
    if "head_counted" in on:
        tables = 2
    elif "head_never" in on:
        tables = 1
    else:
        tables = 1 if tied else 2
    matrices = 11 * d * d if "no_w_o" in on else 12 * d * d
    total = tables * vocab_size * d + n_layers * matrices
    if "head_bias" in on:
        total += vocab_size
    if "untied_bias" in on and not tied:
        total += vocab_size
    if small:
        if "no_biases" in on:
            vectors = 4 * d
        elif "one_norm" in on:
            vectors = 11 * d
        else:
            vectors = 13 * d
        total += n_layers * vectors
        if "no_positions" not in on:
            total += max_len * d
        if "no_final_norm" not in on:
            total += 2 * d
    return total


_COUNT_BUGS = {
    "no_positions": Bug(
        "the vectors of the positions left out",
        "Learned positions are a table of their own, max_len rows of D.",
        read="09_decoder#dec-count",
    ),
    "head_counted": Bug(
        "the head counted although it is the table",
        "Tied means one matrix, used twice: it is stored, trained and "
        "counted once.",
        read="further/09_decoder#dec-predict-count",
        at="head",
    ),
    "head_never": Bug(
        "no head, even where it is not tied",
        "Untied, the head is a second table: V · D more.",
        read="further/09_decoder#dec-predict-count",
        at="head",
    ),
    "no_w_o": Bug(
        "11 D² a block: one matrix of attention left out",
        "Attention has four matrices: queries, keys, values, and W_O, which "
        "mixes the heads. With the network's 8 D² that makes 12 D².",
        read="09_decoder#dec-count",
    ),
    "no_biases": Bug(
        "the norms counted, but none of the biases",
        "Attention has 4 D biases, the network 5 D: with the norms' 4 D "
        "these are 13 D a block.",
        read="09_decoder#dec-count",
        at="vectors",
    ),
    "one_norm": Bug(
        "one norm a block instead of two",
        "Each of the two parts has a norm of its own, with a scale and a "
        "shift: 4 D a block.",
        read="09_decoder#dec-count",
        at="vectors",
    ),
    "no_final_norm": Bug(
        "the final norm left out",
        "After the last block stands one more norm, 2 D.",
        read="09_decoder#dec-count",
    ),
    "untied_bias": Bug(
        "a bias for a head that is not tied",
        "Many libraries give a linear layer a bias; this head has none, "
        "tied or not.",
        read="09_decoder#dec-formula",
    ),
}


def _count_cases(seed: int) -> list[Case]:
    g = generator(seed)
    v, p, n = torch.randint(11, 97, (3,), generator=g).tolist()
    return [
        Case((50_257, 1024, 768, 12, True, True), name="GPT-2 small"),
        Case((50_257, 2048, 12_288, 96, False, False), name="GPT-3, rough"),
        Case((v, p, 28, n, False, True), name="odd sizes, untied"),
    ]


# -- implement: from ids to logits -------------------------------------------
def gpt(
    ids: Tensor,
    table: Tensor,
    places: Tensor,
    blocks: Sequence[Part],
    final_norm: Part,
    *,
    on: Switches = NONE,
) -> Tensor:
    """(B, T) ids to (B, T, V) logits, the head tied to the table.

    A token's vector is its row of `table`, `(V, D)`, as it stands there. To it
    is added the vector of its place in the sentence: place t, counted from 0,
    has row t of `places`, `(P, D)` with `P ≥ T`, in every sentence.
    `blocks` are functions from `(B, T, D)` to the same shape. Each contains
    its residual paths and takes the result of the one before. Then comes
    `final_norm`, a function as well. The logits are `x tableᵀ`: any real
    numbers, not probabilities.
    """
    x = table[ids]
    if "times_root_d" in on:
        x = x * x.size(-1) ** 0.5
    if "positions_by_batch" in on:
        x = x + places[: ids.size(0)]
    elif "positions_by_token" in on:
        x = x + places[ids]
    elif "positions_times" in on:
        x = x * places[: ids.size(1)]
    elif "one_position" in on:
        x = x + places[ids.size(1) - 1]
    elif "numbers" in on:
        x = x + torch.arange(ids.size(1))[:, None]
    elif "from_one" in on:
        x = x + places[1 : ids.size(1) + 1]
    elif "no_positions" not in on:
        x = x + places[: ids.size(1)]
    if "same_input" in on:
        first = x
    for block in blocks:
        if "same_input" in on:
            x = block(first)
        elif "double_path" in on:
            x = x + block(x)
        else:
            x = block(x)
        if "norm_each" in on:
            x = final_norm(x)
    if "no_final_norm" not in on and "norm_each" not in on:
        x = final_norm(x)
    logits = x @ table.T
    return logits.softmax(dim=-1) if "softmax" in on else logits


_DOUBLE_PATH = Bug(
    "x = x + block(x), with blocks that add to the stream themselves",
    "A block contains its residual paths. Added once more, the stream "
    "doubles in every block.",
    read="further/09_decoder#dec-wrong",
    at="joint",
)
_NO_FINAL_NORM = Bug(
    "a stack without its final norm",
    "A pre-norm stream grows from block to block. One last norm brings it "
    "to the size that the head expects.",
    read="09_decoder#dec-formula",
    at="norm",
)
_GPT_BUGS = {
    "no_positions": Bug(
        "no positions added",
        "Without them, a token's vector is the same wherever it stands.",
        read="09_decoder#dec-formula",
        at="positions",
    ),
    "positions_by_batch": Bug(
        "as many positions as the batch has rows, places[:ids.size(0)]",
        "Positions run along the sentence, axis 1. Along the batch, all "
        "tokens of a single sentence get position 0.",
        read="09_decoder#dec-formula",
        at="positions",
    ),
    "positions_by_token": Bug(
        "positions looked up by token, places[ids]",
        "That is a second table of tokens. A position's row number is the "
        "place in the sentence: 0, 1, 2, …",
        read="03_positions#pos-token-ids",
        at="positions",
    ),
    "same_input": Bug(
        "blocks that all read the same input, so that only the last counts",
        "Each block goes on with what the one below it left: x = block(x).",
        read="09_decoder#dec-formula",
        at="joint",
    ),
    "double_path": _DOUBLE_PATH,
    "no_final_norm": _NO_FINAL_NORM,
    "softmax": Bug(
        "a softmax at the end: probabilities instead of logits",
        "The loss and the sampler take logits and do the softmax themselves.",
        read="10_loss#loss-wrong",
    ),
    "positions_times": Bug(
        "positions that are multiplied, not added",
        "A token's vector plus the vector of its place: x + places[:T].",
        read="09_decoder#dec-formula",
        at="positions",
    ),
    "one_position": Bug(
        "one row of the table of positions for all places",
        "Place t has row t: add places[:T], (T, D), and not a single row.",
        read="09_decoder#dec-formula",
        at="positions",
    ),
    "numbers": Bug(
        "the number of the place added, not its row of the table",
        "A place has a vector of D numbers, as a token has: places[t].",
        read="09_decoder#dec-formula",
        at="positions",
    ),
    "from_one": Bug(
        "positions counted from 1",
        "The first token stands in place 0, and has row 0.",
        read="09_decoder#dec-formula",
        at="positions",
    ),
    "norm_each": Bug(
        "the final norm after each block, not once at the end",
        "It stands behind the loop over the blocks: the stream between "
        "blocks is not normalized.",
        read="09_decoder#dec-formula",
        at="norm",
        alone=True,
    ),
}


def _layer(g: torch.Generator, size: int) -> Part:
    """A function like a block or a part: it bends, and it is no identity."""
    a, b = torch.randn(2, size, size, generator=g, dtype=float64)

    def layer(x: Tensor) -> Tensor:
        return (x @ a).tanh() @ b + 0.5 * x

    return layer


def _norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _gpt_cases(seed: int) -> list[Case]:
    g = generator(seed)
    cases = []
    for n_blocks, n_rows, name in (
        (1, 2, "two sentences, one block"),
        (3, 1, "one sentence, three blocks"),
    ):
        table = torch.randn(13, 5, generator=g, dtype=float64)
        places = torch.randn(17, 5, generator=g, dtype=float64)
        ids = torch.randint(13, (n_rows, 7), generator=g)
        blocks = [_layer(g, 5) for _ in range(n_blocks)]
        cases.append(Case((ids, table, places, blocks, _norm), name=name))
    return cases


# -- debug: three slips ------------------------------------------------------
def mended(
    x: Tensor,
    parts: Sequence[Part],
    norms: Sequence[Part],
    final_norm: Part,
    *,
    on: Switches = NONE,
) -> Tensor:
    """A pre-norm stream: each part reads a norm and adds to the stream.

    `parts` and `norms` are equally many functions from `(B, T, D)` to the same
    shape, used in order, the i-th norm with the i-th part: `x + part(norm(x))`
    is the stream that the next part finds. Parts contain no residual path of
    their own.
    `final_norm` is applied once, to the stream after the last part. The result
    is `(B, T, D)`, as `x` is.
    """
    for part, norm in zip(parts, norms, strict=True):
        if "normed_path" in on:
            x = norm(x)
            y = part(x)
        elif "post_norm" in on:
            y = part(x)
        else:
            y = part(norm(x))
        if "shrunk_parts" in on:
            y = y / len(parts) ** 0.5
        if "added_twice" in on:
            x = x + (x + y)
        elif "no_path" in on:
            x = y
        else:
            x = x + y
        if "post_norm" in on:
            x = norm(x)
    return x if "no_final_norm" in on else final_norm(x)


_NORMED_PATH = Bug(
    "a path that goes on from the normed stream",
    "The norm belongs on the branch, in front of the part. On the path it "
    "cuts the stream back to size, and what was written fades.",
    read="further/09_decoder#dec-wrong",
    at="norm",
)
_POST_NORM = Bug(
    "norms after the sum, norm(x + part(x)), as in the paper",
    "That is post-norm. A pre-norm part reads a norm, and nothing stands on "
    "the path: x + part(norm(x)).",
    read="07_norm#norm-where",
    at="norm",
)
_NO_PATH = Bug(
    "parts that replace the stream instead of adding to it",
    "Without x + … a part has to say again all that is to be kept. Deep "
    "down, the tokens become alike.",
    read="07_norm#norm-residuals",
    at="path",
)
_MENDED_BUGS = {
    "normed_path": _NORMED_PATH,
    "post_norm": _POST_NORM,
    "added_twice": Bug(
        "the stream added twice, x + (x + part(…))",
        "Once is a residual path. Twice, the stream doubles at every part.",
        read="further/09_decoder#dec-wrong",
        at="path",
    ),
    "no_path": _NO_PATH,
    "no_final_norm": _NO_FINAL_NORM,
}


def _affine_norm(g: torch.Generator, size: int) -> Part:
    """A norm with a scale and a shift of its own."""
    scale, shift = torch.rand(2, size, generator=g, dtype=float64)

    def norm(x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], 0.5 + scale, shift)

    return norm


def _mended_cases(seed: int) -> list[Case]:
    g = generator(seed)
    cases = []
    for n_parts, name in ((2, "one block"), (6, "three blocks")):
        x = 3 * torch.randn(2, 5, 7, generator=g, dtype=float64)
        parts = [_layer(g, 7) for _ in range(n_parts)]
        *norms, last = (_affine_norm(g, 7) for _ in range(n_parts + 1))
        cases.append(Case((x, parts, norms, last), name=name))
    return cases


# -- implement: a GPT of your own --------------------------------------------
def build(
    vocab_size: int,
    max_len: int,
    d_model: int,
    n_heads: int,
    n_layers: int,
    *,
    on: Switches = NONE,
) -> nn.Module:
    """A GPT: learned positions, pre-norm, a final norm, a tied head."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = MultiHeadAttention(d_model, n_heads)
            self.network = FeedForward(d_model, 4 * d_model)
            self.norms = nn.ModuleList(LayerNorm(d_model) for _ in range(2))

        def attend(self, x: Tensor) -> Tensor:
            if "no_mask" in on:
                return self.attention(x)
            elif "across_batch" in on:
                y = self.attention(x.transpose(0, 1), causal=True)
                return y.transpose(0, 1)
            else:
                return self.attention(x, causal=True)

        def forward(self, x: Tensor) -> Tensor:
            parts: tuple[Part, Part] = self.attend, self.network
            for part, norm in zip(parts, self.norms, strict=True):
                if "post_norm" in on:
                    x = norm(x + part(x))
                elif "normed_path" in on:
                    x = norm(x)
                    x = x + part(x)
                elif "no_path" in on:
                    x = part(norm(x))
                else:
                    x = x + part(norm(x))
            return x

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(vocab_size, d_model)
            if "no_positions" not in on:
                self.places = nn.Embedding(max_len, d_model)
            if "too_sure" not in on:
                for table in self.parameters():
                    nn.init.normal_(table, std=0.5 / d_model**0.5)
            if "one_block" in on:
                blocks = [Block()] * n_layers
            else:
                blocks = [Block() for _ in range(n_layers)]
            if "plain_list" in on:
                self.blocks = blocks
            else:
                self.blocks = nn.ModuleList(blocks)  # type: ignore[assignment]
            if "no_final_norm" not in on:
                self.norm = LayerNorm(d_model)
            if "untied" in on:
                self.head = nn.Linear(d_model, vocab_size, bias=False)

        def forward(self, ids: Tensor) -> Tensor:
            x = self.tokens(ids)
            if "no_positions" not in on:
                x = x + self.places.weight[: ids.size(1)]
            for block in self.blocks:
                if "double_path" in on:
                    x = x + block(x)
                elif "detached" in on:
                    x = block(x.detach())
                else:
                    x = block(x)
            if "no_final_norm" not in on:
                x = self.norm(x)
            if "untied" in on:
                return self.head(x)
            else:
                return x @ self.tokens.weight.T

    return Model()


_BUILD_BUGS = {
    "one_block": Bug(
        "one block used again and again, [Block(…)] * n",
        "That is n times the same object, with one set of weights. Make a "
        "new block for each position.",
        read="09_decoder#dec-predict-order",
        at="blocks",
    ),
    "plain_list": Bug(
        "blocks in a plain Python list",
        "PyTorch does not look into lists: the blocks are neither trained "
        "nor saved. nn.ModuleList registers them.",
        read="09_decoder#dec-predict-order",
        at="blocks",
    ),
    "no_mask": Bug(
        "attention without a causal mask",
        "Every position sees the answer that it is asked for. Say "
        "causal=True.",
        read="05_masks#mask-too-good",
        at="attention",
    ),
    "across_batch": Bug(
        "attention along the batch instead of the sentence",
        "Axes 0 and 1 are swapped: the sentences of a batch read each other, "
        "and none reads itself. Attention takes (B, T, D).",
        read="06_multihead#mha-wrong",
        at="attention",
    ),
    "no_positions": Bug(
        "a model without positions",
        "A table with max_len rows is missing: its first T rows are added "
        "to the tokens' vectors.",
        read="09_decoder#dec-formula",
    ),
    "normed_path": replace(_NORMED_PATH, at="stream"),
    "post_norm": replace(_POST_NORM, at="stream"),
    "no_path": replace(_NO_PATH, at="stream"),
    "double_path": replace(_DOUBLE_PATH, at="stream"),
    "detached": Bug(
        "a stream that is cut between the blocks (detach, .data, no_grad)",
        "No gradient comes down through the cut: what lies below it is "
        "never trained.",
        read="further/09_decoder#dec-wrong",
        at="stream",
    ),
    "no_final_norm": _NO_FINAL_NORM,
    "untied": Bug(
        "a head with a matrix of its own",
        "Tied means that the head is the token table: "
        "x @ self.tokens.weight.T.",
        read="02_embedding#emb-tying",
        at="table",
    ),
    "too_sure": Bug(
        "a table with standard deviation 1 that is the head as well",
        "Logits then have the size √D: the model starts certain, of "
        "nonsense. Draw the tables smaller, about 1 / (2√D).",
        read="02_embedding#emb-predict-start",
        at="table",
    ),
}


def _build_cases(seed: int) -> list[Case]:
    v, p = (31, 11) if seed % 2 == 0 else (37, 13)
    return [
        Case((v, p, 40, 2, 1), name="one block"),
        Case((v, p, 33, 3, 3), name="three blocks"),
    ]


def _problem(model: Any, vocab_size: int, expected: int | None) -> str | None:
    """What a probe has against a model, or None."""
    if not isinstance(model, nn.Module):
        return "It should be a module: a class that inherits from nn.Module."
    if sum(p.numel() for p in model.parameters()) == 0:
        return "It has no parameters: are all parts registered?"
    try:
        for report in (
            probe.causality(model, vocab_size, 4),
            probe.batch_independence(model, vocab_size, 4, 2),
            probe.uses_context(model, vocab_size, 4),
            probe.trains_everything(model, vocab_size, expected=expected),
        ):
            if not report.ok:
                return f"A probe says: {report}."
    except Exception as error:
        said = explain(error).splitlines()[0]
        return f"Run on ids, or trained for a step, it raised {said}"
    return None


def _judge_build(model: Any, case: Case) -> str | None:
    v, p, d, _, n_layers = case.args
    expected = count(v, p, d, n_layers, True, True)
    if problem := _problem(model, v, expected):
        return problem
    shapes = {tuple(w.shape[-2:]) for w in model.parameters()}
    if not {(v, d), (p, d)} <= shapes:
        return "One table for the tokens and one for the positions, please."
    drawn = _draw_weights(case)
    x = drawn["table"][:7] + drawn["places"][:7]
    x = _norm(x + 2 * n_layers * drawn["shift"])
    x = drawn["scale"] * x + drawn["shift"]
    if not _near(_skeleton(model, case), x @ drawn["table"].T):
        return (
            "With all matrices but the tables at zero, each part adds its "
            "bias to the stream, and nothing else. The logits should be "
            f"those of token, position and {2 * n_layers} biases, normed "
            "once at the end, against the table. They are not: look at where "
            "the norms stand, how often the stream is added, and the head."
        )
    return None


# Every way to write a model has other names, and other matrices.  What the
# same mistake does to all of them: its number of weights, what moves if a
# token changes, how it starts, and its logits once the matrices are zero and
# the vectors ours.
class _View(Mapping[str, Any]):
    """What a model is like, whatever its weights and their names.

    A part is looked at when it is asked for: most mistakes are told apart by
    the first.
    """

    def __init__(self, model: nn.Module, case: Case) -> None:
        self.model, self.case = model, case
        self.found = _FOUND.setdefault(model, {})

    def __getitem__(self, part: str) -> Any:
        if part not in self.found:
            with _evaluating(self.model):
                self.found[part] = _LOOKS[part](self.model, self.case)
        return self.found[part]

    def __iter__(self) -> Iterator[str]:
        return iter(_LOOKS)

    def __len__(self) -> int:
        return len(_LOOKS)


_FOUND: WeakKeyDictionary[nn.Module, dict[str, Any]] = WeakKeyDictionary()


def _size(model: nn.Module, case: Case) -> int:
    return sum(w.numel() for w in model.parameters())


@torch.no_grad()
def _moves(model: nn.Module, case: Case) -> list[bool]:
    """What moves if a token changes: the future, the past, other rows."""
    ids = _ids(case)
    first, last = ids.clone(), ids.clone()
    first[0, 0] = last[3, -1] = 9
    logits, a, b = model(ids), model(first), model(last)
    return [
        not _near(logits[0, -1], a[0, -1]),
        not _near(logits[3, :-1], b[3, :-1]),
        not (_near(logits[1:], a[1:]) and _near(logits[:3], b[:3])),
    ]


def _start(model: nn.Module, case: Case) -> list[bool]:
    """Whether the first loss is far too high, and whether all is trained."""
    ids, weights = _ids(case), list(model.parameters())
    loss = F.cross_entropy(model(ids)[:, :-1].mT, ids[:, 1:])
    slopes = torch.autograd.grad(loss, weights, allow_unused=True)
    return [
        loss.item() > math.log(case.args[0]) + 5,
        all(slope is not None and slope.any() for slope in slopes),
    ]


def _ids(case: Case) -> Tensor:
    return torch.arange(28).view(4, 7) % case.args[0]


def _near(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-4, atol=1e-4)


def _draw_weights(case: Case) -> dict[str, Tensor]:
    """Tables, and a scale and a shift for all vectors alike."""
    v, p, d, *_ = case.args
    g = generator(d)
    return {
        "table": 3 * torch.randn(v, d, generator=g),
        "places": 3 * torch.randn(p, d, generator=g),
        "scale": 0.5 + torch.rand(d, generator=g),
        "shift": torch.randn(d, generator=g),
    }


def _skeleton(model: nn.Module, case: Case) -> Tensor:
    """(T, V) logits of the bare joints: every matrix zero but the tables.

    All vectors are the same scale or shift, so names do not matter; nor does
    it whether tokens are multiplied by √D.
    """
    drawn, root = _draw_weights(case), case.args[2] ** 0.5
    table, places = drawn["table"], drawn["places"]
    against = {
        "places": torch.cat((-root * table[:7], places[7:])),
        "shift": torch.zeros_like(drawn["shift"]),
    }
    ids = torch.arange(7)[None]
    with _filled(model, case, drawn | against):
        scaled = model(ids).abs().max() < 0.1  # token and position cancel
    factor = root if scaled else 1.0
    with _filled(model, case, drawn | {"table": table / factor}):
        return factor * model(ids)[0]


_LOOKS: Mapping[str, Callable[[nn.Module, Case], Any]] = {
    "size": _size,
    "moves": _moves,
    "start": _start,
    "skeleton": _skeleton,
}


@contextmanager
def _filled(
    model: nn.Module, case: Case, drawn: Mapping[str, Tensor]
) -> Iterator[None]:
    """Put given numbers into a model's weights, for a moment."""
    v, p, d, *_ = case.args
    weights = list({id(w): w for w in _weights(model, set())}.values())
    old = [w.detach().clone() for w in weights]
    with torch.no_grad(), _evaluating(model):
        for w in weights:
            if w.shape[-2:] == (v, d):
                w.copy_(drawn["table"])
            elif w.shape[-2:] == (p, d):
                w.copy_(drawn["places"])
            elif w.shape == (d,):
                w.copy_(drawn["scale" if (w == 1).all() else "shift"])
            else:
                w.zero_()
        try:
            yield
        finally:
            for w, values in zip(weights, old, strict=True):
                w.copy_(values)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Dropout off, for a moment."""
    modes = {m: m.training for m in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def _weights(thing: Any, seen: set[int]) -> Iterator[nn.Parameter]:
    """All weights, those of modules in a plain list as well."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, nn.Parameter):
        yield thing
    inner: Any = ()
    if isinstance(thing, nn.Module):
        inner = vars(thing).values()
    elif isinstance(thing, Mapping):
        inner = thing.values()
    elif isinstance(thing, (list, tuple)):
        inner = thing
    for part in inner:
        yield from _weights(part, seen)


# -- debug: twelve suspects --------------------------------------------------
SUSPECTS = (
    "right",
    "one block for all",
    "blocks not registered",
    "stream detached",
    "sees the future",
    "mixes the sentences",
    "ignores its context",
    "starts too sure",
    "dropout never off",
    "blocks start equal",
    "head not tied",
    "no final norm",
)


def diagnose(
    model: nn.Module, config: GPTConfig, *, on: Switches = NONE
) -> str:
    """Which of the suspects it is, by counting and by probes."""
    v, d, n = config.vocab_size, config.d_model, config.n_layers
    ordered = count(v, config.max_len, d, n, True, True)
    block = 12 * d * d + 13 * d
    seen = _look(model, v)
    held = seen.size_by_name if "shared_twice" in on else seen.size
    names = {
        (n - 1) * block: "one block for all",
        n * block: "blocks not registered",
        -v * d: "head not tied",
        2 * d: "no final norm",
    }
    if "no_count" not in on:  # noqa: SIM102 (a switch is asked alone)
        if held != ordered:
            return names[ordered - held]
    repeats = seen.repeats_training if "forgets_eval" in on else seen.repeats
    if "runs_once" not in on:  # noqa: SIM102
        if not repeats:
            return "dropout never off"
    first, middle, last, other = seen.moved
    if "first_only" in on:
        future = last[0, 0]
    else:
        future = last[0, :2].any() or middle[0, 0]
    if future:
        return "sees the future"
    if other[0].any() if "row_0" in on else other[0].any() or first[1].any():
        return "mixes the sentences"
    if "gradients_first" in on:  # noqa: SIM102
        if not seen.report.ok:
            return "stream detached"
    early = first[0, -1] and middle[0, -1]
    if not (last[0, -1] if "last_token" in on else early):
        return "ignores its context"
    margin = 0.5 if "strict_start" in on else 5
    if seen.report.loss > seen.report.uniform + margin:
        return "starts too sure"
    if not seen.report.ok:
        return "stream detached"
    if seen.shared if "by_identity" in on else seen.equal:
        return "blocks start equal"
    return "right"


@dataclass(frozen=True)
class _Look:
    """All that can be known of a suspect from outside."""

    size: int
    size_by_name: int
    """Shared weights stand in it once for each of their names."""
    repeats: bool
    """Whether two runs agree, in evaluation mode."""
    repeats_training: bool
    moved: Sequence[Tensor]
    """(B, T): which logits move, for each of the changed inputs."""
    report: probe.TrainsEverything
    equal: bool
    """Whether two matrices hold equal numbers."""
    shared: bool
    """Whether two matrices are the same object."""


class Suspect(GPT):
    """A model whose copies remember of what they are a copy.

    A check copies each model for each mistake that it considers; to look
    once is enough.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> "Suspect":
        """The same as for any module, and a note."""
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        for name, value in vars(self).items():
            vars(copied)[name] = copy.deepcopy(value, memo)
        _ORIGINALS[copied] = _ORIGINALS.get(self, self)
        return copied


_ORIGINALS: WeakKeyDictionary[nn.Module, nn.Module] = WeakKeyDictionary()
_SEEN: WeakKeyDictionary[nn.Module, _Look] = WeakKeyDictionary()


def _look(model: nn.Module, vocab_size: int) -> _Look:
    """Look at a model from all sides, or remember having done so."""
    original = _ORIGINALS.get(model)
    if original is None:
        return _look_at(model, vocab_size)
    if original not in _SEEN:
        _SEEN[original] = _look_at(model, vocab_size)
    return _SEEN[original]


def _look_at(model: nn.Module, vocab_size: int) -> _Look:
    ids = torch.arange(6).view(2, 3) % vocab_size
    changed = [ids.clone() for _ in range(4)]
    for t in range(3):
        changed[t][0, t] += 9  # each token of row 0
    changed[3][1] += 9  # all of row 1
    with torch.no_grad():
        repeats_training = torch.equal(model.train()(ids), model(ids))
        repeats = torch.equal(model.eval()(ids), model(ids))
    before = _run(model, ids)
    moved = [_run(model, x) - before for x in changed]
    matrices = [w for w in model.parameters() if w.dim() == 2]
    return _Look(
        size=sum(w.numel() for w in model.parameters()),
        size_by_name=sum(w.numel() for w in model.state_dict().values()),
        repeats=repeats,
        repeats_training=repeats_training,
        moved=[x.abs().amax(dim=-1) > 1e-5 for x in moved],
        report=probe.trains_everything(model, vocab_size),
        equal=any(torch.equal(a, b) for a, b in combinations(matrices, 2)),
        shared=any(a is b for a, b in combinations(matrices, 2)),
    )


@torch.no_grad()
def _run(model: nn.Module, ids: Tensor) -> Tensor:
    """Logits, with the same dropout in each run."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return model(ids)


_DIAGNOSE_BUGS = {
    "no_count": Bug(
        "a diagnosis without counting",
        "Shared blocks, blocks in a list, a second head and a missing norm "
        "run and learn like the right model. Only their size gives them "
        "away: count first.",
        read="09_decoder#dec-predict-order",
        at="count",
    ),
    "shared_twice": Bug(
        "a count in which shared weights stand more than once",
        "state_dict() lists one block three times under three names. "
        "parameters() has every weight once.",
        read="09_decoder#dec-predict-order",
        at="count",
    ),
    "forgets_eval": Bug(
        "a model that is asked twice in training mode",
        "There dropout is at work, and any two runs differ. Call "
        "model.eval() first: what is still random then is a fault.",
        read="09_decoder#dec-exercise-diagnose",
        at="twice",
    ),
    "runs_once": Bug(
        "a model that is never asked the same thing twice",
        "Dropout that is always on shows only where two runs of one input "
        "should agree. The probes draw the same dropout each time.",
        read="09_decoder#dec-exercise-diagnose",
        at="twice",
    ),
    "first_only": Bug(
        "a look at the first position alone when the last token changes",
        "A mask that is off by one shows each position just the next "
        "token. Change every token, and look at all positions before it.",
        read="05_masks#mask-too-good",
    ),
    "row_0": Bug(
        "a look at row 0 of the batch alone",
        "Rows may see those before them only: then row 0 never moves. "
        "Change each row, and look at all others.",
        read="06_multihead#mha-wrong",
    ),
    "last_token": Bug(
        "a context that counts as used because the last token matters",
        "The last token reaches the last logits by the residual path, with "
        "no attention at all. Change the earlier ones.",
        read="further/09_decoder#dec-predict-last",
    ),
    "gradients_first": Bug(
        "gradients looked at before context and start",
        "A missing gradient is where several faults end: attention that is "
        "never used gets none. Go from the special to the general.",
        read="09_decoder#dec-exercise-diagnose",
    ),
    "strict_start": Bug(
        "a first loss that must be within half a nat of ln V",
        "How near depends on the recipe: tokens times √D, the paper's own "
        "way, start one to two nats above. Five above are a fault.",
        read="02_embedding#emb-predict-start",
    ),
    "by_identity": Bug(
        "blocks that count as equal only if they are the same object",
        "Copies are objects of their own that hold equal numbers: compare "
        "with torch.equal.",
        read="further/09_decoder#dec-wrong",
    ),
}


def _break(model: Suspect, name: str) -> Suspect:
    """Put one fault into a model."""
    first, middle = model.blocks[0], model.blocks[1]
    config = model.config
    if name == "one block for all":
        model.blocks = nn.ModuleList([first] * config.n_layers)
    elif name == "blocks not registered":
        blocks = list(model.blocks)
        del model.blocks
        model.blocks = blocks  # type: ignore[assignment]
    elif name == "stream detached":
        middle.register_forward_pre_hook(
            lambda module, args: (args[0].detach(), *args[1:])
        )
    elif name == "sees the future":
        middle.get_submodule("attention").register_forward_pre_hook(
            _peek, with_kwargs=True
        )
    elif name == "mixes the sentences":
        middle.register_forward_pre_hook(_mix)
    elif name == "ignores its context":
        for block in model.blocks:
            block.get_submodule("attention").register_forward_hook(
                lambda module, args, output: 0 * output
            )
    elif name == "starts too sure":
        with torch.no_grad():
            model.embedding.weight.mul_(6)
    elif name == "dropout never off":
        model.dropout.register_forward_hook(
            lambda module, args, output: F.dropout(output, 0.3, True)
        )
    elif name == "blocks start equal":
        for block in model.blocks:
            block.load_state_dict(first.state_dict())
    elif name == "head not tied":
        model.head = nn.Linear(config.d_model, config.vocab_size, bias=False)
    elif name == "no final norm":
        model.final_norm = nn.Identity()
    return model


def _peek(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Each position also sees the next one: a mask that is off by one."""
    length = args[0].size(1)
    mask = torch.ones(length, length, dtype=torch.bool).tril(1)
    return args, kwargs | {"mask": mask, "causal": False}


def _mix(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Each row of the batch sees the one before it; row 0 sees none."""
    x, *rest = args
    before = torch.cat((torch.zeros_like(x[:1]), x[:-1]))
    return (x + 0.5 * before, *rest)


@lru_cache(maxsize=8)  # twelve models take a while
def _diagnose_cases(seed: int) -> list[Case]:
    g = generator(seed)
    order = torch.randperm(len(SUSPECTS), generator=g).tolist()
    config = GPTConfig(
        vocab_size=29,
        max_len=13,
        d_model=22,
        n_heads=2,
        n_layers=2,
        dropout=0.1,
        scale_embedding=True,  # the paper's start: right, and not at ln V
    )
    return [
        Case((_break(Suspect(config), SUSPECTS[i]), config), name=f"model {n}")
        for n, i in enumerate(order, 1)
    ]


# -- open: shrink it ---------------------------------------------------------
def shrunk(vocab_size: int, max_len: int) -> nn.Module:
    """At most 100,000 parameters."""
    return GPT(
        GPTConfig(
            vocab_size=vocab_size,
            max_len=max_len,
            d_model=48,
            n_heads=4,
            n_layers=3,
        )
    )


def _shrunk_cases(seed: int) -> list[Case]:
    length = 64 + seed % 7
    return [Case((66, length), name="Shakespeare's characters")]


def _judge_shrunk(model: Any, case: Case) -> str | None:
    if problem := _problem(model, case.args[0], None):
        return problem
    size = sum(p.numel() for p in model.parameters())
    if size > 100_000:
        return f"It has {size:,} parameters; the budget is 100,000."
    return None


_RESTLESS = [
    {"forgets_eval", other}
    for other, bug in _DIAGNOSE_BUGS.items()
    if other == "forgets_eval" or bug.at not in ("count", "twice")
]
_GPT = ("coursekit.GPT", "coursekit.decoder.GPT")

EXERCISES = {
    "count": Exercise(
        count,
        _count_cases,
        rtol=0.0,
        atol=0.0,
        bugs=_COUNT_BUGS,
        variants={
            "head_bias": "Here the head has a bias, one number for each "
            "token. It counts even if `small` is false."
        },
        forbid=_GPT,
    ),
    "gpt": Exercise(
        gpt,
        _gpt_cases,
        bugs=_GPT_BUGS,
        variants={
            "times_root_d": "Here the tokens' vectors are multiplied by √D "
            "before the positions are added, as in the paper."
        },
        forbid=_GPT,
    ),
    "mended": Exercise(
        mended,
        _mended_cases,
        bugs=_MENDED_BUGS,
        planted={"normed_path", "added_twice", "no_final_norm"},
        alike=[
            (
                {"no_path"},
                {"no_path", "normed_path"},
                "where nothing is added, no path can start from the norm",
            )
        ],
        variants={
            "shrunk_parts": "Here each part's answer is divided by the root "
            "of the number of parts before it is added."
        },
    ),
    "build": Exercise(
        build,
        _build_cases,
        judge=_judge_build,
        view=_View,
        bugs=_BUILD_BUGS,
        forbid=(*_GPT, "coursekit.decoder.Block"),
        local="its result is a model, which cannot leave a sandbox",
    ),
    "diagnose": Exercise(
        diagnose,
        _diagnose_cases,
        bugs=_DIAGNOSE_BUGS,
        alike=[
            *(
                (a, b, "every model of the right size is named before that")
                for a, b in combinations(_RESTLESS, 2)
            ),
            (
                {"strict_start"},
                {"strict_start", "by_identity"},
                "the start names the model before its blocks are compared",
            ),
            (
                {"gradients_first"},
                {"gradients_first", "last_token"},
                "the gradients name the model before its context is asked",
            ),
        ],
        local="its arguments are models, which cannot enter a sandbox",
    ),
    "shrunk": Exercise(
        shrunk,
        _shrunk_cases,
        judge=_judge_shrunk,
        local="its result is a model, which cannot leave a sandbox",
    ),
}
