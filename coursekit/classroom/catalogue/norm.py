"""Exercises of chapter 7: residual and norm."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit.block import Block
from coursekit.classroom.check.core import (
    NONE,
    Bug,
    Case,
    Exercise,
    Switches,
    generator,
)
from coursekit.classroom.check.forbid import AUTOGRAD
from coursekit.config import GPTConfig

Norm = Callable[[Tensor], Tensor]
FROM_ONE = (
    "Here the weight is stored as its distance from 1: γ is 1 + weight, "
    "which lets training start from zeros."
)


def _draw(seed: int) -> Callable[..., Tensor]:
    g = generator(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=g, dtype=torch.float64)

    return draw


# -- implement: both norms ---------------------------------------------------
def norms(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    *,
    on: Switches = NONE,
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
    if "over_tokens" in on:
        axes = [-2]
    elif "over_first" in on:
        axes = [0]
    elif "over_all" in on:
        axes = list(range(x.dim()))
    else:
        axes = [-1]
    correction = 1 if "unbiased" in on else 0
    variance = x.var(axes, correction=correction, keepdim=True)
    if "rms_variance" in on:
        square = variance
    elif "rms_length" in on:
        square = x.square().sum(axes, keepdim=True)
    else:
        square = x.square().mean(axes, keepdim=True)
    if "eps_outside" in on:
        deviation, size = variance.sqrt() + eps, square.sqrt() + eps
    elif "no_eps" in on:
        deviation, size = variance.sqrt(), square.sqrt()
    else:
        deviation, size = (variance + eps).sqrt(), (square + eps).sqrt()
    layer, rms = (x - x.mean(axes, keepdim=True)) / deviation, x / size
    scale = 1 + weight if "from_one" in on else weight
    if "no_affine" in on:
        found = layer, rms
    elif "rms_bias" in on:
        found = layer * scale + bias, rms * scale + bias
    else:
        found = layer * scale + bias, rms * scale
    return found


_NORMS_BUGS = {
    "over_tokens": Bug(
        "a mean and a size taken over the tokens (dim=-2) instead of the "
        "features",
        "A norm works on each token by itself, over the last axis. Over the "
        "tokens, an early one learns of later ones through the statistics.",
        read="07_norm#norm-predict-future",
        at="axis",
    ),
    "over_first": Bug(
        "a mean and a size taken over the first axis (dim=0)",
        "In a batch, the first axis counts sentences: they would depend on "
        "one another. Take the features, dim=-1.",
        read="07_norm#norm-predict-future",
        at="axis",
    ),
    "over_all": Bug(
        "one mean and one size for all numbers together",
        "x.mean() without an axis averages over tokens and sentences too. "
        "Say dim=-1, and keepdim=True.",
        read="07_norm#norm-predict-future",
        at="axis",
    ),
    "unbiased": Bug(
        "a variance divided by D − 1 instead of D",
        "x.std() and x.var() divide by D − 1, which is for guessing from a "
        "sample. A norm takes the mean of the squares: correction=0.",
        read="07_norm#norm-details",
    ),
    "eps_outside": Bug(
        "ε added after the root instead of under it",
        "For small inputs it is another function: √ε is much larger than ε. "
        "Add ε to the variance, then take the root.",
        read="07_norm#norm-details",
        at="eps",
    ),
    "no_eps": Bug(
        "no ε at all",
        "A token whose features are all equal has variance 0, and 0 over 0 "
        "is NaN. ε under the root prevents it.",
        read="07_norm#norm-formula",
        at="eps",
    ),
    "rms_variance": Bug(
        "an RMSNorm that divides by the standard deviation",
        "RMSNorm leaves the mean out everywhere: divide by the root of the "
        "mean of x², not of (x − μ)².",
        read="07_norm#norm-by-hand",
        at="rms",
    ),
    "rms_length": Bug(
        "an RMSNorm that divides by the length, the root of the sum of x²",
        "The M is for mean: divide the sum of the squares by D, so that a "
        "number comes out near 1 whatever D is.",
        read="07_norm#norm-by-hand",
        at="rms",
    ),
    "no_affine": Bug(
        "norms without weight and bias",
        "Without γ and β every part gets its input at one fixed size and "
        "cannot ask for another.",
        read="07_norm#norm-formula",
        at="affine",
    ),
    "rms_bias": Bug(
        "an RMSNorm that adds the bias too",
        "RMSNorm has a scale and no shift: multiply by γ, and leave it there.",
        read="07_norm#norm-formula",
        at="affine",
    ),
}


def _norms_cases(seed: int) -> list[Case]:
    draw = _draw(seed)
    weight, bias = draw(7), draw(7)
    small = 1e-3 * draw(5, 7)
    small[2] = 2.5
    return [
        Case((draw(3, 7) + 2, weight, bias, 1e-5), name="three tokens"),
        Case((2 * draw(2, 3, 7) + 1, weight, bias, 1e-5), name="a batch"),
        Case(
            (small, weight, bias, 1e-5),
            name="small numbers, and a token whose features are all equal",
        ),
    ]


# -- implement: the backward pass --------------------------------------------
def backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    eps: float,
    *,
    on: Switches = NONE,
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
    correction = 1 if "unbiased" in on else 0
    variance = x.var(-1, correction=correction, keepdim=True)
    s = variance.sqrt() if "no_eps" in on else (variance + eps).sqrt()
    y = (x - x.mean(-1, keepdim=True)) / s
    scale = 1 + weight if "from_one" in on else weight
    g = dy if "no_weight" in on else dy * scale
    mean, along = g.mean(-1, keepdim=True), (g * y).mean(-1, keepdim=True)
    if "constants" in on:
        dx = g / s
    elif "no_mean" in on:
        dx = (g - y * along) / s
    elif "no_along" in on:
        dx = (g - mean) / s
    elif "not_divided" in on:
        dx = g - mean - y * along
    elif "by_variance" in on:
        dx = (g - mean - y * along) / s**2
    else:
        dx = (g - mean - y * along) / s
    if "dweight_by_x" in on:
        each = dy * x
    elif "dweight_weighted" in on:
        each = dy * scale * y
    else:
        each = dy * y
    tokens = (0,) if "first_axis" in on else tuple(range(x.dim() - 1))
    if "averaged" in on:
        dweight, dbias = each.mean(tokens), dy.mean(tokens)
    else:
        dweight, dbias = each.sum(tokens), dy.sum(tokens)
    return dx, dweight, dbias


_BACKWARD_BUGS = {
    "constants": Bug(
        "dx = g / s, with mean and size treated as constants",
        "Mean and size move when x moves. Subtract the gradient's mean and "
        "its part along y: the norm sees neither shift nor size.",
        read="07_norm#norm-jacobian",
        at="dx",
    ),
    "no_mean": Bug(
        "a dx from which the mean of the gradient is not subtracted",
        "A shift of all features is not seen by the norm, so no gradient "
        "comes back along it. (Without this term it is RMSNorm's.)",
        read="07_norm#norm-jacobian",
        at="dx",
    ),
    "no_along": Bug(
        "a dx from which the part along y is not subtracted",
        "Growing x along y changes its size only, and the norm undoes that: "
        "subtract y · mean(g · y).",
        read="07_norm#norm-jacobian",
        at="dx",
    ),
    "no_weight": Bug(
        "a dx made from dy itself, without γ",
        "γ stands between y and the output: what reaches y is dy · γ.",
        read="07_norm#norm-jacobian",
    ),
    "dweight_by_x": Bug(
        "the weight's gradient as dy times x instead of y",
        "The weight multiplies the normalized vector, (x − μ)/s, so its "
        "gradient is dy times that.",
        read="07_norm#norm-formula",
        at="dweight",
    ),
    "dweight_weighted": Bug(
        "the weight's gradient with a factor γ too many",
        "The output is y · γ + β: by γ its derivative is y.",
        read="07_norm#norm-formula",
        at="dweight",
    ),
    "averaged": Bug(
        "gradients by weight and bias averaged over the tokens",
        "One weight serves all tokens, and their pulls add up: sum. If the "
        "loss is a mean, dy holds that already.",
        read="07_norm#norm-backward",
        at="reduce",
    ),
    "first_axis": Bug(
        "gradients by weight and bias summed over the first axis only",
        "With a batch there are two axes before the features. Sum over all "
        "but the last.",
        read="07_norm#norm-backward",
        at="tokens",
    ),
    "unbiased": Bug(
        "a size s computed with D − 1 instead of D",
        "x.std() divides by D − 1; the norm does not: correction=0.",
        read="07_norm#norm-details",
    ),
    "no_eps": Bug(
        "a size s without ε under the root",
        "The backward pass divides by the same s as the forward pass, and "
        "that has ε in it.",
        read="07_norm#norm-jacobian",
    ),
    "not_divided": Bug(
        "a dx that is not divided by the size s",
        "y is x divided by s, so whatever comes back to x is divided by s, "
        "too.",
        read="07_norm#norm-jacobian",
        at="dx",
    ),
    "by_variance": Bug(
        "a dx divided by s² instead of s",
        "The forward pass divides by s once, and so does the backward pass.",
        read="07_norm#norm-jacobian",
        at="dx",
    ),
}


def _backward_cases(seed: int) -> list[Case]:
    draw = _draw(seed)
    weight = draw(11)
    flat = torch.full((3, 11), 2.5, dtype=torch.float64)
    return [
        Case((draw(5, 11), draw(5, 11), weight, 1e-5), name="five tokens"),
        Case(
            (draw(2, 3, 11), 3 * draw(2, 3, 11) + 2, weight, 0.2),
            name="a batch, a large eps",
        ),
        Case((draw(3, 11), flat, weight, 1e-5), name="constant rows"),
    ]


# -- debug: before and after -------------------------------------------------
def places(
    x: Tensor,
    part: Norm,
    norm: Norm,
    norm_first: bool,
    *,
    on: Switches = NONE,
) -> Tensor:
    """Pre-norm or post-norm around a part, with its residual path.

    `part` and `norm` are functions from a tensor to one of the same shape; `x`
    is such a tensor, the stream, and the result is the stream after the part.
    If `norm_first` is True, it is pre-norm: `x + part(norm(x))`. If it is
    False, it is post-norm: `norm(x + part(x))`.
    """
    before = not norm_first if "norm_last" in on else norm_first
    if before if "swapped" not in on else not before:
        if "pre_stream_normed" in on:
            x = norm(x)
            y = x + part(x)
        elif "pre_norm_late" in on:
            y = x + norm(part(x))
        elif "pre_no_residual" in on:
            y = part(norm(x))
        else:
            y = x + part(norm(x))
    elif "post_branch_normed" in on:
        y = x + norm(part(x))
    elif "post_twice" in on:
        y = x + norm(x + part(x))
    elif "post_no_residual" in on:
        y = norm(part(x))
    else:
        y = norm(x + part(x))
    return y


_PLACES_BUGS = {
    "pre_stream_normed": Bug(
        "pre-norm that adds to the normalized x: norm(x) + part(norm(x))",
        "The raw x is what goes on. Normalize only what the part reads, and "
        "keep the name x for the stream.",
        read="07_norm#norm-formula",
        at="pre",
    ),
    "pre_norm_late": Bug(
        "pre-norm with the norm behind the part: x + norm(part(x))",
        "Pre-norm means that the part reads normalized input: the norm comes "
        "before it.",
        read="07_norm#norm-formula",
        at="pre",
    ),
    "pre_no_residual": Bug(
        "pre-norm without the residual: part(norm(x))",
        "Without x + the tokens become alike, layer by layer, and queries "
        "and keys stop learning.",
        read="07_norm#norm-residuals",
        at="pre",
    ),
    "post_branch_normed": Bug(
        "post-norm that normalizes the part alone: x + norm(part(x))",
        "The stream then grows as in pre-norm. Post-norm normalizes the sum.",
        read="07_norm#norm-formula",
        at="post",
    ),
    "post_twice": Bug(
        "post-norm to which x is added once more: x + norm(x + part(x))",
        "The sum in the norm holds x already; added again, it grows in every "
        "layer.",
        read="07_norm#norm-formula",
        at="post",
    ),
    "post_no_residual": Bug(
        "post-norm without the residual: norm(part(x))",
        "Without x + the tokens become alike, layer by layer, and queries "
        "and keys stop learning.",
        read="07_norm#norm-residuals",
        at="post",
    ),
    "swapped": Bug(
        "the two branches exchanged",
        "Pre-norm is x + part(norm(x)), post-norm is norm(x + part(x)). Look "
        "at what the switch says.",
        read="07_norm#norm-where",
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
        Case((x, torch.tanh, _layer, True), name="pre-norm"),
        Case((x, _twice, _rms, False), name="post-norm, RMSNorm"),
    ]


# -- debug: a norm that tells the future -------------------------------------
def tells_the_future(norm: Norm, *, on: Switches = NONE) -> bool:
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
    if "last_only" in on:
        times = range(4, 5)
    elif "half" in on:
        times = range(2, 3)
    else:
        times = range(1, 5)
    for t in times:
        changed = slice(t, None) if "half" in on else slice(t, t + 1)
        other = x.clone()
        if "shift" in on:
            other[0, changed] += 1
        else:
            other[0, changed] = torch.randn_like(other[0, changed])
        gap = (norm(other) - before).abs().amax(-1)  # (3, 5)
        if "others" in on or "later_too" in on:
            gap[0, t] = 0
        if "others" in on:
            looked = gap
        elif "later_too" in on:
            looked = gap[0]
        elif "itself" in on:
            looked = gap[0, : t + 1]
        elif "first_only" in on:
            looked = gap[0, 0]
        else:
            looked = gap[0, :t]
        if looked.max() > 1e-9:
            return True
    return False


_PROBE_BUGS = {
    "last_only": Bug(
        "a test that changes only the last token",
        "A token in the middle can peek at the next one, and the last token "
        "has no part in it. Change each token in turn.",
        read="07_norm#norm-probe",
        at="tokens",
    ),
    "half": Bug(
        "a test that changes the second half and looks at the first",
        "It finds only what crosses the middle. Each token needs its turn to "
        "be changed, with all before it watched.",
        read="07_norm#norm-probe",
        at="tokens",
    ),
    "first_only": Bug(
        "a test that watches only the first token",
        "The first may be honest while another peeks. Watch all tokens "
        "before the one that you change.",
        read="07_norm#norm-probe",
        at="tokens",
    ),
    "later_too": Bug(
        "a test that watches the tokens after the changed one as well",
        "They may know: it is their past. Watch only what stands before the "
        "change.",
        read="05_masks#ch-masks",
        at="tokens",
    ),
    "others": Bug(
        "a test that allows no other token to move, in any sentence",
        "Later tokens may see earlier ones, and other sentences do not count "
        "here. Watch the earlier tokens of the same sentence.",
        read="07_norm#norm-predict-future",
        at="tokens",
    ),
    "itself": Bug(
        "a test that watches the changed token too",
        "The token that you change moves, of course. Compare [:, :t], which "
        "ends before token t.",
        read="05_masks#ch-masks",
        at="tokens",
    ),
    "shift": Bug(
        "a test that changes a token by adding the same to each feature",
        "A shift is just what layer norm does not see, and a leak through it "
        "stays hidden. Put another random vector there.",
        read="07_norm#norm-by-hand",
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


def _peeks(who: slice, seen: Callable[[Tensor], Tensor]) -> Norm:
    """Layer norm, but some tokens are scaled by something of the next."""

    def peeking(x: Tensor) -> Tensor:
        scale = torch.ones_like(x[..., :1])
        scale[:, :-1][:, who] = seen(x[:, 1:])[:, who]
        return _layer(x) * scale

    return peeking


def _probe_cases(seed: int) -> list[Case]:
    first, last, each = slice(0, 1), slice(-1, None), slice(None)
    norms = {
        "layer norm": _layer,
        "a norm over time": _over(1),
        "RMSNorm": _rms,
        "a norm over the tokens so far": _so_far,
        "a norm over the batch": _over(0),
        "the first token peeks at the spread of the second": _peeks(
            first, _spread
        ),
        "the first token peeks at the mean of the second": _peeks(
            first, _mean
        ),
        "the last token but one peeks at the spread of the last": _peeks(
            last, _spread
        ),
        "the last token but one peeks at the mean of the last": _peeks(
            last, _mean
        ),
        "each token peeks at the spread of the next": _peeks(each, _spread),
    }
    return [Case((norm,), name=name) for name, norm in norms.items()]


# -- implement: fold a norm into the matrix after it -------------------------
def fold(
    gamma: Tensor, beta: Tensor, w: Tensor, b: Tensor, *, on: Switches = NONE
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
    scale = 1 + gamma if "from_one" in on else gamma
    columns = w - w.mean(0) if "centered_first" in on else w
    scaled = scale * columns if "columns" in on else scale[:, None] * columns
    if "not_centered" in on or "centered_first" in on:
        folded = scaled
    elif "rows_centered" in on:
        folded = scaled - scaled.mean(1, keepdim=True)
    else:
        folded = scaled - scaled.mean(0)
    if "beta_lost" in on:
        bias = b
    elif "beta_added" in on:
        bias = b + beta
    elif "beta_folded" in on:
        bias = b + beta @ folded
    else:
        bias = b + beta @ w
    return folded, bias


_FOLD_BUGS = {
    "columns": Bug(
        "the columns of W scaled by γ instead of the rows",
        "Inputs are rows, x @ w: feature i meets row i of W. γ[:, None] "
        "scales rows; with a square W, γ * w goes wrong without an error.",
        read="07_norm#norm-fold",
        at="scale",
    ),
    "not_centered": Bug(
        "a W′ that does not take the mean out",
        "x still has its mean. W′ does not see it if each of its columns "
        "sums to 0.",
        read="07_norm#norm-fold",
        at="center",
    ),
    "rows_centered": Bug(
        "a W′ whose rows are centered instead of its columns",
        "A shift adds the same number to every input. W′ does not see it if "
        "each of its columns sums to 0.",
        read="07_norm#norm-fold",
        at="center",
    ),
    "centered_first": Bug(
        "a W centered before it is scaled by γ",
        "The norm centers, then scales, then comes W. Going back from W you "
        "meet γ first: scale the rows, then center the columns.",
        read="07_norm#norm-formula",
        at="center",
    ),
    "beta_lost": Bug(
        "a bias without β",
        "β is added to every token before W: it adds the same β W to every "
        "output, which belongs to the bias.",
        read="07_norm#norm-formula",
        at="bias",
    ),
    "beta_added": Bug(
        "β added to the bias as it is",
        "β passes through W like everything else: b′ = b + β W.",
        read="07_norm#norm-formula",
        at="bias",
    ),
    "beta_folded": Bug(
        "β sent through the new matrix W′ instead of W",
        "β is added after scaling and centering, so neither applies to it: "
        "use the W you were given.",
        read="07_norm#norm-formula",
        at="bias",
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
    found = []
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
        found.append(gradient.norm())
    return torch.stack(found)


def _judge_gradients(value: Any, case: Case) -> str | None:
    if not isinstance(value, Tensor) or value.shape != (3,):
        return "It must be a tensor of three numbers, one for each depth."
    if not (value > 0).all():
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
        variants={"from_one": FROM_ONE},
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
        variants={"from_one": FROM_ONE},
        forbid=AUTOGRAD,
    ),
    "places": Exercise(
        places,
        _places_cases,
        bugs=_PLACES_BUGS,
        variants={
            "norm_last": "Here the last argument says the opposite: True "
            "asks for post-norm, False for pre-norm."
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
        variants={"from_one": FROM_ONE.replace("weight", "gamma")},
    ),
    "gradients": Exercise(
        top_gradients,
        _gradient_cases,
        judge=_judge_gradients,
    ),
}
