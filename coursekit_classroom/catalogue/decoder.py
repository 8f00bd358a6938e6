"""Exercises of chapter 9: the decoder."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit import probe
from coursekit.config import GPTConfig
from coursekit.decoder import GPT
from coursekit.feedforward import FeedForward
from coursekit.multihead import MultiHeadAttention
from coursekit.norm import LayerNorm
from coursekit_classroom.check.call import explain, raised_in
from coursekit_classroom.check.core import (
    Bug,
    Case,
    Exercise,
    Variant,
    generator,
    randn,
)
from coursekit_classroom.check.families import (
    MASK_FINITE,
    NO_SCALE,
    SCALE_OF_MODEL,
)

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
    tables = 1 if tied else 2
    total = tables * vocab_size * d + n_layers * 12 * d * d
    if small:
        total += n_layers * 13 * d
        total += max_len * d
        total += 2 * d
    return total


_COUNT_BUGS = {
    "no_positions": Bug(
        "        total += max_len * d\n",
        "",
        says="the vectors of the positions left out",
        why="Learned positions are a table of their own, max_len rows of D.",
        read="09_decoder#dec-count",
    ),
    "head_counted": Bug(
        "1 if tied else 2",
        "2",
        says="the head counted although it is the table",
        why="Tied means one matrix, used twice: it is stored, trained and "
        "counted once.",
        read="further/09_decoder#dec-predict-count",
    ),
    "no_biases": Bug(
        "13 *",
        "4 *",
        says="the norms counted, but none of the biases",
        why="Attention has 4 D biases, the network 5 D: with the norms' 4 D "
        "these are 13 D a block.",
        read="09_decoder#dec-count",
    ),
    "no_final_norm": Bug(
        "        total += 2 * d\n",
        "",
        says="the final norm left out",
        why="After the last block stands one more norm, 2 D.",
        read="09_decoder#dec-count",
    ),
    "untied_bias": Bug(
        "if small:",
        "if not tied:\n        total += vocab_size\n    if small:",
        says="a bias for a head that is not tied",
        why="Many libraries give a linear layer a bias; this head has none, "
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
    x = x + places[: ids.size(1)]
    for block in blocks:
        x = block(x)
    x = final_norm(x)
    return x @ table.T


_DOUBLE_PATH = Bug(
    says="x = x + block(x), with blocks that add to the stream themselves",
    why="A block contains its residual paths. Added once more, the stream "
    "doubles in every block.",
    read="further/09_decoder#dec-wrong",
    at="joint",
)
_NO_FINAL_NORM = Bug(
    says="a stack without its final norm",
    why="A pre-norm stream grows from block to block. One last norm brings it "
    "to the size that the head expects.",
    read="09_decoder#dec-formula",
    at="norm",
)
_GPT_BUGS = {
    "no_positions": Bug(
        "    x = x + places[: ids.size(1)]\n",
        "",
        says="no positions added",
        why="Without them, a token's vector is the same wherever it stands.",
        read="09_decoder#dec-formula",
    ),
    "positions_by_batch": Bug(
        "ids.size(1)",
        "ids.size(0)",
        says="as many positions as the batch has rows, places[:ids.size(0)]",
        why="Positions run along the sentence, axis 1. Along the batch, all "
        "tokens of a single sentence get position 0.",
        read="09_decoder#dec-formula",
        at="positions",
    ),
    "positions_by_token": Bug(
        "[: ids.size(1)]",
        "[ids]",
        says="positions looked up by token, places[ids]",
        why="That is a second table of tokens. A position's row number is "
        "the place in the sentence: 0, 1, 2, …",
        read="03_positions#pos-token-ids",
        at="positions",
    ),
    "double_path": _DOUBLE_PATH.by("block(x)", "x + block(x)"),
    "no_final_norm": _NO_FINAL_NORM.by("    x = final_norm(x)\n", ""),
    "softmax": Bug(
        "return x @ table.T",
        "return (x @ table.T).softmax(dim=-1)",
        says="a softmax at the end: probabilities instead of logits",
        why="The loss and the sampler take logits and do the softmax "
        "themselves.",
        read="further/10_loss#loss-wrong",
    ),
    "norm_each": Bug(
        "x = block(x)\n    x = final_norm(x)",
        "x = final_norm(block(x))",
        says="the final norm after each block, not once at the end",
        why="It stands behind the loop over the blocks: the stream between "
        "blocks is not normalized.",
        read="09_decoder#dec-formula",
        alone=True,
    ),
    "all_places": Bug(
        "places[: ids.size(1)]",
        "places",
        says="all rows of the positions added, however long the text is",
        why="The table has a row for each position that a text may have. "
        "Take the first T.",
        read="09_decoder#dec-formula",
        alone=True,
    ),
}


def _layer(g: torch.Generator, size: int) -> Part:
    """A function like a block or a part: it bends, and it is no identity."""
    a, b = randn(g, 2, size, size)

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
        table = randn(g, 13, 5)
        places = randn(g, 17, 5)
        ids = torch.randint(13, (n_rows, 7), generator=g)
        blocks = [_layer(g, 5) for _ in range(n_blocks)]
        cases.append(Case((ids, table, places, blocks, _norm), name=name))
    return cases


# -- debug: three slips ------------------------------------------------------
def mended(
    x: Tensor, parts: Sequence[Part], norms: Sequence[Part], final_norm: Part
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
        y = part(norm(x))
        x = x + y
    return final_norm(x)


_NORMED_PATH = Bug(
    says="a path that goes on from the normed stream",
    why="The norm belongs on the branch, in front of the part. On the path it "
    "cuts the stream back to size, and what was written fades.",
    read="further/09_decoder#dec-wrong",
    at="norm",
)
_POST_NORM = Bug(
    says="norms after the sum, norm(x + part(x)), as in the paper",
    why="That is post-norm. A pre-norm part reads a norm, and nothing stands "
    "on the path: x + part(norm(x)).",
    read="further/07_norm#norm-where",
    at="norm",
)
_NO_PATH = Bug(
    says="parts that replace the stream instead of adding to it",
    why="Without x + … a part has to say again all that is to be kept. Deep "
    "down, the tokens become alike.",
    read="further/07_norm#norm-residuals",
    at="path",
)
_MENDED_BUGS = {
    "normed_path": _NORMED_PATH.by(
        "y = part(norm(x))", "x = norm(x)\n        y = part(x)", at="norm"
    ),
    "post_norm": _POST_NORM.by(
        "part(norm(x))",
        "part(x)",
        "x = x + y",
        "x = x + y\n        x = norm(x)",
        at="norm",
    ),
    "added_twice": Bug(
        "x + y",
        "x + (x + y)",
        says="the stream added twice, x + (x + part(…))",
        why="Once is a residual path. Twice, the stream doubles at every "
        "part.",
        read="further/09_decoder#dec-wrong",
        at="path",
    ),
    "no_path": _NO_PATH.by("x + y", "y", at="path"),
    "no_final_norm": _NO_FINAL_NORM.by("final_norm(x)", "x", at="end"),
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
        x = 3 * randn(g, 2, 5, 7)
        parts = [_layer(g, 7) for _ in range(n_parts)]
        *norms, last = (_affine_norm(g, 7) for _ in range(n_parts + 1))
        cases.append(Case((x, parts, norms, last), name=name))
    return cases


# -- implement: a GPT of your own --------------------------------------------
def build(
    vocab_size: int, max_len: int, d_model: int, n_heads: int, n_layers: int
) -> nn.Module:
    """A GPT: learned positions, pre-norm, a final norm, a tied head."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = MultiHeadAttention(d_model, n_heads)
            self.network = FeedForward(d_model, 4 * d_model)
            self.norms = nn.ModuleList(LayerNorm(d_model) for _ in range(2))

        def attend(self, x: Tensor) -> Tensor:
            return self.attention(x, causal=True)

        def forward(self, x: Tensor) -> Tensor:
            parts: tuple[Part, Part] = self.attend, self.network
            for part, norm in zip(parts, self.norms, strict=True):
                x = x + part(norm(x))
            return x

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(vocab_size, d_model)
            self.places = nn.Embedding(max_len, d_model)
            for table in self.parameters():
                nn.init.normal_(table, std=0.5 / d_model**0.5)
            blocks = [Block() for _ in range(n_layers)]
            self.blocks = nn.ModuleList(blocks)
            self.norm = LayerNorm(d_model)

        def forward(self, ids: Tensor) -> Tensor:
            x = self.tokens(ids)
            x = x + self.places.weight[: ids.size(1)]
            for block in self.blocks:
                x = block(x)
            x = self.norm(x)
            return x @ self.tokens.weight.T

    return Model()


_BY_HAND = """maps = self.attention
            parts = (w(x) for w in (maps.w_q, maps.w_k, maps.w_v))
            split = (y.unflatten(-1, (n_heads, -1)) for y in parts)
            q, k, v = (y.transpose(1, 2) for y in split)
            scores = q @ k.mT / {scale}
            seen = torch.ones_like(scores).tril() > 0
            weights = scores.where(seen, {lowest}).softmax(-1)
            y = (weights @ v).transpose(1, 2).flatten(2)
            return maps.w_o(y)"""

_BUILD_BUGS = {
    "one_block": Bug(
        "[Block() for _ in range(n_layers)]",
        "[Block()] * n_layers",
        says="one block used again and again, [Block(…)] * n",
        why="That is n times the same object, with one set of weights. Make "
        "a new block for each position.",
        read="09_decoder#dec-predict-order",
        at="blocks",
    ),
    "plain_list": Bug(
        "nn.ModuleList(blocks)",
        "blocks",
        says="blocks in a plain Python list",
        why="PyTorch does not look into lists: the blocks are neither "
        "trained nor saved. nn.ModuleList registers them.",
        read="09_decoder#dec-predict-order",
        at="blocks",
    ),
    "no_mask": Bug(
        ", causal=True",
        "",
        says="attention without a causal mask",
        why="Every position sees the answer that it is asked for. Say "
        "causal=True.",
        read="05_masks#mask-too-good",
    ),
    "across_batch": Bug(
        "return self.attention(x, causal=True)",
        "y = self.attention(x.transpose(0, 1), causal=True)\n"
        "            return y.transpose(0, 1)",
        says="attention along the batch instead of the sentence",
        why="Axes 0 and 1 are swapped: the sentences of a batch read each "
        "other, and none reads itself. Attention takes (B, T, D).",
        read="further/06_multihead#mha-wrong",
    ),
    "no_positions": Bug(
        "            self.places = nn.Embedding(max_len, d_model)\n",
        "",
        "            x = x + self.places.weight[: ids.size(1)]\n",
        "",
        says="a model without positions",
        why="A table with max_len rows is missing: its first T rows are "
        "added to the tokens' vectors.",
        read="09_decoder#dec-formula",
    ),
    "post_norm": _POST_NORM.by(
        "x = x + part(norm(x))", "x = norm(x + part(x))", at="stream"
    ),
    "no_final_norm": _NO_FINAL_NORM.by(
        "            self.norm = LayerNorm(d_model)\n",
        "",
        "            x = self.norm(x)\n",
        "",
    ),
    "untied": Bug(
        "        def forward(self, ids",
        "            self.head = nn.Linear(d_model, vocab_size, bias=False)\n"
        "\n"
        "        def forward(self, ids",
        "x @ self.tokens.weight.T",
        "self.head(x)",
        says="a head with a matrix of its own",
        why="Tied means that the head is the token table: x @ "
        "self.tokens.weight.T.",
        read="further/02_embedding#emb-tying",
        at="table",
    ),
    "too_sure": Bug(
        "            for table in self.parameters():\n"
        "                nn.init.normal_(table, std=0.5 / d_model**0.5)\n",
        "",
        says="a table with standard deviation 1 that is the head as well",
        why="Logits then have the size √D: the model starts certain, of "
        "nonsense. Draw the tables smaller, about 1 / (2√D).",
        read="further/02_embedding#emb-predict-start",
        at="table",
    ),
    "mask_finite": MASK_FINITE.by(
        "return self.attention(x, causal=True)",
        _BY_HAND.format(scale="q.size(-1) ** 0.5", lowest="-100.0"),
    ),
    "no_scale": NO_SCALE.by(
        "return self.attention(x, causal=True)",
        _BY_HAND.format(scale="1.0", lowest="-torch.inf"),
        alone=True,
    ),
    "by_model": SCALE_OF_MODEL.by(
        "return self.attention(x, causal=True)",
        _BY_HAND.format(scale="d_model**0.5", lowest="-torch.inf"),
        alone=True,
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
        explained = explain(error).splitlines()[0], raised_in(error, build)
        lines = "\n".join(filter(None, explained))
        return f"Run on ids, or trained for a step, it raised {lines}"
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
    got, due = (_attends(m, case) for m in (model, build(*case.args)))
    if not (got is None or due is None or _near(got, due)):
        return (
            "With all matrices of its attention alike in each head, the "
            "logits are not those of softmax(q kᵀ / √D_h) v over the "
            "positions up to the query's."
        )
    if _leaks(model, case):
        return (
            "With weights so large that scores are far below 0, the last "
            "token changes what stands before it. Are hidden scores filled "
            "with a finite number?"
        )
    if _cut(model, case):
        return (
            "A small step along some weights does not change the loss as "
            "their gradients say. Is something cut off on the way, as by "
            "detach, .data or no_grad?"
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
        self.looks = _LOOKED_AT.setdefault(model, {})

    def __getitem__(self, part: str) -> Any:
        if part not in self.looks:
            with _evaluating(self.model):
                self.looks[part] = _LOOKS[part](self.model, self.case)
        return self.looks[part]

    def __iter__(self) -> Iterator[str]:
        return iter(_LOOKS)

    def __len__(self) -> int:
        return len(_LOOKS)


_LOOKED_AT: WeakKeyDictionary[nn.Module, dict[str, Any]] = WeakKeyDictionary()


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


def _start(model: nn.Module, case: Case) -> list[Any]:
    """Whether the first loss is far too high, and how much is not trained."""
    ids, weights = _ids(case), list(model.parameters())
    loss = F.cross_entropy(model(ids)[:, :-1].mT, ids[:, 1:])
    slopes = torch.autograd.grad(loss, weights, allow_unused=True)
    return [
        loss.item() > math.log(case.args[0]) + 5,
        sum(
            w.numel()
            for w, slope in zip(weights, slopes, strict=True)
            if slope is None or not slope.any()
        ),
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
    drawn, factor = _fitted(model, case)
    with _filled(model, case, drawn):
        return factor * model(torch.arange(7)[None])[0]


def _fitted(model: nn.Module, case: Case) -> tuple[dict[str, Tensor], float]:
    """Drawn weights, and the factor by which a model multiplies tokens.

    The table is divided by it, so that the stream is the same.
    """
    drawn, root = _draw_weights(case), case.args[2] ** 0.5
    table, places = drawn["table"], drawn["places"]
    against = {
        "places": torch.cat((-root * table[:7], places[7:])),
        "shift": torch.zeros_like(drawn["shift"]),
    }
    with _filled(model, case, drawn | against):
        logits = model(torch.arange(7)[None])
    # Token and position cancel if it does.
    factor = root if logits.abs().max() < 0.1 else 1.0
    return drawn | {"table": table / factor}, factor


@torch.no_grad()
def _attends(model: nn.Module, case: Case) -> Tensor | None:
    """(T, V) logits if each head has the same symmetric matrices, all alike.

    Which of them are the queries', how they are cut and which of their axes
    comes first does not matter. Biases are 0, and so are the matrices of the
    feed-forward networks; if these lie in one tensor with those of attention,
    nothing is known.
    """
    v, p, d, n_heads, n_layers = case.args
    size = d // n_heads
    pattern = torch.randn(size, generator=generator(d)) / (d * size) ** 0.25
    for w in model.parameters():
        layers = n_layers if w.size(0) == n_layers else 1
        is_expected = w.shape[-2:] in ((v, d), (p, d)) or 4 * d in w.shape
        if not is_expected and w.numel() > 4 * layers * d * d:
            return None
    drawn, factor = _fitted(model, case)
    drawn["shift"] = torch.zeros(d)
    drawn["pattern"] = pattern
    with _filled(model, case, drawn):
        return factor * model(torch.arange(7)[None])[0]


@torch.no_grad()
def _leaks(model: nn.Module, case: Case) -> bool:
    """Whether the past sees the last token once scores are many thousands.

    An attention that takes exp without a maximum overflows there, and is
    right with smaller weights: nothing is said of it.
    """
    ids = _ids(case)
    other = ids.clone()
    other[:, -1] = (other[:, -1] + 1) % case.args[0]
    with _filled(model, case, _draw_weights(case), matrices=200.0):
        before, after = model(ids)[:, :-1], model(other)[:, :-1]
    finite = before.isfinite().all() and after.isfinite().all()
    return bool(finite) and not _near(before, after)


def _cut(model: nn.Module, case: Case) -> bool:
    """Whether the loss has another slope than its gradients say."""
    ids, g = _ids(case), generator(case.args[2])
    weights = list(model.parameters())
    steps = [1e-4 * torch.randn(w.shape, generator=g) for w in weights]
    drawn = _draw_weights(case)
    drawn |= {name: 0.1 * drawn[name] for name in ("table", "places")}

    def loss() -> Tensor:
        return F.cross_entropy(model(ids)[:, :-1].mT, ids[:, 1:])

    with _filled(model, case, drawn, matrices=2.0):
        with torch.enable_grad():
            slopes = torch.autograd.grad(loss(), weights)
        sides = []
        for sign in 1, -2:
            for w, step in zip(weights, steps, strict=True):
                w.add_(sign * step)
            sides.append(loss().item())
    pairs = list(zip(slopes, steps, strict=True))
    predicted = sum((slope * step).sum().item() for slope, step in pairs)
    size = 1e-4 * sum(slope.square().sum().item() for slope in slopes) ** 0.5
    return abs((sides[0] - sides[1]) / 2 - predicted) > 0.03 * size


_LOOKS: Mapping[str, Callable[[nn.Module, Case], Any]] = {
    "size": _size,
    "moves": _moves,
    "start": _start,
    "skeleton": _skeleton,
    "attends": _attends,
    "leaks": _leaks,
}


@contextmanager
def _filled(
    model: nn.Module,
    case: Case,
    drawn: Mapping[str, Tensor],
    matrices: float = 0.0,
) -> Iterator[None]:
    """Put given numbers into a model's weights, for a moment.

    Its matrices but the tables become `matrices` times random ones that keep
    a vector's size, or a pattern in those of attention. Those of all layers
    may lie in one tensor, together with all vectors, if these begin as 0 or 1.
    """
    v, p, d, n_heads, n_layers = case.args
    g = generator(d)
    weights = list({id(w): w for w in _weights(model, set())}.values())
    old = [w.detach().clone() for w in weights]
    with torch.no_grad(), _evaluating(model):
        for w, values in zip(weights, old, strict=True):
            if w.shape[-2:] == (v, d):
                w.copy_(drawn["table"])
            elif w.shape[-2:] == (p, d):
                w.copy_(drawn["places"])
            elif w.size(-1) == d and w.numel() <= 2 * n_layers * d:
                w.copy_(drawn["scale" if (w == 1).all() else "shift"])
            else:
                new = matrices * torch.randn(w.shape, generator=g) / d**0.5
                if "pattern" in drawn and w.numel() >= d * d // n_heads:
                    new = _outer(drawn["pattern"], w.shape)
                    new = new * (4 * d not in w.shape)
                elif w.dim() == 1 and not _holds_norms(values, d):
                    new = torch.zeros(())
                w.copy_(new)
                if _holds_norms(values, d):
                    rows, was = w.view(-1, d), values.view(-1, d)
                    rows[(was == 1).all(dim=1)] = drawn["scale"]
                    rows[(was == 0).all(dim=1)] = drawn["shift"]
        try:
            yield
        finally:
            for w, values in zip(weights, old, strict=True):
                w.copy_(values)


def _outer(pattern: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A pattern times itself, again and again along the two axes it fits."""
    n = len(pattern)
    new = torch.ones(shape)
    for axis, size in enumerate(shape):
        if size % n == 0:
            along = [1] * len(shape)
            along[axis] = size
            new = new * pattern.repeat(size // n).view(along)
    return new


def _holds_norms(w: Tensor, d: int) -> bool:
    """Whether scales of norms lie in a tensor together with matrices."""
    if w.numel() % d or w.numel() < d * d:
        return False
    return bool((w.reshape(-1, d) == 1).all(dim=1).any())


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


def _weights(thing: Any, visited: set[int]) -> Iterator[nn.Parameter]:
    """All weights, those of modules in a plain list as well."""
    if id(thing) in visited:
        return
    visited.add(id(thing))
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
        yield from _weights(part, visited)


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


def _hidden(model: nn.Module, vocab_size: int) -> int:
    """How many numbers would be trained that are not registered."""
    registered = set(model.parameters())
    visited, nodes = set(), [model(torch.arange(4)[None] % vocab_size).grad_fn]
    for node in nodes:
        if node is not None and node not in visited:
            visited.add(node)
            nodes += [other for other, _ in node.next_functions]
    used = {node.variable for node in visited if hasattr(node, "variable")}
    return sum(leaf.numel() for leaf in used - registered)


def _judge_shrunk(model: Any, case: Case) -> str | None:
    if problem := _problem(model, case.args[0], None):
        return problem
    if hidden := _hidden(model, case.args[0]):
        return f"It uses {hidden:,} numbers that model.parameters() lacks."
    size = sum(p.numel() for p in model.parameters())
    if size > 100_000:
        return f"It has {size:,} parameters; the budget is 100,000."
    return None


_GPT = ("coursekit.GPT", "coursekit.decoder.GPT")

EXERCISES = {
    "count": Exercise(
        count,
        _count_cases,
        rtol=0.0,
        atol=0.0,
        bugs=_COUNT_BUGS,
        variants={
            "head_bias": Variant(
                "if small:",
                "total += vocab_size\n    if small:",
                asks="Here the head has a bias, one number for each "
                "token. It counts even if `small` is false.",
                texts={
                    "no_biases": {
                        "says": "the norms counted, but none of the blocks' "
                        "biases",
                    },
                    "untied_bias": {
                        "says": "a head's bias that is counted twice where "
                        "the head is not tied",
                        "why": "The head has one bias, tied or not: V "
                        "numbers.",
                    },
                },
            ),
        },
        forbid=_GPT,
    ),
    "gpt": Exercise(
        gpt,
        _gpt_cases,
        bugs=_GPT_BUGS,
        variants={
            "times_root_d": Variant(
                "table[ids]",
                "table[ids] * table.size(1) ** 0.5",
                asks="Here the tokens' vectors are multiplied by √D "
                "before the positions are added, as in the paper.",
            ),
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
            "shrunk_parts": Variant(
                "part(norm(x))",
                "part(norm(x)) / len(parts) ** 0.5",
                asks="Here each part's answer is divided by the root of "
                "the number of parts before it is added.",
                texts={
                    "added_twice": {"says": "the stream added twice"},
                    "post_norm": {
                        "says": "norms after the sum, as in the paper",
                        "why": "That is post-norm. A pre-norm part reads a "
                        "norm, and no norm comes after the sum.",
                    },
                },
            ),
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
    "shrunk": Exercise(
        shrunk,
        _shrunk_cases,
        judge=_judge_shrunk,
        local="its result is a model, which cannot leave a sandbox",
    ),
}
