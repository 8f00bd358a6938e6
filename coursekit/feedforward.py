"""The two-layer network that works on each position alone."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

__all__ = [
    "ACTIVATIONS",
    "Experts",
    "FeedForward",
    "SwiGLU",
    "gelu_tanh",
    "make_feed_forward",
    "route",
]


def gelu_tanh(x: Tensor) -> Tensor:
    """GPT-2's approximation of GELU."""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "silu": F.silu,
}


class FeedForward(nn.Module):
    """Widen, bend, narrow: the same network at every position.

    ``f(x W_in + b_in) W_out + b_out``.

    Args:
        d_model: D.
        d_ff: inner width, Dff; 4 D in the paper.
        activation: f, by name: relu, gelu, gelu_tanh, silu.
        bias: give both layers a bias.
        dropout: share of the inner activations zeroed in training.

    Raises:
        ValueError: if the activation is unknown.

    Differs from the paper: dropout inside too, as nn.Transformer has it.
    Chapter: 8, feed-forward.
    Source: vaswani2017attention, equation 2.
    Test: tests/test_feedforward.py::test_equal_to_torch_layers
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: str = "relu",
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"the activation must be one of {', '.join(ACTIVATIONS)}: "
                f"got {activation!r}. SwiGLU is a class of its own."
            )
        self.w_in = nn.Linear(d_model, d_ff, bias)
        self.w_out = nn.Linear(d_ff, d_model, bias)
        self.activation = ACTIVATIONS[activation]
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Map each (D,) vector of (..., D) by itself."""
        return self.w_out(self.dropout(self.activation(self.w_in(x))))


class SwiGLU(nn.Module):
    """A feed-forward network whose inner units are opened by a gate.

    ``(silu(x W_gate) · x W_in) W_out``: three matrices; with Dff = 8D/3 they
    have as many weights as two with 4D.

    Args:
        d_model: D.
        d_ff: inner width, Dff.
        bias: give the layers a bias.
        dropout: share of the inner activations zeroed in training.

    Chapter: 15, modern.
    Source: shazeer2020glu, equation 6.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.w_gate = nn.Linear(d_model, d_ff, bias)
        self.w_in = nn.Linear(d_model, d_ff, bias)
        self.w_out = nn.Linear(d_ff, d_model, bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Map each (D,) vector of (..., D) by itself."""
        inner = F.silu(self.w_gate(x)) * self.w_in(x)
        return self.w_out(self.dropout(inner))


def route(
    logits: Float[Tensor, "N E"], n_active: int
) -> tuple[Int[Tensor, "N K"], Float[Tensor, "N K"]]:
    """Choose the experts of each token, and how much each of them counts.

    The K highest logits; the softmax of these K alone.

    Args:
        logits: (N, E), one row a token, one column an expert.
        n_active: K.

    Returns:
        (N, K) numbers of experts, the likeliest first, and (N, K) weights
        that sum to 1.

    Chapter: 15, modern.
    Source: shazeer2017outrageously, equations 3 to 5, without noise.
    """
    top, chosen = logits.topk(n_active, dim=-1)
    return chosen, top.softmax(dim=-1)


class Experts(nn.Module):
    """Several gated networks; each token passes through a few of them.

    ``Σ over the chosen e of weight_e · SwiGLU_e(x)``: the weights of all
    experts, the work of the chosen ones.

    Args:
        d_model: D.
        d_ff: inner width of one expert.
        n_experts: E.
        n_active: K, how many each token passes through.  With 1, the one
            weight is always 1, and the router learns nothing.

    Raises:
        ValueError: if there are fewer experts than a token needs.

    Chapter: 15, modern.
    Source: shazeer2017outrageously, equation 1; jiang2024mixtral, section 2.
    Test: tests/test_feedforward.py::test_experts_token_by_token
    """

    def __init__(
        self, d_model: int, d_ff: int, n_experts: int = 4, n_active: int = 2
    ) -> None:
        super().__init__()
        if not 1 <= n_active <= n_experts:
            raise ValueError(
                "each token needs at least one expert, and no more than "
                f"there are: got n_active={n_active}, n_experts={n_experts}. "
                "Two of four are usual in small models."
            )
        self.n_active = n_active
        self.router = nn.Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList(
            SwiGLU(d_model, d_ff) for _ in range(n_experts)
        )

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Map each (D,) vector of (..., D) by itself."""
        tokens = x.reshape(-1, x.size(-1))
        chosen, weights = route(self.router(tokens), self.n_active)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            row, place = (chosen == number).nonzero(as_tuple=True)
            part = weights[row, place, None] * expert(tokens[row])
            out = out.index_add(0, row, part.to(out.dtype))
        return out.view_as(x)


def make_feed_forward(
    activation: str,
    d_model: int,
    d_ff: int,
    bias: bool = True,
    dropout: float = 0.0,
) -> nn.Module:
    """Build the feed-forward network of that name.

    Args:
        activation: swiglu, or one of ``ACTIVATIONS``.
        d_model, d_ff, bias, dropout: as in the networks.

    Returns:
        A module from (..., D) to (..., D).
    """
    if activation == "swiglu":
        return SwiGLU(d_model, d_ff, bias, dropout)
    return FeedForward(d_model, d_ff, activation, bias, dropout)
