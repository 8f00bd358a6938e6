"""Exercises of chapter 7: residual and norm."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit.block import Block
from coursekit.config import GPTConfig
from coursekit_classroom.check.core import (
    Bug,
    Case,
    Exercise,
    Variant,
    generator,
    randn,
)
from coursekit_classroom.check.forbid import AUTOGRAD

Norm = Callable[[Tensor], Tensor]
FROM_ONE = (
    "Here the weight is stored as its distance from 1: γ is 1 + weight, "
    "which lets training start from zeros."
)


def _draw(seed: int) -> Callable[..., Tensor]:
    return partial(randn, generator(seed))


# -- implement: both norms ---------------------------------------------------
def norms(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Layer norm and RMSNorm over the last axis, as a pair.

    Layer norm is `(x − μ) / √(σ² + eps) · γ + β`, with μ the mean of a token's
    D features and σ² the mean of their squared differences from μ. RMSNorm is
    `x / √(m + eps) · γ`, with m the mean of the squares of the features; it
    has no β. γ is `weight`, β is `bias`.
    `x` is `(..., D)` with one axis in front or several; `weight` and `bias`
    are `(D,)`; `eps` is a small number above 0. Each token is normalized by
    itself. Both results have the shape of `x`, and are finite for a token
    whose features are all equal.
    """
    variance = x.var(-1, correction=0, keepdim=True)
    layer = (x - x.mean(-1, keepdim=True)) / (variance + eps).sqrt()
    square = x.square().mean(-1, keepdim=True)
    rms = x / (square + eps).sqrt()
    return layer * weight + bias, rms * weight


_NORMS_BUGS = {
    "over_tokens": Bug(
        "x.var(-1",
        "x.var(-2",
        "x.mean(-1",
        "x.mean(-2",
        "square().mean(-1",
        "square().mean(-2",
        says="a mean and a size taken over the tokens (dim=-2) instead of "
        "the features",
        why="A norm works on each token by itself, over the last axis. Over "
        "the tokens, an early one learns of later ones through the "
        "statistics.",
        read="further/07_norm#norm-predict-future",
    ),
    "over_first": Bug(
        "x.var(-1",
        "x.var(0",
        "x.mean(-1",
        "x.mean(0",
        "square().mean(-1",
        "square().mean(0",
        says="a mean and a size taken over the first axis (dim=0)",
        why="In a batch, the first axis counts sentences: they would depend "
        "on one another. Take the features, dim=-1.",
        read="further/07_norm#norm-predict-future",
    ),
    "over_all": Bug(
        "x.var(-1",
        "x.var(list(range(x.dim()))",
        "x.mean(-1",
        "x.mean(list(range(x.dim()))",
        "square().mean(-1",
        "square().mean(list(range(x.dim()))",
        says="one mean and one size for all numbers together",
        why="x.mean() without an axis averages over tokens and sentences "
        "too. Say dim=-1, and keepdim=True.",
        read="further/07_norm#norm-predict-future",
    ),
    "unbiased": Bug(
        "correction=0",
        "correction=1",
        says="a variance divided by D − 1 instead of D",
        why="x.std() and x.var() divide by D − 1, which is for guessing "
        "from a sample. A norm takes the mean of the squares: correction=0.",
        read="further/07_norm#norm-details",
    ),
    "eps_outside": Bug(
        "(variance + eps).sqrt()",
        "(variance.sqrt() + eps)",
        "(square + eps).sqrt()",
        "(square.sqrt() + eps)",
        says="ε added after the root instead of under it",
        why="For small inputs it is another function: √ε is much larger "
        "than ε. Add ε to the variance, then take the root.",
        read="further/07_norm#norm-details",
    ),
    "no_eps": Bug(
        "(variance + eps)",
        "variance",
        "(square + eps)",
        "square",
        says="no ε at all",
        why="A token whose features are all equal has variance 0, and 0 "
        "over 0 is NaN. ε under the root prevents it.",
        read="07_norm#norm-formula",
    ),
    "rms_variance": Bug(
        "x / (square",
        "x / (variance",
        says="an RMSNorm that divides by the standard deviation",
        why="RMSNorm leaves the mean out everywhere: divide by the root of "
        "the mean of x², not of (x − μ)².",
        read="07_norm#norm-by-hand",
        at="rms",
        otherwise=[("x / square", "x / variance")],
    ),
    "rms_bias": Bug(
        "rms * weight",
        "rms * weight + bias",
        says="an RMSNorm that adds the bias too",
        why="RMSNorm has a scale and no shift: multiply by γ, and leave it "
        "there.",
        read="07_norm#norm-formula",
    ),
    "no_root": Bug(
        "(variance + eps).sqrt()",
        "(variance + eps)",
        "(square + eps).sqrt()",
        "(square + eps)",
        says="a division by the mean of the squares, without the root",
        why="The root brings it back to the size of x itself: only then do "
        "outputs have size 1.",
        read="further/07_norm#norm-details",
        alone=True,
    ),
}


def _norms_cases(seed: int) -> list[Case]:
    draw = _draw(seed)
    weight, bias = draw(7), draw(7)
    small = 1e-3 * draw(5, 7)
    small[2] = 2.5
    return [
        Case((draw(3, 7) + 2, weight, bias, 1e-5), name="three tokens"),
        Case((2 * draw(2, 3, 7) + 1, weight, bias, 0.2), name="a batch"),
        Case(
            (small, weight, bias, 1e-5),
            name="small numbers, and a token whose features are all equal",
        ),
    ]


# -- implement: the backward pass --------------------------------------------
def backward(
    dy: Tensor, x: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of layer norm by x, weight and bias.

    The forward pass is `(x − μ) / √(σ² + eps) · γ + β`, with μ the mean of a
    token's D features and σ² the mean of their squared differences from μ. γ
    is `weight`, β is `bias`. `x` is `(..., D)` with one axis in front or
    several, `weight` is `(D,)`. `eps` may be large; a token's features may all
    be equal.
    `dy`, `(..., D)`, is the gradient of the loss by the output. Returned are
    those by x, weight and bias: `(..., D)`, `(D,)` and `(D,)`. All tokens
    share weight and bias, and their pulls on these add up.
    """
    c = x - x.mean(-1, keepdim=True)
    s = (c.square().mean(-1, keepdim=True) + eps).sqrt()
    y, g = c / s, dy * weight
    along = (g * y).mean(-1, keepdim=True)
    dx = (g - g.mean(-1, keepdim=True) - y * along) / s
    tokens = tuple(range(x.dim() - 1))
    return dx, (dy * y).sum(tokens), dy.sum(tokens)


_BACKWARD_BUGS = {
    "constants": Bug(
        "(g - g.mean(-1, keepdim=True) - y * along)",
        "g",
        says="dx = g / s, with mean and size treated as constants",
        why="Mean and size move when x moves. Subtract the gradient's mean "
        "and its part along y: the norm sees neither shift nor size.",
        read="further/07_norm#norm-jacobian",
        at="dx",
    ),
    "no_mean": Bug(
        "g - g.mean(-1, keepdim=True) - y * along",
        "g - y * along",
        says="a dx from which the mean of the gradient is not subtracted",
        why="A shift of all features is not seen by the norm, so no "
        "gradient comes back along it. (Without this term it is RMSNorm's.)",
        read="further/07_norm#norm-jacobian",
        at="dx",
    ),
    "no_along": Bug(
        "g - g.mean(-1, keepdim=True) - y * along",
        "g - g.mean(-1, keepdim=True)",
        says="a dx from which the part along y is not subtracted",
        why="Growing x along y changes its size only, and the norm undoes "
        "that: subtract y · mean(g · y).",
        read="further/07_norm#norm-jacobian",
        at="dx",
    ),
    "no_weight": Bug(
        "dy * weight",
        "dy",
        says="a dx made from dy itself, without γ",
        why="γ stands between y and the output: what reaches y is dy · γ.",
        read="further/07_norm#norm-jacobian",
    ),
    "dweight_by_x": Bug(
        "(dy * y)",
        "(dy * x)",
        says="the weight's gradient as dy times x instead of y",
        why="The weight multiplies the normalized vector, (x − μ)/s, so its "
        "gradient is dy times that.",
        read="07_norm#norm-formula",
    ),
    "averaged": Bug(
        ".sum(tokens), dy.sum(tokens)",
        ".mean(tokens), dy.mean(tokens)",
        says="gradients by weight and bias averaged over the tokens",
        why="One weight serves all tokens, and their pulls add up: sum. If "
        "the loss is a mean, dy holds that already.",
        read="further/07_norm#norm-backward",
    ),
    "first_axis": Bug(
        "tuple(range(x.dim() - 1))",
        "(0,)",
        says="gradients by weight and bias summed over the first axis only",
        why="With a batch there are two axes before the features. Sum over "
        "all but the last.",
        read="further/07_norm#norm-backward",
    ),
    "not_divided": Bug(
        " / s\n",
        "\n",
        says="a dx that is not divided by the size s",
        why="y is x divided by s, so whatever comes back to x is divided by "
        "s, too.",
        read="further/07_norm#norm-jacobian",
        at="dx",
    ),
}


def _backward_cases(seed: int) -> list[Case]:
    draw = _draw(seed)
    weight = draw(11)
    return [
        Case((draw(5, 11), draw(5, 11), weight, 1e-5), name="five tokens"),
        Case(
            (draw(2, 3, 11), 3 * draw(2, 3, 11) + 2, weight, 0.2),
            name="a batch, a large eps",
        ),
    ]


# -- debug: before and after -------------------------------------------------
def places(x: Tensor, part: Norm, norm: Norm, norm_first: bool) -> Tensor:
    """Pre-norm or post-norm around a part, with its residual path.

    `part` and `norm` are functions from a tensor to one of the same shape; `x`
    is such a tensor, the stream, and the result is the stream after the part.
    If `norm_first` is True, it is pre-norm: `x + part(norm(x))`. If it is
    False, it is post-norm: `norm(x + part(x))`.
    """
    if norm_first:
        return x + part(norm(x))
    return norm(x + part(x))


_PLACES_BUGS = {
    "pre_stream_normed": Bug(
        "return x + part(norm(x))",
        "x = norm(x)\n        return x + part(x)",
        says="pre-norm that adds to the normalized x: norm(x) + part(norm(x))",
        why="The raw x is what goes on. Normalize only what the part reads, "
        "and keep the name x for the stream.",
        read="07_norm#norm-formula",
    ),
    "pre_no_residual": Bug(
        "return x + part(norm(x))",
        "return part(norm(x))",
        says="pre-norm without the residual: part(norm(x))",
        why="Without x + the tokens become alike, layer by layer, and "
        "queries and keys stop learning.",
        read="further/07_norm#norm-residuals",
    ),
    "post_branch_normed": Bug(
        "return norm(x + part(x))",
        "return x + norm(part(x))",
        says="post-norm that normalizes the part alone: x + norm(part(x))",
        why="The stream then grows as in pre-norm. Post-norm normalizes the "
        "sum.",
        read="07_norm#norm-formula",
    ),
    "post_no_residual": Bug(
        "return norm(x + part(x))",
        "return norm(part(x))",
        says="post-norm without the residual: norm(part(x))",
        why="Without x + the tokens become alike, layer by layer, and "
        "queries and keys stop learning.",
        read="further/07_norm#norm-residuals",
    ),
    "swapped": Bug(
        "if norm_first",
        "if not norm_first",
        says="the two branches exchanged",
        why="Pre-norm is x + part(norm(x)), post-norm is norm(x + part(x)). "
        "Look at what the switch says.",
        read="further/07_norm#norm-where",
        otherwise=[("if not norm_first", "if norm_first")],
    ),
}


def _layer(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _rms(x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:])


def _twice(x: Tensor) -> Tensor:
    return 2 * x + 1


def _places_cases(seed: int) -> list[Case]:
    x = 3 * _draw(seed)(2, 5, 7) + 1
    return [
        Case((x, torch.tanh, _layer, True), name="True, LayerNorm"),
        Case((x, _twice, _rms, False), name="False, RMSNorm"),
    ]


# -- debug: a norm that tells the future -------------------------------------
def tells_the_future(norm: Norm) -> bool:
    """Whether some token's result depends on a later token.

    `norm` maps `(B, T, D)` in float64 to the same shape, for any sizes; it is
    a black box. The answer is True if the result at some place of a sentence
    depends in any way on a later token of the same sentence: be it one place
    only, be it only the next token that matters, or of that token only the
    mean of its features, or only their spread about it.
    Otherwise it is False: a result may depend on its own token, on earlier
    tokens of its sentence and on other sentences. Differences by rounding do
    not count.
    """
    x = torch.randn(3, 5, 7, dtype=torch.float64)
    before = norm(x)
    for t in range(1, 5):
        other = x.clone()
        other[0, t] = torch.randn(7, dtype=torch.float64)
        gap = (norm(other) - before).abs().amax(-1)
        if gap[0, :t].max() > 1e-9:
            return True
    return False


_PROBE_BUGS = {
    "last_only": Bug(
        "range(1, 5)",
        "range(4, 5)",
        says="a test that changes only the last token",
        why="A token in the middle can peek at the next one, and the last "
        "token has no part in it. Change each token in turn.",
        read="07_norm#norm-probe",
        at="tokens",
    ),
    "later_too": Bug(
        "if gap[0, :t]",
        "gap[0, t] = 0\n        if gap[0]",
        says="a test that watches the tokens after the changed one as well",
        why="They may know: it is their past. Watch only what stands before "
        "the change.",
        read="05_masks#ch-masks",
        at="tokens",
    ),
    "itself": Bug(
        "gap[0, :t]",
        "gap[0, : t + 1]",
        says="a test that watches the changed token too",
        why="The token that you change moves, of course. Compare [:, :t], "
        "which ends before token t.",
        read="05_masks#ch-masks",
        at="tokens",
    ),
}


def _spread(x: Tensor) -> Tensor:
    """Length of each token without its mean, to six decimals.

    Rounded, it is the same for a shifted token to the last bit; the second
    term is 0 and brings the gradient that rounding does not have.
    """
    exact = (x - _mean(x)).norm(dim=-1, keepdim=True)
    return exact.detach().round(decimals=6) + (exact - exact.detach())


def _mean(x: Tensor) -> Tensor:
    return x.mean(-1, keepdim=True)


def _over(*axes: int) -> Norm:
    def normalized(x: Tensor) -> Tensor:
        mean = x.mean(axes, keepdim=True)
        variance = x.var(axes, correction=0, keepdim=True)
        return (x - mean) / (variance + 1e-5).sqrt()

    return normalized


def _so_far(x: Tensor) -> Tensor:
    """Divides by the mean size of the tokens up to this one: honest."""
    size = x.norm(dim=-1, keepdim=True).cumsum(1)
    count = torch.arange(1, x.size(1) + 1, dtype=x.dtype)
    return x * count[:, None] / size


def _peeks(who: slice, scale_of: Callable[[Tensor], Tensor]) -> Norm:
    """Layer norm, but some tokens are scaled by something of the next."""

    def peeking(x: Tensor) -> Tensor:
        scale = torch.ones_like(x[..., :1])
        scale[:, :-1][:, who] = scale_of(x[:, 1:])[:, who]
        return _layer(x) * scale

    return peeking


def _probe_cases(seed: int) -> list[Case]:
    first, last = slice(0, 1), slice(-1, None)
    norms = {
        "layer norm": _layer,
        "a norm over time": _over(1),
        "RMSNorm": _rms,
        "a norm over the tokens so far": _so_far,
        "a norm over the batch": _over(0),
        "the first token peeks at the spread of the second": _peeks(
            first, _spread
        ),
        "the last token but one peeks at the spread of the last": _peeks(
            last, _spread
        ),
    }
    return [Case((norm,), name=name) for name, norm in norms.items()]


# -- implement: fold a norm into the matrix after it -------------------------
def fold(
    gamma: Tensor, beta: Tensor, w: Tensor, b: Tensor
) -> tuple[Tensor, Tensor]:
    """The matrix and bias that need neither γ, β nor centering.

    A layer norm, `LN(x) = (x − μ) / √(σ² + ε) · γ + β`, feeds a linear map,
    `LN(x) W + b`. μ and σ² are mean and variance of a token's D features. γ is
    `gamma` and β is `beta`, both `(D,)`; W is `w`, `(D, Dout)`; b is `b`,
    `(Dout,)`. A token x is a row.
    Returned is the pair `(W′, b′)`, of the shapes of `w` and `b`, with which
    `x / √(σ² + ε) W′ + b′` is the same as `LN(x) W + b` for every x and ε: x
    goes in with its mean, and nothing is subtracted from it. There is one such
    pair. `Dout` may equal D.
    """
    scaled = gamma[:, None] * w
    folded = scaled - scaled.mean(0)
    return folded, b + beta @ w


_FOLD_BUGS = {
    "columns": Bug(
        "[:, None]",
        "",
        says="the columns of W scaled by γ instead of the rows",
        why="Inputs are rows, x @ w: feature i meets row i of W. γ[:, None] "
        "scales rows; with a square W, γ * w goes wrong without an error.",
        read="07_norm#norm-fold",
    ),
    "not_centered": Bug(
        "scaled - scaled.mean(0)",
        "scaled",
        says="a W′ that does not take the mean out",
        why="x still has its mean. W′ does not see it if each of its "
        "columns sums to 0.",
        read="07_norm#norm-fold",
    ),
    "rows_centered": Bug(
        "scaled.mean(0)",
        "scaled.mean(1, keepdim=True)",
        says="a W′ whose rows are centered instead of its columns",
        why="A shift adds the same number to every input. W′ does not see "
        "it if each of its columns sums to 0.",
        read="07_norm#norm-fold",
    ),
    "centered_first": Bug(
        "* w\n",
        "* (w - w.mean(0))\n",
        "scaled - scaled.mean(0)",
        "scaled",
        says="a W centered before it is scaled by γ",
        why="The norm centers, then scales, then comes W. Going back from W "
        "you meet γ first: scale the rows, then center the columns.",
        read="07_norm#norm-formula",
    ),
    "beta_lost": Bug(
        "b + beta @ w",
        "b",
        says="a bias without β",
        why="β is added to every token before W: it adds the same β W to "
        "every output, which belongs to the bias.",
        read="07_norm#norm-formula",
    ),
    "beta_folded": Bug(
        "beta @ w",
        "beta @ folded",
        says="β sent through the new matrix W′ instead of W",
        why="β is added after scaling and centering, so neither applies to "
        "it: use the W you were given.",
        read="07_norm#norm-formula",
    ),
}


def _fold_cases(seed: int) -> list[Case]:
    draw = _draw(seed)
    return [
        Case((draw(5), draw(5), draw(5, 7), draw(7)), name="wider"),
        Case((draw(7), draw(7), draw(7, 7), draw(7)), name="square"),
    ]


# -- measure: gradients before training --------------------------------------

DEPTHS = (1, 4, 16)


def top_gradients(norm_first: bool, seed: int) -> Tensor:
    """Gradient of the last block's w_out, in stacks of three depths."""
    norms = []
    for depth in DEPTHS:
        torch.manual_seed(seed)
        config = GPTConfig(vocab_size=1, d_model=32, norm_first=norm_first)
        blocks = [Block(config) for _ in range(depth)]
        for p in (p for block in blocks for p in block.parameters()):
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)
        x, pull = torch.randn(2, 3, 8, 32)
        for block in blocks:
            x = block(x, causal=True)
        if norm_first:
            x = F.layer_norm(x, (32,))
        x.backward(pull)
        name = "feed_forward.w_out.weight"
        gradient = blocks[-1].get_parameter(name).grad
        assert gradient is not None  # for the type checker
        norms.append(gradient.norm())
    return torch.stack(norms)


def _judge_gradients(value: Any, case: Case) -> str | None:
    if not isinstance(value, Tensor) or value.shape != (3,):
        return "It must be a tensor of three numbers, one for each depth."
    if not ((value > 0) & value.isfinite()).all():
        return "Each gradient must have a length above 0. Was it computed?"
    if value.max() < 1e-3:
        return (
            f"Lengths of {value.max():.0e} are rounding: the sum of what a "
            "norm returns does not depend on its input. Pull with a random "
            "vector."
        )
    if case.args[0]:
        if value[0] < 1.7 * value[2]:
            return (
                f"Pre-norm: {value[0]:.3g} with 1 block and {value[2]:.3g} "
                "with 16: in the last block it falls by 40 % or more, if a "
                "norm stands at the end and the matrices are Xavier's."
            )
    elif value.max() > 2 * value.min():
        return (
            f"Post-norm: between {value.min():.3g} and {value.max():.3g}; "
            "it hardly depends on the depth if you look at the last block."
        )
    return None


def _gradient_cases(seed: int) -> list[Case]:
    return [
        Case((True, seed), name="pre-norm"),
        Case((False, seed), name="post-norm"),
    ]


EXERCISES = {
    "norms": Exercise(
        norms,
        _norms_cases,
        bugs=_NORMS_BUGS,
        variants={
            "from_one": Variant(
                "variance = x",
                "weight = 1 + weight\n    variance = x",
                asks=FROM_ONE,
            ),
        },
        forbid=(
            "torch.layer_norm",
            "torch.native_layer_norm",
            "torch.rms_norm",
            "torch.nn.LayerNorm",
            "torch.nn.RMSNorm",
            "torch.nn.functional.layer_norm",
            "torch.nn.functional.rms_norm",
            "coursekit.LayerNorm",
            "coursekit.RMSNorm",
            "coursekit.norm.layer_norm",
            "coursekit.norm.rms_norm",
        ),
    ),
    "backward": Exercise(
        backward,
        _backward_cases,
        bugs=_BACKWARD_BUGS,
        variants={
            "from_one": Variant(
                "c = x",
                "weight = 1 + weight\n    c = x",
                asks=FROM_ONE,
            ),
        },
        forbid=AUTOGRAD,
    ),
    "places": Exercise(
        places,
        _places_cases,
        bugs=_PLACES_BUGS,
        variants={
            "norm_last": Variant(
                "if norm_first",
                "if not norm_first",
                asks="Here the last argument says the opposite: True "
                "asks for post-norm, False for pre-norm.",
            ),
        },
    ),
    "probe": Exercise(
        tells_the_future,
        _probe_cases,
        bugs=_PROBE_BUGS,
        forbid=("inspect.getsource",),
    ),
    "fold": Exercise(
        fold,
        _fold_cases,
        bugs=_FOLD_BUGS,
        alike=[
            (
                {"columns"},
                {"columns", "centered_first"},
                "centering the columns and scaling them may change places",
            )
        ],
        variants={
            "from_one": Variant(
                "gamma[:",
                "(1 + gamma)[:",
                asks=FROM_ONE.replace("weight", "gamma"),
            ),
        },
    ),
    "gradients": Exercise(
        top_gradients,
        _gradient_cases,
        judge=_judge_gradients,
    ),
}
