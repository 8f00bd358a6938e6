"""Exercises of chapter 7: references and cases."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit.config import GPTConfig
from coursekit.decoder import Block
from coursekit.exercises.core import Case, Exercise, generator

Norm = Callable[[Tensor], Tensor]


def _draw(seed: int) -> Callable[..., Tensor]:
    g = generator(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=g, dtype=torch.float64)

    return draw


# -- both norms --------------------------------------------------------------


def norms(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Layer norm and RMSNorm over the last axis, eps under the root."""
    centered = x - x.mean(-1, keepdim=True)
    variance = centered.square().mean(-1, keepdim=True)
    layer = centered / (variance + eps).sqrt() * weight + bias
    square = x.square().mean(-1, keepdim=True)
    return layer, x / (square + eps).sqrt() * weight


def _norms_cases(seed: int) -> list[Case]:
    draw = _draw(seed)
    weight, bias = draw(7), draw(7)
    flat = torch.full((3, 7), 2.5, dtype=torch.float64)
    return [
        Case((draw(7) + 2, weight, bias, 1e-5), name="one token"),
        Case((2 * draw(2, 3, 7) + 1, weight, bias, 1e-5), name="a batch"),
        Case((1e-3 * draw(5, 7), weight, bias, 1e-5), name="small numbers"),
        Case((flat, weight, bias, 1e-5), name="constant rows"),
        Case((draw(7, 7), weight, bias, 0.3), name="as many tokens as D"),
    ]


# -- their gradient ----------------------------------------------------------


def backward(
    dy: Tensor, x: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of layer norm by x, weight and bias."""
    c = x - x.mean(-1, keepdim=True)
    s = (c.square().mean(-1, keepdim=True) + eps).sqrt()
    y, g = c / s, dy * weight
    along = (g * y).mean(-1, keepdim=True)
    dx = (g - g.mean(-1, keepdim=True) - y * along) / s
    tokens = tuple(range(x.dim() - 1))
    if not tokens:
        return dx, dy * y, dy
    return dx, (dy * y).sum(tokens), dy.sum(tokens)


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


# -- before and after --------------------------------------------------------


def places(x: Tensor, part: Norm, norm: Norm, norm_first: bool) -> Tensor:
    """Pre-norm or post-norm around a part."""
    if norm_first:
        return x + part(norm(x))
    return norm(x + part(x))


def _layer(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _rms(x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:])


def _twice(x: Tensor) -> Tensor:
    return 2 * x + 1


def _places_cases(seed: int) -> list[Case]:
    draw = _draw(seed)
    x = 3 * draw(2, 5, 7) + 1
    return [
        Case((x, torch.tanh, _layer, True), name="pre-norm"),
        Case((x, torch.tanh, _layer, False), name="post-norm"),
        Case((x, _twice, _rms, True), name="pre-norm, RMSNorm"),
        Case((x, _twice, _rms, False), name="post-norm, RMSNorm"),
    ]


# -- a norm that tells the future --------------------------------------------


def tells_the_future(norm: Norm) -> bool:
    """Whether some token's result depends on a later token."""
    x = torch.randn(3, 5, 7, dtype=torch.float64)
    before = norm(x)
    for t in range(1, 5):
        other = x.clone()
        other[:, t] = torch.randn(3, 7, dtype=torch.float64)
        if not torch.equal(norm(other)[:, :t], before[:, :t]):
            return True
    return False


def _over(*axes: int) -> Norm:
    def norm(x: Tensor) -> Tensor:
        mean = x.mean(axes, keepdim=True)
        variance = x.var(axes, correction=0, keepdim=True)
        return (x - mean) / (variance + 1e-5).sqrt()

    return norm


def _so_far(x: Tensor) -> Tensor:
    """Divides by the mean size of the tokens up to this one: honest."""
    size = x.norm(dim=-1, keepdim=True).cumsum(1)
    count = torch.arange(1, x.size(1) + 1, dtype=x.dtype)
    return x * count[:, None] / size


def _peeks(t: int) -> Norm:
    """Layer norm, but token t is scaled by the spread of token t + 1."""

    def norm(x: Tensor) -> Tensor:
        y = _layer(x)
        if x.size(1) <= t + 1:
            return y
        here = torch.arange(x.size(1))[:, None] == t
        ahead = x[:, t + 1 : t + 2].std(-1, keepdim=True)
        return torch.where(here, y * ahead, y)

    return norm


def _probe_cases(seed: int) -> list[Case]:
    return [
        Case((_layer,), name="layer norm"),
        Case((_over(1),), name="a norm over time"),
        Case((_over(1, 2),), name="a norm over time and features"),
        Case((_rms,), name="RMSNorm"),
        Case((_so_far,), name="a norm over the tokens so far"),
        Case((_peeks(0),), name="only the first token peeks at the second"),
        Case((_peeks(2),), name="only the third token peeks at the fourth"),
        Case((_over(0),), name="a norm over the batch"),
    ]


# -- fold a norm into the matrix after it ------------------------------------


def fold(
    gamma: Tensor, beta: Tensor, w: Tensor, b: Tensor
) -> tuple[Tensor, Tensor]:
    """The matrix and bias that need neither γ, β nor centering."""
    scaled = gamma[:, None] * w
    return scaled - scaled.mean(0), b + beta @ w


def _fold_cases(seed: int) -> list[Case]:
    draw = _draw(seed)
    one, zero = torch.ones(5).double(), torch.zeros(5).double()
    return [
        Case((draw(5), draw(5), draw(5, 7), draw(7)), name="wider"),
        Case((draw(11), draw(11), draw(11, 3), draw(3)), name="narrower"),
        Case((draw(7), draw(7), draw(7, 7), draw(7)), name="square"),
        Case((one, zero, draw(5, 3), draw(3)), name="before training"),
    ]


# -- gradients before training -----------------------------------------------

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
    "norms": Exercise(reference=norms, cases=_norms_cases),
    "backward": Exercise(reference=backward, cases=_backward_cases),
    "places": Exercise(reference=places, cases=_places_cases),
    "probe": Exercise(reference=tells_the_future, cases=_probe_cases),
    "fold": Exercise(reference=fold, cases=_fold_cases),
    "gradients": Exercise(
        reference=top_gradients,
        cases=_gradient_cases,
        judge=_judge_gradients,
    ),
}
